//! `k3plan fit`: what fits a device, before anything is launched.

mod bar;
mod json;
mod weights;

use planner::error::CapacityError;
use planner::fit::{self, Budget, Fit, FitError};
use planner::{EngineSettings, Model, Rules};
use simulator::cost::Hardware;

use super::capacity::device;
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::predict::running;
use crate::render::number::{bytes, thousands};
use crate::render::plan_text::count;
use crate::render::table::{Side, Table};
use crate::scenario::{Changes, Device, ModelArgs, Scenario, SettingFlags, parse_count, parse_memory};
use crate::terminal::{Style, Terminal};

/// What fits: the longest context, the most sequences, and where the memory goes
///
/// Exit code 1 if not one request of the scenario's length fits.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model: a scenario file, a recorded case or a shipped name, as `k3plan plan` takes it.
    #[arg(value_name = "SCENARIO", required_unless_present = "model", conflicts_with = "model")]
    scenario: Option<String>,

    #[command(flatten)]
    model: ModelArgs,

    /// The device, such as h200: its memory, the platform of a `--model`, and vLLM's default batch.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,

    /// Memory of one device, such as 80GiB [default: that of `--hardware`].
    #[arg(long, value_name = "SIZE")]
    gpu_memory: Option<String>,

    /// Memory that the weights take on one device, such as 51.8GiB [default: counted from the model's config].
    #[arg(long, value_name = "SIZE")]
    weights: Option<String>,

    /// Share of the device that vLLM may use.
    #[arg(long, visible_alias = "gpu-memory-utilization", value_name = "SHARE", default_value = "0.9")]
    utilization: String,

    /// Memory for activations, graphs and the runtime on one device.
    #[arg(long, value_name = "SIZE", default_value = "1.5GiB")]
    overhead: String,

    /// Memory for the KV cache itself, in place of what is left of the device.
    #[arg(
        long,
        visible_alias = "kv-cache-memory-bytes",
        value_name = "SIZE",
        conflicts_with_all = ["gpu_memory", "weights"]
    )]
    kv_cache_memory: Option<String>,

    /// Requests that run at once at most; the scenario's own otherwise.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_num_seqs: Option<u64>,

    #[command(flatten)]
    settings: SettingFlags,

    #[command(flatten)]
    changes: Changes,

    /// Print JSON, schema `k3plan.fit/1`.
    #[arg(long)]
    json: bool,
}

/// A model that is to fit, wherever it comes from.
pub(crate) struct Fitted<'a> {
    pub(crate) name: &'a str,
    pub(crate) model: &'a Model,
    pub(crate) settings: &'a EngineSettings,
    pub(crate) rules: &'a Rules,
    pub(crate) max_num_seqs: Option<u64>,
    pub(crate) num_speculative_tokens: u64,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let hardware = args.hardware.as_deref().map(device).transpose()?;
    let known = memory_of(args, hardware)?;
    let said = format!("--hardware {}", args.hardware.as_deref().unwrap_or_default());
    let device = Device {
        platform: hardware.map(|hardware| (running::platform(hardware), said.as_str())),
        memory_bytes: known,
        name: hardware.map_or("", |hardware| &hardware.name),
    };
    args.model.refuse_alone(args.scenario.as_deref())?;
    let scenario = match (&args.scenario, args.model.load(&args.changes, &args.settings, &device)?) {
        (_, Some(scenario)) => scenario,
        (Some(name), None) => one(name, args)?,
        (None, None) => return Err(Failure::new("failed to fit anything: no model is named").into()),
    };
    scenario.write_notes(terminal.err)?;
    let (budget, note) = budget(args, known, &scenario)?;
    if let Some(note) = note {
        writeln!(terminal.err, "note: {}: {note}", scenario.name)?;
    }
    let rules = scenario.engine().rules();
    let fitted = Fitted {
        name: &scenario.name,
        model: &scenario.model,
        settings: &scenario.settings,
        rules: &rules,
        max_num_seqs: args.max_num_seqs.or(scenario.max_num_seqs),
        num_speculative_tokens: scenario.num_speculative_tokens.unwrap_or(0),
    };
    report(&fitted, &budget, args.json, terminal)
}

