//! `k3plan simulate`: a workload through vLLM's scheduler over a plan, and what each step's metadata costs.

pub(crate) mod adapter;
pub(crate) mod load;
mod report;
mod steps;
mod timed;
mod trace;

use std::path::PathBuf;

use simulator::metadata::{Meter, Runner, Worker};
use simulator::offload::Offload;
use simulator::{
    EndedRequest, Observer, Outcome, RunError, Simulation, Step, StepTime, simulate, simulate_with,
};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::predict::running;
use crate::scenario::{Device, NamedScenarios};
use crate::terminal::Terminal;

/// Run a workload through vLLM's scheduler and count what each step costs
///
/// No model runs: the scheduler, the block pool and the metadata builders do, step by step, as in vLLM 0.32.
/// Several scenarios or builders print one table that compares them.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenarios: NamedScenarios,

    #[command(flatten)]
    load: load::LoadArgs,

    #[command(flatten)]
    engine: adapter::EngineArgs,

    /// Whose metadata builders are counted; several give a row each [default: those of the hardware].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    builders: Vec<adapter::Platform>,

    /// How block tables reach the device: v1 sends all rows, v2 the changes.
    #[arg(long, value_enum, default_value = "v2", value_name = "V")]
    runner: RunnerName,

    /// Build every group's metadata anew, also where vLLM takes over another group's.
    #[arg(long)]
    no_reuse: bool,

    /// Steps run without full graphs.
    #[arg(long)]
    eager: bool,

    /// Host memory a rank for offloaded KV, GiB: count what offloading moves.
    #[arg(long, value_name = "GIB")]
    offload: Option<u64>,

    /// Where all random numbers come from.
    #[arg(long, default_value_t = 0)]
    seed: u64,

    #[command(flatten)]
    time: timed::TimeArgs,

    /// Milliseconds of a step without its groups [default: 42.2, Kimi-K3 on 8x MI355X, PR 59733].
    #[arg(long, value_name = "MS", conflicts_with = "hardware")]
    step_ms: Option<f64>,

    /// Microseconds a prompt token adds to a step [default: 20].
    #[arg(long, value_name = "US", conflicts_with = "hardware")]
    prefill_token_us: Option<f64>,

    /// Microseconds a KV cache group adds to a step [default: 91, Kimi-K3, PR 59733].
    #[arg(long, value_name = "US", conflicts_with = "hardware")]
    group_us: Option<f64>,

    /// Write the steps in the Chrome trace format, for Perfetto.
    #[arg(long, value_name = "OUT.json")]
    trace: Option<PathBuf>,

    /// Write the steps as a Parquet table.
    #[arg(long, value_name = "OUT.parquet")]
    steps: Option<PathBuf>,

    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// A step of Kimi-K3 on 8x MI355X without its groups, and what a group adds, vLLM pull request 59733.
const STEP_MS: f64 = 42.2;
const GROUP_US: f64 = 91.0;
/// What a prompt token adds; nobody measured it there.
const PREFILL_TOKEN_US: f64 = 20.0;

impl Args {
    /// How long a step is taken to be where no device predicts it, and who says so.
    fn step_words(&self) -> String {
        let (step, group, token) = (
            self.step_ms.unwrap_or(STEP_MS),
            self.group_us.unwrap_or(GROUP_US),
            self.prefill_token_us.unwrap_or(PREFILL_TOKEN_US),
        );
        let own: Vec<&str> = [
            ("--step-ms", self.step_ms),
            ("--group-us", self.group_us),
            ("--prefill-token-us", self.prefill_token_us),
        ]
        .into_iter()
        .filter_map(|(flag, value)| value.is_none().then_some(flag))
        .collect();
        let taken = format!("a step takes {step} ms, {group} us a group and {token} us a prompt token");
        if own.is_empty() {
            return format!("{taken}, as the flags say");
        }
        let own = own.join(", ");
        format!(
            "these are no times of this model: {taken}, without {own} as measured on Kimi-K3 and 8x MI355X (vLLM PR 59733); \
             `--hardware` predicts its own"
        )
    }
}

/// A model runner, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RunnerName {
    /// All rows.
    V1,
    /// The changes.
    V2,
}

/// Everything that was counted in one run.
pub(super) struct Run {
    name: String,
    platform: &'static str,
    setup: adapter::Setup,
    builders: Vec<String>,
    outcome: Outcome,
    meter: Meter,
    offload: Option<Offload>,
    tally: Tally,
    timed: Option<timed::Timed>,
    /// How long a step is taken to be, where nothing predicts it.
    step_words: String,
}

/// What is added up besides the metadata.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    requests: u64,
    most_requests: u64,
    tokens: u64,
    drafts: u64,
    preemptions: u64,
    resumed: u64,
    used_blocks: u64,
    most_used_blocks: u64,
    copies: Vec<u64>,
}

