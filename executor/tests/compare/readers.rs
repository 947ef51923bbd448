//! Every tool's file, in the shape its own source writes.

use executor::compare::metric::Metric;
use executor::compare::read::{ReadError, read};
use executor::compare::run::{Run, Tool};
use serde_json::{Value, json};

fn one(document: &Value) -> Run {
    let mut runs = read("f.json", &document.to_string()).unwrap();
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

fn figure(run: &Run, name: &str) -> f64 {
    run.figures.get(&Metric::named(name).unwrap()).unwrap_or_else(|| panic!("{name}")).value
}

fn near(left: f64, right: f64) {
    assert!((left / right - 1.0).abs() < 1e-9, "{left} {right}");
}

fn vllm() -> Value {
    json!({
        "date": "20251020-153000", "endpoint_type": "openai", "backend": "openai", "label": null,
        "model_id": "m", "tokenizer_id": "m", "num_prompts": 80, "request_rate": "inf", "burstiness": 1.0,
        "max_concurrency": 8, "duration": 60.0, "completed": 80, "failed": 1, "total_input_tokens": 655_360,
        "total_output_tokens": 81_920, "request_throughput": 1.3, "request_goodput": null,
        "output_throughput": 700.5, "total_token_throughput": 6300.0, "max_output_tokens_per_s": 900.0,
        "max_concurrent_requests": 9, "rtfx": 0.0, "mean_ttft_ms": 510.0, "median_ttft_ms": 500.0,
        "std_ttft_ms": 0.0, "p99_ttft_ms": 900.0, "mean_tpot_ms": 11.2, "median_tpot_ms": 11.1,
        "std_tpot_ms": 0.3, "p99_tpot_ms": 12.0, "mean_itl_ms": 11.3, "median_itl_ms": 11.0, "p99_itl_ms": 20.0,
        "spec_decode_acceptance_length": 3.84
    })
}

#[test]
fn vllm_summary_and_k3plan() {
    let run = one(&vllm());
    assert_eq!((run.tool, run.failed, run.seed), (Tool::Vllm, Some(1), None));
    assert_eq!(run.time.as_deref(), Some("20251020-153000"));
    near(figure(&run, "median_tpot_ms"), 11.1);
    near(figure(&run, "output_throughput"), 700.5);
    near(figure(&run, "acceptance_length"), 3.84);
    let mut own = vllm();
    own["k3plan"] = json!({ "seed": 7 });
    let run = one(&own);
    assert_eq!((run.tool, run.seed), (Tool::K3plan, Some(7)));
}

#[test]
fn a_journal_is_the_run_it_belongs_to() {
    let record = |index: u32, ttft: f64| {
        json!({ "line": "request", "part": 0, "record": { "index": index, "start": 0.1, "queue": 0.0, "lag": 0.0,
            "connect": null, "ttft": ttft, "latency": ttft + 0.04, "itl": [0.02, 0.02], "prompt_tokens": 8,
            "output_tokens": 3, "counted_by": "usage" } })
    };
    let lines = [
        json!({ "line": "header", "schema": "k3plan.journal/1", "settings": { "seed": 4, "model": "m",
            "max_concurrency": 2, "num_prompts": 3, "request_rate": "inf" } }),
        json!({ "line": "part", "part": 0, "started_at": 1_760_000_000.5 }),
        record(0, 0.1),
        record(1, 0.3),
    ];
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    // The line that was being written when the run was killed.
    text.push_str("{\"line\": \"request\", \"par");
    let runs = read("r.json.journal", &text).unwrap();
    let run = &runs[0];
    assert_eq!((runs.len(), run.tool, run.seed, run.failed), (1, Tool::K3plan, Some(4), Some(0)));
    assert_eq!(run.labels["concurrency"], "2");
    assert!(run.remarks[0].contains("2 of 3 requests"), "{:?}", run.remarks);
    near(figure(run, "median_ttft_ms"), 200.0);
    near(figure(run, "median_tpot_ms"), 20.0);
    near(figure(run, "median_e2el_ms"), 240.0);
    near(figure(run, "output_throughput"), 6.0 / 0.44);
    let mut result = vllm();
    result["k3plan"] = json!({ "started_at": 1_760_000_000.5 });
    assert_eq!(one(&result).time, run.time, "in one order with results");
    let broken = text.replacen("\"part\":0,\"started_at\"", "\"part\":\"x\",\"started_at\"", 1);
    assert!(matches!(read("r.json.journal", &broken), Err(ReadError::Row { line: 2, .. })));
}

#[test]
fn vllm_details_give_what_the_summary_lacks() {
    let run = one(&json!({
        "completed": 2, "failed": 1, "output_throughput": 10.0, "ttfts": [0.1, 0.0, 0.2],
        "itls": [[0.01, 0.01], [], [0.02, 0.02]], "output_lens": [3, 0, 3], "errors": ["", "timeout", ""]
    }));
    near(figure(&run, "median_ttft_ms"), 150.0);
    near(figure(&run, "median_tpot_ms"), 15.0);
    near(figure(&run, "median_e2el_ms"), 180.0);
}

#[test]
fn appended_results_are_several_runs() {
    let text = format!("{}\n{}", vllm(), vllm());
    assert_eq!(read("f.json", &text).unwrap().len(), 2);
}

#[test]
fn guidellm_report() {
    let summary = |median: f64| {
        json!({ "successful": { "mean": median * 1.1, "median": median, "count": 80,
            "percentiles": { "p90": median * 1.2, "p95": median * 1.3, "p99": median * 1.4 } },
            "errored": null, "incomplete": null, "total": null })
    };
    let benchmark = |streams: u32| {
        json!({ "type_": "generative_benchmark", "start_time": 1_760_000_000.0,
            "config": { "strategy": { "type_": "concurrent", "streams": streams } },
            "metrics": { "request_totals": { "successful": 80, "errored": 0, "incomplete": 0, "total": 80 },
                "time_to_first_token_ms": summary(500.0), "inter_token_latency_ms": summary(11.0),
                "request_latency": summary(2.5), "output_tokens_per_second": summary(700.0),
                "requests_per_second": summary(1.5) } })
    };
    let document =
        json!({ "metadata": { "version": 2 }, "config": {}, "benchmarks": [benchmark(8), benchmark(16)] });
    let runs = read("benchmarks.json", &document.to_string()).unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].tool, Tool::Guidellm);
    assert_eq!(runs[1].labels["concurrency"], "16");
    near(figure(&runs[0], "median_tpot_ms"), 11.0);
    near(figure(&runs[0], "median_e2el_ms"), 2500.0);
    near(figure(&runs[0], "output_throughput"), 770.0);
}

