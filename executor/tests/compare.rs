//! Is the verdict calibrated, and is every tool's file read?

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

#[path = "compare/calibration.rs"]
mod calibration;
#[path = "compare/cases.rs"]
mod cases;
#[path = "compare/prior.rs"]
mod prior;
#[path = "compare/readers.rs"]
mod readers;
#[path = "compare/simulate.rs"]
mod simulate;
