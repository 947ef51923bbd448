//! Which steps are replayed: one batch of decodes, or some of a simulated workload's?

use clap::Parser;
use executor::replay::sample::{Counter, Sampled};
use executor::replay::{Batch, Request};
use simulator::{Simulation, Step, StepTime, simulate};

use crate::commands::simulate::adapter::{EngineArgs, Setup, setup};
use crate::commands::simulate::load::{Load, LoadArgs};
use crate::failure::Failure;
use crate::scenario::Scenario;

/// The flags of `k3plan simulate` that choose a workload.
#[derive(Parser)]
#[command(name = "--simulate", no_binary_name = true, disable_help_flag = true)]
struct Flags {
    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    engine: EngineArgs,

    /// Where all random numbers come from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A batch of decodes alike, as a step of its own.
pub(super) fn fixed(scenario: &Scenario, requests: u32, context: u32) -> Sampled {
    let batch = Batch::decodes(requests, context, drafts(scenario));
    Sampled { index: 0, stands_for: 1.0, batch }
}

fn drafts(scenario: &Scenario) -> u32 {
    scenario.num_speculative_tokens.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

/// Some steps of the workload that `flags` describe.
///
/// # Errors
/// If the flags are wrong, or the workload cannot run.
pub(super) fn simulated(scenario: &Scenario, flags: &str, steps: u32) -> Result<Vec<Sampled>, Failure> {
    let flags = Flags::try_parse_from(flags.split_whitespace()).map_err(|error| {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or("").trim_start_matches("error: ").to_owned();
        Failure::new("failed to read the flags of `--simulate`")
            .caused_by(first)
            .hint("they are the flags of `k3plan simulate` that choose a workload and an engine")
    })?;
    let setup = setup(scenario, &flags.engine)?;
    let load = flags.load.resolve(scenario, &setup)?;
    let mut counter = Counter::default();
    run(scenario, &setup, &load, flags.seed, &mut |_, batch| counter.count(&batch))?;
    let mut sampler = counter.sampler(u64::from(steps));
    run(scenario, &setup, &load, flags.seed, &mut |index, batch| sampler.step(index, batch))?;
    Ok(sampler.finish())
}

/// Runs the workload; steps that schedule nothing are passed over.
fn run(
    scenario: &Scenario,
    setup: &Setup,
    load: &Load,
    seed: u64,
    each: &mut dyn FnMut(u64, Batch),
) -> Result<(), Failure> {
    let drafts = setup.engine.speculative.map_or(0, |speculative| speculative.tokens);
    let simulation = Simulation {
        engine: &setup.engine,
        groups: &setup.groups,
        workload: &load.workload,
        acceptance: &load.acceptance,
        // What `k3plan simulate` takes; it matters to arrivals only.
        step_time: StepTime {
            base_ns: 42_200_000,
            prefill_token_ns: 20_000,
            request_ns: 0,
            group_ns: 91_000,
        },
        seed,
    };
    let mut observe = |step: &Step, _: u64, _: u64| {
        if step.scheduled.is_empty() {
            return;
        }
        let request =
            |part: &simulator::Scheduled| Request { num_computed: part.computed, query_len: part.tokens };
        each(step.index, Batch::new(step.scheduled.iter().map(request).collect(), drafts));
    };
    simulate(&simulation, &mut observe)
        .map(|_| ())
        .map_err(|error| Failure::new(format!("failed to simulate `{}`", scenario.name)).caused_by(error))
}
