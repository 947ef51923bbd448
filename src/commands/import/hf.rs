//! `k3plan import hf`: a Hugging Face config as a scenario in YAML.

use std::fmt::Write as _;
use std::path::PathBuf;

use planner::{Model, RawSpec};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::model_file::{EngineFlags, ModelFile};
use crate::scenario::{SettingFlags, batch_note, parse_count, parse_memory};
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
    #[arg(long, visible_alias = "kv-cache-memory-bytes", value_name = "SIZE")]
    kv_cache_memory: Option<String>,

    /// Requests that run at once at most.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_num_seqs: Option<u64>,

    #[command(flatten)]
    settings: SettingFlags,

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
    if file.imported.model.is_empty() {
        return Err(Failure::new(format!("failed to import `{}`", args.config.display()))
            .caused_by(
                "no layer has a KV cache: its tokens look both ways (`is_causal`), and vLLM makes no groups",
            )
            .into());
    }
    let mut more = args.settings.given();
    more.extend(args.max_num_seqs.map(|seqs| ("max-num-seqs", seqs.to_string())));
    if let Some(memory) = &args.kv_cache_memory {
        parse_memory("--kv-cache-memory", memory)?;
        more.push(("kv-cache-memory", quoted(memory)));
    }
    let text = yaml(&file, &args.config.display().to_string(), &more);
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

fn yaml(file: &ModelFile, source: &str, more: &[(&str, String)]) -> String {
    let ModelFile { name, imported, settings, fits_length } = file;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("title: {}", quoted(&format!("{name} ({})", imported.architecture))));
    line(format!("source: {}", quoted(&format!("{source}, imported for {}", settings.platform.name()))));
    let named = more.iter().any(|(name, _)| *name == "max-num-batched-tokens");
    let batch = batch_note(&imported.model, settings.version).filter(|_| !named);
    let assumed: Vec<&String> = imported.notes.iter().chain(&batch).collect();
    if !assumed.is_empty() {
        line("assumed:".to_owned());
        for note in assumed {
            line(format!("  - {}", quoted(note)));
        }
    }
    line(String::new());
    line("engine:".to_owned());
    line(format!("  version: \"{}\"", settings.version));
    line(format!("  tensor-parallel-size: {}", settings.tensor_parallel_size));
    if *fits_length {
        line("  max-model-len: auto".to_owned());
        line(format!("  derived-max-model-len: {}", settings.max_model_len));
    } else {
        line(format!("  max-model-len: {}", settings.max_model_len));
    }
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
    for (name, value) in more {
        line(format!("  {name}: {value}"));
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
