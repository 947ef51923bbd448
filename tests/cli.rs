//! One module a subcommand.

mod aiconfigurator;
mod arguments;
mod bench;
mod capacity;
mod check;
mod compare;
mod device;
mod diff;
mod explain;
mod fit;
mod import_hf;
mod import_log;
mod inputs;
mod model_flags;
mod optimize;
mod plan;
mod predict;
mod scenario;
mod simulate;
mod zoo;
