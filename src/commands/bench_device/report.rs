//! How are the results shown: a table an arm, or JSON?

use std::io;

use executor::device::Device;
use executor::device::conditions::Conditions;
use executor::measure::Median;
use executor::replay::run::{KernelResult, StepResult};
use serde::Serialize;

use super::Measured;
use crate::commands::devices::DeviceJson;
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

fn arm(Measured { batch, calibration, arm }: &Measured, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let name = terminal.paint(Style::Bold, &arm.name);
    writeln!(
        terminal.out,
        "{name}: {} groups, {} tensors x {} blocks laid out{}",
        arm.groups,
        arm.tensors,
        thousands(arm.num_blocks as u64),
        if arm.aliased { " (fewer than the batch needs: requests share blocks)" } else { "" },
    )?;
    let context = batch.requests.first().map_or(0, |r| r.num_computed);
    let query = batch.requests.first().map_or(0, |r| r.query_len);
    writeln!(
        terminal.out,
        "  {} requests, {} tokens computed, {query} scheduled each; a plain read gives {}, a launch takes {}",
        batch.requests.len(),
        thousands(u64::from(context)),
        bandwidth(calibration.stream_bytes_per_second),
        time(calibration.launch_ns),
    )?;
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
    for kernel in &arm.kernels {
        let share = kernel.bytes_per_second() / calibration.stream_bytes_per_second;
        // The bandwidth of what takes less than a few launches is that of launching.
        let counts = kernel.bytes >= 1 << 20;
        table.row(vec![
            kernel.kernel.name().to_owned(),
            kernel.launches.to_string(),
            time(kernel.predicted_ns),
            time(kernel.measured.median_ns),
            interval(&kernel.measured),
            format!("{:.2}", kernel.ratio()),
            if counts { bandwidth(kernel.bytes_per_second()) } else { String::new() },
            if counts { format!("{:.0}%", 100.0 * share) } else { String::new() },
        ]);
    }
    for (what, step) in [("step, launches", &arm.eager), ("step, graph", &arm.graph)] {
        table.row(vec![
            what.to_owned(),
            arm.kernels.iter().map(|k| k.launches).sum::<usize>().to_string(),
            time(arm.predicted_ns),
            time(step.device.median_ns),
            interval(&step.device),
            format!("{:.2}", step.device.median_ns / arm.predicted_ns),
            String::new(),
            String::new(),
        ]);
    }
    table.write(2, terminal)?;
    let host = |step: &StepResult| time(step.host.median_ns);
    let (eager, graph) = (host(&arm.eager), host(&arm.graph));
    writeln!(terminal.out, "  host part of the step: {eager} as launches, {graph} as a graph")?;
    writeln!(terminal.out, "  {}", conditions(&arm.conditions))?;
    if !arm.not_replayed.is_empty() {
        writeln!(terminal.out, "  not replayed: {}", arm.not_replayed.join("; "))?;
    }
    Ok(())
}

fn comparison(results: &[Measured], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let mut table = Table::new(vec![
        ("scenario", Side::Left),
        ("groups", Side::Right),
        ("launches", Side::Right),
        ("predicted", Side::Right),
        ("measured", Side::Right),
        ("ratio", Side::Right),
        ("metadata and tables", Side::Right),
    ]);
    for Measured { arm, .. } in results {
        let reads_or_writes =
            |k: &&KernelResult| !["read", "write"].iter().any(|word| k.kernel.name().contains(word));
        let rest: f64 = arm.kernels.iter().filter(reads_or_writes).map(|k| k.measured.median_ns).sum();
        table.row(vec![
            arm.name.clone(),
            arm.groups.to_string(),
            arm.kernels.iter().map(|k| k.launches).sum::<usize>().to_string(),
            time(arm.predicted_ns),
            time(arm.eager.device.median_ns),
            format!("{:.2}", arm.eager.device.median_ns / arm.predicted_ns),
            time(rest),
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

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    device: DeviceJson,
    arms: Vec<ArmJson>,
}

#[derive(Serialize)]
struct ArmJson {
    scenario: String,
    groups: usize,
    tensors: usize,
    num_blocks: usize,
    blocks_aliased: bool,
    pool_bytes: usize,
    requests: usize,
    num_computed_tokens: u32,
    query_len: u32,
    stream_bytes_per_second: f64,
    launch_ns: f64,
    kernels: Vec<KernelJson>,
    predicted_step_ns: f64,
    step_eager: StepJson,
    step_graph: StepJson,
    conditions: [ConditionsJson; 2],
    not_replayed: Vec<&'static str>,
}

#[derive(Serialize)]
struct KernelJson {
    kernel: &'static str,
    launches: usize,
    bytes: u64,
    predicted_ns: f64,
    measured_ns: MedianJson,
    ratio: f64,
    bytes_per_second: f64,
    share_of_stream: f64,
}

#[derive(Serialize)]
struct StepJson {
    host_ns: MedianJson,
    device_ns: MedianJson,
    ratio: f64,
}

#[derive(Serialize)]
struct MedianJson {
    median: f64,
    low: f64,
    high: f64,
    runs: usize,
}

#[derive(Serialize)]
struct ConditionsJson {
    clock_mhz: Option<f64>,
    temperature_c: Option<f64>,
    load: Option<f64>,
    other_processes: Option<u32>,
}

fn median_json(median: &Median) -> MedianJson {
    MedianJson { median: median.median_ns, low: median.low_ns, high: median.high_ns, runs: median.runs }
}

fn arm_json(Measured { batch, calibration, arm }: &Measured) -> ArmJson {
    let kernel = |k: &KernelResult| KernelJson {
        kernel: k.kernel.name(),
        launches: k.launches,
        bytes: k.bytes,
        predicted_ns: k.predicted_ns,
        measured_ns: median_json(&k.measured),
        ratio: k.ratio(),
        bytes_per_second: k.bytes_per_second(),
        share_of_stream: k.bytes_per_second() / calibration.stream_bytes_per_second,
    };
    let step = |s: &StepResult| StepJson {
        host_ns: median_json(&s.host),
        device_ns: median_json(&s.device),
        ratio: s.device.median_ns / arm.predicted_ns,
    };
    let first = batch.requests.first();
    ArmJson {
        scenario: arm.name.clone(),
        groups: arm.groups,
        tensors: arm.tensors,
        num_blocks: arm.num_blocks,
        blocks_aliased: arm.aliased,
        pool_bytes: arm.pool_bytes,
        requests: batch.requests.len(),
        num_computed_tokens: first.map_or(0, |r| r.num_computed),
        query_len: first.map_or(0, |r| r.query_len),
        stream_bytes_per_second: calibration.stream_bytes_per_second,
        launch_ns: calibration.launch_ns,
        kernels: arm.kernels.iter().map(kernel).collect(),
        predicted_step_ns: arm.predicted_ns,
        step_eager: step(&arm.eager),
        step_graph: step(&arm.graph),
        conditions: arm.conditions.clone().map(|c| ConditionsJson {
            clock_mhz: c.clock_mhz,
            temperature_c: c.temperature_c,
            load: c.other_use,
            other_processes: c.other_processes,
        }),
        not_replayed: arm.not_replayed.clone(),
    }
}

/// Prints JSON.
pub(super) fn json(device: &dyn Device, results: &[Measured], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let report = Report {
        schema: "k3plan.bench-device/1",
        device: DeviceJson::of(device.info()),
        arms: results.iter().map(arm_json).collect(),
    };
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}
