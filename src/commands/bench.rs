//! `k3plan bench`: load on live servers, experiments over several of them, and devices.

mod find_rate;
mod hidden;
mod load_args;
mod measure;
mod report;
mod result;
mod run;
mod serve;
mod server_log;
mod shown;
mod spelling;
mod table;

use clap::Subcommand;

pub(crate) use find_rate::Report as FindRateReport;

use crate::cli::Ended;
use crate::commands::bench_device;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Measure live servers and devices
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Run(Box<run::Args>),
    FindRate(Box<find_rate::Args>),
    Report(report::Args),
    Device(Box<bench_device::Args>),
}

pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    match &args.command {
        Command::Serve(args) => serve::run(args, terminal),
        Command::Run(args) => run::run(args, terminal),
        Command::FindRate(args) => find_rate::run(args, terminal),
        Command::Report(args) => report::run(args, terminal),
        Command::Device(args) => bench_device::run(args, terminal),
    }
}