/// The one scenario of that name.
fn one(name: &str, args: &Args) -> Result<Scenario, Failure> {
    let mut all = args.changes.load_with(name, &args.settings)?;
    if all.len() > 1 {
        let names: Vec<String> = all.iter().take(6).map(|scenario| format!("`{}`", scenario.name)).collect();
        return Err(Failure::new(format!("`{name}` holds {} scenarios", all.len()))
            .hint(format!("take one of them: {}", names.join(", "))));
    }
    all.pop().ok_or_else(|| Failure::new(format!("`{name}` holds no scenario")))
}

/// Fits a model to a budget and prints what came out.
pub(crate) fn report(
    fitted: &Fitted<'_>,
    budget: &Budget,
    json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<Exit, Ended> {
    let Fitted { model, settings, rules, max_num_seqs, num_speculative_tokens, .. } = *fitted;
    let tokens_a_step = num_speculative_tokens.saturating_add(1);
    let fit = fit::fit(model, settings, rules, budget.kv_bytes, max_num_seqs, tokens_a_step)
        .map_err(|error| refused(fitted, &error))?;
    if json {
        json::write(fitted, budget, &fit, terminal)?;
    } else {
        write(fitted, budget, &fit, terminal)?;
    }
    Ok(if fit.pool.is_ok() { Exit::Fine } else { Exit::CheckSaysNo })
}

fn refused(fitted: &Fitted<'_>, error: &FitError) -> Failure {
    let failure = Failure::new(format!("failed to fit `{}`", fitted.name)).caused_by(error);
    match error {
        FitError::Grouping(_) => failure.hint("`k3plan explain` says what would make it plannable"),
        FitError::Capacity(_) => failure.hint("`k3plan plan` shows the groups and what vLLM refuses"),
        FitError::NoCache => failure,
    }
}

/// Memory of the device that is named or described, bytes.
fn memory_of(args: &Args, hardware: Option<&Hardware>) -> Result<Option<u64>, Failure> {
    match &args.gpu_memory {
        Some(text) => parse_memory("--gpu-memory", text).map(Some),
        None => Ok(hardware.and_then(|hardware| hardware.memory_bytes)),
    }
}

/// The memory, and what was counted in place of a flag.
fn budget(args: &Args, gpu: Option<u64>, scenario: &Scenario) -> Result<(Budget, Option<String>), Failure> {
    if let Some(text) = &args.kv_cache_memory {
        return Ok((Budget::of_cache(parse_memory("--kv-cache-memory", text)?), None));
    }
    let Some(gpu) = gpu else {
        return Err(Failure::new("failed to fit anything: how much memory there is is not known")
            .hint("name the device, such as `--hardware h200`: its memory is known")
            .hint("or describe it: `--gpu-memory 80GiB`, with the weights of one rank, `--weights 51.8GiB`")
            .hint("or give the memory for the cache itself: `--kv-cache-memory 40GiB`"));
    };
    let (weights, note) = match &args.weights {
        Some(text) => (parse_memory("--weights", text)?, None),
        None => {
            let weights = weights::of_rank(scenario)?;
            let note = format!(
                "the weights of one rank are counted from the config: {}; `--weights SIZE` says what a server logs",
                bytes(weights)
            );
            (weights, Some(note))
        }
    };
    let overhead = match args.overhead.trim() {
        "0" => 0,
        text => parse_memory("--overhead", text)?,
    };
    let utilization: f64 =
        args.utilization.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| {
            Failure::new(format!("`--utilization` is `{}`", args.utilization))
                .caused_by("it is a share of the device, above 0 and at most 1")
                .hint("write it as vLLM's `--gpu-memory-utilization`, such as 0.9")
        })?;
    let budget = Budget::of_device(gpu, utilization, weights, overhead).map_err(|left| {
        let failure = Failure::new("failed to fit anything: no memory is left for the KV cache").caused_by(
            format!(
                "of {} vLLM may use {} and weights and overhead need {}",
                bytes(left.gpu_memory_bytes),
                bytes(left.usable_bytes),
                bytes(left.needed_bytes)
            ),
        );
        if weights >= left.gpu_memory_bytes {
            failure.hint(format!(
                "the weights of one rank are larger than the device: {} devices hold them by tensor parallelism; write \
                 the weights of one rank",
                weights.div_ceil(left.usable_bytes.max(1)).next_power_of_two()
            ))
        } else {
            failure.hint("raise `--utilization`, lower `--overhead`, or spread the weights over more devices")
        }
    })?;
    Ok((budget, note))
}

