//! How long an explanation takes: 1,000 layers of 50 distinct specs.

#![expect(clippy::expect_used, missing_docs, reason = "a benchmark with fixed inputs")]

use criterion::{Criterion, criterion_group, criterion_main};
use planner::dtype::DType;
use planner::engine::EngineVersion;
use planner::explain::explain;
use planner::{EngineSettings, KvCacheSpec, Model, RawSpec, SpecKind};
use std::hint::black_box;

/// Layer i of a model of 50 specs: full attention, windows and MLA that differ in one field each.
fn spec(i: u64) -> KvCacheSpec {
    let kind = [SpecKind::Full, SpecKind::Sliding, SpecKind::Mla][usize::try_from(i % 3).unwrap_or(0)];
    let mut raw = RawSpec::empty(kind);
    raw.block_size = Some(16);
    raw.dtype = Some(DType::BFloat16);
    raw.num_kv_heads = Some(if kind == SpecKind::Mla { 1 } else { 8 });
    raw.head_size = Some(if kind == SpecKind::Mla { 2048 } else { 128 });
    match kind {
        SpecKind::Full => raw.max_tp_shards = Some(i + 1),
        SpecKind::Sliding => raw.sliding_window = Some(128 * (i + 1)),
        _ => {
            raw.max_tp_shards = Some(1 + i % 2);
            raw.cache_dtype_str = Some(format!("x{i}").into());
        }
    }
    KvCacheSpec::try_from(raw).expect("a valid spec")
}

fn benches(c: &mut Criterion) {
    let mut model = Model::default();
    for layer in 0..1000_u64 {
        // A fixed shuffle.
        model.push(spec(layer * 7919 % 50));
    }
    let settings = EngineSettings {
        tensor_parallel_size: 8,
        max_model_len: 32_768,
        available_memory_bytes: vec![80 << 30],
        ..EngineSettings::default()
    };
    let rules = EngineVersion::LATEST.rules();
    c.bench_function("explain/1,000 layers, 50 specs", |b| {
        b.iter(|| explain(black_box(&model), &settings, &rules));
    });
}

criterion_group!(explanation, benches);
criterion_main!(explanation);
