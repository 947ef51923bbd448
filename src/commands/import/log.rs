//! `k3plan import log`: what a vLLM server log says.

use std::path::PathBuf;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Read a vLLM server log
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The log.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    writeln!(terminal.out, "{}", args.file.display())?;
    Ok(Exit::Fine)
}
