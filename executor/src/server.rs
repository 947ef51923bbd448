//! Servers under test: start, health, metrics, end.

mod call;
pub mod metrics;
