//! Predicted beside measured: per kernel, and for the step as launches and as a graph.

use std::time::Instant;

use kernels::Kernel;

use super::calibrate::Calibration;
use super::plan::ReplayPlan;
use super::step::{Step, step};
use super::{Batch, ReplayError};
use crate::device::conditions::{self, Conditions};
use crate::device::{Device, Launch};
use crate::measure::{Median, Repeats, median, repeat};

/// One kernel's share of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelResult {
    /// The kernel.
    pub kernel: Kernel,
    /// Its launches in the step.
    pub launches: usize,
    /// Bytes they have to move.
    pub bytes: u64,
    /// Launches x cost of a launch + bytes / bandwidth.
    pub predicted_ns: f64,
    /// All its launches of the step, one after the other.
    pub measured: Median,
}

impl KernelResult {
    /// Measured over predicted.
    pub fn ratio(&self) -> f64 {
        self.measured.median_ns / self.predicted_ns
    }

    /// Bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes, far below 2^53")]
        let bytes = self.bytes as f64;
        bytes / self.measured.median_ns * 1e9
    }
}

/// The whole step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepResult {
    /// Until the host is free again: on the CPU that is the end, elsewhere the launches are on the stream.
    pub host: Median,
    /// From the first launch's start to the last's end.
    pub device: Median,
}

/// An arm's results.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmResult {
    /// Its name.
    pub name: String,
    /// Its groups.
    pub groups: usize,
    /// KV cache tensors.
    pub tensors: usize,
    /// Blocks of the pool as laid out.
    pub num_blocks: usize,
    /// Whether requests share blocks for want of memory.
    pub aliased: bool,
    /// Bytes of the pool as laid out.
    pub pool_bytes: usize,
    /// What has no kernel.
    pub not_replayed: Vec<&'static str>,
    /// By kernel, in the order of their first launch.
    pub kernels: Vec<KernelResult>,
    /// The sum of the kernels' predictions.
    pub predicted_ns: f64,
    /// Launched one by one.
    pub eager: StepResult,
    /// As a graph.
    pub graph: StepResult,
    /// The conditions before, and after.
    pub conditions: [Conditions; 2],
}

/// Lays out, runs and measures a plan's step.
///
/// # Errors
/// [`ReplayError`].
pub fn run(
    device: &dyn Device,
    plan: &ReplayPlan,
    batch: &Batch,
    budget_bytes: usize,
    calibration: &Calibration,
    repeats: Repeats,
) -> Result<ArmResult, ReplayError> {
    let Step { launches, num_blocks, aliased, not_replayed, bytes } =
        step(device, plan, batch, budget_bytes)?;
    let before = conditions::read(device.info());
    let eager = time_step(device, repeats, || launches.iter().try_for_each(|launch| device.launch(launch)))?;
    let kernels = by_kernel(device, &launches, calibration, repeats)?;
    let graph = device.capture(&launches)?;
    let graph = time_step(device, repeats, || device.replay(&graph))?;
    Ok(ArmResult {
        name: plan.name.clone(),
        groups: plan.groups.len(),
        tensors: plan.tensors(),
        num_blocks,
        aliased,
        pool_bytes: bytes,
        not_replayed,
        predicted_ns: kernels.iter().map(|kernel| kernel.predicted_ns).sum(),
        kernels,
        eager,
        graph,
        conditions: [before, conditions::read(device.info())],
    })
}

fn time_step(
    device: &dyn Device,
    repeats: Repeats,
    mut put: impl FnMut() -> Result<(), crate::device::DeviceError>,
) -> Result<StepResult, ReplayError> {
    let mut host = Vec::new();
    let on_device = repeat(repeats, || -> Result<f64, ReplayError> {
        device.synchronize()?;
        let from = device.record()?;
        let start = Instant::now();
        put()?;
        host.push(start.elapsed().as_secs_f64() * 1e9);
        Ok(device.elapsed_ns(&from, &device.record()?)?)
    })?;
    let warm = usize::try_from(repeats.warm_up).unwrap_or(0);
    Ok(StepResult { host: median(host.split_off(warm.min(host.len()))), device: on_device })
}

fn by_kernel(
    device: &dyn Device,
    launches: &[Launch],
    calibration: &Calibration,
    repeats: Repeats,
) -> Result<Vec<KernelResult>, ReplayError> {
    let mut order: Vec<Kernel> = Vec::new();
    for launch in launches {
        if !order.contains(&launch.kernel()) {
            order.push(launch.kernel());
        }
    }
    let mut results = Vec::new();
    for kernel in order {
        let own: Vec<&Launch> = launches.iter().filter(|launch| launch.kernel() == kernel).collect();
        let measured = repeat(repeats, || -> Result<f64, ReplayError> {
            let from = device.record()?;
            own.iter().try_for_each(|launch| device.launch(launch))?;
            Ok(device.elapsed_ns(&from, &device.record()?)?)
        })?;
        let bytes = own.iter().map(|launch| launch.bytes()).sum::<u64>();
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
        let predicted_ns = own.len() as f64 * calibration.launch_ns
            + bytes as f64 / calibration.stream_bytes_per_second * 1e9;
        results.push(KernelResult { kernel, launches: own.len(), bytes, predicted_ns, measured });
    }
    Ok(results)
}
