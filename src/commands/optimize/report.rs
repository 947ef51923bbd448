//! Today, each change by itself, and the best: a table, or JSON.

use std::io;

use serde_json::{Map, Value, json};

use super::choice::{Choice, Setting, rule_name};
use super::rig::{Coming, Question};
use super::search::{Answer, Tried};
use crate::predict::calibration::CalibrationFile;
use crate::render::number::thousands;
use crate::render::table::{Side, Table};
use crate::terminal::{Style, Terminal};

/// What was asked.
pub(super) struct Asked<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) slo: Option<&'a str>,
    pub(super) file: &'a CalibrationFile,
}

/// By how much more tokens come from a device.
fn gain(today: &Tried, tried: &Tried) -> Option<f64> {
    Some(tried.per_device()? / today.per_device()? - 1.0)
}

/// Whether a gain is smaller than the error of a prediction; `None` without an interval.
fn within_error(file: &CalibrationFile, gain: f64) -> Option<bool> {
    file.errors.tpot.map(|off| gain.ln_1p().abs() <= off.p90)
}

fn percent(share: f64) -> String {
    let text = format!("{:+.1}%", share * 100.0);
    if matches!(text.as_str(), "+0.0%" | "-0.0%") { "0.0%".to_owned() } else { text }
}

/// Writes the answer for people.
pub(super) fn text(
    asked: &Asked<'_>,
    answer: &Answer,
    rows: bool,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let question = asked.question;
    let load = match question.coming {
        Coming::Concurrency(n) => format!("{n} requests at once"),
        Coming::Rate(rate) => format!("{rate} requests/s"),
    };
    let head = terminal.paint(Style::Bold, &question.model.name);
    writeln!(
        terminal.out,
        "{head} on {}: {load} of {} + {} tokens, {}",
        question.hardware.name,
        thousands(u64::from(question.input)),
        thousands(u64::from(question.output)),
        asked.slo.unwrap_or("answers no later than today"),
    )?;
    let mut table = Table::new(vec![
        ("", Side::Left),
        ("devices", Side::Right),
        ("tokens/s/device", Side::Right),
        ("gain", Side::Right),
        ("TPOT ms", Side::Right),
        ("TTFT ms", Side::Right),
        ("longest step ms", Side::Right),
        ("running", Side::Right),
        ("KV holds", Side::Right),
        ("groups", Side::Right),
        ("", Side::Left),
    ]);
    row(&mut table, answer, "today", &answer.today);
    for setting in Setting::ALL {
        let mut singles: Vec<&Tried> =
            answer.singles.iter().filter(|(own, _)| *own == setting).map(|(_, tried)| tried).collect();
        if !rows {
            // What keeps the bounds first, then what gives most.
            let mark = |tried: &Tried| (tried.kept, tried.per_device().unwrap_or(-1.0));
            singles.sort_by(|a, b| mark(b).partial_cmp(&mark(a)).unwrap_or(std::cmp::Ordering::Equal));
            singles.truncate(1);
        }
        for single in singles {
            row(&mut table, answer, &single.choice.words(setting), single);
        }
    }
    if let Some(best) = answer.best.as_ref().filter(|best| best.choice != answer.today.choice) {
        row(&mut table, answer, "best together", best);
    }
    if let Some(best) = &answer.with_rule {
        row(&mut table, answer, "and with another group size", best);
    }
    table.write(0, terminal)?;
    writeln!(terminal.out)?;
    writeln!(terminal.out, "today: {}", described(&answer.today.choice))?;
    let Some(best) = &answer.best else {
        writeln!(
            terminal.out,
            "{}",
            terminal.paint(Style::Bad, "nothing that was looked at serves this load")
        )?;
        return Ok(());
    };
    conclusion(asked, answer, best, terminal)?;
    stalls(answer, best, terminal)?;
    if let Some(best) = &answer.with_rule {
        let rule = rule_name(best.choice.rule);
        writeln!(
            terminal.out,
            "with the group size of {rule} besides: {} (vLLM has no flag for it: its pull request {} proposes one)",
            gain(&answer.today, best).map_or_else(|| "it runs".to_owned(), percent),
            rule.split('=').next().unwrap_or(&rule),
        )?;
    }
    Ok(())
}

