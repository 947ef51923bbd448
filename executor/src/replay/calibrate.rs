//! What does the device do at best: the bandwidth of a plain read and of a plain write, and the cost of a launch?

use super::ReplayError;
use crate::device::{Device, Memory, Moved};
use crate::kernel::probe;
use crate::measure::{Median, Repeats, repeat};

/// A device's figures, measured beside those of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Bytes a second of a plain read of memory.
    pub stream_bytes_per_second: f64,
    /// Bytes a second of a plain write of memory.
    pub write_bytes_per_second: f64,
    /// Nanoseconds of the read.
    pub stream: Median,
    /// Nanoseconds of the write.
    pub write: Median,
    /// Bytes that each of them moves.
    pub stream_bytes: usize,
    /// Nanoseconds a launch that does nothing takes, from putting many on the stream to their end.
    pub launch_ns: f64,
}

impl Calibration {
    /// Nanoseconds that moving bytes takes at these bandwidths.
    #[expect(clippy::cast_precision_loss, reason = "bytes, far below 2^53")]
    pub fn transfer_ns(&self, moved: Moved) -> f64 {
        let read = moved.read as f64 / self.stream_bytes_per_second;
        (read + moved.written as f64 / self.write_bytes_per_second) * 1e9
    }
}

const LAUNCHES: u32 = 256;

/// Measures; reads and writes `bytes`, which should be several times the last cache.
///
/// # Errors
/// What the device says.
pub fn calibrate(device: &dyn Device, bytes: usize, repeats: Repeats) -> Result<Calibration, ReplayError> {
    let bytes = bytes / 64 * 64;
    let memory = device.allocate(bytes)?;
    fill(device, &memory)?;
    let programs = programs(device);
    let sums = device.allocate(4 * programs)?;
    let read = probe::stream_read(&memory, bytes, &sums, programs)?;
    let write = probe::stream_write(&memory, bytes, programs, PATTERN)?;
    let noop = probe::noop()?;
    let timed = |times: u32, launch| -> Result<f64, ReplayError> {
        let from = device.record()?;
        for _ in 0..times {
            device.launch(launch)?;
        }
        Ok(device.elapsed_ns(&from, &device.record()?)?)
    };
    let stream = repeat(repeats, || timed(1, &read))?;
    let write = repeat(repeats, || timed(1, &write))?;
    let launch = repeat(repeats, || timed(LAUNCHES, &noop))?;
    #[expect(clippy::cast_precision_loss, reason = "bytes, far below 2^53")]
    let per_second = |median: Median| bytes as f64 / median.median_ns * 1e9;
    Ok(Calibration {
        stream_bytes_per_second: per_second(stream),
        write_bytes_per_second: per_second(write),
        stream,
        write,
        stream_bytes: bytes,
        launch_ns: launch.median_ns / f64::from(LAUNCHES),
    })
}

fn programs(device: &dyn Device) -> usize {
    usize::try_from(device.info().units).unwrap_or(1).saturating_mul(16)
}

/// A bf16 of about 1 and an fp8 of about 1: bytes 0x38, 0x3f.
const PATTERN: u32 = 0x3f38_3f38;

/// Writes all of a memory: memory that was never written is one page of zeros, and reads of it are none.
pub(super) fn fill(device: &dyn Device, memory: &Memory) -> Result<(), ReplayError> {
    let whole = memory.bytes() / 64 * 64;
    if whole > 0 {
        device.launch(&probe::stream_write(memory, whole, programs(device), PATTERN)?)?;
    }
    let rest = PATTERN.to_le_bytes().repeat(16);
    device.upload(memory, whole, rest.get(..memory.bytes() - whole).unwrap_or(&[]))?;
    Ok(device.synchronize()?)
}
