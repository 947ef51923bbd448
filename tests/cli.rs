//! One module a subcommand.

mod check;
mod diff;
mod explain;
mod plan;
