//! The command as a user meets it: exit code, standard output, standard error.

#[path = "cli/compare.rs"]
mod compare;