#[test]
fn aiperf_summary_and_records() {
    let run = one(&json!({
        "schema_version": "1.4", "aiperf_version": "0.13.0", "run_info": { "random_seed": 42 },
        "input_config": { "phases": [{ "type": "concurrency", "concurrency": 8 }] },
        "time_to_first_token": { "unit": "ms", "avg": 510.0, "p50": 500.0, "p99": 900.0, "std": 0.0, "min": 0.0 },
        "inter_token_latency": { "unit": "us", "avg": 11_200.0, "p50": 11_100.0 },
        "request_latency": { "unit": "sec", "p50": 2.5 },
        "output_token_throughput": { "unit": "tokens/sec", "avg": 700.0 }
    }));
    assert_eq!((run.tool, run.seed), (Tool::Aiperf, Some(42)));
    assert_eq!(run.labels["concurrency"], "8");
    near(figure(&run, "median_tpot_ms"), 11.1);
    near(figure(&run, "median_e2el_ms"), 2500.0);
    let record = |phase: &str, tpot: f64| {
        json!({ "metadata": { "session_num": 0, "request_start_ns": 1_760_000_000_000_000_000_u64,
                "benchmark_phase": phase },
            "metrics": { "time_to_first_token": { "value": 500.0, "unit": "ms" },
                "inter_token_latency": { "value": tpot, "unit": "ms" },
                "inter_chunk_latency": { "value": [10.0, 0.0], "unit": "ms" } }, "error": null })
        .to_string()
    };
    let lines = [record("warmup", 99.0), record("profiling", 10.0), record("profiling", 12.0)].join("\n");
    let runs = read("profile_export.jsonl", &lines).unwrap();
    near(figure(&runs[0], "median_tpot_ms"), 11.0);
}

