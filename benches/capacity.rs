//! How long questions take from the start of the command to its end: capacity over 1,008 layouts, a whole search.

#![expect(clippy::expect_used, missing_docs, reason = "a benchmark with fixed inputs")]

use std::process::{Command, Stdio};

use criterion::{Criterion, criterion_group, criterion_main};

fn k3plan(arguments: &[&str]) {
    let status = Command::new(env!("CARGO_BIN_EXE_k3plan"))
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .expect("the command runs");
    assert!(status.success());
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("command");
    group.sample_size(10);
    // 8 devices, 9 layouts, 14 chunks.
    let chunks: Vec<String> = (1..=14).map(|n| (n * 2048).to_string()).collect();
    let chunks = chunks.join(",");
    for model in ["Qwen/Qwen3.5-35B-A3B", "moonshotai/Kimi-K3"] {
        group.bench_function(format!("capacity of {model}, 1,008 layouts"), |b| {
            b.iter(|| {
                k3plan(&[
                    "capacity",
                    "--model",
                    model,
                    "--slo",
                    "ttft<5s,tpot<80ms",
                    "--rate",
                    "20/s",
                    "--max-num-batched-tokens",
                    &chunks,
                    "--json",
                ]);
            });
        });
        group.bench_function(format!("optimize {model}"), |b| {
            b.iter(|| {
                k3plan(&[
                    "optimize",
                    "--model",
                    model,
                    "--hardware",
                    "mi355x",
                    "--concurrency",
                    "64",
                    "--json",
                ]);
            });
        });
    }
    group.finish();
}

criterion_group!(capacity, benches);
criterion_main!(capacity);
