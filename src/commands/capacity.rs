//! `k3plan capacity`: how many devices a load needs, by hardware and layout, and what limits each.

mod report;

use simulator::cost::calibrate::Calibration;
use simulator::cost::{Hardware, known_hardware};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::predict::calibration::{CalibrationFile, Off};
use crate::predict::layouts::{Carried, Demand, Nothing, Rooms, Way};
use crate::predict::models;
use crate::predict::precision;
use crate::predict::slo::{self, Slo};
use crate::terminal::Terminal;

/// The model, what its requests are like, and what is known of the devices.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DemandArgs {
    /// The model: its config.json, the folder that holds it, or the name of a shipped public config.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,

    /// How its weights are stored: auto (from its config), bf16, fp8, nvfp4, mxfp4, int4.
    #[arg(long, default_value = "auto", value_name = "FORMAT")]
    pub(crate) precision: String,

    /// The KV cache's dtype: auto or fp8.
    #[arg(long, default_value = "auto", value_name = "DTYPE")]
    pub(crate) kv_cache_dtype: String,

    /// Prompt tokens of a request.
    #[arg(long, default_value_t = 1024, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) input: u32,

    /// Output tokens of a request.
    #[arg(long, default_value_t = 1024, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) output: u32,

    /// Share of a device's memory that vLLM may use.
    #[arg(long, visible_alias = "gpu-memory-utilization", default_value_t = 0.9, value_name = "SHARE")]
    pub(crate) utilization: f64,

    /// A file of `k3plan calibrate`, or `public` (fitted to public points), or `none` (defaults only).
    #[arg(long, default_value = "public", value_name = "FILE")]
    pub(crate) calibration: String,
}

/// How many devices a load needs, by hardware and layout
///
/// Each replica carries as many requests as its memory, by the groups and blocks that vLLM makes, and the SLO allow.
/// Exit code 1 if nothing does.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    demand: DemandArgs,

    /// What is promised of the means, such as `ttft<2s,tpot<15ms`.
    #[arg(long, value_name = "BOUNDS")]
    slo: String,

    /// Requests that come, such as `20/s`.
    #[arg(long, value_name = "RATE")]
    rate: String,

    /// Devices to look at; all that are known without it.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    hardware: Vec<String>,

    /// Tensor parallel ranks of a replica to look at.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    tp: Vec<u32>,

    /// `--max-num-batched-tokens` to look at.
    #[arg(long, value_delimiter = ',', default_value = "8192", value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    max_num_batched_tokens: Vec<u32>,

    /// `--max-num-seqs` of a replica.
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_num_seqs: u32,

    /// Devices that there are at most: ways that need more count as no answer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_devices: Option<u64>,

    /// Keep the SLO also at the worse end of the 90% intervals.
    #[arg(long)]
    safe: bool,

    /// Price of a device and hour, for the front of cost: `h200=3.2,b200=5`.
    #[arg(long, value_delimiter = ',', value_name = "NAME=PRICE")]
    price: Vec<String>,

    /// Print JSON, schema `k3plan.capacity/1`.
    #[arg(long)]
    json: bool,
}

/// One way to serve, and what came of it.
pub(super) struct Answer<'a> {
    pub(super) way: Way<'a>,
    pub(super) carried: Result<Carried, Nothing>,
    pub(super) replicas: u64,
    pub(super) price: Option<f64>,
    pub(super) on_front: bool,
}

