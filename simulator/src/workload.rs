//! Which requests come, when, how long they are, and what they share.

pub mod acceptance;
pub mod trace;

use thiserror::Error;

use crate::blocks::tokens::{Segment, mix};
use crate::rng::Stream;
use trace::TraceRequest;

/// When requests come.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrival {
    /// So many at once; the next comes when one ends.
    ClosedLoop {
        /// Requests at once.
        concurrency: u32,
    },
    /// At a rate, with gamma distributed gaps; burstiness 1 is a Poisson process, less is burstier (as
    /// `vllm bench serve --burstiness`).
    OpenLoop {
        /// Requests a second.
        rate: f64,
        /// Shape of the gaps' distribution.
        burstiness: f64,
    },
}

/// Tokens of a prompt or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// At least.
    pub least: u32,
    /// At most.
    pub most: u32,
}

impl Length {
    /// Always `tokens`.
    pub fn fixed(tokens: u32) -> Self {
        Self { least: tokens, most: tokens }
    }
}

/// Requests made up by rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// How many requests; a turn of a conversation is one.
    pub requests: u32,
    /// When they come.
    pub arrival: Arrival,
    /// Prompt tokens (of a turn: the new ones).
    pub input: Length,
    /// Output tokens.
    pub output: Length,
    /// Tokens at the start that requests share, before the `input` ones.
    pub shared_prefix_tokens: u32,
    /// How many different shared prefixes there are.
    pub shared_prefixes: u32,
    /// Turns of a conversation; each takes up what was said before.
    pub turns: u32,
    /// Priorities are drawn from 0 to one less than this.
    pub priorities: u32,
}

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// By rule.
    Synthetic(Synthetic),
    /// As recorded, each at its time, or as many at once as `concurrency` says.
    Trace {
        /// The requests, by arrival.
        requests: Vec<TraceRequest>,
        /// Requests at once, in place of the recorded times.
        concurrency: Option<u32>,
    },
}

/// Why a workload makes no sense.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum WorkloadError {
    /// It has no request.
    #[error("the workload has no request")]
    Empty,
    /// Nothing runs at once.
    #[error("a closed loop needs at least one request at once")]
    NoConcurrency,
    /// The rate is not a positive number.
    #[error("the rate is {rate} requests a second; it must be positive")]
    Rate {
        /// What was given.
        rate: f64,
    },
    /// The burstiness is not a positive number.
    #[error("the burstiness is {burstiness}; it must be positive")]
    Burstiness {
        /// What was given.
        burstiness: f64,
    },
    /// A range of lengths is empty or holds zero.
    #[error(
        "{what} lengths run from {least} to {most} tokens; they must start at 1 at least and not run backwards"
    )]
    Length {
        /// Input or output.
        what: &'static str,
        /// At least.
        least: u32,
        /// At most.
        most: u32,
    },
    /// A count is zero.
    #[error("{what} must be at least 1")]
    Zero {
        /// Which.
        what: &'static str,
    },
}

/// The next request of a workload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    pub(crate) arrival_ns: u64,
    pub(crate) prompt_tokens: u32,
    pub(crate) max_tokens: u32,
    pub(crate) priority: i64,
    pub(crate) prompt: Vec<Segment>,
    pub(crate) output: u64,
}

impl Workload {
    /// Checks that it makes sense.
    ///
    /// # Errors
    /// [`WorkloadError`] says what does not.
    pub fn check(&self) -> Result<(), WorkloadError> {
        match self {
            Self::Synthetic(s) => {
                if s.requests == 0 {
                    return Err(WorkloadError::Empty);
                }
                match s.arrival {
                    Arrival::ClosedLoop { concurrency: 0 } => return Err(WorkloadError::NoConcurrency),
                    Arrival::OpenLoop { rate, .. } if !(rate > 0.0 && rate.is_finite()) => {
                        return Err(WorkloadError::Rate { rate });
                    }
                    Arrival::OpenLoop { burstiness, .. } if !(burstiness > 0.0 && burstiness.is_finite()) => {
                        return Err(WorkloadError::Burstiness { burstiness });
                    }
                    Arrival::ClosedLoop { .. } | Arrival::OpenLoop { .. } => {}
                }
                for (what, length) in [("input", s.input), ("output", s.output)] {
                    if length.least == 0 || length.least > length.most || length.most > 1 << 29 {
                        return Err(WorkloadError::Length { what, least: length.least, most: length.most });
                    }
                }
                for (what, count) in [
                    ("the turns", s.turns),
                    ("the shared prefixes", s.shared_prefixes),
                    ("the priorities", s.priorities),
                ] {
                    if count == 0 {
                        return Err(WorkloadError::Zero { what });
                    }
                }
                Ok(())
            }
            Self::Trace { requests, concurrency } => {
                if requests.is_empty() {
                    return Err(WorkloadError::Empty);
                }
                if *concurrency == Some(0) {
                    return Err(WorkloadError::NoConcurrency);
                }
                Ok(())
            }
        }
    }

