//! What clients see, with intervals, and where a step's time goes.

use std::io;

use serde_json::{Value, json};
use simulator::cost::Component;

use super::super::Run;
use super::super::timed::{Timed, Times};
use crate::predict::calibration::Off;
use crate::render::table::{Side, Table};
use crate::terminal::{Style, Terminal};

/// Columns of a waterfall's longest bar.
const BAR: f64 = 40.0;

impl Timed {
    /// The time between tokens and its 90% interval, seconds.
    ///
    /// Where a first scenario was measured, what its device takes is known, and what is left open is what the host
    /// does for the groups, here against there.
    fn tpot_interval(&self, first: Option<&Self>) -> Option<(f64, f64)> {
        let own = self.seen.tpot.mean();
        if self.device().measured_tpot.is_some() {
            let here = own * self.groups_share();
            let there = first.map_or(here, |first| first.seen.tpot.mean() * first.groups_share());
            let (less, more) =
                ((here - there) / self.device().host_times, (here - there) * self.device().host_times);
            let base = own - (here - there);
            return Some((base + less.min(more), base + less.max(more)));
        }
        self.device().tpot.map(|off| around(own, off))
    }

    fn groups_share(&self) -> f64 {
        self.sums.part(Component::Groups) / self.sums.total().max(1e-12)
    }

    fn ttft_interval(&self) -> Option<(f64, f64)> {
        self.device().ttft.map(|off| around(self.seen.ttft.mean(), off))
    }
}

fn around(value: f64, off: Off) -> (f64, f64) {
    (value / off.p90.exp(), value * off.p90.exp())
}

fn ms(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}

fn interval(bounds: Option<(f64, f64)>) -> String {
    bounds.map_or_else(|| "no interval".to_owned(), |(low, high)| format!("{} to {}", ms(low), ms(high)))
}

#[expect(clippy::cast_precision_loss, reason = "sums of tokens are shown a second")]
fn rate(run: &Run, timed: &Timed) -> f64 {
    let seconds = run.outcome.duration_ns as f64 * 1e-9;
    run.outcome.output_tokens as f64 / seconds.max(1e-12) / f64::from(timed.device().tensor_parallel)
}

/// One run, at length.
pub(super) fn one(run: &Run, timed: &Timed, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let device = timed.device();
    writeln!(terminal.out, "  times predicted for {}", device.title)?;
    let mut table = Table::new(vec![
        ("ms", Side::Left),
        ("mean", Side::Right),
        ("90% interval", Side::Right),
        ("p50", Side::Right),
        ("p90", Side::Right),
        ("p99", Side::Right),
    ]);
    let row = |name: &str, times: &Times, bounds: Option<(f64, f64)>| {
        let percentile = |percent: f64| ms(times.percentile(percent));
        vec![
            name.to_owned(),
            ms(times.mean()),
            interval(bounds),
            percentile(50.0),
            percentile(90.0),
            percentile(99.0),
        ]
    };
    table.row(row("TTFT", &timed.seen.ttft, timed.ttft_interval()));
    table.row(row("TPOT", &timed.seen.tpot, timed.tpot_interval(None)));
    let itl = device.tpot.map(|off| around(timed.itl.mean(), off));
    table.row(row("ITL", &timed.itl, itl));
    table.write(4, terminal)?;
    writeln!(terminal.out, "  {:.1} output tokens/s a device", rate(run, timed))?;
    if device.slo.is_some() {
        writeln!(terminal.out, "  {} of {} requests keep the SLO", timed.seen.good, timed.seen.ended)?;
    }
    waterfall(timed, terminal)
}