fn conclusion(
    asked: &Asked<'_>,
    answer: &Answer,
    best: &Tried,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let changes = best.choice.changes(&answer.today.choice);
    if changes.is_empty() {
        writeln!(
            terminal.out,
            "best: today's settings; nothing of {} combinations gives 1% more",
            thousands(answer.looked_at as u64)
        )?;
        return Ok(());
    }
    writeln!(terminal.out, "best: {}", terminal.paint(Style::Good, &best.choice.flags()))?;
    let words: Vec<String> = changes.iter().map(|setting| best.choice.words(*setting)).collect();
    writeln!(
        terminal.out,
        "  changes {}; {} combinations were looked at",
        words.join(", "),
        thousands(answer.looked_at as u64)
    )?;
    let Some(gain) = gain(&answer.today, best) else {
        writeln!(terminal.out, "  today's settings do not run, so there is no gain to give")?;
        return Ok(());
    };
    if !answer.today.kept {
        writeln!(terminal.out, "  today's settings break the SLO; these keep it")?;
    }
    let error = asked.file.errors.tpot.map(|off| (off.p90.exp() - 1.0) * 100.0);
    match (within_error(asked.file, gain), error) {
        (Some(true), Some(error)) => writeln!(
            terminal.out,
            "  {} a device is within the error of a prediction ({error:.0}% nine times in ten): measure it with `k3plan bench run`",
            percent(gain)
        ),
        (Some(false), Some(error)) => writeln!(
            terminal.out,
            "  {} a device is more than the error of a prediction ({error:.0}% nine times in ten)",
            percent(gain)
        ),
        _ => writeln!(
            terminal.out,
            "  {} a device; the calibration has no interval, so nobody knows how sure that is: measure it with `k3plan bench run`",
            percent(gain)
        ),
    }
}

/// Says what shortens the longest step and costs nothing.
fn stalls(answer: &Answer, best: &Tried, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let steps = |tried: &Tried| tried.outcome.as_ref().map_or(f64::MAX, |outcome| outcome.longest_step);
    let shorter = answer
        .singles
        .iter()
        .filter(|(setting, single)| {
            *setting == Setting::MaxNumBatchedTokens
                && single.stalls_less(&answer.today)
                && steps(single) < steps(best)
        })
        .map(|(_, single)| single)
        .min_by(|a, b| steps(a).total_cmp(&steps(b)));
    let Some(shorter) = shorter else { return Ok(()) };
    writeln!(
        terminal.out,
        "{} serves as many, and no step is longer than {:.0} ms in place of {:.0} ms: answers stall less while prompts are computed",
        shorter.choice.words(Setting::MaxNumBatchedTokens),
        steps(shorter) * 1e3,
        steps(&answer.today) * 1e3
    )
}

/// A choice in words.
fn described(choice: &Choice) -> String {
    let mut words = choice.flags();
    if choice.rule.is_some() {
        words.push_str(&format!(", group size by {}", rule_name(choice.rule)));
    }
    words
}

fn row(table: &mut Table, answer: &Answer, name: &str, tried: &Tried) {
    let outcome = match &tried.outcome {
        Ok(outcome) => outcome,
        Err(why) => {
            let mut cells = vec![name.to_owned()];
            cells.extend(std::iter::repeat_n("-".to_owned(), 9));
            cells.push(why.to_string());
            table.row(cells);
            return;
        }
    };
    let estimate = &outcome.estimate;
    let note = match (outcome.broken, tried.kept) {
        (Some(bound), _) => format!("breaks {}", bound.name()),
        (None, false) => "answers come later".to_owned(),
        (None, true) => String::new(),
    };
    let is_today = std::ptr::eq(tried, &raw const answer.today);
    table.row(vec![
        name.to_owned(),
        thousands(outcome.devices),
        format!("{:.0}", outcome.per_device),
        match gain(&answer.today, tried) {
            Some(gain) if !is_today => percent(gain),
            _ => "-".to_owned(),
        },
        format!("{:.2}", estimate.tpot * 1e3),
        format!("{:.0}", estimate.ttft * 1e3),
        format!("{:.1}", outcome.longest_step * 1e3),
        format!("{:.0}", estimate.running.floor()),
        format!("{:.0}", outcome.held.floor()),
        outcome.groups.map_or_else(|| "-".to_owned(), |groups| groups.count.to_string()),
        note,
    ]);
}

