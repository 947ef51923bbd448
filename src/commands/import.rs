//! `k3plan import`: scenarios from what people have.

mod hf;

use crate::cli::Ended;
use crate::commands::import_log;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Turn a model's config.json or a vLLM log into a scenario
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(clap::Subcommand)]
enum From {
    Hf(Box<hf::Args>),
    Log(Box<import_log::Args>),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    match &args.from {
        From::Hf(args) => hf::run(args, terminal),
        From::Log(args) => import_log::run(args, terminal),
    }
}
