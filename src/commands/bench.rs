//! `k3plan bench`: measurements on real machines.

use clap::Subcommand;

use crate::cli::Ended;
use crate::commands::bench_device;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Measure on real machines
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Device(bench_device::Args),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    match &args.command {
        Command::Device(args) => bench_device::run(args, terminal),
    }
}