fn choice_json(choice: &Choice) -> Map<String, Value> {
    let mut map = Map::new();
    for setting in Setting::ALL {
        let value = match setting {
            Setting::TensorParallel => json!(choice.tensor_parallel),
            Setting::ExpertParallel => json!(choice.expert_parallel),
            Setting::MaxNumSeqs => json!(choice.max_num_seqs),
            Setting::MaxNumBatchedTokens => json!(choice.max_num_batched_tokens),
            Setting::BlockSize => json!(choice.block_size),
            Setting::GroupSize => json!(rule_name(choice.rule)),
        };
        map.insert(setting.name().to_owned(), value);
    }
    map
}

fn tried_json(asked: &Asked<'_>, answer: &Answer, tried: &Tried) -> Value {
    let gain = gain(&answer.today, tried);
    let mut out = json!({
        "settings": choice_json(&tried.choice),
        "runs": tried.outcome.is_ok(),
        "keeps_bounds": tried.kept,
        "gain": gain,
        "within_error": gain.and_then(|gain| within_error(asked.file, gain)),
    });
    let more = match &tried.outcome {
        Err(why) => json!({"why": why.to_string()}),
        Ok(outcome) => json!({
            "devices": outcome.devices,
            "replicas": outcome.replicas,
            "output_tokens_per_s_per_device": outcome.per_device,
            "tpot_ms": outcome.estimate.tpot * 1e3,
            "ttft_ms": outcome.estimate.ttft * 1e3,
            "longest_step_ms": outcome.longest_step * 1e3,
            "running": outcome.estimate.running,
            "kv_cache_holds": outcome.held,
            "groups": outcome.groups.map(|groups| groups.count),
            "group_size": outcome.groups.map(|groups| groups.size),
            "padding_layers": outcome.groups.and_then(|groups| groups.padding),
            "tokens_per_block": outcome.groups.map(|groups| groups.block_size),
            "hidden_group_ms": outcome.estimate.step.hidden * 1e3,
            "group_ms": outcome.estimate.step.part(simulator::cost::Component::Groups) * 1e3,
            "dominant": outcome.estimate.step.dominant().name(),
            "breaks": outcome.broken.map(crate::predict::slo::Broken::name),
        }),
    };
    if let (Some(out), Value::Object(more)) = (out.as_object_mut(), more) {
        out.extend(more);
    }
    out
}

/// Writes the answer for machines.
pub(super) fn json(asked: &Asked<'_>, answer: &Answer, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let question = asked.question;
    let tried = |tried: &Tried| tried_json(asked, answer, tried);
    let singles: Vec<Value> = answer
        .singles
        .iter()
        .map(|(setting, single)| json!({"setting": setting.name(), "result": tried(single)}))
        .collect();
    let (concurrency, rate) = match question.coming {
        Coming::Concurrency(n) => (Some(n), None),
        Coming::Rate(rate) => (None, Some(rate)),
    };
    let report = json!({
        "schema": "k3plan.optimize/1",
        "model": question.model.name,
        "hardware": question.hardware.name,
        "input_tokens": question.input,
        "output_tokens": question.output,
        "concurrency": concurrency,
        "rate_per_s": rate,
        "slo": asked.slo,
        "tpot_interval_times": asked.file.errors.tpot.map(|off| off.p90.exp()),
        "looked_at": answer.looked_at,
        "today": tried(&answer.today),
        "changes": singles,
        "best": answer.best.as_ref().map(tried),
        "best_with_group_size": answer.with_rule.as_ref().map(tried),
    });
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}
