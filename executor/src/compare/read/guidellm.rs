//! What does guidellm's `benchmarks.json` say?
//!
//! Shape: `guidellm/benchmark/schemas/{report,benchmark,metrics}.py`, 0.8.1 (report version 2; older reports
//! nest the same metrics): `benchmarks[].metrics.NAME.successful.{mean,median,percentiles}`, one benchmark a
//! load. guidellm's `inter_token_latency_ms` leaves the first token out, as vLLM's TPOT does; its
//! `time_per_output_token_ms` counts it in and is not comparable, so it is not read. `request_latency` is in
//! seconds.

use serde_json::Value;

use super::ReadError;
use super::fields::{add, label, seed, time};
use crate::compare::run::{Run, Tool};

pub(super) fn is_report(document: &Value) -> bool {
    document
        .get("benchmarks")
        .and_then(Value::as_array)
        .is_some_and(|benchmarks| benchmarks.iter().any(|benchmark| benchmark.get("metrics").is_some()))
}

pub(super) fn read(file: &str, document: &Value) -> Result<Vec<Run>, ReadError> {
    let benchmarks = document.get("benchmarks").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut runs = Vec::new();
    for (index, benchmark) in benchmarks.iter().enumerate() {
        let source = if benchmarks.len() > 1 { format!("{file}#{}", index + 1) } else { file.to_owned() };
        let mut run = Run::new(source, Tool::Guidellm);
        run.seed = seed(find(document, &["config", "random_seed"]))
            .or_else(|| seed(find(document, &["config", "seed"])))
            .or_else(|| seed(find(document, &["args", "random_seed"])));
        run.time = time(benchmark.get("start_time").and_then(Value::as_f64));
        let strategy = find(benchmark, &["config", "strategy"])
            .or_else(|| find(benchmark, &["scheduler", "strategy"]))
            .or_else(|| find(benchmark, &["args", "strategy"]));
        if let Some(strategy) = strategy {
            label(&mut run, "strategy", strategy.get("type_"));
            label(
                &mut run,
                "concurrency",
                strategy.get("streams").or_else(|| strategy.get("max_concurrency")),
            );
            label(&mut run, "request_rate", strategy.get("rate"));
        }
        read_metrics(&mut run, benchmark.get("metrics").unwrap_or(&Value::Null))?;
        runs.push(run);
    }
    Ok(runs)
}

fn read_metrics(run: &mut Run, metrics: &Value) -> Result<(), ReadError> {
    let totals = metrics.get("request_totals");
    if totals.and_then(|totals| totals.get("successful")).and_then(Value::as_f64) == Some(0.0) {
        let key = "metrics.request_totals.successful".to_owned();
        return Err(ReadError::NothingCompleted { file: run.source.clone(), key });
    }
    run.failed = totals.and_then(|totals| totals.get("errored")).and_then(Value::as_u64);
    for (name, ours, factor) in [
        ("time_to_first_token_ms", "ttft_ms", 1.0),
        ("inter_token_latency_ms", "tpot_ms", 1.0),
        ("request_latency", "e2el_ms", 1e3),
    ] {
        let Some(summary) = find(metrics, &[name, "successful"]) else { continue };
        let path = format!("metrics.{name}.successful");
        if is_empty(summary) {
            continue;
        }
        for (statistic, ours_statistic) in [("mean", "mean"), ("median", "median")] {
            if let Some(value) = summary.get(statistic) {
                add(run, &format!("{path}.{statistic}"), &format!("{ours_statistic}_{ours}"), value, factor)?;
            }
        }
        for percentile in ["p90", "p95", "p99"] {
            if let Some(value) = find(summary, &["percentiles", percentile]) {
                let key = format!("{path}.percentiles.{percentile}");
                add(run, &key, &format!("{percentile}_{ours}"), value, factor)?;
            }
        }
    }
    for (name, ours) in [
        ("requests_per_second", "request_throughput"),
        ("output_tokens_per_second", "output_throughput"),
        ("tokens_per_second", "total_token_throughput"),
    ] {
        let Some(summary) = find(metrics, &[name, "successful"]).filter(|summary| !is_empty(summary)) else {
            continue;
        };
        if let Some(mean) = summary.get("mean") {
            add(run, &format!("metrics.{name}.successful.mean"), ours, mean, 1.0)?;
        }
    }
    Ok(())
}

/// Whether a summary is over nothing; guidellm fills it with zeros then.
fn is_empty(summary: &Value) -> bool {
    summary.get("count").and_then(Value::as_f64) == Some(0.0)
}

fn find<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}
