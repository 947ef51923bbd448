//! What does the device do at best: the bandwidth of a plain read, and the cost of a launch?

use super::ReplayError;
use crate::device::Device;
use crate::kernel::probe;
use crate::measure::{Median, Repeats, repeat};

/// A device's figures, measured beside those of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Bytes a second of a plain read of memory.
    pub stream_bytes_per_second: f64,
    /// Nanoseconds of that read.
    pub stream: Median,
    /// Bytes it read.
    pub stream_bytes: usize,
    /// Nanoseconds a launch that does nothing takes, from putting many on the stream to their end.
    pub launch_ns: f64,
}

const LAUNCHES: u32 = 256;

/// Measures; reads `bytes`, which should be several times the last cache.
///
/// # Errors
/// What the device says.
pub fn calibrate(device: &dyn Device, bytes: usize, repeats: Repeats) -> Result<Calibration, ReplayError> {
    let bytes = bytes / 64 * 64;
    let memory = device.allocate(bytes)?;
    fill(device, &memory)?;
    let programs = usize::try_from(device.info().units).unwrap_or(1).saturating_mul(16);
    let sums = device.allocate(4 * programs)?;
    let read = probe::stream_read(&memory, bytes, &sums, programs)?;
    let noop = probe::noop()?;
    let timed = |times: u32, launch| -> Result<f64, ReplayError> {
        let from = device.record()?;
        for _ in 0..times {
            device.launch(launch)?;
        }
        Ok(device.elapsed_ns(&from, &device.record()?)?)
    };
    let stream = repeat(repeats, || timed(1, &read))?;
    let launch = repeat(repeats, || timed(LAUNCHES, &noop))?;
    #[expect(clippy::cast_precision_loss, reason = "bytes, far below 2^53")]
    let stream_bytes_per_second = bytes as f64 / stream.median_ns * 1e9;
    let launch_ns = launch.median_ns / f64::from(LAUNCHES);
    Ok(Calibration { stream_bytes_per_second, stream, stream_bytes: bytes, launch_ns })
}

/// Writes all of a memory: memory that was never written is one page of zeros, and reads of it are none.
pub(super) fn fill(device: &dyn Device, memory: &crate::device::Memory) -> Result<(), ReplayError> {
    // A bf16 of about 1 and an fp8 of about 1: 0x38, 0x3f.
    let pattern = [0x38, 0x3f].repeat(1 << 20);
    let mut offset = 0;
    while offset < memory.bytes() {
        let bytes = pattern.len().min(memory.bytes() - offset);
        device.upload(memory, offset, pattern.get(..bytes).unwrap_or(&pattern))?;
        offset += bytes;
    }
    Ok(())
}
