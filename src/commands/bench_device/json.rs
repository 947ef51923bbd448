//! The results as JSON, `k3plan.bench-device/2`: what `docs/device.md` describes and `k3plan schema bench-device`
//! prints. Fields are added, not changed.

use executor::device::Device;
use executor::device::conditions::Conditions;
use executor::measure::Median;
use executor::replay::calibrate::Calibration;
use executor::replay::pool::Sharing;
use executor::replay::run::{KernelResult, StepResult, Timed};
use schemars::JsonSchema;
use serde::Serialize;

use super::Measured;
use crate::commands::devices::DeviceJson;

/// What `k3plan bench device --json` prints.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// `k3plan.bench-device/2`.
    schema: &'static str,
    /// The device that ran.
    device: DeviceJson,
    /// A scenario each.
    arms: Vec<ArmJson>,
}

/// A scenario's results.
#[derive(Serialize, JsonSchema)]
struct ArmJson {
    /// Its name.
    scenario: String,
    /// KV cache groups.
    groups: usize,
    /// KV cache tensors of the plan.
    tensors: usize,
    /// Tensors as laid out; where fewer, layers share.
    tensors_laid_out: usize,
    /// Blocks of each tensor as laid out.
    num_blocks: usize,
    /// Who shares blocks for want of memory: `nothing`, `groups`, `requests`.
    blocks_shared: &'static str,
    /// Bytes of the pool as laid out.
    pool_bytes: usize,
    /// Bytes a second of a plain read.
    stream_read_bytes_per_second: f64,
    /// Bytes a second of a plain write.
    stream_write_bytes_per_second: f64,
    /// Microseconds of a launch that does nothing.
    launch_us: f64,
    /// The steps that ran: one of a fixed batch, or some of a simulated workload.
    steps: Vec<StepJson>,
    /// The conditions before, and after.
    conditions: [ConditionsJson; 2],
    /// What of the plan has no kernel.
    not_replayed: Vec<&'static str>,
}

/// A step. Its `measured_us` is that of its launches, from the first one's start to the last one's end.
#[derive(Serialize, JsonSchema)]
struct StepJson {
    /// `fixed` or `simulated`.
    source: &'static str,
    /// 0-based number in the simulated run.
    index: u64,
    /// How many steps of the simulated run it stands for.
    stands_for: f64,
    /// KV cache groups.
    groups: usize,
    /// Requests.
    requests: usize,
    /// Requests whose query is longer than a decode's.
    prefills: usize,
    /// Tokens scheduled.
    tokens: u64,
    /// Tokens computed before, over all requests.
    computed_tokens: u64,
    /// Launches.
    launches: usize,
    /// Bytes read and written.
    bytes: u64,
    /// The sum of its kernels' predictions.
    predicted_us: f64,
    /// Median.
    measured_us: f64,
    /// Lower end of the median's 95% interval.
    measured_us_low: f64,
    /// Upper end.
    measured_us_high: f64,
    /// Runs.
    runs: usize,
    /// Measured over predicted.
    ratio: f64,
    /// Until the host is free again; all of it on the CPU.
    host_us: f64,
    /// As a graph.
    graph: GraphJson,
    /// By kernel, in the order of their first launch.
    kernels: Vec<KernelJson>,
}

/// A step as a graph.
#[derive(Serialize, JsonSchema)]
struct GraphJson {
    /// Median.
    measured_us: f64,
    /// Lower end of the median's 95% interval.
    measured_us_low: f64,
    /// Upper end.
    measured_us_high: f64,
    /// Measured over predicted.
    ratio: f64,
    /// Until the host is free again.
    host_us: f64,
}

/// All launches of a kernel in a step.
#[derive(Serialize, JsonSchema)]
struct KernelJson {
    /// Its name.
    kernel: &'static str,
    /// Launches.
    launches: usize,
    /// Bytes read and written.
    bytes: u64,
    /// Bytes read.
    read_bytes: u64,
    /// Bytes written.
    written_bytes: u64,
    /// Launches x `launch_us` + the bytes at the two bandwidths.
    predicted_us: f64,
    /// Median.
    measured_us: f64,
    /// Lower end of the median's 95% interval.
    measured_us_low: f64,
    /// Upper end.
    measured_us_high: f64,
    /// Runs.
    runs: usize,
    /// Measured over predicted.
    ratio: f64,
    /// Bytes a second, both ways together.
    bytes_per_second: f64,
    /// Its bandwidth as a share of that of a plain read and a plain write.
    share_of_plain: f64,
}

