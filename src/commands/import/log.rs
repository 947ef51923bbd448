//! `k3plan import log`: what a vLLM server log says, and what the plan for that model gives beside it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use planner::import::log::{LogFacts, read};
use planner::{EngineSettings, Model, Rules};
use serde::Serialize;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_file::EngineFlags;
use crate::record::model_line::ModelLine;
use crate::render::number::thousands;
use crate::render::plan_text;
use crate::terminal::Terminal;

/// The largest log that is read, bytes.
const LOG_LIMIT: u64 = 256 << 20;

/// Read a vLLM server log, and compare it with the plan
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The log.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Plan this model beside it: its config.json, or the folder that holds it.
    #[arg(long, value_name = "CONFIG", conflicts_with = "dump")]
    model: Option<PathBuf>,

    /// Plan the layers that the plugin dumped.
    #[arg(long, value_name = "DUMP.jsonl")]
    dump: Option<PathBuf>,

    /// End with 1 where the log and the plan differ.
    #[arg(long)]
    check: bool,

    /// Print as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: EngineFlags,
}

/// One figure, as logged and as planned.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    logged: Option<String>,
    planned: Option<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    version: Option<&'a str>,
    model: Option<&'a str>,
    settings: &'a [(String, String)],
    rows: &'a [Row],
}

/// Runs the subcommand.
pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let facts = read(&text(args)?);
    let planned = match (&args.dump, &args.model) {
        (Some(dump), _) => Some(of_dump(dump)?),
        (None, Some(model)) => Some(of_model(args, model, &facts)?),
        (None, None) => None,
    };
    let rows = rows(&facts, planned.as_ref());
    if args.json {
        let report = Report {
            schema: "k3plan.log/1",
            version: facts.version.as_deref(),
            model: facts.model.as_deref(),
            settings: &facts.settings,
            rows: &rows,
        };
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else {
        write(&facts, &rows, planned.is_some(), terminal)?;
    }
    let differs = rows.iter().any(differs);
    Ok(if args.check && differs { Exit::CheckSaysNo } else { Exit::Fine })
}

fn differs(row: &Row) -> bool {
    matches!((&row.logged, &row.planned), (Some(logged), Some(planned)) if logged != planned)
}

