//! `k3plan schema`: the JSON Schema of what `--json` prints.

use crate::cli::Ended;
use crate::exit::Exit;
use crate::render::json::PlanReport;
use crate::terminal::Terminal;

/// Print the JSON Schema of `k3plan plan --json`
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs the subcommand.
pub(crate) fn run(_args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let schema = schemars::schema_for!(PlanReport);
    serde_json::to_writer_pretty(&mut *terminal.out, &schema).map_err(std::io::Error::from)?;
    writeln!(terminal.out)?;
    Ok(Exit::Fine)
}
