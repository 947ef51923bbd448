//! The same as JSON, `k3plan.fit/1`.

use std::io;

use planner::error::CapacityError;
use planner::fit::{AtLength, Budget, Fit};
use serde::Serialize;

use super::{Fitted, bar};
use crate::terminal::Terminal;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    scenario: String,
    engine: String,
    gpu_memory_bytes: Option<u64>,
    kv_cache_memory_bytes: u64,
    groups: usize,
    bytes_per_block: u64,
    num_blocks: u64,
    max_model_len: u64,
    fits: bool,
    /// Null is not limited by memory.
    longest_context: Option<u64>,
    max_concurrency: Option<f64>,
    needed_bytes: Option<u64>,
    available_bytes: Option<u64>,
    sequences: u64,
    chosen: Length,
    lengths: Vec<Length>,
    shares_bytes: serde_json::Map<String, serde_json::Value>,
    total_bytes: u64,
}

#[derive(Serialize)]
struct Length {
    tokens: u64,
    blocks: u64,
    sequences: u64,
    decoding_blocks: u64,
    decoding_sequences: u64,
}

fn length(at: &AtLength) -> Length {
    let AtLength { tokens, blocks, sequences, decoding_blocks, decoding_sequences } = *at;
    Length { tokens, blocks, sequences, decoding_blocks, decoding_sequences }
}

/// Writes the report.
pub(super) fn write(
    fitted: &Fitted<'_>,
    budget: &Budget,
    fit: &Fit,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let (needed, available) = match &fit.pool {
        Err(CapacityError::NotEnough { needed_bytes, available_bytes, .. }) => {
            (Some(*needed_bytes), Some(*available_bytes))
        }
        _ => (None, None),
    };
    let report = Report {
        schema: "k3plan.fit/1",
        scenario: fitted.name.to_owned(),
        engine: fitted.rules.version.to_string(),
        gpu_memory_bytes: budget.gpu_memory_bytes,
        kv_cache_memory_bytes: budget.kv_bytes,
        groups: fit.grouping.groups.len(),
        bytes_per_block: fit.bytes_per_block,
        num_blocks: fit.num_blocks,
        max_model_len: fitted.settings.max_model_len,
        fits: fit.pool.is_ok(),
        longest_context: fit.longest,
        max_concurrency: fit.pool.as_ref().ok().map(|pool| pool.max_concurrency),
        needed_bytes: needed,
        available_bytes: available,
        sequences: fit.sequences,
        chosen: length(&fit.chosen),
        lengths: fit.lengths.iter().map(length).collect(),
        shares_bytes: bar::shares(budget, fit)
            .into_iter()
            .map(|(_, key, _, bytes)| (key.to_owned(), bytes.into()))
            .collect(),
        total_bytes: budget.total_bytes(),
    };
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}