impl Tally {
    fn step(&mut self, step: &Step, blocks: u64) {
        if step.scheduled.is_empty() {
            return;
        }
        let requests = step.scheduled.len() as u64;
        self.requests += requests;
        self.most_requests = self.most_requests.max(requests);
        self.tokens += step.tokens();
        self.drafts += step.scheduled.iter().map(|part| u64::from(part.drafts)).sum::<u64>();
        self.preemptions += step.preempted.len() as u64;
        self.resumed += step.resumed.len() as u64;
        let used = blocks - step.free_blocks.min(blocks);
        self.used_blocks += used;
        self.most_used_blocks = self.most_used_blocks.max(used);
        for part in &step.scheduled {
            let mut group = 0_usize;
            for &(groups, count) in step.new_blocks(part) {
                for sum in self.copies.iter_mut().skip(group).take(groups as usize) {
                    *sum += u64::from(count);
                }
                group += groups as usize;
            }
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let hardware = args.time.hardware()?;
    let said = args.time.said();
    let device = hardware.map_or_else(Device::default, |hardware| Device {
        platform: Some((running::platform(hardware), &said)),
        memory_bytes: hardware.memory_bytes,
        name: &hardware.name,
    });
    let scenarios = args.scenarios.load_on(&device)?;
    for scenario in &scenarios {
        scenario.write_notes(terminal.err)?;
    }
    let time = step_time(args)?;
    let mut runs = Vec::new();
    let platforms =
        if args.builders.is_empty() { vec![None] } else { args.builders.iter().map(|&p| Some(p)).collect() };
    if (args.trace.is_some() || args.steps.is_some()) && scenarios.len() * platforms.len() > 1 {
        return Err(Failure::new("failed to write the steps of several runs to one file")
            .hint("give one scenario, such as `kimi-k3-dspark-rocm-fixed`, and one of `--builders`")
            .into());
    }
    let mut scale = None;
    for scenario in &scenarios {
        let setup = adapter::setup(scenario, &args.engine)?;
        let load = args.load.resolve(scenario, &setup)?;
        let mut device = timed::Device::of(args, scenario, &setup)?;
        for &platform in &platforms {
            let platform = platform.unwrap_or_else(|| adapter::Platform::of(scenario, hardware));
            let job =
                Job { args, name: &scenario.name, platform, setup: &setup, load: &load, step_time: time };
            if let Some(device) = &mut device
                && let Some(measured) = device.measured_tpot
            {
                device.scale = match scale {
                    Some(scale) => scale,
                    None => scaled(&job, device, measured, terminal)?,
                };
                scale = Some(device.scale);
            }
            runs.push(one(&job, device.clone(), terminal)?);
        }
    }
    if args.json {
        report::json(&runs, terminal)?;
    } else {
        report::text(&runs, terminal)?;
    }
    Ok(Exit::Fine)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a short, positive time"
)]
fn step_time(args: &Args) -> Result<StepTime, Failure> {
    let nanoseconds = |flag: &str, value: f64, unit: f64| {
        if value.is_finite() && (0.0..=1e6).contains(&value) {
            return Ok((value * unit) as u64);
        }
        Err(Failure::new(format!("`{flag}` is {value}")).hint("give a time between 0 and 1,000,000"))
    };
    Ok(StepTime {
        base_ns: nanoseconds("--step-ms", args.step_ms.unwrap_or(STEP_MS), 1e6)?,
        prefill_token_ns: nanoseconds(
            "--prefill-token-us",
            args.prefill_token_us.unwrap_or(PREFILL_TOKEN_US),
            1e3,
        )?,
        request_ns: 0,
        group_ns: nanoseconds("--group-us", args.group_us.unwrap_or(GROUP_US), 1e3)?,
    })
}

/// What is run.
struct Job<'a> {
    args: &'a Args,
    name: &'a str,
    platform: adapter::Platform,
    setup: &'a adapter::Setup,
    load: &'a load::Load,
    step_time: StepTime,
}

/// The factor of device time with which the simulated mean TPOT is the measured one.
fn scaled(
    job: &Job<'_>,
    device: &timed::Device,
    measured: f64,
    terminal: &Terminal<'_>,
) -> Result<f64, Failure> {
    let mut device = device.clone();
    // Host time is not scaled, so that the factor is found by steps; each of them gets far closer.
    for _ in 0..4 {
        let run = one(job, Some(device.clone()), terminal)?;
        let Some(timed) = &run.timed else { return Ok(1.0) };
        let (tpot, groups) = (timed.seen.tpot.mean(), timed.sums.part(simulator::cost::Component::Groups));
        let share = groups / timed.sums.total().max(1e-12);
        let host = tpot * share;
        if measured <= host {
            return Err(Failure::new("failed to scale device times to `--measured-tpot`").caused_by(
                format!("what the host does for the groups alone is {:.2} ms a token", host * 1e3),
            ));
        }
        device.scale *= (measured - host) / (tpot - host).max(1e-12);
    }
    Ok(device.scale)
}

