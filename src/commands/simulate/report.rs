//! What a simulation says: a summary a run, a table where there are several, JSON.

mod times;

use std::io;

use serde_json::{Value, json};
use simulator::metadata::Cost;

use super::Run;
use super::timed::Timed;
use crate::render::number::{bytes, thousands};
use crate::render::table::{Side, Table};
use crate::render::words::wrap;
use crate::terminal::{Style, Terminal};

impl Run {
    fn steps(&self) -> u64 {
        self.outcome.steps.max(1)
    }

    /// A sum as a mean a step, one decimal.
    fn a_step(&self, sum: u64) -> String {
        tenths(sum, self.steps())
    }
}

/// `sum / count` with one decimal, rounded.
fn tenths(sum: u64, count: u64) -> String {
    let count = u128::from(count.max(1));
    let scaled = (u128::from(sum) * 10 + count / 2) / count;
    let whole = thousands(u64::try_from(scaled / 10).unwrap_or(u64::MAX));
    format!("{whole}.{}", scaled % 10)
}

/// Writes the runs for people.
pub(super) fn text(runs: &[Run], terminal: &mut Terminal<'_>) -> io::Result<()> {
    if let [run] = runs { one(run, terminal) } else { several(runs, terminal) }
}

fn several(runs: &[Run], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let mut table = Table::new(vec![
        ("scenario", Side::Left),
        ("platform", Side::Left),
        ("groups", Side::Right),
        ("steps", Side::Right),
        ("builds/step", Side::Right),
        ("reused/step", Side::Right),
        ("launches/step", Side::Right),
        ("H2D/step", Side::Right),
        ("block table/step", Side::Right),
        ("filled/step", Side::Right),
    ]);
    for run in runs {
        let total = run.meter.total();
        table.row(vec![
            run.name.clone(),
            run.platform.to_owned(),
            run.setup.groups.len().to_string(),
            thousands(run.outcome.steps),
            run.a_step(total.builds),
            run.a_step(total.reuses),
            run.a_step(total.launches),
            run.a_step(total.h2d),
            format!("{} B", run.a_step(total.table_bytes)),
            bytes(total.filled_bytes / run.steps()),
        ]);
    }
    table.write(0, terminal)?;
    times::several(runs, terminal)
}

fn one(run: &Run, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Run { name, platform, setup, builders, outcome, meter, offload, tally, timed, step_words } = run;
    let head = terminal.paint(Style::Bold, name);
    let blocks = u64::from(setup.engine.num_blocks) - 1;
    writeln!(
        terminal.out,
        "{head} on {platform}: {} groups, {} blocks",
        setup.groups.len(),
        thousands(blocks)
    )?;
    writeln!(
        terminal.out,
        "  {} requests ended in {} steps and {} s: {} prompt tokens ({} cached), {} output tokens",
        thousands(outcome.finished),
        thousands(outcome.steps),
        tenths(outcome.duration_ns, 1_000_000_000),
        thousands(outcome.prompt_tokens),
        thousands(outcome.cached_tokens),
        thousands(outcome.output_tokens),
    )?;
    if let Some(timed) = timed {
        times::one(run, timed, terminal)?;
    } else {
        let finished = u128::from(outcome.finished.max(1));
        let mean = |sum: u128| tenths(u64::try_from(sum / finished).unwrap_or(u64::MAX), 1_000_000);
        writeln!(
            terminal.out,
            "  mean time to the first token {} ms, to the end {} ms",
            mean(outcome.ttft_ns_sum),
            mean(outcome.latency_ns_sum),
        )?;
        writeln!(terminal.out, "  {}", wrap(step_words, 4))?;
    }
    let [decode, verify, mixed] = meter.steps;
    writeln!(
        terminal.out,
        "  steps: {} decode, {} verify drafts, {} with prompts; {} requests and {} tokens a step, {} requests at most",
        thousands(decode),
        thousands(verify),
        thousands(mixed),
        run.a_step(tally.requests),
        run.a_step(tally.tokens),
        thousands(tally.most_requests),
    )?;
    writeln!(
        terminal.out,
        "  {} preemptions; KV in use: {} blocks on average, {} at most ({}%)",
        thousands(tally.preemptions),
        run.a_step(tally.used_blocks),
        thousands(tally.most_used_blocks),
        tenths(tally.most_used_blocks * 100, blocks),
    )?;
    let mut table = Table::new(vec![
        ("group", Side::Right),
        ("layers", Side::Left),
        ("builder", Side::Left),
        ("builds/step", Side::Right),
        ("reused/step", Side::Right),
        ("launches/step", Side::Right),
        ("H2D/step", Side::Right),
        ("D2H/step", Side::Right),
        ("new blocks/step", Side::Right),
        ("block table/step", Side::Right),
    ]);
    let mut line = |group: String, layers: String, builder: String, cost: &Cost, new: u64| {
        table.row(vec![
            group,
            layers,
            builder,
            run.a_step(cost.builds),
            run.a_step(cost.reuses),
            run.a_step(cost.launches),
            run.a_step(cost.h2d),
            run.a_step(cost.d2h),
            tenths(new * 100, run.steps() * 100),
            format!("{} B", run.a_step(cost.table_bytes)),
        ]);
    };
    for (group, cost) in meter.by_group.iter().enumerate() {
        line(
            group.to_string(),
            setup.words[group].clone(),
            builders[group].clone(),
            cost,
            tally.copies[group],
        );
    }
    line(String::new(), "all groups at once".to_owned(), String::new(), &meter.shared, 0);
    let new = tally.copies.iter().sum();
    line("sum".to_owned(), String::new(), String::new(), &meter.total(), new);
    writeln!(terminal.out)?;
    table.write(0, terminal)?;
    if let Some(offload) = offload {
        writeln!(terminal.out)?;
        let mut table = Table::new(vec![
            ("group", Side::Right),
            ("stored blocks", Side::Right),
            ("stored", Side::Right),
            ("loaded blocks", Side::Right),
            ("copies/step", Side::Right),
            ("capacity, blocks", Side::Right),
        ]);
        for ((group, moved), capacity) in offload.by_group.iter().enumerate().zip(offload.capacity_blocks()) {
            table.row(vec![
                group.to_string(),
                thousands(moved.stored_blocks),
                bytes(moved.stored_bytes),
                thousands(moved.loaded_blocks),
                run.a_step(moved.copies),
                thousands(capacity),
            ]);
        }
        table.write(0, terminal)?;
        writeln!(
            terminal.out,
            "offloading stores {} a rank; {} replicas save {}",
            bytes(offload.stored_bytes()),
            offload.kv_tp_replicas,
            bytes(offload.saved_bytes()),
        )?;
    }
    Ok(())
}

