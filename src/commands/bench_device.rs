//! `k3plan bench device`: a plan's steps on a real device, predicted beside measured, for every arm.

mod json;
mod report;
mod steps;

use std::path::{Path, PathBuf};

use executor::device::{Backend, Device, open};
use executor::measure::Repeats;
use executor::replay::ReplayError;
use executor::replay::calibrate::{Calibration, calibrate};
use executor::replay::plan::ReplayPlan;
use executor::replay::run::{ArmResult, run as run_arm};
use executor::replay::sample::Sampled;

pub(crate) use json::Report;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::scenario::ScenarioArgs;
use crate::terminal::{Style, Terminal};

/// Run a step's kernels on a device and compare them with the prediction
///
/// The KV pool is laid out as each scenario's plan says; block tables, slot mappings, metadata fills, cache
/// writes, cache reads and state updates run, as launches and as a graph. The layers' arithmetic does not. A
/// kernel's prediction is its launches x the cost of a launch + the bytes it reads and writes at the bandwidths
/// of a plain read and a plain write, all measured in the same run.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenarios: ScenarioArgs,

    /// The device: cpu, cuda, hip or dummy; `k3plan devices` shows which can be used.
    #[arg(long, default_value = "cpu", value_parser = backend)]
    device: Backend,

    /// Requests of the batch, all decodes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    requests: u32,

    /// Tokens that each request has computed before.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    context: u32,

    /// Replay steps of a simulated workload instead of one batch; FLAGS are those of `k3plan simulate`, as in
    /// --simulate='--requests 20 --input 1000..8000', none for its defaults.
    #[arg(
        long,
        value_name = "FLAGS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["requests", "context"]
    )]
    simulate: Option<String>,

    /// Simulated steps to replay, half of them with prompts.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: u32,

    /// Counted runs of each measurement.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Gigabytes (10^9 bytes) that the pool may take; where the batch needs more, blocks and tensors are shared.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    memory: u32,

    /// Exit 1 where a paged read of 256 MiB or more has less than this share of a plain read's bandwidth.
    #[arg(long, value_name = "SHARE")]
    at_least: Option<f64>,

    /// Print the results as JSON.
    #[arg(long)]
    json: bool,

    /// Write the JSON to a file, too.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn backend(name: &str) -> Result<Backend, String> {
    let known = Backend::ALL.map(Backend::name).join(", ");
    Backend::ALL.into_iter().find(|b| b.name() == name).ok_or_else(|| format!("known devices: {known}"))
}

/// An arm's results, and what they were compared with.
struct Measured {
    simulated: bool,
    calibration: Calibration,
    arm: ArmResult,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let scenarios = args.scenarios.load()?;
    let mut plans = Vec::new();
    for scenario in &scenarios {
        let rules = scenario.engine().rules();
        let plan = planner::plan(&scenario.model, &scenario.settings, &rules).map_err(|error| {
            Failure::new(format!("failed to plan `{}`", scenario.name))
                .caused_by(error)
                .hint("`k3plan explain` says what would make it plannable")
                .by_vllm()
        })?;
        let plan = ReplayPlan::new(&scenario.name, &plan, scenario.settings.kv_cache_layout)
            .map_err(|error| failed(&scenario.name, &error))?;
        let steps = match &args.simulate {
            Some(flags) => steps::simulated(scenario, flags, args.steps)?,
            None => vec![steps::fixed(scenario, args.requests, args.context)],
        };
        plans.push((plan, steps));
    }
    let device = open(args.device).map_err(|error| {
        Failure::new(format!("failed to open the {} device", args.device))
            .caused_by(format!("failed to {error}"))
            .hint(format!("{} needs {}", args.device, args.device.needs()))
            .hint("`k3plan devices` shows what is there")
    })?;
    let results = measure(&*device, args, &plans, terminal)?;
    let report = Report::new(&*device, &results);
    if let Some(path) = &args.output {
        write(path, &report)?;
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else {
        report::text(&*device, &results, terminal)?;
    }
    check(args, &results, terminal)
}

fn measure(
    device: &dyn Device,
    args: &Args,
    plans: &[(ReplayPlan, Vec<Sampled>)],
    terminal: &mut Terminal<'_>,
) -> Result<Vec<Measured>, Ended> {
    let repeats = Repeats { warm_up: 1, runs: args.runs };
    let budget = usize::try_from(args.memory).unwrap_or(1).saturating_mul(1_000_000_000);
    // Eight times the last cache, so that it holds little of it.
    let cache = device.info().cache_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(32 << 20);
    let stream_bytes = cache.saturating_mul(8).clamp(1 << 26, budget.max(1 << 26));
    let mut results = Vec::new();
    for (plan, steps) in plans {
        if terminal.progress {
            writeln!(terminal.err, "measuring {}", plan.name)?;
        }
        // A calibration an arm, beside it in time: other users of the machine slow both.
        let calibration =
            calibrate(device, stream_bytes, repeats).map_err(|error| failed(&plan.name, &error))?;
        let arm = run_arm(device, plan, steps, budget, &calibration, repeats)
            .map_err(|error| failed(&plan.name, &error))?;
        results.push(Measured { simulated: args.simulate.is_some(), calibration, arm });
    }
    Ok(results)
}

/// What a small read says is more of its launch than of memory.
const LARGE: u64 = 256 << 20;

fn check(args: &Args, results: &[Measured], terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let Some(least) = args.at_least else { return Ok(Exit::Fine) };
    let (mut large, mut low) = (0, 0);
    for Measured { arm, .. } in results {
        for kernel in arm.steps.iter().flat_map(|step| &step.kernels) {
            if !kernel.kernel.is_paged_read() || kernel.moved.read < LARGE {
                continue;
            }
            large += 1;
            // A share that is no number is no pass.
            if kernel.share_of_plain().is_nan() || kernel.share_of_plain() < least {
                low += 1;
                let word = terminal.paint(Style::Bad, "below:");
                let (name, share) = (kernel.kernel.name(), 100.0 * kernel.share_of_plain());
                writeln!(
                    terminal.err,
                    "{word} `{name}` of `{}` reads at {share:.0}% of a plain read, {:.0}% asked for",
                    arm.name,
                    100.0 * least
                )?;
            }
        }
    }
    if large == 0 {
        return Err(Failure::new("failed to check the bandwidth: no paged read is as large as 256 MiB")
            .hint("give it more `--requests`, `--context` and `--memory`")
            .into());
    }
    Ok(if low == 0 { Exit::Fine } else { Exit::CheckSaysNo })
}

fn write(path: &Path, report: &Report) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("failed to write `{}`", path.display())).caused_by(error)
    };
    let text = serde_json::to_string_pretty(report).map_err(|error| failed(error.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}

fn failed(name: &str, error: &ReplayError) -> Failure {
    let failure = Failure::new(format!("failed to replay `{name}`"));
    let budget = matches!(error, ReplayError::Budget { .. });
    let failure = failure.caused_by(format!("failed to {error}"));
    if budget { failure.hint("allow more memory with `--memory`") } else { failure }
}
