//! How are the results shown to a person: tables an arm, and one that compares the arms.

use std::io;

use executor::device::conditions::Conditions;
use executor::device::{Device, Moved};
use executor::measure::Median;
use executor::replay::pool::Sharing;
use executor::replay::run::{ArmResult, KernelResult, StepResult};

use super::Measured;
use crate::render::number::thousands;
use crate::render::table::{Side, Table};
use crate::terminal::{Style, Terminal};

/// Prints tables.
pub(super) fn text(device: &dyn Device, results: &[Measured], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let info = device.info();
    writeln!(terminal.out, "{} ({}, {}, {} units)", info.name, info.backend, info.target, info.units)?;
    if !info.computes {
        writeln!(terminal.out, "the dummy computes nothing: its times are those of the host alone")?;
    }
    for measured in results {
        writeln!(terminal.out)?;
        arm(measured, terminal)?;
    }
    if results.len() > 1 {
        writeln!(terminal.out)?;
        comparison(results, terminal)?;
    }
    Ok(())
}

fn arm(measured: &Measured, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Measured { simulated, calibration, arm } = measured;
    let name = terminal.paint(Style::Bold, &arm.name);
    let tensors = if arm.tensors_laid_out < arm.tensors {
        format!("{} of {} tensors (layers share them)", arm.tensors_laid_out, arm.tensors)
    } else {
        format!("{} tensors", arm.tensors)
    };
    let shared = match arm.sharing {
        Sharing::Nothing => "",
        Sharing::Groups => " (fewer than the batch needs: groups share blocks)",
        Sharing::Requests => " (fewer than the batch needs: requests share blocks)",
    };
    let blocks = thousands(arm.num_blocks as u64);
    writeln!(terminal.out, "{name}: {} groups, {tensors} x {blocks} blocks laid out{shared}", arm.groups)?;
    writeln!(
        terminal.out,
        "  a plain read gives {}, a plain write {}, a launch takes {}",
        bandwidth(calibration.stream_bytes_per_second),
        bandwidth(calibration.write_bytes_per_second),
        time(calibration.launch_ns),
    )?;
    match (arm.steps.as_slice(), simulated) {
        ([step], false) => {
            let first = step.step.batch.requests.first();
            let (context, query) = first.map_or((0, 0), |r| (r.num_computed, r.query_len));
            writeln!(
                terminal.out,
                "  {} requests, {} tokens computed, {query} scheduled each",
                step.step.batch.requests.len(),
                thousands(u64::from(context)),
            )?;
            kernels(&arm.steps, Some(step), terminal)?;
            let (eager, graph) = (time(step.eager.host.median_ns), time(step.graph.host.median_ns));
            writeln!(terminal.out, "  host part of the step: {eager} as launches, {graph} as a graph")?;
        }
        (steps, _) => {
            writeln!(terminal.out, "  {} steps of a simulated run, by kernel:", steps.len())?;
            kernels(steps, None, terminal)?;
            simulated_steps(arm, terminal)?;
        }
    }
    writeln!(terminal.out, "  {}", conditions(&arm.conditions))?;
    if !arm.not_replayed.is_empty() {
        writeln!(terminal.out, "  not replayed: {}", arm.not_replayed.join("; "))?;
    }
    Ok(())
}

/// The kernels of all steps together; of one step with its intervals and its own rows.
fn kernels(steps: &[StepResult], one: Option<&StepResult>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let mut table = Table::new(vec![
        ("kernel", Side::Left),
        ("launches", Side::Right),
        ("predicted", Side::Right),
        ("measured", Side::Right),
        ("95% interval", Side::Right),
        ("ratio", Side::Right),
        ("bandwidth", Side::Right),
        ("of plain", Side::Right),
    ]);
    let mut order = Vec::new();
    for kernel in steps.iter().flat_map(|step| &step.kernels) {
        if !order.contains(&kernel.kernel) {
            order.push(kernel.kernel);
        }
    }
    for kernel in order {
        let own: Vec<&KernelResult> =
            steps.iter().flat_map(|step| &step.kernels).filter(|k| k.kernel == kernel).collect();
        let sum = |of: fn(&KernelResult) -> f64| own.iter().map(|k| of(k)).sum::<f64>();
        let (predicted, measured) = (sum(|k| k.predicted_ns), sum(|k| k.measured.median_ns));
        let moved: Moved = own.iter().map(|k| k.moved).sum();
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let speed = moved.bytes() as f64 / measured * 1e9;
        // The bandwidth of what takes less than a few launches is that of launching.
        let counts = moved.bytes() >= 1 << 20;
        table.row(vec![
            kernel.name().to_owned(),
            own.iter().map(|k| k.launches).sum::<usize>().to_string(),
            time(predicted),
            time(measured),
            one.and(own.first()).map_or_else(String::new, |k| interval(&k.measured)),
            format!("{:.2}", measured / predicted),
            if counts { bandwidth(speed) } else { String::new() },
            if counts { format!("{:.0}%", 100.0 * sum(|k| k.transfer_ns) / measured) } else { String::new() },
        ]);
    }
    if let Some(step) = one {
        for (what, timed) in [("step, launches", &step.eager), ("step, graph", &step.graph)] {
            table.row(vec![
                what.to_owned(),
                step.launches().to_string(),
                time(step.predicted_ns),
                time(timed.device.median_ns),
                interval(&timed.device),
                format!("{:.2}", timed.device.median_ns / step.predicted_ns),
                String::new(),
                String::new(),
            ]);
        }
    }
    table.write(2, terminal)
}

