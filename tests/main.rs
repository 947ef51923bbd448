//! The command as a user meets it: exit code, standard output, standard error.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

#[path = "cli/compare.rs"]
mod compare;
