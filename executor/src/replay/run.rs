//! Predicted beside measured: per kernel, and for each step as launches and as a graph.

use std::time::Instant;

use kernels::Kernel;

use super::ReplayError;
use super::calibrate::Calibration;
use super::plan::ReplayPlan;
use super::pool::{Pool, Sharing};
use super::sample::Sampled;
use super::step::step;
use crate::device::conditions::{self, Conditions};
use crate::device::{Device, DeviceError, Launch, Moved};
use crate::measure::{Median, Repeats, median, repeat};

/// One kernel's share of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelResult {
    /// The kernel.
    pub kernel: Kernel,
    /// Its launches in the step.
    pub launches: usize,
    /// Bytes they have to move.
    pub moved: Moved,
    /// What moving them takes at the bandwidths of a plain read and a plain write.
    pub transfer_ns: f64,
    /// Launches x cost of a launch + `transfer_ns`.
    pub predicted_ns: f64,
    /// All its launches of the step, one after the other.
    pub measured: Median,
}

impl KernelResult {
    /// Measured over predicted.
    pub fn ratio(&self) -> f64 {
        self.measured.median_ns / self.predicted_ns
    }

    /// Bytes a second, both ways together.
    pub fn bytes_per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes, far below 2^53")]
        let bytes = self.moved.bytes() as f64;
        bytes / self.measured.median_ns * 1e9
    }

    /// Its bandwidth as a share of that of a plain read and a plain write.
    pub fn share_of_plain(&self) -> f64 {
        self.transfer_ns / self.measured.median_ns
    }
}

/// A step as launches, or as a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// Until the host is free again: on the CPU that is the end, elsewhere the launches are on the stream.
    pub host: Median,
    /// From the first launch's start to the last's end.
    pub device: Median,
}

/// A step's results.
#[derive(Debug, Clone, PartialEq)]
pub struct StepResult {
    /// The step.
    pub step: Sampled,
    /// By kernel, in the order of their first launch.
    pub kernels: Vec<KernelResult>,
    /// The sum of the kernels' predictions.
    pub predicted_ns: f64,
    /// Launched one by one.
    pub eager: Timed,
    /// As a graph.
    pub graph: Timed,
}

impl StepResult {
    /// Its launches.
    pub fn launches(&self) -> usize {
        self.kernels.iter().map(|kernel| kernel.launches).sum()
    }

    /// Bytes it moves.
    pub fn moved(&self) -> Moved {
        self.kernels.iter().map(|kernel| kernel.moved).sum()
    }
}

/// An arm's results.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmResult {
    /// Its name.
    pub name: String,
    /// Its groups.
    pub groups: usize,
    /// KV cache tensors of the plan.
    pub tensors: usize,
    /// Tensors as laid out; where fewer, layers share.
    pub tensors_laid_out: usize,
    /// Blocks of the pool as laid out.
    pub num_blocks: usize,
    /// Who shares blocks for want of memory.
    pub sharing: Sharing,
    /// Bytes of the pool as laid out.
    pub pool_bytes: usize,
    /// What has no kernel.
    pub not_replayed: Vec<&'static str>,
    /// Its steps, one at least.
    pub steps: Vec<StepResult>,
    /// The conditions before, and after.
    pub conditions: [Conditions; 2],
}

/// Lays out, runs and measures a plan's steps.
///
/// # Errors
/// [`ReplayError`].
pub fn run(
    device: &dyn Device,
    plan: &ReplayPlan,
    steps: &[Sampled],
    budget_bytes: usize,
    calibration: &Calibration,
    repeats: Repeats,
) -> Result<ArmResult, ReplayError> {
    if steps.is_empty() {
        return Err(ReplayError::NoSteps);
    }
    let batches: Vec<_> = steps.iter().map(|step| step.batch.clone()).collect();
    let pool = Pool::new(device, plan, &batches, budget_bytes)?;
    let before = conditions::read(device.info());
    let mut not_replayed = Vec::new();
    let mut results = Vec::new();
    for sampled in steps {
        let made = step(device, plan, &sampled.batch, &pool)?;
        for why in made.not_replayed {
            if !not_replayed.contains(&why) {
                not_replayed.push(why);
            }
        }
        results.push(one(device, sampled, &made.launches, calibration, repeats)?);
    }
    Ok(ArmResult {
        name: plan.name.clone(),
        groups: plan.groups.len(),
        tensors: pool.tensors_planned,
        tensors_laid_out: pool.tensors.len(),
        num_blocks: pool.num_blocks,
        sharing: pool.sharing,
        pool_bytes: pool.bytes(),
        not_replayed,
        steps: results,
        conditions: [before, conditions::read(device.info())],
    })
}

fn one(
    device: &dyn Device,
    sampled: &Sampled,
    launches: &[Launch],
    calibration: &Calibration,
    repeats: Repeats,
) -> Result<StepResult, ReplayError> {
    let eager = time_step(device, repeats, || launches.iter().try_for_each(|launch| device.launch(launch)))?;
    let kernels = by_kernel(device, launches, calibration, repeats)?;
    let graph = device.capture(launches)?;
    let graph = time_step(device, repeats, || device.replay(&graph))?;
    let predicted_ns = kernels.iter().map(|kernel| kernel.predicted_ns).sum();
    Ok(StepResult { step: sampled.clone(), kernels, predicted_ns, eager, graph })
}

fn time_step(
    device: &dyn Device,
    repeats: Repeats,
    mut put: impl FnMut() -> Result<(), DeviceError>,
) -> Result<Timed, ReplayError> {
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
    Ok(Timed { host: median(host.split_off(warm.min(host.len()))), device: on_device })
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
        let moved: Moved = own.iter().map(|launch| launch.moved()).sum();
        let transfer_ns = calibration.transfer_ns(moved);
        #[expect(clippy::cast_precision_loss, reason = "a count of launches")]
        let predicted_ns = own.len() as f64 * calibration.launch_ns + transfer_ns;
        results.push(KernelResult {
            kernel,
            launches: own.len(),
            moved,
            transfer_ns,
            predicted_ns,
            measured,
        });
    }
    Ok(results)
}