impl Answer<'_> {
    pub(super) fn devices(&self) -> u64 {
        self.replicas.saturating_mul(u64::from(self.way.tensor_parallel))
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of devices")]
    fn cost(&self) -> f64 {
        self.devices() as f64 * self.price.unwrap_or(1.0)
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let slo = Slo::parse(&args.slo)?;
    let rate = slo::rate(&args.rate).ok_or_else(|| {
        Failure::new(format!("failed to read `--rate {}`", args.rate))
            .hint("write requests a second, such as `20/s`")
    })?;
    let prices = prices(&args.price)?;
    let devices = devices(&args.hardware)?;
    let model = models::find(&args.demand.model)?;
    let known = known(&args.demand.calibration, &devices)?;
    unpriced(&prices, &devices)?;
    let times = |off: Option<Off>| match off {
        Some(off) if args.safe => Ok(off.p90.exp()),
        None if args.safe => {
            Err(Failure::new("failed to keep the SLO safely: the calibration has no intervals")
                .hint("calibrate with more points, so that some can be left out"))
        }
        _ => Ok(1.0),
    };
    let precision =
        precision::named(&args.demand.precision, &model.config, &model.shape, &args.demand.kv_cache_dtype)?;
    let utilization = share(args.demand.utilization)?;
    let mut rooms = Rooms::default();
    let mut answers = Vec::new();
    for hardware in devices {
        let Some(Known { file, calibration, .. }) =
            known.iter().find(|known| known.platform == hardware.platform)
        else {
            continue;
        };
        let demand = Demand {
            model: &model,
            precision,
            kv_cache_dtype: &args.demand.kv_cache_dtype,
            utilization,
            input: f64::from(args.demand.input),
            output: f64::from(args.demand.output),
            calibration,
            tpot_times: times(file.errors.tpot)?,
            ttft_times: times(file.errors.ttft)?,
        };
        let price = prices.iter().find(|(name, _)| *name == hardware.name).map(|(_, price)| *price);
        for way in ways(args, hardware, model.shape.has_experts()) {
            let mut carried = demand.carries(&way, &slo, &mut rooms)?;
            let replicas =
                carried.as_ref().map_or(0, |carried| replicas(rate, carried.estimate.request_rate));
            let needed = replicas.saturating_mul(u64::from(way.tensor_parallel));
            if let Some(most) = args.max_devices
                && needed > most
            {
                carried = Err(Nothing::Devices { needed, most });
            }
            answers.push(Answer { way, carried, replicas, price, on_front: false });
        }
    }
    front(&mut answers);
    answers.sort_by(|a, b| {
        (a.carried.is_err(), a.cost())
            .partial_cmp(&(b.carried.is_err(), b.cost()))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let question = report::Question {
        model: &model.name,
        slo: &args.slo,
        rate,
        input: args.demand.input,
        output: args.demand.output,
        known: &known,
    };
    if args.json {
        report::json(&question, &answers, terminal)?;
    } else {
        report::text(&question, &answers, terminal)?;
    }
    Ok(if answers.iter().any(|answer| answer.carried.is_ok()) { Exit::Fine } else { Exit::CheckSaysNo })
}

/// What is known of devices of one platform.
pub(super) struct Known {
    pub(super) platform: String,
    pub(super) file: CalibrationFile,
    calibration: Calibration,
}

/// The calibration of each platform among the devices.
fn known(name: &str, devices: &[&Hardware]) -> Result<Vec<Known>, Failure> {
    let mut all: Vec<Known> = Vec::new();
    for hardware in devices {
        if !all.iter().any(|known| known.platform == hardware.platform) {
            let file = CalibrationFile::for_platform(name, &hardware.platform)?;
            let calibration = file.calibration()?;
            all.push(Known { platform: hardware.platform.clone(), file, calibration });
        }
    }
    Ok(all)
}

/// The ways to spread a replica over a device's kind.
fn ways<'a>(args: &Args, hardware: &'a Hardware, experts: bool) -> Vec<Way<'a>> {
    let mut ways = Vec::new();
    for &tensor_parallel in &args.tp {
        for expert_parallel in [false, true] {
            if expert_parallel && (tensor_parallel == 1 || !experts) {
                continue;
            }
            for &chunk in &args.max_num_batched_tokens {
                ways.push(Way {
                    hardware,
                    tensor_parallel,
                    expert_parallel,
                    chunk: f64::from(chunk),
                    max_num_seqs: f64::from(args.max_num_seqs),
                });
            }
        }
    }
    ways
}

/// Costs are compared only where all devices have a price.
fn unpriced(prices: &[(String, f64)], devices: &[&Hardware]) -> Result<(), Failure> {
    let missing: Vec<&str> = devices
        .iter()
        .filter(|device| !prices.iter().any(|(name, _)| *name == device.name))
        .map(|device| device.name.as_str())
        .collect();
    if prices.is_empty() || missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("failed to compare costs: {} have no price", missing.join(", ")))
        .hint("give all of them with `--price`, or look at fewer devices with `--hardware`"))
}

/// Devices by name; all that have figures where none is named.
pub(crate) fn devices(names: &[String]) -> Result<Vec<&'static Hardware>, Failure> {
    if names.is_empty() {
        return Ok(known_hardware().iter().filter(|hardware| hardware.bandwidth.is_some()).collect());
    }
    names.iter().map(|name| device(name)).collect()
}

/// A device by its name.
pub(crate) fn device(name: &str) -> Result<&'static Hardware, Failure> {
    Hardware::find(name).map_err(|error| {
        Failure::new("failed to read `--hardware`")
            .caused_by(error)
            .hint("write one of these names, such as h200")
    })
}

/// A share of the memory.
pub(crate) fn share(value: f64) -> Result<f64, Failure> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    Err(Failure::new(format!("`--utilization` is {value}"))
        .hint("give a share above 0 and at most 1, such as 0.9"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
fn replicas(rate: f64, one: f64) -> u64 {
    (rate / one.max(1e-9)).ceil().clamp(1.0, 1e12) as u64
}

fn prices(texts: &[String]) -> Result<Vec<(String, f64)>, Failure> {
    texts
        .iter()
        .map(|text| {
            let parsed = text.split_once('=').and_then(|(name, price)| {
                let price: f64 =
                    price.trim().parse().ok().filter(|price: &f64| *price > 0.0 && price.is_finite())?;
                Some((name.trim().to_ascii_lowercase(), price))
            });
            let (name, price) = parsed.ok_or_else(|| {
                Failure::new(format!("failed to read `--price {text}`")).hint("write `h200=3.2`")
            })?;
            let device = Hardware::find(&name)
                .map_err(|error| Failure::new("failed to read `--price`").caused_by(error))?;
            Ok((device.name.clone(), price))
        })
        .collect()
}

/// Marks the ways that no other beats in cost, time between tokens, time to the first token and rate a device.
fn front(answers: &mut [Answer<'_>]) {
    let marks: Vec<Option<[f64; 4]>> = answers
        .iter()
        .map(|answer| {
            let carried = answer.carried.as_ref().ok()?;
            let rate = carried.estimate.output_rate / f64::from(answer.way.tensor_parallel);
            Some([answer.cost(), carried.estimate.tpot, carried.estimate.ttft, -rate])
        })
        .collect();
    for (index, answer) in answers.iter_mut().enumerate() {
        let Some(Some(own)) = marks.get(index) else { continue };
        answer.on_front = !marks.iter().flatten().any(|other| {
            other.iter().zip(own).all(|(a, b)| a <= b) && other.iter().zip(own).any(|(a, b)| a < b)
        });
    }
}
