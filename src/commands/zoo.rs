//! `k3plan zoo`: which scenarios are shipped, and what each says.

use std::io;

use planner::RawSpec;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::scenario::{Changes, Scenario, zoo};
use crate::terminal::{Style, Terminal};

/// List the shipped scenarios, or show what scenarios say
///
/// A shipped name works wherever a file does. With names or files, prints each scenario's layers, specs,
/// settings, source and what is assumed, after all changes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Scenarios to show in full: shipped names, files, or recorded cases.
    #[arg(value_name = "FILE")]
    files: Vec<String>,

    #[command(flatten)]
    changes: Changes,

    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let files: Vec<String> =
        if args.files.is_empty() { zoo::names().map(str::to_owned).collect() } else { args.files.clone() };
    let mut scenarios = Vec::new();
    for file in &files {
        scenarios.extend(args.changes.load(file)?);
    }
    if scenarios.is_empty() {
        return Err(Failure::new("there is no scenario to show").into());
    }
    if args.json {
        print_json(&scenarios, terminal)?;
    } else if args.files.is_empty() {
        print_list(&scenarios, terminal)?;
    } else {
        for (i, scenario) in scenarios.iter().enumerate() {
            if i > 0 {
                writeln!(terminal.out)?;
            }
            print_one(scenario, terminal)?;
        }
    }
    Ok(Exit::Fine)
}

fn print_list(scenarios: &[Scenario], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let width = scenarios.iter().map(|scenario| scenario.name.chars().count()).max().unwrap_or(0);
    let head = format!("{:width$}  {:>6}  title", "name", "layers");
    writeln!(terminal.out, "{}", terminal.paint(Style::Bold, &head))?;
    for scenario in scenarios {
        let (name, layers) = (&scenario.name, scenario.model.len());
        writeln!(terminal.out, "{name:width$}  {layers:>6}  {}", scenario.title)?;
    }
    Ok(())
}

/// Consecutive layers of one spec, in words: "3 kda, 1 mla".
fn runs(scenario: &Scenario, range: std::ops::Range<usize>) -> Vec<(usize, &str)> {
    let mut runs: Vec<(usize, &str, u32)> = Vec::new();
    for id in scenario.model.layers.get(range).unwrap_or_default() {
        let name = scenario.spec_names.get(id.index()).map_or("", String::as_str);
        match runs.last_mut() {
            Some((count, _, last)) if *last == id.0 => *count += 1,
            _ => runs.push((1, name, id.0)),
        }
    }
    runs.into_iter().map(|(count, name, _)| (count, name)).collect()
}

/// The runs in one line, a repeating pair written once.
fn sentence(runs: &[(usize, &str)]) -> String {
    let words = |runs: &[(usize, &str)]| {
        runs.iter().map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    };
    for period in [2, 3] {
        let pattern = runs.get(..period).unwrap_or_default();
        let times = runs.chunks(period).take_while(|chunk| *chunk == pattern).count();
        if times > 2 {
            let rest = words(&runs[times * period..]);
            let comma = if rest.is_empty() { "" } else { ", then " };
            return format!("{times} times ({}){comma}{rest}", words(pattern));
        }
    }
    words(runs)
}

