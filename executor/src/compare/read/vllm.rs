//! What does a result file of `vllm bench serve` say?
//!
//! Keys: `vllm/benchmarks/serve.py`, 0.32.0, `benchmark` and `main_async`. `k3plan bench` writes the same keys
//! and an object `k3plan`. Times in the summary are milliseconds, in the per-request arrays of
//! `--save-detailed` seconds.

use serde_json::{Map, Value};

use super::ReadError;
use super::document::{Content, Gaps, Requests};
use super::fields::{add, add_requests, label, seed, time};
use crate::compare::metric::Metric;
use crate::compare::run::{Run, Tool};
use crate::compare::same::times;

const SIGNS: [&str; 4] = ["output_throughput", "request_throughput", "total_token_throughput", "ttfts"];

pub(super) fn is_result(document: &Value) -> bool {
    document.as_object().is_some_and(|object| {
        SIGNS.iter().any(|sign| object.contains_key(*sign))
            || object.keys().any(|key| Metric::named(key).is_some())
    })
}

pub(super) fn read(file: &str, document: &Content) -> Result<Run, ReadError> {
    let empty = Map::new();
    let object = document.value.as_object().unwrap_or(&empty);
    let own = object.get("k3plan");
    let mut run = Run::new(file, if own.is_some() { Tool::K3plan } else { Tool::Vllm });
    let nested = |key: &str| own.and_then(|own| own.get(key));
    run.seed = seed(object.get("seed")).or_else(|| seed(nested("seed")));
    if own.is_some() {
        let start = object.get("server_start").and_then(Value::as_str);
        run.start = start.and_then(|start| start.parse().ok());
    }
    // The date knows whole seconds only.
    run.time = time(nested("started_at").and_then(Value::as_f64))
        .or_else(|| object.get("date").and_then(Value::as_str).map(str::to_owned));
    run.failed = object.get("failed").and_then(Value::as_u64);
    for (name, key) in [
        ("concurrency", "max_concurrency"),
        ("request_rate", "request_rate"),
        ("num_prompts", "num_prompts"),
        ("model", "model_id"),
    ] {
        label(&mut run, name, object.get(key));
    }
    if object.get("completed").and_then(Value::as_f64) == Some(0.0) {
        return Err(ReadError::NothingCompleted { file: file.to_owned(), key: "completed".to_owned() });
    }
    for (key, value) in object {
        let name = canonical(key);
        if is_unmeasured(object, &name, value) {
            continue;
        }
        add(&mut run, key, &name, value, 1.0)?;
    }
    read_requests(&mut run, &document.requests)?;
    if nested("interrupted").and_then(Value::as_bool) == Some(true) {
        let count = |key: &str| object.get(key).and_then(Value::as_u64).unwrap_or(0);
        run.remarks.push(format!(
            "the run was interrupted: {} of {} requests finished",
            count("completed") + count("failed"),
            count("num_prompts")
        ));
    }
    Ok(run)
}

/// vLLM's name of a key; SGLang's copy of the tool says `e2e_latency` and percentile keys as the same.
fn canonical(key: &str) -> String {
    match key {
        "spec_decode_acceptance_length" | "accept_length" => "acceptance_length".to_owned(),
        _ => key.replace("_e2e_latency_ms", "_e2el_ms"),
    }
}

/// Whether a zero says that nothing was measured rather than that nothing took no time.
///
/// Without a second token there is no TPOT and no ITL (vLLM then writes 0), and a goodput of 0 is a figure
/// that has no ratio.
fn is_unmeasured(object: &Map<String, Value>, name: &str, value: &Value) -> bool {
    if value.as_f64() != Some(0.0) {
        return false;
    }
    if name == "request_goodput" || name == "acceptance_length" {
        return true;
    }
    let count = |key: &str| object.get(key).and_then(Value::as_f64);
    let single = matches!((count("total_output_tokens"), count("completed")),
        (Some(tokens), Some(completed)) if tokens <= completed);
    // Where every answer came in one chunk nothing was measured after its first token.
    let in_one_chunk = count("mean_itl_ms") == Some(0.0);
    (single || in_one_chunk) && (name.ends_with("_tpot_ms") || name.ends_with("_itl_ms"))
}

/// Reads the per-request arrays, in seconds.
fn read_requests(run: &mut Run, requests: &Requests) -> Result<(), ReadError> {
    let Requests { ttfts: Some(ttfts), errors, output_lens: lengths, itls, latencies } = requests else {
        return Ok(());
    };
    let (mut first, mut each, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let mut gaps = Vec::with_capacity(itls.as_ref().map_or(0, Gaps::count));
    for (index, ttft) in ttfts.iter().enumerate() {
        let failed = errors.as_ref().and_then(|errors| errors.get(index)).is_some_and(|failed| *failed);
        let tokens = lengths.as_ref().and_then(|lengths| lengths.get(index)).copied().flatten();
        // vLLM keeps a place for a failed request, with a TTFT of 0 and no tokens.
        if failed || tokens == Some(0.0) || (*ttft == Some(0.0) && run.failed.is_some_and(|count| count > 0))
        {
            continue;
        }
        let Some(ttft) = positive(run, ("ttfts", index), *ttft)? else { continue };
        let mut sum = ttft;
        for (place, gap) in itls.iter().flat_map(|itls| itls.of(index)).enumerate() {
            if !(gap.is_finite() && *gap >= 0.0) {
                return Err(number_not_positive(run, format!("itls[{index}][{place}]"), *gap));
            }
            sum += gap;
            gaps.push(gap * 1e3);
        }
        let latency = match latencies.as_ref().and_then(|latencies| latencies.get(index)) {
            Some(value) => positive(run, ("latencies", index), *value)?,
            None => itls.is_some().then_some(sum),
        };
        first.push(ttft * 1e3);
        if let Some(latency) = latency {
            whole.push(latency * 1e3);
            if let Some(tokens) = tokens.filter(|tokens| *tokens > 1.0) {
                each.push((latency - ttft).max(0.0) * 1e3 / (tokens - 1.0));
            }
        }
    }
    run.requests = times(first.iter().copied());
    remark_on_chunks(run, &gaps);
    add_requests(run, "ttft_ms", first);
    add_requests(run, "tpot_ms", each);
    add_requests(run, "e2el_ms", whole);
    // ITLs of one request hang together, so their median has no error of its own here.
    add_requests(run, "itl_ms", gaps);
    if let Some(median) = Metric::named("median_itl_ms").and_then(|metric| run.figures.get_mut(&metric)) {
        median.standard_error = None;
    }
    Ok(())
}

/// A time above zero; `None` for null.
fn positive(run: &Run, (list, index): (&str, usize), value: Option<f64>) -> Result<Option<f64>, ReadError> {
    match value {
        Some(number) if !(number.is_finite() && number > 0.0) => {
            Err(number_not_positive(run, format!("{list}[{index}]"), number))
        }
        fine => Ok(fine),
    }
}

fn number_not_positive(run: &Run, key: String, number: f64) -> ReadError {
    // As Python writes it.
    let value = number.to_string().replace("inf", "Infinity");
    ReadError::NotPositive { file: run.source.clone(), key, value }
}

/// Several tokens in one chunk leave ITLs near zero.
fn remark_on_chunks(run: &mut Run, gaps: &[f64]) {
    let near_zero = gaps.iter().filter(|gap| **gap < 0.1).count();
    if near_zero * 20 > gaps.len() {
        run.remarks.push(format!(
            "{near_zero} of {} ITLs are below 0.1 ms, tokens came several in a chunk: its median and mean ITL \
             mean different things, its TPOT is sound",
            gaps.len()
        ));
    }
}
