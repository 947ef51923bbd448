//! `k3plan fit`: what fits on a device: the longest context, the most sequences, and where the memory goes.

use std::path::PathBuf;

use planner::{EngineSettings, Model, Rules};
use serde::Serialize;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_file::EngineFlags;
use crate::render::number::{bytes, thousands};
use crate::scenario::parse_memory;
use crate::terminal::Terminal;

/// Width of the bar, characters.
const BAR: u64 = 60;

/// Tell what fits: the longest context, the most sequences, and where the memory goes
///
/// Exit code 1 if not even one token fits.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model's config.json, or the folder that holds it.
    #[arg(long, value_name = "CONFIG")]
    model: PathBuf,

    /// Memory of one device, such as 80GiB.
    #[arg(long, value_name = "SIZE")]
    gpu_memory: String,

    /// Weights on one device, such as 51.8GiB.
    #[arg(long, value_name = "SIZE")]
    weights: String,

    /// What else a device holds: activations at their peak, graphs, the draft.
    #[arg(long, default_value = "0B", value_name = "SIZE")]
    activations: String,

    /// The share of the memory that the engine may use.
    #[arg(long, default_value_t = 0.92, value_name = "SHARE")]
    gpu_memory_utilization: f64,

    /// Plan as this version of vLLM does.
    #[arg(long, value_name = "VERSION")]
    engine: Option<String>,

    /// Print as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: EngineFlags,
}

/// How many sequences of one length fit.
#[derive(Debug, Serialize)]
struct Length {
    tokens: u64,
    /// Sequences of this length, at once.
    sequences: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    model: String,
    version: String,
    gpu_memory_bytes: u64,
    weights_bytes: u64,
    activations_bytes: u64,
    unused_bytes: u64,
    kv_cache_bytes: u64,
    groups: usize,
    /// The longest context that one sequence can have, tokens; at most the model's own.
    longest_context_tokens: Option<u64>,
    lengths: Vec<Length>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let size = |flag: &str, text: &str| {
        parse_memory(text).ok_or_else(|| {
            Failure::new(format!("failed to read `{flag}`"))
                .caused_by(format!("`{text}` is no size"))
                .hint("write a number and a unit, such as `80GiB`")
        })
    };
    let memory = size("--gpu-memory", &args.gpu_memory)?;
    let weights = size("--weights", &args.weights)?;
    let activations = size("--activations", &args.activations)?;
    let share = args.gpu_memory_utilization;
    if !(share > 0.0 && share <= 1.0) {
        return Err(Failure::new("failed to read `--gpu-memory-utilization`")
            .caused_by(format!("{share} is not between 0 and 1"))
            .into());
    }
    let usable = share_of(memory, share);
    let held = weights.saturating_add(activations);
    let kv = usable.saturating_sub(held);
    let version = match &args.engine {
        Some(text) => Some(text.parse().map_err(|error: planner::engine::UnknownVersion| {
            Failure::new("failed to read `--engine`").caused_by(error)
        })?),
        None => None,
    };
    let file = args.flags.read(&args.model, version)?;
    let rules = file.settings.version.rules();
    let settings = EngineSettings {
        tensor_parallel_size: file.settings.tensor_parallel_size,
        max_model_len: file.settings.max_model_len,
        mamba_cache_mode: file.settings.mamba_cache_mode,
        available_memory_bytes: vec![kv],
        ..EngineSettings::default()
    };
    let model = &file.imported.model;
    let fitted = EngineSettings { auto_fit_max_model_len: true, ..settings.clone() };
    let (groups, longest) = match planner::plan(model, &fitted, &rules) {
        Ok(plan) => (plan.grouping.groups.len(), plan.fitting_pool().map(|pool| pool.max_model_len)),
        Err(error) => return Err(Failure::new("failed to plan the model").caused_by(error).into()),
    };
    let report = Report {
        schema: "k3plan.fit/1",
        model: file.name,
        version: rules.version.to_string(),
        gpu_memory_bytes: memory,
        weights_bytes: weights,
        activations_bytes: activations,
        unused_bytes: memory.saturating_sub(held).saturating_sub(kv),
        kv_cache_bytes: kv,
        groups,
        longest_context_tokens: longest,
        lengths: lengths(model, &settings, &rules),
    };
    if args.json {
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else {
        write(&report, terminal)?;
    }
    Ok(if longest.is_some() { Exit::Fine } else { Exit::CheckSaysNo })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the engine multiplies in floating point and truncates too"
)]
fn share_of(memory: u64, share: f64) -> u64 {
    (memory as f64 * share) as u64
}

/// Powers of two up to the model's length, and that length.
fn lengths(model: &Model, settings: &EngineSettings, rules: &Rules) -> Vec<Length> {
    let mut tokens: Vec<u64> =
        (10..48).map(|power| 1 << power).filter(|t| *t < settings.max_model_len).collect();
    tokens.push(settings.max_model_len);
    let from = tokens.len().saturating_sub(8);
    tokens
        .split_off(from)
        .into_iter()
        .map(|tokens| {
            let settings = EngineSettings { max_model_len: tokens, ..settings.clone() };
            let sequences = planner::plan(model, &settings, rules)
                .ok()
                .and_then(|plan| plan.fitting_pool().map(|pool| pool.max_concurrency));
            Length { tokens, sequences }
        })
        .collect()
}

fn write(report: &Report, terminal: &mut Terminal<'_>) -> std::io::Result<()> {
    writeln!(terminal.out, "{} (vLLM {}), {} groups", report.model, report.version, report.groups)?;
    let parts = [
        ('#', "weights", report.weights_bytes),
        ('+', "activations and other", report.activations_bytes),
        ('=', "KV cache", report.kv_cache_bytes),
        ('.', "left to others", report.unused_bytes),
    ];
    let all = report.gpu_memory_bytes.max(1);
    let mut bar = String::new();
    let (mut sum, mut drawn) = (0_u64, 0_u64);
    for (mark, _, size) in parts {
        sum = sum.saturating_add(size);
        let until =
            u64::try_from(u128::from(sum) * u128::from(BAR) / u128::from(all)).unwrap_or(BAR).min(BAR);
        for _ in drawn..until {
            bar.push(mark);
        }
        drawn = drawn.max(until);
    }
    writeln!(terminal.out, "[{bar:<60}] {}", bytes(report.gpu_memory_bytes))?;
    for (mark, name, size) in parts {
        if size > 0 {
            writeln!(terminal.out, "  {mark} {name:<22} {}", bytes(size))?;
        }
    }
    writeln!(terminal.out)?;
    match report.longest_context_tokens {
        Some(tokens) => writeln!(terminal.out, "longest context     {} tokens", thousands(tokens))?,
        None => writeln!(terminal.out, "longest context     none: not even one token fits")?,
    }
    for Length { tokens, sequences } in &report.lengths {
        let words =
            sequences.map_or_else(|| "do not fit".to_owned(), |n| format!("{n:.2} sequences at once"));
        writeln!(terminal.out, "at {:>12} tokens  {words}", thousands(*tokens))?;
    }
    Ok(())
}
