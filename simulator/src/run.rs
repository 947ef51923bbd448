//! A workload run through the scheduler, step after step.

use thiserror::Error;

use crate::engine::{Engine, SetupError};
use crate::group::Group;
use crate::request::NewRequest;
use crate::scheduler::{Refusal, Scheduler};
use crate::step::Step;
use crate::workload::acceptance::{Acceptance, AcceptanceError};
use crate::workload::{Source, Workload, WorkloadError};

/// How long a step takes; the scheduler's decisions depend on it only through arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    /// A step as such.
    pub base_ns: u64,
    /// Each scheduled token more than one a request and its drafts.
    pub prefill_token_ns: u64,
    /// Each request in the step.
    pub request_ns: u64,
    /// Each KV cache group.
    pub group_ns: u64,
}

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Simulation<'a> {
    /// The scheduler's limits.
    pub engine: &'a Engine,
    /// The KV cache groups.
    pub groups: &'a [Group],
    /// The requests.
    pub workload: &'a Workload,
    /// What holds of the drafts; read only where the engine drafts.
    pub acceptance: &'a Acceptance,
    /// How long a step takes.
    pub step_time: StepTime,
    /// Where all random numbers come from.
    pub seed: u64,
}

/// Why a simulation ends without an answer.
#[derive(Debug, Error)]
pub enum RunError {
    /// The settings do not go together.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The workload makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The acceptance model makes no sense.
    #[error(transparent)]
    Acceptance(#[from] AcceptanceError),
    /// A request can never run.
    #[error("request {request} can never run: {source}")]
    Refused {
        /// 0-based number in the workload.
        request: u32,
        /// Why.
        source: Refusal,
    },
    /// Nothing can be scheduled any more.
    #[error(
        "request {request} waits for ever after step {step}: no block is left for it, and nothing else runs \
         ({free} of {total} blocks are free)"
    )]
    Stuck {
        /// The first request that waits.
        request: u32,
        /// The last step.
        step: u64,
        /// Free blocks.
        free: u64,
        /// Blocks of the pool.
        total: u32,
    },
    /// Requests take the blocks from one another without end.
    #[error(
        "request {request} and others take the blocks from one another without end: no request has ended in \
         {steps} steps, and {preemptions} preemptions"
    )]
    Thrashing {
        /// The first request that was preempted last.
        request: u32,
        /// Steps without an end.
        steps: u64,
        /// Preemptions in them.
        preemptions: u64,
    },
}

/// Someone who looks at each step.
pub trait Observer {
    /// A step was scheduled; it lasts from `start_ns` to `end_ns`.
    fn step(&mut self, step: &Step, start_ns: u64, end_ns: u64);

    /// A request ended.
    fn ended(&mut self, _request: &EndedRequest) {}
}

/// The times of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedRequest {
    /// Its number in the workload.
    pub request: u32,
    /// When it came.
    pub arrival_ns: u64,
    /// When its first token was there.
    pub first_ns: u64,
    /// When its last token was there.
    pub last_ns: u64,
    /// Its output tokens.
    pub output_tokens: u32,
}

/// Someone who knows how long a step takes.
pub trait Clock {
    /// Nanoseconds of a step that schedules something.
    fn length_ns(&mut self, step: &Step) -> u64;
}

/// [`StepTime`] with so many groups.
struct Constant {
    time: StepTime,
    group_ns: u64,
}

impl Clock for Constant {
    fn length_ns(&mut self, step: &Step) -> u64 {
        let mut prefill = 0_u64;
        for part in &step.scheduled {
            if part.generated == 0 || part.tokens > 1 + part.drafts {
                prefill += u64::from(part.tokens);
            }
        }
        self.time.base_ns
            + self.group_ns
            + self.time.prefill_token_ns * prefill
            + self.time.request_ns * step.scheduled.len() as u64
    }
}

impl<F: FnMut(&Step, u64, u64)> Observer for F {
    fn step(&mut self, step: &Step, start_ns: u64, end_ns: u64) {
        self(step, start_ns, end_ns);
    }
}

/// What came of the requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Requests that ended.
    pub finished: u64,
    /// Steps that scheduled something.
    pub steps: u64,
    /// Simulated time.
    pub duration_ns: u64,
    /// Prompt tokens of all requests.
    pub prompt_tokens: u64,
    /// Output tokens of all requests.
    pub output_tokens: u64,
    /// Prompt tokens found in the prefix cache at the first admission.
    pub cached_tokens: u64,
    /// Sum over requests of the time to the first token.
    pub ttft_ns_sum: u128,
    /// Sum over requests of the time from arrival to the end.
    pub latency_ns_sum: u128,
}

/// Steps without an end of a request, many preemptions in them, after which it is called thrashing.
const PATIENCE: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, Default)]
struct Times {
    arrival_ns: u64,
    first_ns: u64,
    /// Steps with drafts so far.
    draft_steps: u32,
    output: u32,
}

