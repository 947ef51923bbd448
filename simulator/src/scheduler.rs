//! Which requests run in a step, and with how many tokens.
//!
//! Source: `vllm/v1/core/sched/scheduler.py` and `async_scheduler.py`, 0.32.

mod admission;
mod chunk;
mod output;
mod queue;
mod running;

use queue::{Place, Queue};

use crate::blocks::cache::Cache;
use crate::engine::{Engine, Policy, SetupError};
use crate::group::Group;
use crate::request::{NewRequest, Request, Status};
use crate::step::{Scheduled, Step};

/// vLLM's scheduler over one pool of blocks.
#[derive(Debug, Clone)]
pub struct Scheduler {
    engine: Engine,
    cache: Cache,
    requests: Vec<Request>,
    unused: Vec<u32>,
    running: Vec<u32>,
    waiting: Queue,
    skipped: Vec<u32>,
    serial: u64,
    steps: u64,
    aligned_states: bool,
    has_checkpoints: bool,
    checkpoint_alignment: Option<u32>,
    depth: usize,
    /// Steps that are not back yet, oldest first.
    flights: std::collections::VecDeque<Vec<Scheduled>>,
    spare: Vec<Vec<Scheduled>>,
    last_victim: u32,
}

/// Where a prompt would be refused before it reaches the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has no token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// It leaves no place for an output token.
    #[error(
        "the prompt has {prompt_tokens} tokens; the context holds {max_model_len}, one of them for the output"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Tokens a request may reach.
        max_model_len: u32,
    },
    /// It asks for no output.
    #[error("no output token is asked for")]
    NoOutput,
    /// It needs more blocks than there are, even alone.
    #[error("its prompt needs {needed} blocks; the pool has {available}, the null block left out")]
    NeverFits {
        /// Blocks its prompt takes over all groups.
        needed: u64,
        /// Blocks that can be handed out.
        available: u64,
    },
}

/// What [`Scheduler::check`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unbalanced {
    /// Free, held and null blocks are not all blocks.
    #[error("{free} free, {held} held and 1 null block are not {total} blocks")]
    Blocks {
        /// Blocks that can be handed out.
        free: u64,
        /// Blocks that requests hold.
        held: u64,
        /// Blocks of the pool.
        total: u64,
    },
    /// A block's references are not the requests that hold it.
    #[error("a block has another number of references than the {count} requests that hold it")]
    References {
        /// Requests that hold it.
        count: u32,
    },
    /// A request that waits holds blocks.
    #[error("request {id} waits and holds blocks")]
    WaitingHolds {
        /// The request.
        id: u32,
    },
    /// More run than may.
    #[error("{running} requests run")]
    Running {
        /// How many.
        running: usize,
    },
}

impl Scheduler {
    /// A scheduler over `groups`.
    ///
    /// # Errors
    /// [`SetupError`] if the settings do not go together.
    pub fn new(engine: &Engine, groups: &[Group]) -> Result<Self, SetupError> {
        Self::over(engine, groups, false)
    }

    /// A scheduler that computes every group by itself: slow, and what [`new`](Self::new) must equal.
    ///
    /// # Errors
    /// [`SetupError`] if the settings do not go together.
    pub fn with_groups_apart(engine: &Engine, groups: &[Group]) -> Result<Self, SetupError> {
        Self::over(engine, groups, true)
    }

    fn over(engine: &Engine, groups: &[Group], apart: bool) -> Result<Self, SetupError> {
        engine.check(groups)?;
        let states = || groups.iter().filter(|group| group.manager.is_state());
        let checkpoint = |group: &Group| match group.manager {
            crate::group::Manager::State { checkpoint_blocks, checkpoint_alignment, .. } => {
                (checkpoint_blocks, checkpoint_alignment)
            }
            _ => (0, None),
        };
        Ok(Self {
            engine: engine.clone(),
            cache: Cache::new(engine, groups, apart)?,
            requests: Vec::new(),
            unused: Vec::new(),
            running: Vec::new(),
            waiting: Queue::new(engine.policy),
            skipped: Vec::new(),
            serial: 0,
            steps: 0,
            aligned_states: groups.iter().any(|group| group.manager.is_aligned_state()),
            has_checkpoints: states().next().is_some() && states().all(|group| checkpoint(group).0 > 0),
            checkpoint_alignment: states().next().and_then(|group| checkpoint(group).1),
            depth: engine.depth(),
            flights: std::collections::VecDeque::new(),
            spare: Vec::new(),
            last_victim: 0,
        })
    }

    /// The settings it works under.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether a request could ever run.
    ///
    /// # Errors
    /// [`Refusal`] says why not.
    pub fn admits(&self, new: &NewRequest<'_>) -> Result<(), Refusal> {
        if new.prompt_tokens == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if new.prompt_tokens >= self.engine.max_model_len {
            return Err(Refusal::TooLong {
                prompt_tokens: new.prompt_tokens,
                max_model_len: self.engine.max_model_len,
            });
        }
        if new.max_tokens == 0 {
            return Err(Refusal::NoOutput);
        }
        let needed = self.cache.needed_alone(new.prompt_tokens, new.encoder_tokens);
        let available = u64::from(self.cache.num_blocks()) - 1;
        if needed > available {
            return Err(Refusal::NeverFits { needed, available });
        }
        Ok(())
    }

