//! `k3plan import log`: what a vLLM server's log says of its KV cache, and the plan beside it.

mod json;
mod text;

use std::io::{self, BufReader};
use std::path::Path;

use planner::GroupingError;
use planner::import::beside::{self, Beside};
use planner::import::log::{self, ServerLog};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input_file;
use crate::scenario::{Changes, ModelArgs, Scenario};
use crate::terminal::Terminal;

/// Read what a vLLM server's log says of its KV cache
///
/// With --model (a config.json, for which the log's own flags count) or --scenario the plan of that model stands
/// beside the log; exit code 1 if something cannot agree.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The log, of any size; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: String,

    /// Set the plan of this scenario beside the log: a file or a shipped name, as `k3plan plan` takes it.
    #[arg(long, value_name = "SCENARIO", conflicts_with = "model")]
    scenario: Option<String>,

    #[command(flatten)]
    model: ModelArgs,

    /// Change a setting of the scenario or the model, as for `k3plan plan`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print JSON, schema `k3plan.import-log/1`.
    #[arg(long)]
    json: bool,
}

/// A scenario's plan beside the log.
struct Side {
    scenario: String,
    beside: Result<Beside, GroupingError>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let log = read(&args.file)?;
    let side = scenario(args, &log)?.map(|scenario| {
        let beside = beside::beside(&log, &scenario.model, &scenario.settings, scenario.version);
        Side { scenario: scenario.name, beside }
    });
    if args.json {
        json::write(&log, side.as_ref(), terminal)?;
    } else {
        text::write(&log, side.as_ref(), terminal)?;
    }
    let fine = side.is_none_or(|side| side.beside.is_ok_and(|beside| !beside.disagrees()));
    Ok(if fine { Exit::Fine } else { Exit::CheckSaysNo })
}

/// What is set beside the log: a scenario, or a model as the log's flags serve it.
fn scenario(args: &Args, log: &ServerLog) -> Result<Option<Scenario>, Failure> {
    if let Some(name) = &args.scenario {
        args.model.refuse_alone(Some(name))?;
        return one(name, &args.set).map(Some);
    }
    args.model.refuse_alone(None)?;
    if args.model.model.is_none() && !args.set.is_empty() {
        return Err(Failure::new("`--set` changes nothing without a model")
            .hint("name one with `--model` or `--scenario`"));
    }
    let changes = Changes { set: args.set.clone(), ..Changes::default() };
    let model = ModelArgs { flags: args.model.flags.or_logged(log), ..args.model.clone() };
    model.load_for(Some(beside::engine(log, None, &mut Vec::new())), &changes)
}

/// The one scenario of that name.
fn one(name: &str, set: &[String]) -> Result<Scenario, Failure> {
    let changes = Changes { set: set.to_vec(), ..Changes::default() };
    let mut all = changes.load(name)?;
    if all.len() > 1 {
        let names: Vec<String> = all.iter().take(6).map(|scenario| format!("`{}`", scenario.name)).collect();
        return Err(Failure::new(format!("`{name}` holds {} scenarios", all.len()))
            .caused_by("a log is of one model")
            .hint(format!("take one of them: {}", names.join(", "))));
    }
    all.pop().ok_or_else(|| Failure::new(format!("`{name}` holds no scenario")))
}

fn read(file: &str) -> Result<ServerLog, Failure> {
    let failed = |error: io::Error| Failure::new(format!("failed to read `{file}`")).caused_by(error);
    let log = if file == "-" {
        log::read_from(io::stdin().lock())
    } else {
        input_file::open(Path::new(file))
            .and_then(|file| log::read_from(BufReader::with_capacity(1 << 20, file)))
    }
    .map_err(|error| {
        let hint = (error.kind() == io::ErrorKind::NotFound).then_some(
            "write a server's output to a file first, such as `vllm serve MODEL 2>&1 | tee server.log`",
        );
        match hint {
            Some(hint) => failed(error).hint(hint),
            None => failed(error),
        }
    })?;
    if !text::says_anything(&log) {
        return Err(Failure::new(format!("failed to find anything of vLLM in `{file}`"))
            .caused_by(format!(
                "none of its {} is a statement of vLLM about its start",
                text::lines(log.lines)
            ))
            .hint("take the server's own output from its start; `docker logs` and `kubectl logs` print it"));
    }
    Ok(log)
}
