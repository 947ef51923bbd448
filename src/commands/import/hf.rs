//! `k3plan import hf`: a Hugging Face config as a scenario in YAML.

use std::fmt::Write as _;
use std::path::PathBuf;

use planner::{Model, RawSpec};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_file::{EngineFlags, ModelFile};
use crate::terminal::Terminal;

/// Write the layers of a Hugging Face config as a scenario
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model's config.json, or the folder that holds it.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Import as this version of vLLM does.
    #[arg(long, value_name = "VERSION")]
    engine: Option<String>,

    /// Memory for the KV cache of each worker, such as 40GiB.
    #[arg(long, value_name = "SIZE")]
    kv_cache_memory: Option<String>,

    #[command(flatten)]
    flags: EngineFlags,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let version = match &args.engine {
        Some(text) => Some(text.parse().map_err(|error: planner::engine::UnknownVersion| {
            Failure::new("failed to read `--engine`").caused_by(error)
        })?),
        None => None,
    };
    let file = args.flags.read(&args.config, version)?;
    let text = yaml(&file, &args.config.display().to_string(), args.kv_cache_memory.as_deref());
    match &args.output {
        Some(path) => std::fs::write(path, text).map_err(|error| {
            Failure::new(format!("failed to write `{}`", path.display())).caused_by(error)
        })?,
        None => write!(terminal.out, "{text}")?,
    }
    Ok(Exit::Fine)
}

/// A text as YAML takes it whatever it holds: a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn yaml(file: &ModelFile, source: &str, memory: Option<&str>) -> String {
    let ModelFile { name, imported, settings } = file;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("title: {}", quoted(&format!("{name} ({})", imported.architecture))));
    line(format!("source: {}", quoted(&format!("{source}, imported for {}", settings.platform.name()))));
    if !imported.notes.is_empty() {
        line("assumed:".to_owned());
        for note in &imported.notes {
            line(format!("  - {}", quoted(note)));
        }
    }
    line(String::new());
    line("engine:".to_owned());
    line(format!("  version: \"{}\"", settings.version));
    line(format!("  tensor-parallel-size: {}", settings.tensor_parallel_size));
    line(format!("  max-model-len: {}", settings.max_model_len));
    if has_states(&imported.model) {
        let mode = serde_json::to_value(settings.mamba_cache_mode).unwrap_or_default();
        line(format!("  mamba-cache-mode: {}", mode.as_str().unwrap_or("none")));
    }
    if let Some(speculative) = &settings.speculative {
        line(format!("  num-speculative-tokens: {}", speculative.num_speculative_tokens));
    }
    if let Some(layout) = imported.layout {
        line(format!("  kv-cache-layout: {}", layout.name()));
    }
    if let Some(memory) = memory {
        line(format!("  kv-cache-memory: {}", quoted(memory)));
    }
    line(String::new());
    line("specs:".to_owned());
    for (i, spec) in imported.model.specs.iter().enumerate() {
        let raw = RawSpec::from(spec);
        let json = serde_json::to_string(&raw).unwrap_or_default();
        line(format!("  {}: {}", spec_name(&imported.model, i), json.replace("\":", "\": ")));
    }
    line(String::new());
    let from = imported.model.draft_from.unwrap_or(imported.model.len());
    line(format!("model: [{}]", runs(&imported.model, 0, from)));
    if from < imported.model.len() {
        line(format!("draft: [{}]", runs(&imported.model, from, imported.model.len())));
    }
    out
}

fn has_states(model: &Model) -> bool {
    model.specs.iter().any(|spec| matches!(spec, planner::KvCacheSpec::Mamba(_)))
}

fn spec_name(model: &Model, index: usize) -> String {
    let kind = model.specs.get(index).map_or("spec", |spec| spec.kind().name());
    format!("{kind}{index}")
}

/// The layers as run lengths.
fn runs(model: &Model, from: usize, to: usize) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for id in model.layers.get(from..to).unwrap_or_default() {
        match parts.last_mut() {
            Some((index, count)) if *index == id.index() => *count += 1,
            _ => parts.push((id.index(), 1)),
        }
    }
    let words: Vec<String> = parts
        .into_iter()
        .map(|(index, count)| match count {
            1 => spec_name(model, index),
            n => format!("{n} {}", spec_name(model, index)),
        })
        .collect();
    words.join(", ")
}