/// What a measurement was under; `null` is not known.
#[derive(Serialize, JsonSchema)]
struct ConditionsJson {
    /// Clock of the device's cores.
    clock_mhz: Option<f64>,
    /// Degrees Celsius.
    temperature_c: Option<f64>,
    /// Load of the last minute on a CPU, percent of the time that a GPU was busy.
    load: Option<f64>,
    /// Other processes on the GPU.
    other_processes: Option<u32>,
}

/// Nanoseconds as microseconds.
fn us(ns: f64) -> f64 {
    ns / 1e3
}

impl Report {
    pub(super) fn new(device: &dyn Device, results: &[Measured]) -> Self {
        Self {
            schema: "k3plan.bench-device/2",
            device: DeviceJson::of(device.info()),
            arms: results.iter().map(arm).collect(),
        }
    }
}

fn arm(Measured { simulated, calibration, arm }: &Measured) -> ArmJson {
    let Calibration { stream_bytes_per_second, write_bytes_per_second, launch_ns, .. } = *calibration;
    ArmJson {
        scenario: arm.name.clone(),
        groups: arm.groups,
        tensors: arm.tensors,
        tensors_laid_out: arm.tensors_laid_out,
        num_blocks: arm.num_blocks,
        blocks_shared: match arm.sharing {
            Sharing::Nothing => "nothing",
            Sharing::Groups => "groups",
            Sharing::Requests => "requests",
        },
        pool_bytes: arm.pool_bytes,
        stream_read_bytes_per_second: stream_bytes_per_second,
        stream_write_bytes_per_second: write_bytes_per_second,
        launch_us: us(launch_ns),
        steps: arm.steps.iter().map(|result| step(*simulated, arm.groups, result)).collect(),
        conditions: arm.conditions.each_ref().map(conditions),
        not_replayed: arm.not_replayed.clone(),
    }
}

fn step(simulated: bool, groups: usize, result: &StepResult) -> StepJson {
    let batch = &result.step.batch;
    let Timed { host, device } = result.eager;
    StepJson {
        source: if simulated { "simulated" } else { "fixed" },
        index: result.step.index,
        stands_for: result.step.stands_for,
        groups,
        requests: batch.requests.len(),
        prefills: batch.prefills(),
        tokens: batch.num_tokens(),
        computed_tokens: batch.num_computed(),
        launches: result.launches(),
        bytes: result.moved().bytes(),
        predicted_us: us(result.predicted_ns),
        measured_us: us(device.median_ns),
        measured_us_low: us(device.low_ns),
        measured_us_high: us(device.high_ns),
        runs: device.runs,
        ratio: device.median_ns / result.predicted_ns,
        host_us: us(host.median_ns),
        graph: GraphJson {
            measured_us: us(result.graph.device.median_ns),
            measured_us_low: us(result.graph.device.low_ns),
            measured_us_high: us(result.graph.device.high_ns),
            ratio: result.graph.device.median_ns / result.predicted_ns,
            host_us: us(result.graph.host.median_ns),
        },
        kernels: result.kernels.iter().map(kernel).collect(),
    }
}

fn kernel(result: &KernelResult) -> KernelJson {
    let Median { median_ns, low_ns, high_ns, runs } = result.measured;
    KernelJson {
        kernel: result.kernel.name(),
        launches: result.launches,
        bytes: result.moved.bytes(),
        read_bytes: result.moved.read,
        written_bytes: result.moved.written,
        predicted_us: us(result.predicted_ns),
        measured_us: us(median_ns),
        measured_us_low: us(low_ns),
        measured_us_high: us(high_ns),
        runs,
        ratio: result.ratio(),
        bytes_per_second: result.bytes_per_second(),
        share_of_plain: result.share_of_plain(),
    }
}

fn conditions(conditions: &Conditions) -> ConditionsJson {
    let Conditions { clock_mhz, temperature_c, other_use, other_processes } = *conditions;
    ConditionsJson { clock_mhz, temperature_c, load: other_use, other_processes }
}
