//! Requests a second of k3plan's simulator and of aisimulate-core, on the same workload and one thread, turn by
//! turn: `compare-simulators [REPEATS]`. `compare-simulators steps FILE.jsonl.gz` gives the steps a second over
//! recorded runs.
//!
//! What each keeps. aisimulate-core: the token ids of every prompt (u32 each), block hashes of them where its
//! prefix caching is on, sums of latencies. k3plan: a prompt as segments of named streams, a 64-bit hash a block
//! where prefix caching is on, block tables, sums of latencies. Both schedule every step of every request and
//! hand out every block.

use std::io::Read;
use std::time::Instant;

use aisimulate_core::engine::{Backend, EngineConfig, TimingModelConfig};
use aisimulate_core::perfmodel::{FpmCacheGroup, FpmCacheKind};
use aisimulate_core::replay::loadgen::GeneratedRequests;
use aisimulate_core::replay::{
    CURRENT_REPLAY_SPEC_VERSION, DirectRequest, ReplayEngineConfig, ReplayEngineFactory, ReplayRuntimeInput,
    ReplaySpec, ReplayTopology, Replayer,
};
use simulator::workload::acceptance::Acceptance;
use simulator::workload::{Arrival, Length, Synthetic, Workload};
use simulator::{
    DraftMethod, Engine, Group, Manager, Policy, Recording, Simulation, Speculative, Step, StepTime, simulate,
};

/// A workload and a cache.
#[derive(Clone, Copy)]
struct Shape {
    input: u32,
    output: u32,
    requests: u32,
    concurrency: u32,
    groups: u32,
    drafts: u32,
    caching: bool,
    /// Tokens that requests begin with alike, besides `input`, and how many such prefixes take turns.
    shared: u32,
    prefixes: u32,
}

/// Tokens a block.
const BLOCK: u32 = 16;

fn ours(shape: Shape) -> f64 {
    let group = Group {
        manager: Manager::Full,
        block_size: BLOCK,
        layers: 1,
        page_size_bytes: 4096,
        spec: 0,
        eagle: false,
        dcp_sharded: true,
    };
    let groups = vec![group; shape.groups as usize];
    let length = shape.input + shape.output + shape.shared + 2 * shape.drafts + BLOCK;
    let engine = Engine {
        max_num_seqs: shape.concurrency,
        max_num_batched_tokens: 8192,
        max_model_len: 131_072,
        num_blocks: length.div_ceil(BLOCK) * shape.groups * shape.concurrency * 2,
        policy: Policy::Fcfs,
        async_scheduling: false,
        enable_prefix_caching: shape.caching,
        speculative: (shape.drafts > 0).then(|| Speculative::new(DraftMethod::Eagle, shape.drafts)),
        dcp: 1,
        watermark: 0.0,
        reserve_full_prompt: true,
        long_prefill_token_threshold: 0,
        prefix_cache_retention_interval: None,
        prefix_match_unit: None,
        block_size: None,
    };
    let workload = Workload::Synthetic(Synthetic {
        requests: shape.requests,
        arrival: Arrival::ClosedLoop { concurrency: shape.concurrency },
        input: Length::fixed(shape.input),
        output: Length::fixed(shape.output),
        shared_prefix_tokens: shape.shared,
        shared_prefixes: shape.prefixes,
        turns: 1,
        priorities: 1,
    });
    let acceptance = match shape.drafts {
        0 => Acceptance::Rates(Vec::new()),
        drafts => Acceptance::from_length(3.84, drafts).expect("in range"),
    };
    let simulation = Simulation {
        engine: &engine,
        groups: &groups,
        workload: &workload,
        acceptance: &acceptance,
        step_time: StepTime { base_ns: 1_000_000, prefill_token_ns: 0, request_ns: 0, group_ns: 0 },
        seed: 1,
    };
    let start = Instant::now();
    let outcome = simulate(&simulation, &mut |_: &Step, _: u64, _: u64| {}).expect("it runs");
    assert_eq!(outcome.finished, u64::from(shape.requests));
    f64::from(shape.requests) / start.elapsed().as_secs_f64()
}

