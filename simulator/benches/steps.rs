//! How many steps a second the simulator does, and what 46 groups cost beside one. Besides the usual estimates a
//! line a load says the ratio, measured in turns.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    missing_docs,
    reason = "a benchmark with fixed inputs, which says a ratio"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use simulator::workload::acceptance::Acceptance;
use simulator::workload::{Arrival, Length, Synthetic, Workload};
use simulator::{
    DraftMethod, Engine, Group, Manager, Outcome, Policy, Simulation, Speculative, Step, StepTime, simulate,
};

/// Tokens a block.
const BLOCK: u32 = 16;

/// What is shared, and how much of it the pool keeps.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    shared: u32,
    prefixes: u32,
    /// Requests at once that the pool has room for.
    room: u32,
}

const LOADS: [Load; 4] = [
    Load { name: "nothing shared", shared: 0, prefixes: 1, room: 128 },
    Load { name: "4 prefixes, all kept", shared: 256, prefixes: 4, room: 128 },
    Load { name: "100 prefixes, evicted in parts", shared: 256, prefixes: 100, room: 128 },
    Load { name: "1,000 prefixes, evicted", shared: 256, prefixes: 1000, room: 128 },
];

fn run(load: Load, groups: u32, requests: u32) -> Outcome {
    let group = Group {
        manager: Manager::Full,
        block_size: BLOCK,
        layers: 1,
        page_size_bytes: 4096,
        spec: 0,
        eagle: false,
        dcp_sharded: false,
    };
    let groups = vec![group; groups as usize];
    let length = 512 + 128 + load.shared + 2 * 5 + BLOCK;
    let engine = Engine {
        max_num_seqs: 64,
        max_num_batched_tokens: 8192,
        max_model_len: 131_072,
        num_blocks: length.div_ceil(BLOCK) * u32::try_from(groups.len()).expect("few") * load.room,
        policy: Policy::Fcfs,
        async_scheduling: false,
        enable_prefix_caching: true,
        speculative: Some(Speculative::new(DraftMethod::Eagle, 5)),
        dcp: 1,
        watermark: 0.0,
        reserve_full_prompt: true,
        long_prefill_token_threshold: 0,
        prefix_cache_retention_interval: None,
        prefix_match_unit: None,
        block_size: None,
    };
    let workload = Workload::Synthetic(Synthetic {
        requests,
        arrival: Arrival::ClosedLoop { concurrency: 64 },
        input: Length::fixed(512),
        output: Length::fixed(128),
        shared_prefix_tokens: load.shared,
        shared_prefixes: load.prefixes,
        turns: 1,
        priorities: 1,
    });
    let acceptance = Acceptance::from_length(3.84, 5).expect("in range");
    let simulation = Simulation {
        engine: &engine,
        groups: &groups,
        workload: &workload,
        acceptance: &acceptance,
        step_time: StepTime { base_ns: 1_000_000, prefill_token_ns: 0, request_ns: 0, group_ns: 0 },
        seed: 1,
    };
    simulate(&simulation, &mut |step: &Step, _: u64, _: u64| {
        black_box(step.free_blocks);
    })
    .expect("it runs")
}

/// Time of 46 groups over time of one, the median of pairs run in turns.
fn ratio(load: Load, requests: u32) -> f64 {
    let time = |groups| {
        let start = Instant::now();
        black_box(run(load, groups, requests));
        start.elapsed().as_secs_f64()
    };
    let mut ratios: Vec<f64> = (0..9).map(|_| time(46) / time(1)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn benches(c: &mut Criterion) {
    let mut bench = c.benchmark_group("simulate, steps");
    bench.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for load in LOADS {
        for groups in [1, 46] {
            let steps = run(load, groups, 2000).steps;
            bench.throughput(Throughput::Elements(steps));
            bench.bench_function(BenchmarkId::new(load.name, format!("{groups} groups")), |b| {
                b.iter(|| run(load, groups, 2000));
            });
        }
    }
    bench.finish();
    for load in LOADS {
        eprintln!("46 groups over 1, {}: {:.3} times the time", load.name, ratio(load, 10_000));
    }
}

criterion_group!(steps, benches);
criterion_main!(steps);
