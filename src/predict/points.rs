//! Measured points from files: serving tables, latency tables, and k3plan's own lines.

mod lines;
mod tables;

use std::path::Path;

use serde::Deserialize;
use simulator::cost::calibrate::Point;

use crate::failure::Failure;
use crate::input_file;

/// The largest file of points that is read, bytes.
const LIMIT: u64 = 256 << 20;

/// Peaks given on the command line, for devices without figures of their own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peaks {
    /// Memory bandwidth, bytes/s.
    pub(crate) bandwidth: Option<f64>,
    /// bf16 rate, FLOP/s.
    pub(crate) flops: Option<f64>,
}

/// A point, and what it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) point: Point,
    /// Model and system, for what is calibrated on one of them.
    pub(crate) pair: String,
    /// Why the limit of running requests is not the plan's, where it is not.
    pub(crate) note: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Settings {
    default: Setup,
    lengths: Lengths,
    setups: Vec<Setup>,
}

#[derive(Debug, Deserialize)]
struct Lengths {
    share: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Setup {
    #[serde(default)]
    model: String,
    #[serde(default)]
    system: String,
    #[serde(default)]
    precision: String,
    kv_cache_dtype: String,
    utilization: f64,
    #[serde(default)]
    chunk: Option<f64>,
}

/// Reads files of points; the form of each is told by its first line.
///
/// # Errors
/// Names the file, the line and the column.
pub(crate) fn read(paths: &[std::path::PathBuf], peaks: Peaks) -> Result<Vec<Measured>, Failure> {
    let mut all = Vec::new();
    for path in paths {
        let text = text_of(path)?;
        let name = path.display().to_string();
        if text.trim_start().starts_with('{') {
            lines::read(&name, &text, peaks, &mut all)?;
        } else {
            tables::read(&name, &text, &mut all)?;
        }
    }
    Ok(all)
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let failed = || Failure::new(format!("failed to read `{}`", path.display()));
    input_file::text(path, LIMIT).map_err(|error| failed().caused_by(error))
}
