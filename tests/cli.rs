//! One module a subcommand.

mod bench;
mod check;
mod compare;
mod diff;
mod explain;
mod plan;
mod scenario;
mod zoo;
