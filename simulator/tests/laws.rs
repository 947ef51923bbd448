//! What holds of every run, whatever the workload.

#![expect(clippy::cast_possible_truncation, reason = "a test with small numbers")]

use proptest::prelude::*;
use simulator::metadata::{Meter, Runner, Worker};
use simulator::workload::acceptance::Acceptance;
use simulator::workload::{Arrival, Length, Synthetic, Workload, trace};
use simulator::{
    DraftMethod, Engine, Group, Manager, NewRequest, Policy, RunError, Scheduler, Segment, Simulation,
    Speculative, StateMode, Step, StepTime, simulate,
};

const TIME: StepTime = StepTime { base_ns: 1_000_000, prefill_token_ns: 10, request_ns: 0, group_ns: 1000 };

fn group(manager: Manager, block_size: u32, spec: u32) -> Group {
    Group { manager, block_size, layers: 2, page_size_bytes: 1024, spec, eagle: false, dcp_sharded: false }
}

fn engine(num_blocks: u32, caching: bool, drafts: u32) -> Engine {
    Engine {
        max_num_seqs: 8,
        max_num_batched_tokens: 128,
        max_model_len: 1024,
        num_blocks,
        policy: Policy::Fcfs,
        async_scheduling: true,
        enable_prefix_caching: caching,
        speculative: (drafts > 0).then(|| Speculative::new(DraftMethod::Ngram, drafts)),
        dcp: 1,
        watermark: 0.0,
        reserve_full_prompt: true,
        long_prefill_token_threshold: 0,
        prefix_cache_retention_interval: None,
        prefix_match_unit: None,
        block_size: None,
    }
}

fn closed(requests: u32, concurrency: u32, input: Length, output: Length, shared: u32) -> Workload {
    Workload::Synthetic(Synthetic {
        requests,
        arrival: Arrival::ClosedLoop { concurrency },
        input,
        output,
        shared_prefix_tokens: shared,
        shared_prefixes: 2,
        turns: 1,
        priorities: 3,
    })
}