fn theirs(shape: Shape) -> Result<f64, String> {
    let length = shape.input + shape.output + BLOCK;
    let blocks = length.div_ceil(BLOCK) * shape.concurrency * 2;
    let groups: Vec<FpmCacheGroup> = (0..if shape.groups > 1 { shape.groups } else { 0 })
        .map(|number| FpmCacheGroup {
            name: format!("group-{number}"),
            kind: FpmCacheKind::Attention,
            num_layers: 1,
            block_size_tokens: BLOCK,
            page_size_bytes: 4096,
            sliding_window: None,
        })
        .collect();
    let capacity = u64::from(blocks) * u64::from(shape.groups) * 4096;
    let rank = EngineConfig {
        block_size: BLOCK as usize,
        num_gpu_blocks: blocks as usize,
        max_num_seqs: shape.concurrency as usize,
        max_num_batched_tokens: 8192,
        enable_prefix_caching: shape.caching,
        aic_nextn: (shape.drafts > 0).then_some(shape.drafts as usize),
        kv_cache_capacity_bytes: (!groups.is_empty()).then_some(capacity),
        kv_cache_groups: groups,
        timing_model: TimingModelConfig::Fixed { prefill_ms: 1.0, decode_ms: 1.0 },
        ..EngineConfig::for_backend(Backend::Vllm)
    };
    let engine = serde_json::to_value(ReplayEngineConfig { rank, ..Default::default() });
    let spec = ReplaySpec {
        version: CURRENT_REPLAY_SPEC_VERSION,
        topology: ReplayTopology::aggregated(1),
        engine: engine.map_err(|error| error.to_string())?,
        adapters: Default::default(),
        max_sim_time_ms: None,
        max_in_flight: Some(shape.concurrency as usize),
        record_per_request: false,
        sla: Default::default(),
        requests: Vec::new(),
    };
    let input = GeneratedRequests::new(shape.requests as usize, move |index| {
        let first = u32::try_from(index).unwrap_or(0).wrapping_mul(2_654_435_761);
        Ok(DirectRequest {
            tokens: (0..shape.input).map(|i| first.wrapping_add(i)).collect(),
            max_output_tokens: shape.output as usize,
            output_token_ids: None,
            uuid: Some(uuid::Uuid::from_u128(index as u128 + 1)),
            dp_rank: 0,
            preferred_dp_rank: None,
            preferred_prefill_dp_rank: None,
            arrival_timestamp_ms: Some(0.0),
            priority: 0,
            strict_priority: 0,
            policy_class: None,
            replay_context: None,
        })
    });
    let start = Instant::now();
    Replayer::new(spec, ReplayEngineFactory::new())
        .and_then(|replayer| replayer.with_runtime_input(ReplayRuntimeInput::GeneratedRequests(input)).run())
        .map_err(|error| error.to_string())?;
    Ok(f64::from(shape.requests) / start.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn steps(path: &str) {
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("a recorded file");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("text");
    let recordings: Vec<Recording> =
        text.lines().map(|line| Recording::parse(line).expect("a recording")).collect();
    let groups: Vec<Vec<Group>> = recordings.iter().map(|r| r.groups().expect("groups")).collect();
    let rates = (0..15).map(|_| {
        let start = Instant::now();
        let steps: u64 = recordings.iter().zip(&groups).map(|(r, g)| r.simulate(g).expect("it runs")).sum();
        steps as f64 / start.elapsed().as_secs_f64()
    });
    println!("{:.0}", median(rates.collect()));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == "steps") {
        steps(&arguments[2]);
        return;
    }
    let repeats: usize = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let short = Shape {
        input: 512,
        output: 128,
        requests: 10_000,
        concurrency: 64,
        groups: 1,
        drafts: 0,
        caching: false,
        shared: 0,
        prefixes: 1,
    };
    let drafted = Shape { drafts: 5, caching: true, ..short };
    let shared = Shape { shared: 256, prefixes: 4, ..drafted };
    // The pool keeps a prefix for about as long as it takes the others to come.
    let evicted = Shape { prefixes: 100, ..shared };
    let shapes = [
        ("512 in, 128 out, 1 group", short),
        ("512 in, 128 out, 1 group, prefix caching", Shape { caching: true, ..short }),
        ("4000 in, 500 out, 1 group", Shape { input: 4000, output: 500, requests: 2_000, ..short }),
        ("512 in, 128 out, 10 groups", Shape { groups: 10, ..short }),
        ("512 in, 128 out, 46 groups", Shape { groups: 46, ..short }),
        ("512 in, 128 out, 1 group, drafts, prefix caching", drafted),
        ("512 in, 128 out, 46 groups, drafts, prefix caching", Shape { groups: 46, ..drafted }),
    ];
    println!("{:52} {:>9} {:>16} {:>6}", "requests a second, median", "k3plan", "aisimulate-core", "ratio");
    for (name, shape) in shapes {
        let (mut a, mut b, mut refusal) = (Vec::new(), Vec::new(), String::from("not asked"));
        for _ in 0..repeats {
            a.push(ours(Shape { requests: shape.requests * 5, ..shape }));
            if shape.shared == 0 {
                match theirs(shape) {
                    Ok(rate) => b.push(rate),
                    Err(error) => refusal = error,
                }
            }
        }
        let a = median(a);
        if b.is_empty() {
            println!("{name:52} {a:9.0} {:>16}        {refusal}", "-");
        } else {
            let b = median(b);
            println!("{name:52} {a:9.0} {b:16.0} {:6.1}", a / b);
        }
    }
    println!();
    println!(
        "{:52} {:>9} {:>16} {:>6}",
        "k3plan, drafts, prefix caching, turn by turn", "1 group", "46 groups", "ratio"
    );
    for (name, shape) in [
        ("nothing shared", drafted),
        ("4 prefixes of 256 tokens, all kept", shared),
        ("100 prefixes of 256 tokens, evicted in parts", evicted),
        ("1,000 prefixes of 256 tokens, evicted", Shape { prefixes: 1000, ..shared }),
    ] {
        let (mut one, mut many, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..repeats {
            let a = ours(Shape { requests: shape.requests * 5, ..shape });
            let b = ours(Shape { requests: shape.requests * 5, groups: 46, ..shape });
            one.push(a);
            many.push(b);
            ratios.push(b / a);
        }
        println!("{name:52} {:9.0} {:16.0} {:6.2}", median(one), median(many), median(ratios));
    }
}
