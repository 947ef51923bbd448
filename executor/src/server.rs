//! Servers under test: start, health, metrics, end.

mod call;
pub mod machine;
pub mod metrics;
pub mod probe;
pub mod process;
pub mod registry;
