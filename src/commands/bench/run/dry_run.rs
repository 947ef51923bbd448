//! What would an experiment do: its commands, its load, its order, and how long does it take at least?

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use super::experiment::{Experiment, Order, Step};
use crate::cli::Ended;
use crate::commands::bench::load_args::LoadArgs;
use crate::exit::Exit;

/// Of a token, for a time to begin with: nobody knows a server's before it runs.
const TOKEN_TIME: Duration = Duration::from_millis(10);

pub(super) fn tell(
    experiment: &Experiment,
    steps: &[Step],
    out: &mut dyn io::Write,
    err: &mut dyn io::Write,
) -> Result<Exit, Ended> {
    let load = experiment.load_args()?;
    writeln!(out, "{}", experiment.title)?;
    let origin: Vec<&str> =
        [&experiment.source, &experiment.date].into_iter().flatten().map(String::as_str).collect();
    if !origin.is_empty() {
        writeln!(out, "{}", origin.join(", "))?;
    }
    writeln!(out)?;
    let mut unset = BTreeSet::new();
    for arm in &experiment.arms {
        let groups =
            arm.expected_groups.map_or_else(String::new, |count| format!(", {count} groups expected"));
        writeln!(out, "{}  {}{groups}", arm.name, arm.address())?;
        if let Some(plan) = &arm.plan {
            writeln!(out, "    planned as by k3plan plan {}", plan.join(" "))?;
        }
        if let Some(words) = arm.previewed_command(&mut unset) {
            writeln!(out, "    {}", words.join(" "))?;
        }
    }
    writeln!(out, "\nload   {}", experiment.load_words().join(" "))?;
    writeln!(out, "       {}", in_words(&load))?;
    let order = match experiment.order {
        Order::BackToBack => "back to back",
        Order::Interleaved => "interleaved",
        Order::Abba => "interleaved, every second round backwards (A B B A)",
    };
    writeln!(out, "order  {order}")?;
    let least = least_time(&load).saturating_mul(u32::try_from(steps.len()).unwrap_or(u32::MAX));
    writeln!(
        out,
        "time   at least {} for {} measurements where a token takes {} ms and answers are as long as asked, beside starting a server {} times (waited for up to {} s each)\n",
        duration(least),
        steps.len(),
        TOKEN_TIME.as_millis(),
        starts(experiment, steps),
        experiment.health.timeout_seconds,
    )?;
    for step in steps {
        let name = experiment.arms.get(step.arm).map_or("", |arm| arm.name.as_str());
        let start = step.start.map_or_else(String::new, |start| format!("  start {start}"));
        writeln!(out, "{name}{start}  seed {}  repeat {}", step.seed, step.repeat)?;
    }
    if !unset.is_empty() {
        let names = unset.into_iter().collect::<Vec<_>>().join(", ");
        writeln!(err, "warning: not set in the environment, and needed to run this: {names}")?;
    }
    Ok(Exit::Fine)
}

fn in_words(load: &LoadArgs) -> String {
    let most = load.max_concurrency.map_or_else(|| "all".to_owned(), |most| format!("at most {most}"));
    let rate = if load.request_rate.is_finite() {
        format!(", {} a second", load.request_rate)
    } else {
        String::new()
    };
    format!(
        "{} requests ({} before them to warm up), {most} at a time{rate}, answers of {} tokens",
        load.num_prompts,
        load.num_warmups,
        load.dataset_output_len.unwrap_or(load.random_output_len)
    )
}

/// The time that one measurement takes at least: answers that come one after the other, and the time that the last
/// request is due.
fn least_time(load: &LoadArgs) -> Duration {
    let waves = |requests: usize| {
        let at_a_time = load.max_concurrency.unwrap_or(requests).clamp(1, requests.max(1));
        u64::try_from(requests.div_ceil(at_a_time)).unwrap_or(u64::MAX)
    };
    let length = u64::from(load.dataset_output_len.unwrap_or(load.random_output_len));
    let in_a_row = |requests: usize| {
        let tokens = waves(requests).saturating_mul(length);
        TOKEN_TIME.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX))
    };
    let gaps = load.num_prompts.saturating_sub(1) as f64;
    let fastest = [Some(load.request_rate), load.ramp_up_start_rps, load.ramp_up_end_rps];
    let fastest = fastest.into_iter().flatten().filter(|rate| rate.is_finite()).fold(0.0, f64::max);
    let due = if fastest > 0.0 { gaps / fastest } else { 0.0 };
    let due = Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX);
    let measured = in_a_row(load.num_prompts).max(due);
    let limit = load.time_limit.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
    limit.map_or(measured, |limit| measured.min(limit)).saturating_add(in_a_row(load.num_warmups))
}

/// How often a server is started.
fn starts(experiment: &Experiment, steps: &[Step]) -> usize {
    let started = |arm: usize| experiment.arms.get(arm).is_some_and(|arm| arm.command.is_some());
    if experiment.keep_running {
        let arms = (0..experiment.arms.len()).filter(|arm| started(*arm)).count();
        return arms * experiment.starts.unwrap_or(1);
    }
    let mut before = None;
    let mut count = 0;
    for step in steps {
        let now = Some((step.arm, step.start));
        count += usize::from(now != before && started(step.arm));
        before = now;
    }
    count
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => format!("{:.1} s", time.as_secs_f64()),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