fn simulated_steps(arm: &ArmResult, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let mut table = Table::new(vec![
        ("step", Side::Right),
        ("stands for", Side::Right),
        ("requests", Side::Right),
        ("prompts", Side::Right),
        ("tokens", Side::Right),
        ("computed", Side::Right),
        ("launches", Side::Right),
        ("predicted", Side::Right),
        ("measured", Side::Right),
        ("ratio", Side::Right),
        ("graph", Side::Right),
        ("ratio", Side::Right),
    ]);
    for step in &arm.steps {
        let batch = &step.step.batch;
        table.row(vec![
            thousands(step.step.index),
            format!("{:.0}", step.step.stands_for),
            batch.requests.len().to_string(),
            batch.prefills().to_string(),
            thousands(batch.num_tokens()),
            thousands(batch.num_computed()),
            step.launches().to_string(),
            time(step.predicted_ns),
            time(step.eager.device.median_ns),
            format!("{:.2}", step.eager.device.median_ns / step.predicted_ns),
            time(step.graph.device.median_ns),
            format!("{:.2}", step.graph.device.median_ns / step.predicted_ns),
        ]);
    }
    table.write(2, terminal)?;
    let Mean { predicted, eager, graph, .. } = mean(arm);
    writeln!(
        terminal.out,
        "  a step of the run on average: predicted {}, measured {} as launches (ratio {:.2}), {} as a graph ({:.2})",
        time(predicted),
        time(eager),
        eager / predicted,
        time(graph),
        graph / predicted,
    )
}

/// Nanoseconds of the average step that an arm's steps stand for.
struct Mean {
    predicted: f64,
    eager: f64,
    graph: f64,
    metadata: f64,
    launches: f64,
}

fn mean(arm: &ArmResult) -> Mean {
    let weights: f64 = arm.steps.iter().map(|step| step.step.stands_for).sum();
    let of = |value: &dyn Fn(&StepResult) -> f64| {
        arm.steps.iter().map(|step| step.step.stands_for * value(step)).sum::<f64>() / weights
    };
    let metadata = |step: &StepResult| {
        step.kernels.iter().filter(|k| k.kernel.is_metadata()).map(|k| k.measured.median_ns).sum::<f64>()
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of launches")]
    let launches = |step: &StepResult| step.launches() as f64;
    Mean {
        predicted: of(&|step| step.predicted_ns),
        eager: of(&|step| step.eager.device.median_ns),
        graph: of(&|step| step.graph.device.median_ns),
        metadata: of(&metadata),
        launches: of(&launches),
    }
}

fn comparison(results: &[Measured], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let mut table = Table::new(vec![
        ("scenario", Side::Left),
        ("groups", Side::Right),
        ("launches", Side::Right),
        ("predicted", Side::Right),
        ("measured", Side::Right),
        ("ratio", Side::Right),
        ("as a graph", Side::Right),
        ("metadata and tables", Side::Right),
    ]);
    for Measured { arm, .. } in results {
        let Mean { predicted, eager, graph, metadata, launches } = mean(arm);
        table.row(vec![
            arm.name.clone(),
            arm.groups.to_string(),
            format!("{launches:.0}"),
            time(predicted),
            time(eager),
            format!("{:.2}", eager / predicted),
            time(graph),
            time(metadata),
        ]);
    }
    table.write(0, terminal)
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

fn interval(median: &Median) -> String {
    format!("{} - {}", time(median.low_ns), time(median.high_ns))
}

fn bandwidth(bytes_per_second: f64) -> String {
    format!("{:.1} GB/s", bytes_per_second / 1e9)
}

fn conditions([before, after]: &[Conditions; 2]) -> String {
    let both = |name: &str, unit: &str, get: fn(&Conditions) -> Option<f64>| match (get(before), get(after)) {
        (Some(before), Some(after)) => format!("{name} {before:.2} to {after:.2}{unit}"),
        _ => format!("{name} unknown"),
    };
    let processes = after.other_processes.map(|n| format!(", {n} other processes on the device"));
    format!(
        "{}, {}, {}{}",
        both("clock", " MHz", |c| c.clock_mhz),
        both("temperature", " C", |c| c.temperature_c),
        both("load by all users", "", |c| c.other_use),
        processes.unwrap_or_default(),
    )
}