fn text(args: &Args) -> Result<String, Failure> {
    let failed = || Failure::new(format!("failed to read `{}`", args.file.display()));
    let file = File::open(&args.file).map_err(|error| failed().caused_by(error))?;
    let mut bytes = Vec::new();
    file.take(LOG_LIMIT + 1).read_to_end(&mut bytes).map_err(|error| failed().caused_by(error))?;
    if bytes.len() as u64 > LOG_LIMIT {
        return Err(failed().caused_by(format!("it is larger than {} MiB", LOG_LIMIT >> 20)));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What vLLM would log for the plan, read as a log is.
fn planned(model: &Model, settings: &EngineSettings, rules: &Rules, what: &str) -> Result<LogFacts, Failure> {
    let plan = planner::plan(model, settings, rules)
        .map_err(|error| Failure::new(format!("failed to plan {what}")).caused_by(error))?;
    let mut facts = match plan.fitting_pool() {
        Some(pool) => read(&plan_text::log_lines(model, settings, rules, &plan, pool).join("\n")),
        None => read(&plan_text::padding_lines(&plan.grouping).join("\n")),
    };
    facts.num_gpu_blocks = plan.fitting_pool().map(|pool| pool.num_blocks);
    Ok(facts)
}

fn of_dump(path: &Path) -> Result<LogFacts, Failure> {
    let failed = || Failure::new(format!("failed to read `{}`", path.display()));
    let mut last = None;
    crate::record::read::lines(path, |number, line| {
        last = Some(crate::record::read::parse::<ModelLine>(path, number, line)?);
        Ok(())
    })?;
    let case = last.ok_or_else(|| failed().caused_by("it holds no case"))?;
    let model = case.recorded_model().map_err(|cause| failed().caused_by(cause))?;
    let settings = case.engine.settings().map_err(|cause| failed().caused_by(cause))?;
    let version: planner::EngineVersion = case.oracle.parse().unwrap_or_default();
    planned(&model, &settings, &version.rules(), "the dump")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "memory of a device in bytes, checked to be in range"
)]
fn of_model(args: &Args, path: &Path, facts: &LogFacts) -> Result<LogFacts, Failure> {
    let setting =
        |name: &str| facts.settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let number = |name: &str| setting(name).and_then(|value| value.parse::<u64>().ok());
    let mut flags = args.flags.clone();
    flags.tp = flags.tp.or_else(|| number("tensor_parallel_size"));
    flags.max_model_len = flags
        .max_model_len
        .or(facts.max_model_len)
        .or_else(|| number("max_seq_len"))
        .or_else(|| number("max_model_len"));
    flags.block_size = flags.block_size.or_else(|| number("block_size"));
    if flags.kv_cache_dtype == "auto" {
        flags.kv_cache_dtype = setting("kv_cache_dtype").unwrap_or_else(|| "auto".to_owned());
    }
    let version = facts.version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default();
    let file = flags.read(path, Some(version))?;
    let mut settings = EngineSettings {
        tensor_parallel_size: file.settings.tensor_parallel_size,
        max_model_len: file.settings.max_model_len,
        mamba_cache_mode: file.settings.mamba_cache_mode,
        num_gpu_blocks_override: facts.num_gpu_blocks,
        ..EngineSettings::default()
    };
    if let Some(tokens) = number("max_num_batched_tokens") {
        settings.max_num_batched_tokens = tokens;
    }
    let least = facts.available_gib.iter().copied().reduce(f64::min);
    if let Some(gib) = least.filter(|gib| (0.0..1e6).contains(gib)) {
        settings.available_memory_bytes = vec![(gib * f64::from(1 << 30)) as u64];
    }
    let what = format!("`{}`", path.display());
    let mut planned = planned(&file.imported.model, &settings, &version.rules(), &what)?;
    if file.imported.mamba_page_size_padded.is_some() {
        planned.attention_block_size = Some(file.imported.block_size);
    }
    Ok(planned)
}

fn rows(logged: &LogFacts, planned: Option<&LogFacts>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |what: &'static str, of: fn(&LogFacts) -> Option<String>| {
        let row = Row { what, logged: of(logged), planned: planned.and_then(of) };
        if row.logged.is_some() || row.planned.is_some() {
            rows.push(row);
        }
    };
    row("weights, GiB", |facts| facts.model_gib.map(|gib| gib.to_string()));
    row("available, GiB", |facts| joined(facts.available_gib.iter().map(f64::to_string)));
    row("tokens", |facts| facts.kv_tokens.map(thousands));
    row("maximum concurrency", |facts| facts.max_concurrency.map(|c| format!("{c:.2}")));
    row("longest request, tokens", |facts| facts.max_model_len.map(thousands));
    row("blocks", |facts| facts.num_gpu_blocks.map(thousands));
    row("block sizes of groups", |facts| joined(facts.group_block_sizes.iter().map(u64::to_string)));
    row("least common multiple", |facts| facts.lcm_block_size.map(thousands));
    row("attention block size", |facts| facts.attention_block_size.map(thousands));
    row("padding of states, %", |facts| facts.mamba_padding_percent.map(|p| format!("{p:.2}")));
    row("padding layers", |facts| {
        joined(facts.padding.iter().map(|(n, waste)| format!("{n} ({waste:.2}%)")))
    });
    rows
}

fn joined(parts: impl Iterator<Item = String>) -> Option<String> {
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn write(
    facts: &LogFacts,
    rows: &[Row],
    with_plan: bool,
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
    if let Some(version) = &facts.version {
        writeln!(terminal.out, "vLLM {version}")?;
    }
    if let Some(model) = &facts.model {
        writeln!(terminal.out, "model {model}")?;
    }
    for (name, value) in &facts.settings {
        writeln!(terminal.out, "  {name} = {value}")?;
    }
    let dash = "-".to_owned();
    let width = rows.iter().map(|r| r.logged.as_ref().map_or(1, String::len)).max().unwrap_or(6).clamp(6, 60);
    let head = if with_plan { "plan" } else { "" };
    writeln!(terminal.out, "{:<26} {:<width$}  {head}", "", "logged")?;
    for row in rows {
        let logged = row.logged.as_ref().unwrap_or(&dash);
        let planned = if with_plan { row.planned.as_ref().unwrap_or(&dash).as_str() } else { "" };
        let mark = if differs(row) { "  differs" } else { "" };
        writeln!(terminal.out, "{:<26} {logged:<width$}  {planned}{mark}", row.what)?;
    }
    Ok(())
}
