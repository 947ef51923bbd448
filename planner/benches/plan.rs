//! How long planning takes: the K3 case, packed layouts by number of layers, and 10,000 layers.

#![expect(clippy::expect_used, missing_docs, reason = "a benchmark with fixed inputs")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use planner::dtype::DType;
use planner::engine::EngineVersion;
use planner::{EngineSettings, KvCacheSpec, Layout, Model, RawSpec, SpecKind};
use std::hint::black_box;

fn state(padded: Option<u64>) -> KvCacheSpec {
    let mut raw = RawSpec::empty(SpecKind::Mamba);
    raw.block_size = Some(1536);
    raw.shapes = Some(vec![vec![3, 1536], vec![3, 1536], vec![3, 1536], vec![12, 128, 128]]);
    raw.dtypes = Some(vec![DType::BFloat16, DType::BFloat16, DType::BFloat16, DType::Float32]);
    raw.page_size_padded = padded;
    raw.num_speculative_blocks = Some(7);
    KvCacheSpec::try_from(raw).expect("a valid spec")
}

fn mla(shards: Option<u64>) -> KvCacheSpec {
    let mut raw = RawSpec::empty(SpecKind::Mla);
    raw.block_size = Some(1536);
    raw.num_kv_heads = Some(1);
    raw.head_size = Some(576);
    raw.dtype = Some(DType::Float8E4M3Fn);
    raw.cache_dtype_str = Some("fp8".into());
    raw.max_tp_shards = shards;
    KvCacheSpec::try_from(raw).expect("a valid spec")
}

fn full(head: u64) -> KvCacheSpec {
    let mut raw = RawSpec::empty(SpecKind::Full);
    raw.block_size = Some(64);
    raw.num_kv_heads = Some(8);
    raw.head_size = Some(head);
    raw.dtype = Some(DType::BFloat16);
    KvCacheSpec::try_from(raw).expect("a valid spec")
}

/// `layers` target layers, three states and one MLA in turn, the last one MLA, and five draft layers.
fn k3(layers: usize, draft: Option<u64>) -> Model {
    let mut model = Model::default();
    let (kda, target) = (state(Some(884_736)), mla(Some(1)));
    for i in 0..layers {
        model.push(if i % 4 == 3 || i + 1 == layers { target.clone() } else { kda.clone() });
    }
    for _ in 0..5 {
        model.push(mla(draft));
    }
    model
}

fn packed(layers: usize) -> Model {
    let mut model = Model::default();
    for i in 0..layers {
        model.push(match i % 6 {
            0 => full(64),
            1 => full(128),
            _ => state(None),
        });
    }
    model
}

fn settings(layout: Layout) -> EngineSettings {
    EngineSettings {
        tensor_parallel_size: 8,
        max_model_len: 262_144,
        kv_cache_layout: layout,
        available_memory_bytes: vec![80 << 30],
        ..EngineSettings::default()
    }
}

fn benches(c: &mut Criterion) {
    let rules = EngineVersion::LATEST.rules();
    let usual = settings(Layout::Lbnhc);
    for (name, draft) in [("k3/4 groups", Some(1)), ("k3/20 groups", None)] {
        let model = k3(93, draft);
        c.bench_function(name, |b| b.iter(|| planner::plan(black_box(&model), &usual, &rules)));
    }
    let model = k3(10_000, None);
    c.bench_function("10,000 layers", |b| b.iter(|| planner::plan(black_box(&model), &usual, &rules)));
    let block_outermost = settings(Layout::Blhnc);
    let mut group = c.benchmark_group("packed");
    for layers in [96, 384, 1536, 6144] {
        let model = packed(layers);
        group.throughput(Throughput::Elements(layers as u64));
        group.bench_with_input(BenchmarkId::from_parameter(layers), &model, |b, model| {
            b.iter(|| planner::plan(black_box(model), &block_outermost, &rules));
        });
    }
    group.finish();
}

criterion_group!(plan, benches);
criterion_main!(plan);
