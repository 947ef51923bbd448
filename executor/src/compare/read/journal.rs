//! What does the journal of a `k3plan bench` run say, killed or ended?

use std::path::Path;

use planner::import::json::Budget;
use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::ReadError;
use super::fields::{add_requests, label, seed, time};
use crate::compare::metric::Metric;
use crate::compare::run::{Measured, Run, Tool};
use crate::compare::same::times;
use crate::load::journal::{JournalError, Kept};

/// A line that is longer is read once to see what its values would take, bytes.
const LONG: usize = 1 << 20;
/// Memory that the values of a line may take, bytes.
const LINE_MEMORY: usize = 128 << 20;

/// Whether each line of a journal may be read in little memory.
///
/// # Errors
/// With the number of the first line that may not.
pub fn lines_fit(text: &[u8]) -> Result<(), usize> {
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.len() > LONG {
            let budget = Budget::new(LINE_MEMORY);
            let _ = budget.value(&["text"]).deserialize(&mut serde_json::Deserializer::from_slice(line));
            if budget.is_exceeded() {
                return Err(index + 1);
            }
        }
    }
    Ok(())
}

pub(super) fn read(file: &str, text: &str) -> Result<Run, ReadError> {
    lines_fit(text.as_bytes()).map_err(|line| ReadError::Row {
        file: file.to_owned(),
        line,
        cause: format!("its values would take more than {} MiB", LINE_MEMORY >> 20),
    })?;
    let kept = Kept::parse(Path::new(file), text.as_bytes()).map_err(|error| {
        let (line, cause) = match error {
            JournalError::Line { line, reason, .. } => (line, reason),
            other => (1, other.to_string()),
        };
        ReadError::Row { file: file.to_owned(), line, cause }
    })?;
    let mut run = Run::new(file, Tool::K3plan);
    let setting = |name: &str| kept.settings.get(name);
    run.journal = true;
    run.seed = seed(setting("seed"));
    run.time = time(kept.parts.first().copied());
    for (name, key) in [
        ("concurrency", "max_concurrency"),
        ("request_rate", "request_rate"),
        ("num_prompts", "num_prompts"),
        ("model", "model"),
    ] {
        label(&mut run, name, setting(key));
    }
    let good: Vec<_> = kept.records.iter().filter(|record| record.succeeded()).collect();
    run.failed = u64::try_from(kept.records.len() - good.len()).ok();
    if good.is_empty() {
        return Err(ReadError::NothingCompleted { file: file.to_owned(), key: "completed".to_owned() });
    }
    for record in &good {
        let times = [record.latency, record.start].into_iter().chain(record.ttft);
        let gaps = record.itl.iter().map(|gap| f64::from(*gap));
        if let Some(time) = times.chain(gaps).find(|time| !time.is_finite() || *time < 0.0) {
            return Err(ReadError::NotPositive {
                file: file.to_owned(),
                key: format!("request {}", record.index),
                value: time.to_string(),
            });
        }
    }
    let planned = setting("num_prompts").and_then(Value::as_u64).unwrap_or(0);
    if planned > kept.records.len() as u64 {
        run.remarks.push(format!(
            "the journal holds {} of {planned} requests: the run did not come to its end",
            kept.records.len()
        ));
    }
    run.requests = times(good.iter().filter_map(|record| record.ttft).map(|seconds| seconds * 1e3));
    let milliseconds = |seconds: f64| seconds * 1e3;
    add_requests(
        &mut run,
        "ttft_ms",
        good.iter().filter_map(|record| record.ttft).map(milliseconds).collect(),
    );
    add_requests(&mut run, "tpot_ms", good.iter().filter_map(|r| r.tpot()).map(milliseconds).collect());
    add_requests(&mut run, "e2el_ms", good.iter().map(|record| milliseconds(record.latency)).collect());
    let gaps = good.iter().flat_map(|record| &record.itl).map(|gap| milliseconds(f64::from(*gap)));
    add_requests(&mut run, "itl_ms", gaps.collect());
    // ITLs of one request hang together, so their median has no error of its own here.
    if let Some(median) = Metric::named("median_itl_ms").and_then(|metric| run.figures.get_mut(&metric)) {
        median.standard_error = None;
    }
    let tokens = good.iter().fold(0.0, |sum, record| sum + record.output_tokens as f64);
    for (name, count) in [("output_throughput", tokens), ("request_throughput", good.len() as f64)] {
        let rate = count / kept.duration;
        if let Some(metric) = Metric::named(name).filter(|_| rate.is_finite() && rate > 0.0) {
            run.figures.insert(metric, Measured { value: rate, standard_error: None });
        }
    }
    Ok(run)
}
