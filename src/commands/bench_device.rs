//! `k3plan bench device`: a plan's step on a real device, predicted beside measured, for every arm.

mod report;

use executor::device::{Backend, Device, open};
use executor::measure::Repeats;
use executor::replay::calibrate::{Calibration, calibrate};
use executor::replay::plan::ReplayPlan;
use executor::replay::run::{ArmResult, run as run_arm};
use executor::replay::{Batch, ReplayError};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::scenario::ScenarioArgs;
use crate::terminal::Terminal;

/// Run a step's kernels on a device and compare them with the prediction
///
/// The KV pool is laid out as each scenario's plan says; block tables, slot mappings, metadata fills, cache
/// writes and cache reads run, as launches and as a graph. The layers' arithmetic does not. A kernel's
/// prediction is its launches x the cost of a launch + its bytes / the bandwidth of a plain read, both measured
/// in the same run.
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

    /// Counted runs of each measurement.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,

    /// Gigabytes (10^9 bytes) that the pool may take; requests share blocks where the batch needs more.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    memory: u32,

    /// Print the results as JSON, for `k3plan calibrate`.
    #[arg(long)]
    json: bool,
}

fn backend(name: &str) -> Result<Backend, String> {
    let known = Backend::ALL.map(Backend::name).join(", ");
    Backend::ALL.into_iter().find(|b| b.name() == name).ok_or_else(|| format!("known devices: {known}"))
}

/// An arm's results, and what they were compared with.
struct Measured {
    batch: Batch,
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
        })?;
        let plan = ReplayPlan::new(&scenario.name, &plan).map_err(|error| failed(&scenario.name, &error))?;
        let drafts = scenario.num_speculative_tokens.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        plans.push((plan, Batch::decodes(args.requests, args.context, drafts)));
    }
    let device = open(args.device).map_err(|error| {
        Failure::new(format!("failed to open the {} device", args.device))
            .caused_by(format!("failed to {error}"))
            .hint(format!("{} needs {}", args.device, args.device.needs()))
            .hint("`k3plan devices` shows what is there")
    })?;
    let results = measure(&*device, args, &plans, terminal)?;
    if args.json {
        report::json(&*device, &results, terminal)?;
    } else {
        report::text(&*device, &results, terminal)?;
    }
    Ok(Exit::Fine)
}

fn measure(
    device: &dyn Device,
    args: &Args,
    plans: &[(ReplayPlan, Batch)],
    terminal: &mut Terminal<'_>,
) -> Result<Vec<Measured>, Ended> {
    let repeats = Repeats { warm_up: 2, runs: args.runs };
    let budget = usize::try_from(args.memory).unwrap_or(1).saturating_mul(1_000_000_000);
    // Eight times the last cache, so that it holds little of it.
    let cache = device.info().cache_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(32 << 20);
    let stream_bytes = cache.saturating_mul(8).clamp(1 << 26, budget.max(1 << 26));
    let mut results = Vec::new();
    for (plan, batch) in plans {
        if terminal.progress {
            writeln!(terminal.err, "measuring {}", plan.name)?;
        }
        // A calibration an arm, beside it in time: other users of the machine slow both.
        let calibration =
            calibrate(device, stream_bytes, repeats).map_err(|error| failed(&plan.name, &error))?;
        let arm = run_arm(device, plan, batch, budget, &calibration, repeats)
            .map_err(|error| failed(&plan.name, &error))?;
        results.push(Measured { batch: batch.clone(), calibration, arm });
    }
    Ok(results)
}

fn failed(name: &str, error: &ReplayError) -> Failure {
    let failure = Failure::new(format!("failed to replay `{name}`"));
    let budget = matches!(error, ReplayError::Budget { .. });
    let failure = failure.caused_by(format!("failed to {error}"));
    if budget { failure.hint("allow more memory with `--memory`") } else { failure }
}