fn print_one(scenario: &Scenario, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Scenario { name, title, source, assumed, hardware, version, model, spec_names, settings, .. } =
        scenario;
    writeln!(terminal.out, "{}  {title}", terminal.paint(Style::Bold, name))?;
    let target = model.draft_from.unwrap_or(model.len());
    writeln!(terminal.out, "  layers    {}: {}", target, sentence(&runs(scenario, 0..target)))?;
    if target < model.len() {
        let draft = runs(scenario, target..model.len());
        writeln!(terminal.out, "  draft     {}: {}", model.len() - target, sentence(&draft))?;
    }
    for (spec, spec_name) in model.specs.iter().zip(spec_names) {
        writeln!(terminal.out, "  spec      {spec_name}: {}", fields(&RawSpec::from(spec)))?;
    }
    let version =
        version.map_or_else(|| format!("{}, the newest known", scenario.engine()), |v| v.to_string());
    writeln!(terminal.out, "  engine    vLLM {version}")?;
    let memory: Vec<String> =
        settings.available_memory_bytes.iter().map(|bytes| format!("{} GiB", gib(*bytes))).collect();
    let memory = if memory.is_empty() { "not given".to_owned() } else { memory.join(", ") };
    writeln!(terminal.out, "  KV cache  {memory} a device")?;
    writeln!(
        terminal.out,
        "  parallel  tensor {}, decode context {}, prefill context {}, pipeline {}",
        settings.tensor_parallel_size,
        settings.decode_context_parallel_size,
        settings.prefill_context_parallel_size,
        settings.pipeline_parallel_size
    )?;
    let fitted = if settings.auto_fit_max_model_len { " (fitted to the memory)" } else { "" };
    writeln!(
        terminal.out,
        "  lengths   {} tokens a request{fitted}, {} a batch",
        settings.max_model_len, settings.max_num_batched_tokens
    )?;
    if let Some(hardware) = hardware {
        let devices = hardware.devices.map_or_else(String::new, |n| format!("{n} x "));
        writeln!(terminal.out, "  hardware  {devices}{}", hardware.name)?;
    }
    if let Some(source) = source {
        writeln!(terminal.out, "  source    {source}")?;
    }
    for assumption in assumed {
        writeln!(terminal.out, "  assumed   {assumption}")?;
    }
    Ok(())
}

/// A spec's declared fields in one line.
fn fields(raw: &RawSpec) -> String {
    let declared =
        planner::Field::ALL.iter().filter_map(|field| Some(format!("{field} {}", raw.get(*field)?)));
    std::iter::once(raw.kind.name().to_owned()).chain(declared).collect::<Vec<_>>().join(", ")
}

/// GiB to two digits, cut, without floats.
fn gib(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100) >> 30;
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => whole.to_string(),
        (whole, part) => format!("{whole}.{part:02}"),
    }
}

fn print_json(scenarios: &[Scenario], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let all: Vec<serde_json::Value> = scenarios
        .iter()
        .map(|scenario| {
            let specs: Vec<RawSpec> = scenario.model.specs.iter().map(RawSpec::from).collect();
            let layers: Vec<u32> = scenario.model.layers.iter().map(|id| id.0).collect();
            serde_json::json!({
                "assumed": scenario.assumed,
                "draft_from": scenario.model.draft_from,
                "engine": {
                    "available_memory_per_worker": scenario.settings.available_memory_bytes,
                    "dcp": scenario.settings.decode_context_parallel_size,
                    "max_model_len": scenario.settings.max_model_len,
                    "max_num_batched_tokens": scenario.settings.max_num_batched_tokens,
                    "max_num_seqs": scenario.max_num_seqs,
                    "pcp": scenario.settings.prefill_context_parallel_size,
                    "pp": scenario.settings.pipeline_parallel_size,
                    "tp": scenario.settings.tensor_parallel_size,
                    "version": scenario.engine().to_string(),
                },
                "hardware": scenario.hardware.as_ref().map(|hardware| {
                    serde_json::json!({
                        "devices": hardware.devices,
                        "memory_bytes": hardware.memory_bytes,
                        "name": hardware.name,
                    })
                }),
                "layers": layers,
                "name": scenario.name,
                "num_speculative_tokens": scenario.num_speculative_tokens,
                "source": scenario.source,
                "spec_names": scenario.spec_names,
                "specs": specs,
                "title": scenario.title,
            })
        })
        .collect();
    let report = serde_json::json!({ "scenarios": all, "schema": "k3plan.zoo/1" });
    writeln!(terminal.out, "{report:#}")
}