    /// Requests in all.
    pub fn len(&self) -> u32 {
        match self {
            Self::Synthetic(s) => s.requests,
            Self::Trace { requests, .. } => u32::try_from(requests.len()).unwrap_or(u32::MAX),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests at once, where the workload is a closed loop.
    pub(crate) fn concurrency(&self) -> Option<u32> {
        match self {
            Self::Synthetic(s) => match s.arrival {
                Arrival::ClosedLoop { concurrency } => Some(concurrency),
                Arrival::OpenLoop { .. } => None,
            },
            Self::Trace { concurrency, .. } => *concurrency,
        }
    }
}

/// Makes the requests of a workload one after the other; nothing is kept but the open conversations.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    workload: &'a Workload,
    next: u32,
    lengths: Stream,
    gaps: Stream,
    priorities: Stream,
    clock_ns: f64,
    /// Of each open conversation: what has been said, and the turns that are left.
    talks: std::collections::VecDeque<(Vec<Segment>, u32)>,
    seed: u64,
    pub(crate) draft: Draft,
}

impl<'a> Source<'a> {
    pub(crate) fn new(workload: &'a Workload, seed: u64) -> Self {
        Self {
            workload,
            next: 0,
            lengths: Stream::new(seed, 1),
            gaps: Stream::new(seed, 2),
            priorities: Stream::new(seed, 3),
            clock_ns: 0.0,
            talks: std::collections::VecDeque::new(),
            seed,
            draft: Draft::default(),
        }
    }

    /// Puts the next request into `draft`; `false` if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        if self.next >= self.workload.len() {
            return false;
        }
        let number = self.next;
        self.next += 1;
        match self.workload {
            Workload::Synthetic(synthetic) => self.synthesize(synthetic, number),
            Workload::Trace { requests, .. } => {
                let request = &requests[number as usize];
                self.draft.arrival_ns = request.arrival_ns;
                self.draft.prompt_tokens = request.prompt_tokens;
                self.draft.max_tokens = request.output_tokens;
                self.draft.priority = request.priority;
                self.draft.prompt.clone_from(&request.prompt);
                self.draft
                    .prompt
                    .push(Segment { end: request.prompt_tokens, stream: own(self.seed, number, 0) });
                self.draft.output = own(self.seed, number, 1);
            }
        }
        true
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float saturates, and time does not run backwards"
    )]
    fn synthesize(&mut self, s: &Synthetic, number: u32) {
        let input = self.lengths.between(s.input.least, s.input.most);
        let output = self.lengths.between(s.output.least, s.output.most);
        if let Arrival::OpenLoop { rate, burstiness } = s.arrival {
            let gap = if (burstiness - 1.0).abs() < f64::EPSILON {
                self.gaps.exponential()
            } else {
                self.gaps.gamma(burstiness)
            };
            self.clock_ns += gap / rate * 1e9;
            self.draft.arrival_ns = self.clock_ns as u64;
        }
        if s.priorities > 1 {
            self.draft.priority = i64::from(self.priorities.between(0, s.priorities - 1));
        }
        let draft = &mut self.draft;
        draft.max_tokens = output;
        draft.output = own(self.seed, number, 1);
        draft.prompt.clear();
        // A conversation's next turn comes once as many others have spoken as there are talks at once.
        let open = self.workload.concurrency().unwrap_or(1).max(1) as usize;
        let mut left = s.turns - 1;
        if s.turns > 1 && self.talks.len() >= open {
            if let Some((said, turns)) = self.talks.pop_front() {
                draft.prompt = said;
                left = turns - 1;
            }
        } else if s.shared_prefix_tokens > 0 {
            let prefix = u64::from(number % s.shared_prefixes);
            draft.prompt.push(Segment { end: s.shared_prefix_tokens, stream: mix(self.seed, prefix + 1) });
        }
        let start = draft.prompt.last().map_or(0, |segment| segment.end);
        draft.prompt_tokens = start.saturating_add(input);
        draft.prompt.push(Segment { end: draft.prompt_tokens, stream: own(self.seed, number, 0) });
        if left > 0 {
            let mut said = draft.prompt.clone();
            said.push(Segment { end: draft.prompt_tokens.saturating_add(output), stream: draft.output });
            self.talks.push_back((said, left));
        }
    }
}

/// A stream that only request `number` has.
fn own(seed: u64, number: u32, part: u64) -> u64 {
    mix(mix(seed, 0x0041_u64 + part), u64::from(number) + (1 << 40))
}