/// Runs the simulation; `observer` sees every step.
///
/// # Errors
/// [`RunError`] names the setting or the request.
pub fn simulate(simulation: &Simulation<'_>, observer: &mut impl Observer) -> Result<Outcome, RunError> {
    let time = simulation.step_time;
    let group_ns = time.group_ns * simulation.groups.len() as u64;
    simulate_with(simulation, &mut Constant { time, group_ns }, observer)
}

/// Runs the simulation with step times of `clock` in place of the simulation's own.
///
/// # Errors
/// [`RunError`] names the setting or the request.
pub fn simulate_with(
    simulation: &Simulation<'_>,
    clock_of: &mut impl Clock,
    observer: &mut impl Observer,
) -> Result<Outcome, RunError> {
    let Simulation { engine, groups, workload, acceptance, step_time: _, seed } = simulation;
    let mut scheduler = Scheduler::new(engine, groups)?;
    workload.check()?;
    if let Some(speculative) = engine.speculative {
        acceptance.check(speculative.tokens)?;
    }
    let closed = workload.concurrency();
    let mut source = Source::new(workload, *seed);
    let mut step = Step::default();
    let mut outcome = Outcome::default();
    let mut times: Vec<Times> = Vec::new();
    let (mut clock, mut number, mut live) = (0_u64, 0_u32, 0_u32);
    let mut pending = source.advance();
    let (mut calm, mut preemptions) = (0_u64, 0_u64);
    // Times are kept by a number that is used again, requests are named by their number in the workload.
    let mut slots: Vec<u32> = Vec::new();
    let mut names: Vec<u32> = Vec::new();
    loop {
        while pending && closed.map_or(source.draft.arrival_ns <= clock, |most| live < most) {
            let draft = &source.draft;
            let arrival_ns = if closed.is_some() { clock } else { draft.arrival_ns };
            let id = slots.pop().unwrap_or_else(|| {
                times.push(Times::default());
                names.push(0);
                u32::try_from(times.len() - 1).unwrap_or(u32::MAX)
            });
            let new = NewRequest {
                id,
                prompt_tokens: draft.prompt_tokens,
                max_tokens: draft.max_tokens,
                encoder_tokens: 0,
                priority: draft.priority,
                arrival: arrival_ns,
                rank: number,
                prompt: &draft.prompt,
                output: draft.output,
            };
            scheduler.admits(&new).map_err(|source| RunError::Refused { request: number, source })?;
            scheduler.add(&new);
            let output = draft.max_tokens.min(engine.max_model_len - draft.prompt_tokens);
            times[id as usize] = Times { arrival_ns, first_ns: u64::MAX, draft_steps: 0, output };
            names[id as usize] = number;
            outcome.prompt_tokens += u64::from(draft.prompt_tokens);
            number += 1;
            live += 1;
            pending = source.advance();
        }
        if scheduler.is_idle() && !scheduler.is_in_flight() {
            if !pending {
                break;
            }
            clock = clock.max(source.draft.arrival_ns);
            continue;
        }
        scheduler.schedule(&mut step, &mut |id, computed, drafts| {
            let turn = &mut times[id as usize].draft_steps;
            *turn += 1;
            acceptance.draw(*seed, names[id as usize], computed, *turn - 1, drafts)
        });
        let back = scheduler.complete(&mut step);
        if step.scheduled.is_empty() && !back {
            if pending && closed.is_none() {
                clock = clock.max(source.draft.arrival_ns);
                continue;
            }
            return Err(RunError::Stuck {
                request: scheduler.first_waiting().map_or(0, |id| names[id as usize]),
                step: step.index,
                free: step.free_blocks,
                total: engine.num_blocks,
            });
        }
        let start = clock;
        if !step.scheduled.is_empty() {
            let length = clock_of.length_ns(&step);
            clock = clock.saturating_add(length);
            outcome.steps += 1;
            for part in &step.scheduled {
                if part.generated > 0 {
                    let first = &mut times[part.id as usize].first_ns;
                    *first = (*first).min(clock);
                }
            }
        }
        outcome.cached_tokens += step.new.iter().map(|&(_, tokens)| u64::from(tokens)).sum::<u64>();
        calm += 1;
        preemptions += step.preempted.len() as u64;
        // The names of what ended go to the observer as they are in the workload.
        for &id in &step.finished {
            let t = times[id as usize];
            outcome.finished += 1;
            outcome.output_tokens += u64::from(t.output);
            outcome.ttft_ns_sum += u128::from(t.first_ns.min(clock) - t.arrival_ns.min(t.first_ns));
            outcome.latency_ns_sum += u128::from(clock - t.arrival_ns);
            observer.ended(&EndedRequest {
                request: names[id as usize],
                arrival_ns: t.arrival_ns,
                first_ns: t.first_ns.min(clock),
                last_ns: clock,
                output_tokens: t.output,
            });
            slots.push(id);
            live -= 1;
            calm = 0;
            preemptions = 0;
        }
        if calm > PATIENCE && preemptions > PATIENCE / 100 {
            return Err(RunError::Thrashing {
                request: step.preempted.first().map_or(0, |&id| names[id as usize]),
                steps: calm,
                preemptions,
            });
        }
        step.rename(&names);
        observer.step(&step, start, clock);
    }
    outcome.duration_ns = clock;
    Ok(outcome)
}
