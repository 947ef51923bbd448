//! The command `k3plan`: reads the command line, runs one subcommand, maps its end to an exit code.

mod cli;
mod commands;
mod exit;
mod failure;
mod input_file;
mod lock;
mod model_file;
mod output_file;
mod predict;
mod record;
mod render;
mod scenario;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
