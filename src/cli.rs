//! The command line: one subcommand a file under `commands/`, the global flags here.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands;
use crate::exit::{Exit, WRONG_INPUT};
use crate::failure::Failure;
use crate::terminal::{ColorChoice, Terminal};

/// How vLLM sorts a model's layers into KV cache groups, why, and what it costs.
#[derive(Parser)]
#[command(name = "k3plan", version, max_term_width = 100)]
struct Cli {
    /// Colour in the output.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: ColorChoice,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(commands::bench::Args),
    Plan(commands::plan::Args),
    Explain(commands::explain::Args),
    Diff(commands::diff::Args),
    Check(commands::check::Args),
    Simulate(Box<commands::simulate::Args>),
    Verify(commands::verify::Args),
    Devices(commands::devices::Args),
    Import(commands::import::Args),
    Schema(commands::schema::Args),
    /// Whether arm B is better or worse than arm A, from result files of repeated runs.
    Compare(commands::compare::Args),
    Zoo(commands::zoo::Args),
    Fit(commands::fit::Args),
    Predict(commands::predict::Args),
    Calibrate(commands::calibrate::Args),
    Capacity(commands::capacity::Args),
    Optimize(Box<commands::optimize::Args>),
}

/// Runs the command line and gives the exit code; a closed pipe on standard output is fine.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { WRONG_INPUT } else { 0 };
            // A closed stream leaves nobody to tell.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let stdout = io::stdout();
    let mut out = io::BufWriter::new(stdout.lock());
    let mut err = io::stderr();
    let progress = err.is_terminal();
    let mut terminal = Terminal { out: &mut out, err: &mut err, color: cli.color.for_stdout(), progress };
    let result = dispatch(&cli.command, &mut terminal);
    let flushed = out.flush();
    match (result, flushed) {
        (Err(Ended::Output(error)), _) | (Ok(_), Err(error)) => {
            if error.kind() == io::ErrorKind::BrokenPipe {
                return ExitCode::SUCCESS;
            }
            let _ = write!(err, "{}", Failure::new("failed to write the output").caused_by(error));
            ExitCode::from(WRONG_INPUT)
        }
        (Err(Ended::Failed(failure)), _) => {
            let _ = write!(err, "{failure}");
            if failure.refused { Exit::CheckSaysNo.into() } else { ExitCode::from(WRONG_INPUT) }
        }
        (Ok(exit), Ok(())) => exit.into(),
    }
}

/// Why a subcommand did not come to its end.
pub(crate) enum Ended {
    /// The input is wrong.
    Failed(Failure),
    /// The output could not be written.
    Output(io::Error),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn dispatch(command: &Command, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    match command {
        Command::Bench(args) => commands::bench::run(args, terminal),
        Command::Plan(args) => commands::plan::run(args, terminal),
        Command::Explain(args) => commands::explain::run(args, terminal),
        Command::Diff(args) => commands::diff::run(args, terminal),
        Command::Check(args) => commands::check::run(args, terminal),
        Command::Simulate(args) => commands::simulate::run(args, terminal),
        Command::Verify(args) => commands::verify::run(args, terminal),
        Command::Devices(args) => commands::devices::run(args, terminal),
        Command::Import(args) => commands::import::run(args, terminal),
        Command::Schema(args) => commands::schema::run(args, terminal),
        Command::Compare(args) => commands::compare::run(args, terminal),
        Command::Zoo(args) => commands::zoo::run(args, terminal),
        Command::Fit(args) => commands::fit::run(args, terminal),
        Command::Predict(args) => commands::predict::run(args, terminal),
        Command::Calibrate(args) => commands::calibrate::run(args, terminal),
        Command::Capacity(args) => commands::capacity::run(args, terminal),
        Command::Optimize(args) => commands::optimize::run(args, terminal),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// No subcommand declares a flag twice, or refers to one that it does not have.
    #[test]
    fn every_subcommand_is_declared_soundly() {
        super::Cli::command().debug_assert();
    }
}