    /// Lets a request wait, and gives its slot.
    pub fn add(&mut self, new: &NewRequest<'_>) -> u32 {
        self.serial += 1;
        let request = Request::new(new, self.serial);
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.requests[slot as usize] = request;
                slot
            }
            None => {
                self.requests.push(request);
                u32::try_from(self.requests.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.cache.admit(slot, new.prompt, new.output);
        let place = self.place(slot);
        self.waiting.push(place);
        slot
    }

    /// Ends a request from outside; `false` if it is not there any more.
    pub fn abort(&mut self, id: u32) -> bool {
        let found = (0_u32..)
            .zip(&self.requests)
            .find(|(_, request)| request.id == id && request.status != Status::Finished);
        let Some((slot, request)) = found else { return false };
        if request.status == Status::Running {
            self.running.retain(|&other| other != slot);
        } else {
            self.waiting.remove(slot);
        }
        self.retire(slot);
        true
    }

    /// Whether any request waits or runs.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.len() == 0
    }

    /// Whether a step is still to come back.
    pub fn is_in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// The request that is next in the queue.
    pub fn first_waiting(&self) -> Option<u32> {
        self.waiting.peek().map(|slot| self.requests[slot as usize].id)
    }

    /// Requests that wait or run.
    pub fn unfinished(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self
            .requests
            .iter()
            .filter(|request| request.status != Status::Finished)
            .map(|request| request.id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Schedules one step into `step`; `accept` says, for a request, its computed tokens and
    /// its draft tokens, how many of them hold.
    pub fn schedule(&mut self, step: &mut Step, accept: &mut impl FnMut(u32, u32, u32) -> u32) {
        step.clear(self.steps);
        self.steps += 1;
        self.cache.new_step();
        let mut budget = Budget {
            tokens: self.engine.max_num_batched_tokens,
            input: self.engine.max_num_batched_tokens,
            slots: self.engine.speculative.map_or(0, |s| s.drafting_slots),
            long_prefill: 0,
        };
        let threshold = self.engine.long_prefill_token_threshold;
        if threshold > 0 && self.running.len() + self.waiting.len() > 1 {
            budget.long_prefill = threshold;
        }
        let prefills = self.schedule_running(step, &mut budget);
        if step.preempted.is_empty() && self.waiting.len() > 0 {
            self.schedule_waiting(step, &mut budget, prefills);
        }
        self.cache.release_copies();
        step.free_blocks = self.cache.pool.free();
        step.running = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        step.waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        self.advance(step, accept);
        if !step.scheduled.is_empty() {
            let mut flight = self.spare.pop().unwrap_or_default();
            flight.clear();
            flight.extend_from_slice(&step.scheduled);
            self.flights.push_back(flight);
        }
    }

    /// Hands back the oldest step if it is due (the pipeline is full, or nothing was scheduled) and notes
    /// who ended in `step.finished`. Says whether a step came back.
    pub fn complete(&mut self, step: &mut Step) -> bool {
        let due = self.flights.len() >= self.depth || step.scheduled.is_empty();
        if !due {
            return false;
        }
        let Some(flight) = self.flights.pop_front() else { return false };
        self.update(&flight, &mut step.finished);
        self.spare.push(flight);
        true
    }

    /// Recounts every block: who holds it, who shares it, who may have it next.
    ///
    /// # Errors
    /// [`Unbalanced`] says what does not add up.
    pub fn check(&self) -> Result<(), Unbalanced> {
        let waiting = self.waiting.slots();
        for &slot in &waiting {
            if self.cache.lengths(slot).any(|(_, len)| len > 0) {
                return Err(Unbalanced::WaitingHolds { id: self.requests[slot as usize].id });
            }
        }
        if self.running.len() > self.engine.max_num_seqs as usize {
            return Err(Unbalanced::Running { running: self.running.len() });
        }
        let (held, shared_twice) = self.cache.recount(&self.running);
        if let Some(count) = shared_twice {
            return Err(Unbalanced::References { count });
        }
        let (free, total) = (self.cache.pool.free(), u64::from(self.cache.num_blocks()));
        if free + held + 1 == total { Ok(()) } else { Err(Unbalanced::Blocks { free, held, total }) }
    }

    fn place(&self, slot: u32) -> Place {
        let request = &self.requests[slot as usize];
        (request.priority, request.arrival, request.rank, slot)
    }

    fn retire(&mut self, slot: u32) {
        self.cache.free(slot);
        self.requests[slot as usize].status = Status::Finished;
        self.unused.push(slot);
    }

    fn is_priority(&self) -> bool {
        self.engine.policy == Policy::Priority
    }

    /// Moves the computed tokens on (`_update_after_schedule`), and says what each request gives.
    fn advance(&mut self, step: &mut Step, accept: &mut impl FnMut(u32, u32, u32) -> u32) {
        let drafts = self.engine.speculative.map_or(0, |s| s.tokens);
        let is_async = self.engine.async_scheduling;
        for part in &mut step.scheduled {
            let request = &mut self.requests[part.slot as usize];
            request.computed += part.tokens;
            request.in_flight += part.tokens;
            request.is_prefill_chunk = request.computed < request.tokens + request.placeholders;
            if request.is_prefill_chunk {
                continue;
            }
            part.generated = 1;
            if part.drafts > 0 {
                part.generated += accept(part.id, part.computed, part.drafts).min(part.drafts);
            }
            if is_async {
                request.placeholders += 1 + part.drafts;
                request.drafts = drafts;
            }
        }
    }
}

/// What is left of a step.
#[derive(Debug, Clone, Copy)]
struct Budget {
    tokens: u32,
    input: u32,
    /// Of `input`, taken by each request besides its tokens.
    slots: u32,
    /// Longest prefill chunk, or 0.
    long_prefill: u32,
}

impl Budget {
    fn for_request(&self) -> u32 {
        self.tokens.min(self.input.saturating_sub(self.slots))
    }

    fn spend(&mut self, tokens: u32) {
        self.tokens -= tokens;
        self.input -= tokens + self.slots;
    }
}