fn cost_json(cost: &Cost) -> Value {
    let Cost { builds, reuses, launches, h2d, d2h, filled_bytes, table_bytes, table_rows, slots } = *cost;
    json!({
        "block_table_bytes": table_bytes,
        "block_table_rows": table_rows,
        "d2h": d2h,
        "filled_bytes": filled_bytes,
        "h2d": h2d,
        "launches": launches,
        "metadata_builds": builds,
        "metadata_reuses": reuses,
        "slot_mapping_entries": slots,
    })
}

/// Writes the runs as JSON.
pub(super) fn json(runs: &[Run], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let first = runs.first().and_then(|run| run.timed.as_ref());
    let runs: Vec<Value> = runs.iter().map(|run| run_json(run, first)).collect();
    let report = json!({ "runs": runs, "schema": "k3plan.simulate/1" });
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}

fn run_json(run: &Run, first: Option<&Timed>) -> Value {
    let Run { name, platform, setup, builders, outcome, meter, offload, tally, timed, step_words } = run;
    let groups: Vec<Value> = meter
        .by_group
        .iter()
        .enumerate()
        .map(|(group, cost)| {
            json!({
                "block_size": setup.groups[group].block_size,
                "builder": builders[group],
                "layers": setup.groups[group].layers,
                "metadata": cost_json(cost),
                "new_blocks": tally.copies[group],
            })
        })
        .collect();
    let offload = offload.as_ref().map(|offload| {
        let groups: Vec<Value> = offload
            .by_group
            .iter()
            .zip(offload.capacity_blocks())
            .map(|(moved, capacity)| {
                json!({
                    "capacity_blocks": capacity,
                    "copies": moved.copies,
                    "loaded_blocks": moved.loaded_blocks,
                    "loaded_bytes": moved.loaded_bytes,
                    "stored_blocks": moved.stored_blocks,
                    "stored_bytes": moved.stored_bytes,
                })
            })
            .collect();
        json!({
            "groups": groups,
            "kv_tp_replicas": offload.kv_tp_replicas,
            "saved_bytes": offload.saved_bytes(),
            "stored_bytes": offload.stored_bytes(),
        })
    });
    let [decode, verify, mixed] = meter.steps;
    json!({
        "blocks": setup.engine.num_blocks,
        "blocks_used_max": tally.most_used_blocks,
        "blocks_used_sum": tally.used_blocks,
        "duration_ns": outcome.duration_ns,
        "finished": outcome.finished,
        "groups": groups,
        "latency_ns_sum": outcome.latency_ns_sum.to_string(),
        "metadata": cost_json(&meter.total()),
        "offload": offload,
        "output_tokens": outcome.output_tokens,
        "platform": platform,
        "preemptions": tally.preemptions,
        "prompt_tokens": outcome.prompt_tokens,
        "prompt_tokens_cached": outcome.cached_tokens,
        "requests_max": tally.most_requests,
        "requests_sum": tally.requests,
        "resumed": tally.resumed,
        "scenario": name,
        "step_times": timed.is_none().then_some(step_words),
        "steps": outcome.steps,
        "steps_decode": decode,
        "steps_mixed": mixed,
        "steps_verify": verify,
        "times": timed.as_ref().map(|timed| times::json(run, timed, first)),
        "tokens_sum": tally.tokens,
        "draft_tokens_sum": tally.drafts,
        "ttft_ns_sum": outcome.ttft_ns_sum.to_string(),
    })
}