#[expect(clippy::cast_precision_loss, reason = "a mean of steps")]
fn a_step(timed: &Timed, seconds: f64) -> f64 {
    seconds / timed.steps.max(1) as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bar of at most BAR columns")]
fn waterfall(timed: &Timed, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let total = timed.sums.total().max(1e-12);
    writeln!(terminal.out, "  a step takes {} ms on average:", ms(a_step(timed, total)))?;
    let mut before = 0.0;
    for part in Component::ALL {
        let own = timed.sums.part(part);
        if own <= 0.0 {
            continue;
        }
        let (start, width) =
            ((before / total * BAR).round() as usize, (own / total * BAR).round().max(1.0) as usize);
        let bar = terminal.paint(Style::Bold, &"#".repeat(width));
        writeln!(
            terminal.out,
            "    {:<10} {:>8} {:>4.0}%  {}{bar}",
            part.name(),
            ms(a_step(timed, own)),
            own / total * 100.0,
            " ".repeat(start)
        )?;
        before += own;
    }
    if timed.sums.hidden > 0.0 {
        writeln!(
            terminal.out,
            "    {} ms of host work for the groups is hidden behind the device",
            ms(a_step(timed, timed.sums.hidden))
        )?;
    }
    Ok(())
}

/// Several runs, a line each.
pub(super) fn several(runs: &[Run], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Some(first) = runs.first().and_then(|run| run.timed.as_ref()) else { return Ok(()) };
    writeln!(terminal.out)?;
    writeln!(terminal.out, "times predicted for {}", first.device().title)?;
    let mut table = Table::new(vec![
        ("scenario", Side::Left),
        ("platform", Side::Left),
        ("groups", Side::Right),
        ("TPOT ms", Side::Right),
        ("90% interval", Side::Right),
        ("against the first", Side::Right),
        ("TTFT ms", Side::Right),
        ("tokens/s/device", Side::Right),
        ("groups ms/step", Side::Right),
        ("most of a step", Side::Left),
    ]);
    for (index, run) in runs.iter().enumerate() {
        let Some(timed) = &run.timed else { continue };
        let tpot = timed.seen.tpot.mean();
        let change = if index == 0 {
            "measured".to_owned()
        } else {
            format!(
                "{:+.2} ({:+.1}%)",
                (tpot - first.seen.tpot.mean()) * 1e3,
                (tpot / first.seen.tpot.mean() - 1.0) * 100.0
            )
        };
        let change =
            if index == 0 && timed.device().measured_tpot.is_none() { "-".to_owned() } else { change };
        let bounds = if index == 0 && timed.device().measured_tpot.is_some() {
            "-".to_owned()
        } else {
            interval(timed.tpot_interval(Some(first)))
        };
        table.row(vec![
            run.name.clone(),
            run.platform.to_owned(),
            run.setup.groups.len().to_string(),
            ms(tpot),
            bounds,
            change,
            ms(timed.seen.ttft.mean()),
            format!("{:.1}", rate(run, timed)),
            ms(a_step(timed, timed.sums.part(Component::Groups))),
            timed.sums.dominant().name().to_owned(),
        ]);
    }
    table.write(0, terminal)
}

/// For machines.
pub(super) fn json(run: &Run, timed: &Timed, first: Option<&Timed>) -> Value {
    let times = |times: &Times| {
        json!({
            "mean_ms": times.mean() * 1e3,
            "p50_ms": times.percentile(50.0) * 1e3,
            "p90_ms": times.percentile(90.0) * 1e3,
            "p99_ms": times.percentile(99.0) * 1e3,
        })
    };
    let bounds = |bounds: Option<(f64, f64)>| bounds.map(|(low, high)| json!([low * 1e3, high * 1e3]));
    let parts: serde_json::Map<String, Value> = Component::ALL
        .iter()
        .map(|part| (part.name().to_owned(), json!(a_step(timed, timed.sums.part(*part)) * 1e3)))
        .collect();
    json!({
        "device": timed.device().title,
        "device_scale": timed.device().scale,
        "itl": times(&timed.itl),
        "output_tokens_per_s_per_device": rate(run, timed),
        "requests_within_slo": timed.device().slo.map(|_| timed.seen.good),
        "step_ms": parts,
        "step_hidden_ms": a_step(timed, timed.sums.hidden) * 1e3,
        "tpot": times(&timed.seen.tpot),
        "tpot_interval_ms": bounds(timed.tpot_interval(first)),
        "ttft": times(&timed.seen.ttft),
        "ttft_interval_ms": bounds(timed.ttft_interval()),
    })
}
