//! Times synthetic loads: `load k3|groups N|short`.
use simulator::workload::{Arrival, Length, Synthetic, Workload, acceptance::Acceptance};
use simulator::*;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: u32 = args[1].parse().unwrap();
    let requests: u32 = args[2].parse().unwrap();
    let (input, output, k): (u32, u32, u32) =
        (args[3].parse().unwrap(), args[4].parse().unwrap(), args[5].parse().unwrap());
    let conc: u32 = args[6].parse().unwrap();
    let caching = args[7] == "1";
    let full = Group {
        manager: Manager::Full,
        block_size: 64,
        layers: 5,
        page_size_bytes: 1 << 16,
        spec: 0,
        eagle: false,
        dcp_sharded: true,
    };
    let state = Group {
        manager: Manager::State {
            mode: if caching { StateMode::Align } else { StateMode::None },
            speculative_blocks: k,
            checkpoint_blocks: 0,
            checkpoint_alignment: None,
        },
        block_size: if caching { 64 } else { 262144 },
        layers: 5,
        page_size_bytes: 1 << 16,
        spec: 1,
        eagle: false,
        dcp_sharded: false,
    };
    let mut groups = vec![];
    if args.get(8).is_some() {
        for _ in 0..n * 14 / 20 {
            groups.push(state.clone());
        }
    }
    while groups.len() < n as usize {
        groups.push(full.clone());
    }
    let per = (input + output + 64) / 64 + 2 + k;
    let engine = Engine {
        max_num_seqs: 16.max(conc),
        max_num_batched_tokens: 8192,
        max_model_len: 262144,
        num_blocks: per * n * conc * 3 / 2 + 10,
        policy: Policy::Fcfs,
        async_scheduling: true,
        enable_prefix_caching: caching,
        speculative: (k > 0).then(|| Speculative::new(DraftMethod::Dspark, k)),
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
        arrival: Arrival::ClosedLoop { concurrency: conc },
        input: Length::fixed(input),
        output: Length::fixed(output),
        shared_prefix_tokens: if args.get(9).is_some() { 256 } else { 0 },
        shared_prefixes: 16,
        turns: 1,
        priorities: 1,
    });
    let acceptance = Acceptance::from_length(if k == 7 { 3.84 } else { 1.0 }, k).unwrap();
    let sim = Simulation {
        engine: &engine,
        groups: &groups,
        workload: &workload,
        acceptance: &acceptance,
        step_time: StepTime { base_ns: 42_000_000, prefill_token_ns: 1000, request_ns: 0, group_ns: 91_000 },
        seed: 1,
    };
    let start = Instant::now();
    let mut tokens = 0;
    let out = simulate(&sim, &mut |s: &Step, _: u64, _: u64| tokens += s.scheduled.len() as u64);
    let t = start.elapsed().as_secs_f64();
    match out {
        Err(e) => println!("{e}"),
        Ok(o) => println!(
            "{} groups, {} requests, {} steps, {tokens} parts, {t:.2} s, {:.0} req/s {:?}",
            groups.len(),
            o.finished,
            o.steps,
            requests as f64 / t,
            o.cached_tokens
        ),
    }
}
