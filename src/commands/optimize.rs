//! `k3plan optimize`: which settings serve a load better than today's, and which of them matters.

mod choice;
mod report;
mod rig;
mod search;

use planner::{BatchDefaults, BatchDevice, EngineVersion, MambaCacheMode};
use simulator::cost::{Exposure, Hardware};

use super::capacity::{DemandArgs, device, share};
use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::predict::calibration::CalibrationFile;
use crate::predict::points::Peaks;
use crate::predict::slo::{self, Slo};
use crate::predict::{models, precision};
use crate::scenario::{grouping, parse_memory};
use crate::terminal::Terminal;
use choice::Choice;
use rig::{Coming, Question};

/// Which settings serve a load better than today's
///
/// Looks at tensor and expert parallelism, max-num-seqs, max-num-batched-tokens, block and group size, each by itself
/// and together. Today's settings are vLLM's defaults for the device unless `--today-*` says otherwise. Without an SLO,
/// no answer may end later than today, and neither TPOT nor TTFT be 5% worse. Exit code 1 if nothing serves the load.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    demand: DemandArgs,

    /// The device, such as h200.
    #[arg(long, value_name = "NAME")]
    hardware: String,

    /// Requests at once at one server.
    #[arg(long, value_name = "N", required_unless_present = "rate", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,

    /// Requests that come, such as `20/s`, over as many servers as they need; with `--slo`.
    #[arg(long, value_name = "RATE", conflicts_with = "concurrency", requires = "slo")]
    rate: Option<String>,

    /// What is promised of the means, such as `ttft<2s,tpot<15ms` [default: answers end no later than today].
    #[arg(long, value_name = "BOUNDS")]
    slo: Option<String>,

    /// Draft tokens a step.
    #[arg(long, default_value_t = 0, value_name = "K", value_parser = clap::value_parser!(u32).range(..=64), requires = "acceptance_length")]
    num_speculative_tokens: u32,

    /// Mean tokens a step gives a request, drafts and the sampled one.
    #[arg(long, value_name = "AL")]
    acceptance_length: Option<f64>,

    /// The draft model's config.json, its folder, or a shipped name; it runs once a step.
    #[arg(long, value_name = "MODEL", requires = "num_speculative_tokens")]
    draft: Option<String>,

    /// Speculative method [default: mtp].
    #[arg(long, value_name = "METHOD", requires = "num_speculative_tokens")]
    method: Option<String>,

    /// Steps are scheduled only when the one before is back, as with `--no-async-scheduling`.
    #[arg(long)]
    sync: bool,

    /// How states are cached: none, or align, as vLLM with prefix caching.
    #[arg(long, value_enum, default_value = "align", value_name = "MODE")]
    mamba_cache_mode: StateMode,

    /// Memory for the KV cache of a device, in place of what weights leave, such as 40GiB.
    #[arg(long, value_name = "SIZE")]
    kv_cache_memory: Option<String>,

    /// Memory bandwidth of a device without a figure of its own, bytes/s.
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<f64>,

    /// bf16 rate of a device without a figure of its own, FLOP/s.
    #[arg(long, value_name = "RATE")]
    flops: Option<f64>,

    #[command(flatten)]
    space: SpaceArgs,

    #[command(flatten)]
    today: TodayArgs,

    /// Print every value of every setting, not only the best of each.
    #[arg(long)]
    rows: bool,

    /// Print JSON, schema `k3plan.optimize/1`.
    #[arg(long)]
    json: bool,
}

/// What is looked at.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Values to look at")]
struct SpaceArgs {
    /// Tensor parallel ranks.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    tp: Vec<u32>,

    /// `--max-num-seqs`.
    #[arg(long, value_delimiter = ',', default_value = "16,32,64,128,256,512,1024", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_num_seqs: Vec<u32>,

    /// `--max-num-batched-tokens`.
    #[arg(long, value_delimiter = ',', default_value = "2048,4096,8192,16384,32768", value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..=1048576))]
    max_num_batched_tokens: Vec<u32>,

    /// `--block-size` [default: those that the platform's kernels take].
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=65536))]
    block_size: Vec<u64>,

    /// Rules of the group size, as `k3plan plan --grouping` takes them, or `none` to leave it [default: the
    /// proposals 49472 and 51742, and sizes that no other beats].
    #[arg(long, value_delimiter = ',', value_name = "RULE")]
    grouping: Vec<String>,
}

/// What runs today.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Today")]
struct TodayArgs {
    /// Tensor parallel ranks today [default: the fewest of `--tp` that the model runs on].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    today_tp: Option<u32>,

    /// Expert parallelism is on today.
    #[arg(long)]
    today_expert_parallel: bool,

    /// `--max-num-seqs` today [default: vLLM's for the device].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    today_max_num_seqs: Option<u32>,

    /// `--max-num-batched-tokens` today [default: vLLM's for the device].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..=1048576))]
    today_max_num_batched_tokens: Option<u32>,

    /// `--block-size` today [default: the platform's].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..=65536))]
    today_block_size: Option<u64>,

