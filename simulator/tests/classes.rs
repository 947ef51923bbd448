//! Groups of one kind are computed together: they must do what each of them does when computed by itself.

#![expect(clippy::cast_possible_truncation, clippy::expect_used, reason = "a test with small numbers")]

use proptest::prelude::*;
use simulator::{
    DraftMethod, Engine, Group, Manager, NewRequest, Policy, Scheduler, Segment, Speculative, StateMode, Step,
};

fn group(manager: Manager, block_size: u32, spec: u32) -> Group {
    Group { manager, block_size, layers: 2, page_size_bytes: 1024, spec, eagle: false, dcp_sharded: false }
}

/// Which groups there are, and whether a drafter drops blocks.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Full,
    Window,
    States,
    FineStates,
    Retained,
}

fn groups(kind: Kind, many: u32, few: u32) -> Vec<Group> {
    let state = Manager::State {
        mode: StateMode::Align,
        speculative_blocks: 0,
        checkpoint_blocks: 0,
        checkpoint_alignment: None,
    };
    let window = Manager::SlidingWindow { window: 40, extra_retained_tokens: 0 };
    let (first, second) = match kind {
        Kind::Full => (group(Manager::Full, 16, 0), group(Manager::Full, 32, 1)),
        Kind::Window | Kind::Retained => (group(window, 16, 0), group(Manager::Full, 16, 1)),
        Kind::States => (group(state, 16, 0), group(Manager::Full, 16, 1)),
        Kind::FineStates => (group(state, 64, 0), group(Manager::Full, 16, 1)),
    };
    let mut groups = vec![first; many as usize];
    groups.extend(vec![second; few as usize]);
    groups
}

/// All that a step says, a group each.
fn told(step: &Step) -> String {
    let parts: Vec<(u32, u32, u32, u32, Vec<u32>)> = step
        .scheduled
        .iter()
        .map(|part| {
            let counts = step.new_blocks(part).iter();
            let each = counts.flat_map(|&(groups, count)| (0..groups).map(move |_| count)).collect();
            (part.id, part.tokens, part.drafts, part.computed, each)
        })
        .collect();
    format!(
        "{parts:?} {:?} {:?} {:?} {} {} {} {:?}",
        step.new, step.resumed, step.preempted, step.free_blocks, step.running, step.waiting, step.finished
    )
}

/// A request: the prefix it begins with, how many tokens of that, tokens in all, output, whether it is aborted.
type Asked = (u32, u32, u32, u32, bool);

fn hold(engine: &Engine, groups: &[Group], requests: &[Asked], spacing: usize) -> Result<(), TestCaseError> {
    let mut joint = Scheduler::new(engine, groups).expect("a valid setup");
    let mut apart = Scheduler::with_groups_apart(engine, groups).expect("a valid setup");
    let (mut a, mut b) = (Step::default(), Step::default());
    let mut next = 0;
    for number in 0..6000_usize {
        while next < requests.len() && next * spacing <= number {
            let (prefix, shared, input, output, _) = requests[next];
            let id = next as u32;
            let prompt = [
                Segment { end: shared.min(input), stream: u64::from(prefix) },
                Segment { end: input, stream: 100 + u64::from(id) },
            ];
            let new = NewRequest {
                id,
                prompt_tokens: input,
                max_tokens: output,
                encoder_tokens: 0,
                priority: 0,
                arrival: u64::from(id),
                rank: id,
                prompt: &prompt,
                output: 1000 + u64::from(id),
            };
            joint.add(&new);
            apart.add(&new);
            next += 1;
        }
        if next == requests.len() && joint.is_idle() && !joint.is_in_flight() {
            prop_assert!(apart.is_idle() && !apart.is_in_flight());
            return Ok(());
        }
        if number % 11 == 5 {
            let id = number / 11 % requests.len();
            if requests[id].4 {
                prop_assert_eq!(joint.abort(id as u32), apart.abort(id as u32));
            }
        }
        joint.schedule(&mut a, &mut |id, computed, _| (id + computed) % 4);
        apart.schedule(&mut b, &mut |id, computed, _| (id + computed) % 4);
        joint.complete(&mut a);
        apart.complete(&mut b);
        prop_assert_eq!(told(&a), told(&b), "step {}", number);
        joint.check().map_err(|error| TestCaseError::fail(format!("step {number}: {error}")))?;
        apart.check().map_err(|error| TestCaseError::fail(format!("apart, step {number}: {error}")))?;
        if next == requests.len() && a.scheduled.is_empty() && !joint.is_in_flight() {
            // Nothing more fits.
            return Ok(());
        }
    }
    Ok(())
}

proptest! {
    /// Shared prefixes that are given up in some groups, found again in others, and held meanwhile.
    #[test]
    fn what_groups_do_together_each_does_alone(
        kind in prop::sample::select(vec![Kind::Full, Kind::Window, Kind::States, Kind::FineStates, Kind::Retained]),
        many in 2_u32..9,
        few in 1_u32..4,
        is_async in prop::bool::ANY,
        drafts in 0_u32..4,
        drops in prop::bool::ANY,
        spare in 0_u32..5,
        spacing in 1_usize..9,
        requests in prop::collection::vec((0_u32..4, 0_u32..200, 1_u32..260, 1_u32..40, prop::bool::weighted(0.1)), 8..48),
    ) {
        let groups = groups(kind, many, few);
        let most = requests.iter().map(|r| r.2 + r.3).max().unwrap_or(1);
        let one = groups.len() as u32 * (most.div_ceil(16) + 4 + drafts);
        let method = if drops { DraftMethod::Eagle } else { DraftMethod::Ngram };
        let engine = Engine {
            max_num_seqs: 6,
            max_num_batched_tokens: 128,
            max_model_len: 1024,
            num_blocks: one + one * spare / 4 + 2,
            policy: Policy::Fcfs,
            async_scheduling: is_async,
            enable_prefix_caching: true,
            speculative: (drafts > 0).then(|| Speculative::new(method, drafts)),
            dcp: 1,
            watermark: 0.0,
            reserve_full_prompt: true,
            long_prefill_token_threshold: 0,
            prefix_cache_retention_interval: matches!(kind, Kind::Retained).then_some(0),
            prefix_match_unit: None,
            block_size: match kind { Kind::FineStates => Some(64), _ => Some(16) },
        };
        hold(&engine, &groups, &requests, spacing)?;
    }
}
