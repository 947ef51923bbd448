//! `k3plan bench report`: what a result file or the journal of a run says, ended or killed.

use std::path::{Path, PathBuf};

use executor::compare::read::lines_fit;
use executor::load::journal::Kept;
use executor::load::run::Warmups;
use executor::load::summary::{Goodput, Summary};
use planner::import::json::{Budget, MEMORY};
use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::load_args::Latency;
use super::measure::chunks;
use super::result::Measured;
use super::serve::{tell, write_result};
use super::table::{self, Shown};
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::input_file;
use crate::terminal::Terminal;

/// Report what a result file holds, or the journal of a run, whether it came to its end or not.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The journal, or a result file (vLLM's too).
    file: PathBuf,
    /// Result file to make of the journal.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Percentiles to report of a journal [default: 99].
    #[arg(long, value_delimiter = ',', value_parser = super::load_args::parse_percentile)]
    metric_percentiles: Vec<f64>,
    /// Print the result as JSON, without the lists of single requests.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let failed = || Failure::new(format!("failed to read `{}`", args.file.display()));
    let bytes = input_file::bytes(&args.file, input_file::DATA).map_err(|error| failed().caused_by(error))?;
    let budget = Budget::new(MEMORY);
    let mut parser = serde_json::Deserializer::from_slice(&bytes);
    let document = budget.value(&LISTS).deserialize(&mut parser).ok().filter(|_| parser.end().is_ok());
    if budget.is_exceeded() {
        return Err(failed()
            .caused_by(format!("its values would take more than {} MiB", MEMORY >> 20))
            .hint("take out what is not shown, as in `jq 'del(.NAME)'`")
            .into());
    }
    if let Some(result) = document.filter(|document| !document.get("line").is_some_and(Value::is_string)) {
        return report_result(args, result, terminal);
    }
    lines_fit(&bytes)
        .map_err(|line| failed().caused_by(format!("line {line} holds too much for a request")))?;
    let kept = Kept::parse(&args.file, &bytes)
        .map_err(|error| Failure::new("failed to read the journal").caused_by(error))?;
    let percentiles: &[f64] =
        if args.metric_percentiles.is_empty() { &[99.0] } else { &args.metric_percentiles };
    let summary = Summary::of(&kept.records, kept.duration, percentiles, &Goodput::default());
    let setting = |name: &str| kept.settings.get(name);
    let planned =
        setting("num_prompts").and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
    let have = kept.records.len();
    let measured = Measured {
        model: setting("model").and_then(Value::as_str).unwrap_or("").to_owned(),
        label: None,
        seed: setting("seed").and_then(Value::as_u64).unwrap_or(0),
        started_at: kept.parts.first().copied().unwrap_or(0.0),
        parts: kept.parts.len(),
        interrupted: planned.is_some_and(|planned| have < planned),
        requests_planned: planned.unwrap_or(have).max(have),
        summary,
        client: None,
        warmups: Warmups::default(),
        samples: Vec::new(),
        server: Value::Null,
        machine: Value::Null,
        notes: std::iter::once("from a journal: what the client added was not kept".to_owned())
            .chain(chunks(&kept.records))
            .collect(),
        metadata: Vec::new(),
        detailed: true,
        latencies: Latency::ALL.to_vec(),
        settings: kept.settings,
        records: kept.records,
    };
    if let Some(path) = &args.output {
        write_result(path, &measured)?;
    }
    tell(terminal, measured, args.json)
}

/// The lists of single requests in a result.
const LISTS: [&str; 9] = [
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "latencies",
    "start_times",
    "queue_times",
    "generated_texts",
    "errors",
];

/// Shows a result file as the run itself did.
fn report_result(args: &Args, mut result: Value, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let name = |path: &Path| path.display().to_string();
    let Some(shown) = Shown::read(&result) else {
        return Err(Failure::new(format!("`{}` is neither a journal nor a result", name(&args.file)))
            .hint("results of k3plan bench and vllm bench serve are shown; `k3plan compare` reads more kinds")
            .into());
    };
    if args.output.is_some() || !args.metric_percentiles.is_empty() {
        return Err(Failure::new(format!("`{}` is a result, whose figures are made", name(&args.file)))
            .hint("`--output` and `--metric-percentiles` are for its journal")
            .into());
    }
    let succeeded = result.get("completed").and_then(Value::as_u64).is_none_or(|completed| completed > 0);
    if args.json {
        if let Some(map) = result.as_object_mut() {
            map.retain(|key, _| !LISTS.contains(&key.as_str()));
        }
        writeln!(terminal.out, "{result:#}")?;
    } else {
        table::write(terminal, &shown)?;
    }
    Ok(if succeeded { Exit::Fine } else { Exit::CheckSaysNo })
}
