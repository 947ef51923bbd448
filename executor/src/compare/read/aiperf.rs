//! What do aiperf's exports say?
//!
//! Shapes: `aiperf/common/models/{export_models,record_models}.py`, 0.13.0. `profile_export_aiperf.json` maps
//! a metric to `{unit, avg, p50, ...}`; `profile_export.jsonl` has one object a request with `metadata`,
//! `metrics` (`{value, unit}`) and `error`. aiperf's `inter_token_latency` of a request is vLLM's TPOT
//! (decode time over tokens less one); `inter_chunk_latency` is vLLM's ITL.

use serde_json::{Map, Value};

use super::ReadError;
use super::fields::{add, add_requests, label, not_positive, positive, seed, time};
use crate::compare::run::{Run, Tool};

/// aiperf's name and ours, for what is a distribution over requests.
const TIMES: [(&str, &str); 4] = [
    ("time_to_first_token", "ttft_ms"),
    ("inter_token_latency", "tpot_ms"),
    ("inter_chunk_latency", "itl_ms"),
    ("request_latency", "e2el_ms"),
];

const RATES: [(&str, &str); 4] = [
    ("output_token_throughput", "output_throughput"),
    ("total_token_throughput", "total_token_throughput"),
    ("request_throughput", "request_throughput"),
    ("goodput", "request_goodput"),
];

pub(super) fn is_summary(document: &Value) -> bool {
    let known = |name: &str| document.get(name).is_some_and(|metric| metric.get("unit").is_some());
    document.get("aiperf_version").is_some() || TIMES.iter().chain(&RATES).any(|(name, _)| known(name))
}

pub(super) fn is_record(document: &Value) -> bool {
    document.get("metrics").is_some_and(Value::is_object) && document.get("metadata").is_some()
}

pub(super) fn read_summary(file: &str, document: &Value) -> Result<Run, ReadError> {
    let empty = Map::new();
    let object = document.as_object().unwrap_or(&empty);
    let mut run = Run::new(file, Tool::Aiperf);
    let path = |path: &[&str]| path.iter().try_fold(document, |value, key| value.get(key));
    run.seed = seed(path(&["run_info", "random_seed"]))
        .or_else(|| seed(path(&["input_config", "input", "random_seed"])))
        .or_else(|| seed(path(&["input_config", "random_seed"])));
    run.time = path(&["start_time"]).and_then(Value::as_str).map(str::to_owned);
    run.failed = path(&["error_request_count", "avg"]).and_then(Value::as_f64).and_then(whole);
    // The last phase is the measured one; versions before 0.12 said `loadgen`.
    let phase = path(&["input_config", "phases"]).and_then(Value::as_array).and_then(|phases| phases.last());
    if let Some(load) = phase.or_else(|| path(&["input_config", "loadgen"])) {
        label(&mut run, "concurrency", load.get("concurrency"));
        label(&mut run, "request_rate", load.get("rate").or_else(|| load.get("request_rate")));
    }
    if document.get("is_complete").and_then(Value::as_bool) == Some(false) {
        run.remarks.push("the run did not come to its end".to_owned());
    }
    if path(&["request_count", "avg"]).and_then(Value::as_f64) == Some(0.0) {
        let key = "request_count.avg".to_owned();
        return Err(ReadError::NothingCompleted { file: file.to_owned(), key });
    }
    for (name, ours) in TIMES {
        let Some(metric) = object.get(name).and_then(Value::as_object) else { continue };
        let factor = milliseconds(file, name, metric.get("unit"))?;
        for (statistic, value) in metric {
            let ours_statistic = match statistic.as_str() {
                "avg" => "mean",
                "p50" => "median",
                "p90" | "p95" | "p99" => statistic,
                _ => continue,
            };
            add(
                &mut run,
                &format!("{name}.{statistic}"),
                &format!("{ours_statistic}_{ours}"),
                value,
                factor,
            )?;
        }
    }
    for (name, ours) in RATES {
        let Some(value) = object.get(name).and_then(|metric| metric.get("avg")) else { continue };
        // A goodput of nothing is a figure without a ratio.
        if !(ours == "request_goodput" && value.as_f64() == Some(0.0)) {
            add(&mut run, &format!("{name}.avg"), ours, value, 1.0)?;
        }
    }
    Ok(run)
}

/// The requests of a file, one after the other.
pub(super) struct Records {
    file: String,
    count: usize,
    failed: u64,
    started: Option<f64>,
    columns: [Vec<f64>; TIMES.len()],
}

impl Records {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), count: 0, failed: 0, started: None, columns: Default::default() }
    }

    /// Adds a request.
    pub(super) fn add(&mut self, record: &Value) -> Result<(), ReadError> {
        self.count += 1;
        let phase = record.get("metadata").and_then(|metadata| metadata.get("benchmark_phase"));
        if phase.and_then(Value::as_str).is_some_and(|phase| phase != "profiling") {
            return Ok(());
        }
        if record.get("error").is_some_and(|error| !error.is_null()) {
            self.failed += 1;
            return Ok(());
        }
        let start = record.get("metadata").and_then(|metadata| metadata.get("request_start_ns"));
        if let Some(start) = start.and_then(Value::as_f64) {
            self.started = Some(self.started.map_or(start, |earlier| earlier.min(start)));
        }
        let file = self.file.as_str();
        for ((name, _), column) in TIMES.iter().zip(&mut self.columns) {
            let Some(metric) = record.get("metrics").and_then(|metrics| metrics.get(*name)) else { continue };
            let key = || format!("{name} of record {}", self.count);
            let factor = milliseconds(file, &key(), metric.get("unit"))?;
            match metric.get("value") {
                // The gaps between chunks are a list, and a gap may be nothing.
                Some(Value::Array(gaps)) => {
                    for gap in gaps {
                        let value = gap.as_f64().filter(|gap| gap.is_finite() && *gap >= 0.0);
                        column.push(value.ok_or_else(|| not_positive(file, &key(), gap))? * factor);
                    }
                }
                Some(value) => column.extend(positive(file, &key(), value)?.map(|value| value * factor)),
                None => {}
            }
        }
        Ok(())
    }

    /// The run that they make.
    pub(super) fn run(self) -> Run {
        let mut run = Run::new(self.file, Tool::Aiperf);
        run.time = time(self.started.map(|nanoseconds| nanoseconds / 1e9));
        run.failed = Some(self.failed);
        for ((_, ours), column) in TIMES.iter().zip(self.columns) {
            add_requests(&mut run, ours, column);
        }
        run
    }
}

/// How many milliseconds the unit is.
fn milliseconds(file: &str, key: &str, unit: Option<&Value>) -> Result<f64, ReadError> {
    match unit.and_then(Value::as_str) {
        None | Some("ms" | "milliseconds") => Ok(1.0),
        Some("s" | "sec" | "seconds") => Ok(1e3),
        Some("us" | "µs" | "microseconds") => Ok(1e-3),
        Some("ns" | "nanoseconds") => Ok(1e-6),
        Some(unit) => {
            Err(ReadError::Unit { file: file.to_owned(), key: key.to_owned(), unit: unit.to_owned() })
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count that a tool wrote as a float; the cast saturates"
)]
fn whole(count: f64) -> Option<u64> {
    (count >= 0.0).then_some(count as u64)
}
