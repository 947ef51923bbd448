//! How long one estimate takes: of a model that is set up, and with setting it up.

#![expect(clippy::expect_used, missing_docs, reason = "a benchmark with fixed inputs")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use simulator::cost::closed_loop::{Kind, Load};
use simulator::cost::{CostModel, Factors, Hardware, Layout, Precision, Shape, WeightFormat};

/// A model of four kinds of layers: states and full attention, dense and with experts.
fn config() -> serde_json::Value {
    let kinds: Vec<&str> =
        (0..60).map(|layer| if layer % 4 == 3 { "full_attention" } else { "linear_attention" }).collect();
    json!({
        "hidden_size": 4096, "num_hidden_layers": 60, "layer_types": kinds, "vocab_size": 248_320,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 12_288,
        "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024, "first_k_dense_replace": 2
    })
}

fn benches(c: &mut Criterion) {
    let config = config();
    let hardware = Hardware::find("h200").expect("a shipped device");
    let precision = Precision { dense: WeightFormat::Bf16, experts: WeightFormat::Fp8Block, kv_bytes: 2.0 };
    let layout = Layout { tensor_parallel: 8, expert_parallel: true, early_fp8_experts: false };
    let factors = Factors::default();
    let shape = Shape::read(&config).expect("a whole config");
    let model = CostModel::new(&shape, hardware, precision, layout, &factors).expect("all figures");
    let load = Load {
        kind: Kind::ClosedLoop,
        concurrency: 64.0,
        input: 8192.0,
        output: 1024.0,
        prompts: 640.0,
        running_at_most: 256.0,
        chunk: 8192.0,
        drafts: 0.0,
        accepted: 1.0,
    };
    c.bench_function("estimate", |b| b.iter(|| model.estimate(black_box(&load))));
    c.bench_function("set up and estimate", |b| {
        b.iter(|| {
            CostModel::new(black_box(&shape), hardware, precision, layout, &factors)
                .map(|model| model.estimate(&load))
        });
    });
    c.bench_function("config to estimate", |b| {
        b.iter(|| {
            let shape = Shape::read(black_box(&config)).ok()?;
            let model = CostModel::new(&shape, hardware, precision, layout, &factors).ok()?;
            Some(model.estimate(&load))
        });
    });
}

criterion_group!(estimate, benches);
criterion_main!(estimate);