fn write(
    fitted: &Fitted<'_>,
    budget: &Budget,
    fit: &Fit,
    terminal: &mut Terminal<'_>,
) -> std::io::Result<()> {
    let title = format!("{} (vLLM {})", fitted.name, fitted.rules.version);
    writeln!(terminal.out, "{}", terminal.paint(Style::Bold, &title))?;
    writeln!(
        terminal.out,
        "KV cache memory   {} bytes ({}), {} blocks of {} bytes, {}",
        thousands(budget.kv_bytes),
        bytes(budget.kv_bytes),
        thousands(fit.num_blocks),
        thousands(fit.bytes_per_block),
        count(fit.grouping.groups.len() as u64, "group")
    )?;
    let asked = fitted.settings.max_model_len;
    let longest = match fit.longest {
        None => "not limited by memory".to_owned(),
        Some(0) => "not even one token fits".to_owned(),
        Some(longest) => format!("{} tokens", thousands(longest)),
    };
    writeln!(terminal.out, "longest context   {longest}")?;
    match &fit.pool {
        Ok(pool) => writeln!(
            terminal.out,
            "asked             {} tokens: fits, vLLM logs a concurrency of {:.2}x",
            thousands(asked),
            pool.max_concurrency
        )?,
        Err(CapacityError::NotEnough { needed_bytes, available_bytes, .. }) => writeln!(
            terminal.out,
            "asked             {} tokens: {} ({} needed, {} available)",
            thousands(asked),
            terminal.paint(Style::Bad, "does not fit"),
            bytes(*needed_bytes),
            bytes(*available_bytes)
        )?,
        Err(error) => writeln!(terminal.out, "asked             {} tokens: {error}", thousands(asked))?,
    }
    writeln!(terminal.out)?;
    let mut lengths = fit.lengths.clone();
    lengths.push(fit.chosen);
    lengths.sort_by_key(|at| at.tokens);
    // Without windows a request holds the same blocks from its first decode step on.
    let windows = lengths.iter().any(|at| at.decoding_sequences != at.sequences);
    let mut columns = vec![
        ("tokens a sequence", Side::Right),
        ("blocks reserved", Side::Right),
        ("most sequences", Side::Right),
    ];
    if windows {
        columns.extend([("blocks decoding", Side::Right), ("most decoding", Side::Right)]);
    }
    let mut table = Table::new(columns);
    let most = |memory: u64| thousands(fitted.max_num_seqs.map_or(memory, |limit| limit.min(memory)));
    for at in &lengths {
        let mut row = vec![thousands(at.tokens), thousands(at.blocks), most(at.sequences)];
        if windows {
            row.extend([thousands(at.decoding_blocks), most(at.decoding_sequences)]);
        }
        table.row(row);
    }
    table.write(0, terminal)?;
    if windows {
        writeln!(
            terminal.out,
            "decoding: a prompt is done and only the windows of its sliding layers are kept; one more prompt has its \
             reservation"
        )?;
    }
    if let Some(limit) =
        fitted.max_num_seqs.filter(|limit| lengths.iter().any(|at| at.decoding_sequences > *limit))
    {
        writeln!(terminal.out, "memory holds more than the {} of max-num-seqs", thousands(limit))?;
    }
    writeln!(terminal.out)?;
    let limit = match fitted.max_num_seqs {
        Some(limit) if limit < fit.chosen.sequences => " (max-num-seqs)",
        _ => "",
    };
    writeln!(
        terminal.out,
        "with {} {}{limit} of {} tokens",
        thousands(fit.sequences),
        if fit.sequences == 1 { "sequence" } else { "sequences" },
        thousands(fit.chosen.tokens)
    )?;
    bar::write(budget, fit, terminal)
}
