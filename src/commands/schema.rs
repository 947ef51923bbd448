//! `k3plan schema`: the JSON Schema of what `--json` prints.

use schemars::{Schema, schema_for};

use crate::cli::Ended;
use crate::commands::{bench, bench_device, check, devices, diff, explain, fit};
use crate::exit::Exit;
use crate::render::json::PlanReport;
use crate::terminal::Terminal;

/// Print the JSON Schema of what a subcommand prints with `--json`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The subcommand; `diff-engines` is `diff --engines`.
    #[arg(value_enum, default_value_t = Of::Plan, value_name = "SUBCOMMAND")]
    of: Of,
}

/// A subcommand with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Of {
    /// `k3plan plan`.
    Plan,
    /// `k3plan devices`.
    Devices,
    /// `k3plan explain`.
    Explain,
    /// `k3plan diff A B`.
    Diff,
    /// `k3plan diff A --engines`.
    DiffEngines,
    /// `k3plan check`.
    Check,
    /// `k3plan fit`.
    Fit,
    /// `k3plan bench device`.
    BenchDevice,
    /// `k3plan bench find-rate`.
    BenchFindRate,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let schema: Schema = match args.of {
        Of::Plan => schema_for!(PlanReport),
        Of::Devices => schema_for!(devices::Report),
        Of::Explain => schema_for!(explain::ExplainReport),
        Of::Diff => schema_for!(diff::DiffReport),
        Of::DiffEngines => schema_for!(diff::WalkReport),
        Of::Fit => schema_for!(fit::Report),
        Of::Check => schema_for!(check::Report<'_>),
        Of::BenchDevice => schema_for!(bench_device::Report),
        Of::BenchFindRate => schema_for!(bench::FindRateReport),
    };
    serde_json::to_writer_pretty(&mut *terminal.out, &schema).map_err(std::io::Error::from)?;
    writeln!(terminal.out)?;
    Ok(Exit::Fine)
}
