//! `k3plan bench`: load on live servers, and experiments over several of them.

mod load_args;
mod measure;
mod report;
mod result;
mod run;
mod serve;
mod table;

use clap::Subcommand;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Measure live servers.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Run(run::Args),
    Report(report::Args),
}

pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    match &args.command {
        Command::Serve(args) => serve::run(args, terminal),
        Command::Run(args) => run::run(args, terminal),
        Command::Report(args) => report::run(args, terminal),
    }
}