/// Looks at steps and requests.
struct Watch<'a, F: FnMut(&Step, u64, u64)> {
    step: F,
    seen: Option<&'a mut timed::Seen>,
}

impl<F: FnMut(&Step, u64, u64)> Observer for Watch<'_, F> {
    fn step(&mut self, step: &Step, start_ns: u64, end_ns: u64) {
        (self.step)(step, start_ns, end_ns);
    }

    fn ended(&mut self, request: &EndedRequest) {
        if let Some(seen) = &mut self.seen {
            seen.request(request);
        }
    }
}

fn one(job: &Job<'_>, device: Option<timed::Device>, terminal: &Terminal<'_>) -> Result<Run, Failure> {
    let &Job { args, name, platform, setup, load, step_time } = job;
    let fail =
        |cause: &dyn std::fmt::Display| Failure::new(format!("failed to simulate `{name}`")).caused_by(cause);
    let builders = setup.builders(platform);
    let runner = if args.runner == RunnerName::V1 { Runner::V1 } else { Runner::V2 };
    let worker =
        Worker { builders: builders.clone(), runner, reuse: !args.no_reuse, full_graphs: !args.eager };
    let mut meter = Meter::new(&setup.engine, &setup.groups, &worker).map_err(|error| fail(&error))?;
    let mut timed = device.map(|device| timed::Timed::new(device, meter.clone()));
    let mut offload = args.offload.map(|gib| {
        Offload::new(&setup.engine, &setup.groups, gib.saturating_mul(1 << 30), setup.kv_tp_replicas)
    });
    let mut tally = Tally { copies: vec![0; setup.groups.len()], ..Tally::default() };
    let mut trace = args.trace.as_ref().map(|path| trace::Writer::create(path, setup)).transpose()?;
    let mut steps = args.steps.as_ref().map(|path| steps::Writer::create(path, setup)).transpose()?;
    let simulation = Simulation {
        engine: &setup.engine,
        groups: &setup.groups,
        workload: &load.workload,
        acceptance: &load.acceptance,
        step_time,
        seed: args.seed,
    };
    let progress = progress(terminal, load.workload.len());
    let blocks = u64::from(setup.engine.num_blocks) - 1;
    let mut written: Result<(), Failure> = Ok(());
    let mut finished = 0_u64;
    let mut seen = timed.as_ref().map(|timed| timed::Seen::new(timed.device()));
    let mut watch = Watch {
        step: |step: &Step, start: u64, end: u64| {
            let cost = meter.step(step);
            tally.step(step, blocks);
            if let Some(offload) = &mut offload {
                offload.step(step);
            }
            if written.is_ok() {
                if let Some(trace) = &mut trace {
                    written = trace.step(step, start, end, blocks);
                }
                if let Some(steps) = &mut steps
                    && written.is_ok()
                {
                    written = steps.step(step, start, end, &cost);
                }
            }
            finished += step.finished.len() as u64;
            if let Some(progress) = &progress
                && step.index.is_multiple_of(4096)
            {
                progress.set_position(finished);
            }
        },
        seen: seen.as_mut(),
    };
    let outcome = match &mut timed {
        Some(timed) => simulate_with(&simulation, timed, &mut watch),
        None => simulate(&simulation, &mut watch),
    };
    if let Some(progress) = progress {
        progress.finish_and_clear();
    }
    if let (Some(timed), Some(seen)) = (&mut timed, seen) {
        timed.seen = seen;
    }
    let outcome = outcome.map_err(|error| refusal(name, &error))?;
    written?;
    if let Some(trace) = trace {
        trace.close()?;
    }
    if let Some(steps) = steps {
        steps.close()?;
    }
    Ok(Run {
        name: name.to_owned(),
        platform: platform.name(),
        setup: setup.clone(),
        builders,
        outcome,
        meter,
        offload,
        tally,
        timed,
        step_words: args.step_words(),
    })
}

fn refusal(name: &str, error: &RunError) -> Failure {
    let failure = Failure::new(format!("failed to simulate `{name}`")).caused_by(error);
    match error {
        RunError::Refused { .. } | RunError::Stuck { .. } | RunError::Thrashing { .. } => failure
            .hint("give it shorter prompts (`--input`), more blocks (`--num-blocks`) or a longer context"),
        RunError::Setup(_) | RunError::Workload(_) | RunError::Acceptance(_) => failure,
    }
}

/// A bar on a terminal, where the work is long.
fn progress(terminal: &Terminal<'_>, requests: u32) -> Option<indicatif::ProgressBar> {
    if !terminal.progress || requests < 10_000 {
        return None;
    }
    let style = indicatif::ProgressStyle::with_template("{bar:40} {pos}/{len} requests, {eta} left").ok()?;
    Some(indicatif::ProgressBar::new(u64::from(requests)).with_style(style))
}
