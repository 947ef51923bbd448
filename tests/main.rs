//! The tests of the command: one binary, a module a subject.

#![expect(clippy::unwrap_used, reason = "tests")]

mod cli;
mod golden;
mod logs;
mod support;