#[test]
fn inferencex_flat_and_nested() {
    let run = one(&json!({ "hw": "mi355x", "conc": 8, "model": "m", "framework": "vllm", "precision": "fp4",
        "isl": 8192, "osl": 1024, "tp": 8, "tput_per_gpu": 701.0, "output_tput_per_gpu": 80.0,
        "median_tpot": 0.0111, "median_intvty": 90.0, "std_tpot": 0.0, "p99_ttft": 0.9, "median_ttft": 0.5 }));
    assert_eq!(run.tool, Tool::InferenceX);
    near(figure(&run, "median_tpot_ms"), 11.1);
    near(figure(&run, "p99_ttft_ms"), 900.0);
    let nested = one(&json!({ "hw": "b300", "conc": 8, "request_metrics": {
        "tpot": { "mean": 0.012, "p50": 0.011, "std": 0.0 }, "intvty": { "p50": 90.9 },
        "throughput": { "per_gpu": { "total_tput_tps": 700.0 } } } }));
    near(figure(&nested, "median_tpot_ms"), 11.0);
    near(figure(&nested, "tput_per_gpu"), 700.0);
}

#[test]
fn lm_eval_gsm8k() {
    let run = one(&json!({
        "results": { "gsm8k": { "alias": "gsm8k", "exact_match,strict-match": 0.9636,
            "exact_match_stderr,strict-match": 0.0052, "exact_match,flexible-extract": 1.0,
            "exact_match_stderr,flexible-extract": "N/A" } },
        "n-samples": { "gsm8k": { "original": 1319, "effective": 1319 } }, "versions": { "gsm8k": 3 },
        "config": { "random_seed": 0 }, "lm_eval_version": "0.4.13", "date": 1_760_000_000.5
    }));
    assert_eq!(run.tool, Tool::LmEval);
    let strict = run.figures[&Metric::accuracy("gsm8k/exact_match,strict-match")];
    near(strict.standard_error.unwrap(), 0.0052);
    assert!(
        run.figures[&Metric::accuracy("gsm8k/exact_match,flexible-extract")].standard_error.unwrap() > 0.0
    );
}

#[test]
fn bad_figures_name_file_and_key() {
    for bad in ["NaN", "0", "0.0", "-3.5", "Infinity", "\"fast\"", "true", "[]"] {
        let text =
            vllm().to_string().replace("\"median_tpot_ms\":11.1", &format!("\"median_tpot_ms\":{bad}"));
        match read("run.json", &text) {
            Err(ReadError::NotPositive { file, key, .. }) => {
                assert_eq!((file.as_str(), key.as_str()), ("run.json", "median_tpot_ms"));
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
    let cut = vllm().to_string();
    assert!(matches!(read("f", &cut[..cut.len() / 2]), Err(ReadError::NotJson { .. })));
    assert!(matches!(read("f", "{\"a\": 1}"), Err(ReadError::Unknown { .. })));
    assert!(read("f", "").is_err());
    assert!(read("f", "\u{0}\u{1}").is_err());
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = read("f", &text);
    }

    #[test]
    fn no_value_panics(value in proptest::num::f64::ANY, key in 0..4_usize) {
        let mut document = vllm();
        let keys = ["median_tpot_ms", "ttfts", "itls", "completed"];
        document[keys[key]] = json!([value, [value], null]);
        let _ = read("f", &document.to_string());
    }
}
