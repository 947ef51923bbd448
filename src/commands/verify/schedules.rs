//! Does the simulator do, step by step, what vLLM's scheduler was recorded to do?

use std::path::Path;

use simulator::{Recording, RecordingError};

use super::Replayed;
use crate::failure::Failure;
use crate::record::expect::Difference;

/// Replays one recorded run of the scheduler.
pub(super) fn replay(file: &Path, number: usize, line: &str) -> Result<Replayed, Failure> {
    let fail = |error: RecordingError| {
        Failure::new(format!("failed to verify `{}`, line {number}", file.display())).caused_by(error)
    };
    let recording = Recording::parse(line).map_err(fail)?;
    let replay = recording.replay().map_err(fail)?;
    let differences = replay
        .difference
        .map(|difference| {
            let version = recording.oracle.trim_start_matches("vllm ").to_owned();
            let at = |value: &str| format!("step {}: {value}", difference.step);
            let (recorded, planned) = (at(&difference.recorded), at(&difference.simulated));
            (version, Difference { field: difference.field, recorded, planned })
        })
        .into_iter()
        .collect();
    Ok(Replayed { id: recording.id, differences })
}
