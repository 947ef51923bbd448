//! vLLM's scheduler step by step over a KV cache plan, and the cost of each step's metadata.

mod blocks;
pub mod cost;
mod engine;
mod group;
pub mod metadata;
pub mod offload;
mod recording;
mod request;
mod rng;
mod run;
mod scheduler;
mod step;
pub mod workload;

pub use blocks::tokens::Segment;
pub use engine::{DraftMethod, Engine, Policy, SetupError, Speculative};
pub use group::{Group, Manager, StateMode};
pub use recording::{Difference, Recording, RecordingError, Replay};
pub use request::NewRequest;
pub use run::{
    Clock, EndedRequest, Observer, Outcome, RunError, Simulation, StepTime, simulate, simulate_with,
};
pub use scheduler::{Refusal, Scheduler, Unbalanced};
pub use step::{Scheduled, Step};
