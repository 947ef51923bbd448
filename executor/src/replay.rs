//! A plan's steps for real: the KV pool as the plan lays it out, a step's kernels, predicted and measured.
//!
//! [`plan`] takes from a plan what a replay needs, [`pool`] lays out the KV cache, [`step`] makes the launches of a
//! batch's step, [`run`] measures them. A batch is fixed, or that of a simulated step ([`sample`] chooses). A step is
//! that of vLLM's Model Runner V2: changed block ids are appended and gathered for all groups at once, slots come from
//! one launch, each group's builder fills its metadata, each attention layer writes and reads its cache, each layer
//! with a state updates it. The layers' arithmetic is not part of it.

pub mod calibrate;
pub mod plan;
pub mod pool;
pub mod run;
pub mod sample;
pub mod step;

use thiserror::Error;

use crate::device::DeviceError;
use crate::kernel::ShapeError;

/// Why a plan cannot be replayed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A size does not fit.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// There is nothing to replay.
    #[error("replay a plan without groups")]
    NoGroups,
    /// No step schedules anything.
    #[error("replay a run without steps")]
    NoSteps,
    /// Two blocks do not fit the memory.
    #[error("lay out a pool: two blocks of {block_bytes} bytes need more than {budget_bytes} bytes")]
    Budget {
        /// Bytes of a block.
        block_bytes: usize,
        /// Bytes allowed.
        budget_bytes: usize,
    },
    /// A number is too large for this machine or for vLLM's own 32 bits.
    #[error("replay {what} of {value}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}

/// A request in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Tokens computed before the step.
    pub num_computed: u32,
    /// Tokens scheduled in it.
    pub query_len: u32,
}

/// The requests of a step, decodes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The requests.
    pub requests: Vec<Request>,
    /// Draft tokens a request may carry: the length of a decode less one.
    pub num_speculative_tokens: u32,
}

impl Batch {
    /// A batch in any order.
    pub fn new(mut requests: Vec<Request>, num_speculative_tokens: u32) -> Self {
        requests.sort_by_key(|request| request.query_len > num_speculative_tokens.saturating_add(1));
        Self { requests, num_speculative_tokens }
    }

    /// A batch of decodes alike.
    pub fn decodes(requests: u32, num_computed: u32, num_speculative_tokens: u32) -> Self {
        let request = Request { num_computed, query_len: num_speculative_tokens.saturating_add(1) };
        Self { requests: (0..requests).map(|_| request).collect(), num_speculative_tokens }
    }

    /// Tokens scheduled.
    pub fn num_tokens(&self) -> u64 {
        self.requests.iter().map(|r| u64::from(r.query_len)).sum()
    }

    /// Tokens computed before.
    pub fn num_computed(&self) -> u64 {
        self.requests.iter().map(|r| u64::from(r.num_computed)).sum()
    }

    /// Requests whose query is longer than a decode's.
    pub fn prefills(&self) -> usize {
        self.requests.iter().filter(|r| r.query_len > self.num_speculative_tokens.saturating_add(1)).count()
    }
}
