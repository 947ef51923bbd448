//! One module a subcommand.

mod bench;
mod check;
mod compare;
mod device;
mod diff;
mod explain;
mod fit;
mod import_log;
mod plan;
mod predict;
mod scenario;
mod simulate;
mod zoo;
