//! What the scheduler knows of a request.

use crate::blocks::cache::{Limits, View};
use crate::blocks::tokens::Segment;

/// A request as it arrives.
#[derive(Debug, Clone, Copy)]
pub struct NewRequest<'a> {
    /// A number that names it to the caller.
    pub id: u32,
    /// Prompt length, in tokens.
    pub prompt_tokens: u32,
    /// Tokens to generate.
    pub max_tokens: u32,
    /// Encoder tokens, for cross attention.
    pub encoder_tokens: u32,
    /// Small goes first under the priority policy.
    pub priority: i64,
    /// Arrival, in any unit that grows.
    pub arrival: u64,
    /// Order among equals (the order of the names).
    pub rank: u32,
    /// What the prompt's tokens are; the last segment may end past the prompt.
    pub prompt: &'a [Segment],
    /// The stream its output tokens belong to.
    pub output: u64,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Waiting,
    Running,
    Preempted,
    Finished,
}

/// A request in the scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: u32,
    /// Never used again, unlike the slot.
    pub(crate) serial: u64,
    pub(crate) status: Status,
    pub(crate) prompt: u32,
    pub(crate) max_tokens: u32,
    pub(crate) encoder_tokens: u32,
    pub(crate) priority: i64,
    pub(crate) arrival: u64,
    pub(crate) rank: u32,
    /// Prompt and output.
    pub(crate) tokens: u32,
    pub(crate) computed: u32,
    /// Draft tokens to verify.
    pub(crate) drafts: u32,
    /// Tokens of steps that are not back yet (`num_output_placeholders`).
    pub(crate) placeholders: u32,
    pub(crate) in_flight: u32,
    /// Tokens in flight since before a preemption.
    pub(crate) stale: u32,
    pub(crate) is_prefill_chunk: bool,
    pub(crate) preemptions: u32,
    pub(crate) shared_prefix_boundary: u32,
    pub(crate) limits: Limits,
}

impl Request {
    pub(crate) fn new(new: &NewRequest<'_>, serial: u64) -> Self {
        Self {
            id: new.id,
            serial,
            status: Status::Waiting,
            prompt: new.prompt_tokens,
            max_tokens: new.max_tokens,
            encoder_tokens: new.encoder_tokens,
            priority: new.priority,
            arrival: new.arrival,
            rank: new.rank,
            tokens: new.prompt_tokens,
            computed: 0,
            drafts: 0,
            placeholders: 0,
            in_flight: 0,
            stale: 0,
            is_prefill_chunk: false,
            preemptions: 0,
            shared_prefix_boundary: 0,
            limits: Limits::default(),
        }
    }

    pub(crate) fn view(&self, slot: u32) -> View {
        View {
            slot,
            prompt: self.prompt,
            tokens: self.tokens,
            computed: self.computed,
            in_flight: self.in_flight,
            encoder_tokens: self.encoder_tokens,
            shared_prefix_boundary: self.shared_prefix_boundary,
            waits: matches!(self.status, Status::Waiting | Status::Preempted),
        }
    }

    /// The end of the prefill: a resumed request replays its outputs too.
    pub(crate) fn prefill_end(&self) -> u32 {
        self.prompt.max(self.tokens.saturating_sub(1))
    }
}
