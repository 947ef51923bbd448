//! What does InferenceX's aggregated result say?
//!
//! Shapes: `utils/process_result.py` (one flat object, times in seconds, each `X_ms` of `vllm bench` as `X`,
//! `intvty` as tokens a second a user) and `utils/agentic/aggregation/process_agentic_result.py`
//! (`request_metrics` nested by metric) of SemiAnalysisAI/InferenceX. Several results may lie in one array.

use serde_json::{Map, Value};

use super::ReadError;
use super::fields::{add, label};
use crate::compare::run::{Run, Tool};

pub(super) fn is_result(document: &Value) -> bool {
    document.get("tput_per_gpu").is_some()
        || document.get("output_tput_per_gpu").is_some()
        || (document.get("request_metrics").is_some_and(Value::is_object) && document.get("hw").is_some())
}

pub(super) fn read(file: &str, document: &Value) -> Result<Run, ReadError> {
    let empty = Map::new();
    let object = document.as_object().unwrap_or(&empty);
    let mut run = Run::new(file, Tool::InferenceX);
    run.seed = super::fields::seed(object.get("seed"));
    for (name, key) in [
        ("concurrency", "conc"),
        ("input_tokens", "isl"),
        ("output_tokens", "osl"),
        ("model", "model"),
        ("hw", "hw"),
        ("framework", "framework"),
        ("precision", "precision"),
        ("tp", "tp"),
        ("spec_decoding", "spec_decoding"),
    ] {
        label(&mut run, name, object.get(key));
    }
    for (key, value) in object {
        let latency = ["_ttft", "_tpot", "_itl", "_e2el"].iter().any(|suffix| key.ends_with(suffix));
        if latency {
            add(&mut run, key, &format!("{key}_ms"), value, 1e3)?;
        } else {
            add(&mut run, key, key, value, 1.0)?;
        }
    }
    if let Some(nested) = object.get("request_metrics") {
        read_nested(&mut run, nested)?;
    }
    Ok(run)
}

fn read_nested(run: &mut Run, nested: &Value) -> Result<(), ReadError> {
    for metric in ["ttft", "tpot", "itl", "e2el", "intvty"] {
        let Some(statistics) = nested.get(metric).and_then(Value::as_object) else { continue };
        for (statistic, value) in statistics {
            let ours = if statistic == "p50" { "median" } else { statistic };
            let key = format!("request_metrics.{metric}.{statistic}");
            if metric == "intvty" {
                add(run, &key, &format!("{ours}_intvty"), value, 1.0)?;
            } else {
                add(run, &key, &format!("{ours}_{metric}_ms"), value, 1e3)?;
            }
        }
    }
    let throughput = nested.get("throughput");
    for (key, ours) in [
        ("total_tput_tps", "tput_per_gpu"),
        ("output_tput_tps", "output_tput_per_gpu"),
        ("input_tput_tps", "input_tput_per_gpu"),
    ] {
        let value = throughput.and_then(|throughput| throughput.get("per_gpu")).and_then(|per| per.get(key));
        if let Some(value) = value {
            add(run, &format!("request_metrics.throughput.per_gpu.{key}"), ours, value, 1.0)?;
        }
    }
    Ok(())
}