fn some_groups() -> impl Strategy<Value = Vec<Group>> {
    let state = |mode, block| Manager::State {
        mode,
        speculative_blocks: block,
        checkpoint_blocks: 0,
        checkpoint_alignment: None,
    };
    (1_usize..4, 0_usize..4, 0_usize..4, prop::bool::ANY).prop_map(move |(full, window, states, align)| {
        let mut groups = vec![group(Manager::Full, 16, 0); full];
        let sliding = Manager::SlidingWindow { window: 48, extra_retained_tokens: 0 };
        if align {
            groups.extend(vec![group(state(StateMode::Align, 2), 16, 2); states]);
        } else {
            groups.extend(vec![group(sliding, 16, 1); window]);
        }
        groups
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Blocks are free, held or null after every step and every abort; no block is held twice but by
    /// those that share it; budgets hold; all requests end.
    #[test]
    fn blocks_and_requests_are_conserved(
        groups in some_groups(),
        caching in prop::bool::ANY,
        is_async in prop::bool::ANY,
        priority in prop::bool::ANY,
        drafts in 0_u32..4,
        spare in 1_u32..4,
        requests in prop::collection::vec((1_u32..300, 1_u32..60, 0_u32..200, 0_u32..4, prop::bool::ANY), 1..24),
    ) {
        let most = requests.iter().map(|r| r.0.max(r.2) + r.1).max().unwrap_or(1);
        let blocks = groups.len() as u32 * (most.div_ceil(16) + 6 + drafts) * spare + 2;
        let mut engine = engine(blocks, caching, drafts);
        engine.async_scheduling = is_async;
        if priority {
            engine.policy = Policy::Priority;
        }
        let mut scheduler = Scheduler::new(&engine, &groups).expect("a valid setup");
        for (id, &(input, output, shared, rank, _)) in (0_u32..).zip(&requests) {
            let prompt = [Segment { end: shared.min(input), stream: 1 }, Segment { end: input, stream: 100 + u64::from(id) }];
            let new = NewRequest {
                id, prompt_tokens: input, max_tokens: output, encoder_tokens: 0, priority: i64::from(rank),
                arrival: u64::from(id), rank: id, prompt: &prompt, output: 1000 + u64::from(id),
            };
            prop_assert!(scheduler.admits(&new).is_ok());
            scheduler.add(&new);
        }
        let mut step = Step::default();
        let mut ended = vec![false; requests.len()];
        for number in 0..20_000_usize {
            if scheduler.is_idle() && !scheduler.is_in_flight() {
                break;
            }
            if number % 7 == 3 {
                let id = number / 7 % requests.len();
                if requests[id].4 && scheduler.abort(id as u32) {
                    prop_assert!(!ended[id]);
                    ended[id] = true;
                    scheduler.check().map_err(|e| TestCaseError::fail(e.to_string()))?;
                }
            }
            scheduler.schedule(&mut step, &mut |id, computed, _| (id + computed) % 4);
            prop_assert!(step.tokens() <= u64::from(engine.max_num_batched_tokens));
            prop_assert!(step.running <= engine.max_num_seqs);
            scheduler.check().map_err(|e| TestCaseError::fail(e.to_string()))?;
            scheduler.complete(&mut step);
            scheduler.check().map_err(|e| TestCaseError::fail(e.to_string()))?;
            for &id in &step.finished {
                prop_assert!(!ended[id as usize]);
                ended[id as usize] = true;
            }
        }
        prop_assert!(ended.iter().all(|&end| end), "{:?} never ended", scheduler.unfinished());
        prop_assert!(scheduler.unfinished().is_empty());
    }

    /// The same seed gives the same steps.
    #[test]
    fn the_same_seed_gives_the_same_steps(seed in 0_u64..1000, caching in prop::bool::ANY) {
        let engine = engine(400, caching, 3);
        let groups = [group(Manager::Full, 16, 0), group(Manager::Full, 16, 0)];
        let workload = closed(30, 4, Length { least: 1, most: 200 }, Length { least: 1, most: 50 }, 40);
        let acceptance = Acceptance::from_length(2.2, 3).expect("in range");
        let run = || {
            let simulation = Simulation {
                engine: &engine, groups: &groups, workload: &workload, acceptance: &acceptance, step_time: TIME, seed,
            };
            let mut seen = Vec::new();
            let outcome = simulate(&simulation, &mut |step: &Step, start: u64, end: u64| {
                seen.push(format!("{start} {end} {step:?}"));
            });
            (seen, outcome.expect("it runs"))
        };
        prop_assert_eq!(run(), run());
    }

    /// More groups of the same layers never cost less metadata.
    #[test]
    fn more_groups_never_cost_less(
        few in (1_usize..4, 1_usize..3),
        more in (0_usize..12, 0_usize..5),
        v1 in prop::bool::ANY,
        full_graphs in prop::bool::ANY,
        rocm in prop::bool::ANY,
    ) {
        let state = Manager::State { mode: StateMode::None, speculative_blocks: 3, checkpoint_blocks: 0, checkpoint_alignment: None };
        let names = if rocm { ["kda-rocm", "aiter-mla-fp8"] } else { ["kda-cuda", "fa3-mla"] };
        let cost = |states: usize, mla: usize| {
            let mut groups = vec![group(state, 1024, 1); states];
            groups.extend(vec![group(Manager::Full, 16, 0); mla]);
            let builders = groups.iter().map(|g| names[usize::from(g.manager == Manager::Full)].to_owned()).collect();
            let engine = engine(20_000, false, 3);
            let worker = Worker { builders, runner: if v1 { Runner::V1 } else { Runner::V2 }, reuse: true, full_graphs };
            let mut meter = Meter::new(&engine, &groups, &worker).expect("known builders");
            let workload = closed(12, 4, Length::fixed(100), Length::fixed(40), 0);
            let acceptance = Acceptance::from_length(2.0, 3).expect("in range");
            let simulation = Simulation {
                engine: &engine, groups: &groups, workload: &workload, acceptance: &acceptance, step_time: TIME, seed: 1,
            };
            simulate(&simulation, &mut |step: &Step, _: u64, _: u64| { meter.step(step); }).expect("it runs");
            meter.total()
        };
        let (a, b) = (cost(few.0, few.1), cost(few.0 + more.0, few.1 + more.1));
        prop_assert!(a.builds <= b.builds && a.launches <= b.launches && a.h2d <= b.h2d);
        prop_assert!(a.table_bytes <= b.table_bytes && a.filled_bytes <= b.filled_bytes && a.slots <= b.slots);
    }
}

/// Equal groups are computed once; told apart by their spec they must do the same when nothing is shared.
#[test]
fn a_class_of_groups_does_what_its_groups_do() {
    let workload = closed(60, 8, Length { least: 1, most: 300 }, Length { least: 1, most: 60 }, 0);
    let acceptance = Acceptance::Rates(Vec::new());
    let run = |apart: bool| {
        let engine = engine(160, true, 0);
        let groups: Vec<Group> =
            (0..4).map(|i| group(Manager::Full, 16, if apart { i } else { 0 })).collect();
        let simulation = Simulation {
            engine: &engine,
            groups: &groups,
            workload: &workload,
            acceptance: &acceptance,
            step_time: TIME,
            seed: 9,
        };
        let mut seen = Vec::new();
        simulate(&simulation, &mut |step: &Step, _: u64, _: u64| {
            seen.push((step.free_blocks, step.tokens(), step.preempted.clone(), step.new.clone()));
        })
        .expect("it runs");
        seen
    };
    assert_eq!(run(false), run(true));
}

fn refused(engine: &Engine, input: u32) -> String {
    let groups = [group(Manager::Full, 16, 0)];
    let workload = closed(3, 1, Length::fixed(input), Length::fixed(8), 0);
    let acceptance = Acceptance::Rates(Vec::new());
    let simulation = Simulation {
        engine,
        groups: &groups,
        workload: &workload,
        acceptance: &acceptance,
        step_time: TIME,
        seed: 0,
    };
    match simulate(&simulation, &mut |_: &Step, _: u64, _: u64| {}) {
        Err(error) => error.to_string(),
        Ok(outcome) => format!("{outcome:?}"),
    }
}

#[test]
fn what_can_never_run_is_named() {
    assert_eq!(
        refused(&engine(1000, false, 0), 5000),
        "request 0 can never run: the prompt has 5000 tokens; the context holds 1024, one of them for the output"
    );
    assert_eq!(
        refused(&engine(4, false, 0), 100),
        "request 0 can never run: its prompt needs 7 blocks; the pool has 3, the null block left out"
    );
    assert_eq!(
        refused(&engine(0, false, 0), 100),
        "the number of blocks is 0; it must be between 1 and 536870912"
    );
    // It fits as a prompt and outgrows the pool on the way.
    assert!(
        refused(&engine(8, false, 0), 110).starts_with("request 0 "),
        "{}",
        refused(&engine(8, false, 0), 110)
    );
}

#[test]
fn an_empty_prompt_is_named() {
    let requests =
        trace::parse("{\"timestamp\":0,\"input_length\":0,\"output_length\":5}", 1).expect("a trace");
    let workload = Workload::Trace { requests, concurrency: None };
    let (engine, groups) = (engine(100, false, 0), [group(Manager::Full, 16, 0)]);
    let acceptance = Acceptance::Rates(Vec::new());
    let simulation = Simulation {
        engine: &engine,
        groups: &groups,
        workload: &workload,
        acceptance: &acceptance,
        step_time: TIME,
        seed: 0,
    };
    let error = simulate(&simulation, &mut |_: &Step, _: u64, _: u64| {}).expect_err("no prompt");
    assert!(matches!(error, RunError::Refused { request: 0, .. }));
    assert_eq!(error.to_string(), "request 0 can never run: the prompt is empty");
}

#[test]
fn traces_that_cannot_be_read() {
    assert_eq!(trace::parse("\n", 1).expect_err("empty").to_string(), "the trace is empty");
    let cut = "{\"timestamp\":0,\"input_length\":10,\"output_length\":5}\n{\"timestamp\":5,\"inp";
    assert!(trace::parse(cut, 1).expect_err("cut").to_string().starts_with("line 2 is no request: "));
    assert_eq!(
        trace::parse("{\"timestamp\":0,\"input_length\":-4,\"output_length\":5}", 1)
            .expect_err("range")
            .to_string(),
        "line 1, request 0: input_length is -4; it must be between 0 and 536870912"
    );
    assert_eq!(
        trace::parse("{\"a\":1}", 1).expect_err("unknown").to_string(),
        "line 1 has neither `input_length` and `output_length` nor `prompt`"
    );
}

#[test]
fn shared_prefixes_and_turns_are_found_again() {
    let run = |turns: u32, shared: u32| {
        let engine = engine(4000, true, 0);
        let groups = [group(Manager::Full, 16, 0)];
        let Workload::Synthetic(base) = closed(40, 2, Length::fixed(64), Length::fixed(16), shared) else {
            panic!()
        };
        let workload = Workload::Synthetic(Synthetic { turns, ..base });
        let acceptance = Acceptance::Rates(Vec::new());
        let simulation = Simulation {
            engine: &engine,
            groups: &groups,
            workload: &workload,
            acceptance: &acceptance,
            step_time: TIME,
            seed: 3,
        };
        simulate(&simulation, &mut |_: &Step, _: u64, _: u64| {}).expect("it runs").cached_tokens
    };
    assert_eq!(run(1, 0), 0);
    assert!(run(1, 128) >= 128 * 36);
    assert!(run(4, 0) > 64 * 20);
}
