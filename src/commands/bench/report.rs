//! `k3plan bench report`: the result of a run that was killed, from its journal.

use std::path::PathBuf;

use executor::load::journal::Kept;
use executor::load::run::Warmups;
use executor::load::summary::{Goodput, Summary};
use serde_json::Value;

use super::result::Measured;
use super::serve::{journal_beside, tell, write_result};
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Report what the journal of a run holds, whether it came to its end or not.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The journal.
    journal: PathBuf,
    /// Result file.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Percentiles to report.
    #[arg(long, value_delimiter = ',', default_value = "99", value_parser = super::load_args::parse_percentile)]
    metric_percentiles: Vec<f64>,
    /// Print the result as JSON, without the lists of single requests.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let kept = Kept::read(&args.journal).map_err(|error| {
        let failure = Failure::new("failed to read the journal");
        let beside = journal_beside(&args.journal);
        let hint = format!("it may be a result: its journal is `{}`", beside.display());
        let failure = if beside.exists() { failure.hint(hint) } else { failure };
        failure.caused_by(error)
    })?;
    let summary = Summary::of(&kept.records, kept.duration, &args.metric_percentiles, &Goodput::default());
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
        notes: vec!["from a journal: what the client added was not kept".to_owned()],
        metadata: Vec::new(),
        detailed: true,
        settings: kept.settings,
        records: kept.records,
    };
    if let Some(path) = &args.output {
        write_result(path, &measured)?;
    }
    tell(terminal, measured, args.json)
}