    /// The group size rule today.
    #[arg(long, value_name = "RULE", default_value = "default")]
    today_grouping: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StateMode {
    None,
    Align,
}

/// vLLM's `max_num_seqs` and `max_num_batched_tokens` of a server on one such device.
fn defaults(hardware: &Hardware) -> (u32, u32) {
    let device = match hardware.memory_bytes {
        _ if hardware.platform == "cpu" => BatchDevice::Cpu { world_size: 1 },
        memory => BatchDevice::Gpu { memory_bytes: memory.unwrap_or(0), name: &hardware.name },
    };
    let batch = BatchDefaults::of(EngineVersion::default(), device);
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    (small(batch.max_num_seqs), small(batch.max_num_batched_tokens))
}

fn rule(flag: &str, text: &str) -> Result<Option<planner::GroupSizeRule>, Failure> {
    grouping::parse(text).map_err(|wrong| {
        Failure::new(format!("failed to read `{flag} {text}`")).caused_by(wrong.cause).hint(wrong.hint)
    })
}

fn accepted(args: &Args) -> Result<f64, Failure> {
    let most = f64::from(args.num_speculative_tokens) + 1.0;
    match args.acceptance_length {
        None => Ok(1.0),
        Some(length) if (1.0..=most).contains(&length) => Ok(length),
        Some(length) => Err(Failure::new(format!("`--acceptance-length` is {length}")).hint(format!(
            "with {} draft tokens a step gives between 1 and {most} tokens",
            args.num_speculative_tokens
        ))),
    }
}

fn peak(flag: &str, value: Option<f64>) -> Result<Option<f64>, Failure> {
    match value {
        Some(value) if !(value > 0.0 && value.is_finite()) => {
            Err(Failure::new(format!("`{flag}` is {value}")).hint("give a rate above 0, such as 60e9"))
        }
        value => Ok(value),
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let slo = args.slo.as_deref().map(Slo::parse).transpose()?;
    let coming = match (&args.rate, args.concurrency) {
        (Some(text), _) => Coming::Rate(slo::rate(text).ok_or_else(|| {
            Failure::new(format!("failed to read `--rate {text}`"))
                .hint("write requests a second, such as `20/s`")
        })?),
        (None, concurrency) => Coming::Concurrency(f64::from(concurrency.unwrap_or(1))),
    };
    let mut hardware = device(&args.hardware)?.clone();
    let peaks =
        Peaks { bandwidth: peak("--bandwidth", args.bandwidth)?, flops: peak("--flops", args.flops)? };
    hardware.bandwidth = hardware.bandwidth.or(peaks.bandwidth);
    hardware.bf16 = hardware.bf16.or(peaks.flops);
    let file = CalibrationFile::for_platform(&args.demand.calibration, &hardware.platform)?;
    let calibration = file.calibration()?;
    let model = models::find(&args.demand.model)?;
    let draft = args.draft.as_deref().map(models::find).transpose()?;
    let usual = defaults(&hardware);
    let question = Question {
        precision: precision::named(
            &args.demand.precision,
            &model.config,
            &model.shape,
            &args.demand.kv_cache_dtype,
        )?,
        model: &model,
        draft: draft.as_ref(),
        method: args.method.as_deref(),
        drafts: args.num_speculative_tokens,
        accepted: accepted(args)?,
        hardware: &hardware,
        kv_cache_dtype: &args.demand.kv_cache_dtype,
        mamba_cache_mode: match args.mamba_cache_mode {
            StateMode::None => MambaCacheMode::None,
            StateMode::Align => MambaCacheMode::Align,
        },
        utilization: share(args.demand.utilization)?,
        kv_cache_memory: args
            .kv_cache_memory
            .as_deref()
            .map(|text| parse_memory("--kv-cache-memory", text))
            .transpose()?,
        input: args.demand.input,
        output: args.demand.output,
        coming,
        slo,
        exposure: if args.sync || args.num_speculative_tokens > 0 {
            Exposure::Exposed
        } else {
            Exposure::Overlapped
        },
        calibration: &calibration,
        usual,
    };
    let space = search::Space {
        tp: args.space.tp.clone(),
        max_num_seqs: args.space.max_num_seqs.clone(),
        max_num_batched_tokens: args.space.max_num_batched_tokens.clone(),
        block_size: (!args.space.block_size.is_empty()).then(|| args.space.block_size.clone()),
        rules: match args.space.grouping.as_slice() {
            [] => None,
            [none] if none == "none" => Some(Vec::new()),
            list => Some(list.iter().map(|text| rule("--grouping", text)).collect::<Result<_, _>>()?),
        },
    };
    let today = Choice {
        tensor_parallel: args.today.today_tp.unwrap_or(0),
        expert_parallel: args.today.today_expert_parallel,
        max_num_seqs: args.today.today_max_num_seqs.unwrap_or(usual.0),
        max_num_batched_tokens: args.today.today_max_num_batched_tokens.unwrap_or(usual.1),
        block_size: args.today.today_block_size,
        rule: rule("--today-grouping", &args.today.today_grouping)?,
    };
    let answer = search::search(&question, &space, today)?;
    let asked = report::Asked { question: &question, slo: args.slo.as_deref(), file: &file };
    if args.json {
        report::json(&asked, &answer, terminal)?;
    } else {
        report::text(&asked, &answer, args.rows, terminal)?;
    }
    Ok(if answer.best.is_some() { Exit::Fine } else { Exit::CheckSaysNo })
}
