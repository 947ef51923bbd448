//! How long the simulated steps take on a device, and what clients see of that.

use std::path::Path;

use hdrhistogram::Histogram;
use serde_json::Value;
use simulator::cost::calibrate::Subject;
use simulator::cost::{
    Batch, Breakdown, Component, CostModel, Dispatch, Exposure, Factor, Hardware, Layout, Prompt,
};
use simulator::metadata::Meter;
use simulator::{Clock, EndedRequest, Step};

use super::Args;
use super::adapter::Setup;
use crate::failure::Failure;
use crate::model_file::read_config;
use crate::predict::calibration::{CalibrationFile, NINETY, Off};
use crate::predict::models;
use crate::predict::precision;
use crate::predict::slo::{self, Slo};
use crate::scenario::Scenario;

/// Flags of predicted times.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TimeArgs {
    /// Predict step times on this device, such as mi355x, in place of `--step-ms`.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,

    /// The model's sizes: its config.json, or a shipped public config's name [default: by the scenario's name].
    #[arg(long, value_name = "MODEL", requires = "hardware")]
    config: Option<String>,

    /// How weights are stored: auto (from the config), bf16, fp8, nvfp4, mxfp4, int4.
    #[arg(long, default_value = "auto", value_name = "FORMAT")]
    precision: String,

    /// A draft model's config.json, or a shipped name; it runs once a step.
    #[arg(long, value_name = "MODEL", requires = "hardware")]
    draft_config: Option<String>,

    /// A file of `k3plan calibrate`, or `public`, or `none` (defaults only).
    #[arg(long, default_value = "public", value_name = "FILE")]
    calibration: String,

    /// Mean TPOT that was measured for the first scenario, such as 11.09ms: device times are scaled to it, and the
    /// other scenarios are predicted from there.
    #[arg(long, value_name = "TIME", requires = "hardware")]
    measured_tpot: Option<String>,

    /// Count requests that keep these bounds, such as `ttft<2s,tpot<15ms`.
    #[arg(long, value_name = "BOUNDS", requires = "hardware")]
    slo: Option<String>,
}

/// What a device makes of the steps.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) title: String,
    pub(super) tensor_parallel: u32,
    model: CostModel,
    exposure: Exposure,
    /// Device time is multiplied by this.
    pub(super) scale: f64,
    pub(super) measured_tpot: Option<f64>,
    pub(super) slo: Option<Slo>,
    pub(super) tpot: Option<Off>,
    pub(super) ttft: Option<Off>,
    /// Factor of the 90% interval of host work.
    pub(super) host_times: f64,
}

impl TimeArgs {
    /// The device whose times are predicted.
    ///
    /// # Errors
    /// If none is called so.
    pub(super) fn hardware(&self) -> Result<Option<&'static Hardware>, Failure> {
        self.hardware
            .as_deref()
            .map(|name| {
                Hardware::find(name)
                    .map_err(|error| Failure::new("failed to read `--hardware`").caused_by(error))
            })
            .transpose()
    }

    /// The flag that names it.
    pub(super) fn said(&self) -> String {
        format!("--hardware {}", self.hardware.as_deref().unwrap_or_default())
    }
}

/// Refuses a config for times that is of another architecture than the model's own.
fn same_architecture(model: &Path, own: &models::NamedModel) -> Result<(), Failure> {
    let of = |config: &Value| config.pointer("/architectures/0").and_then(Value::as_str).map(str::to_owned);
    match (of(&read_config(model)?), of(&own.config)) {
        (Some(planned), Some(timed)) if planned != timed => Err(Failure::new(format!(
            "`--config {}` is another model than `--model {}`",
            own.name,
            model.display()
        ))
        .caused_by(format!("one is a {timed}, the other a {planned}"))
        .hint("leave `--config` away: times are counted from the `--model` itself")),
        _ => Ok(()),
    }
}

impl Device {
    /// The device of the flags; `None` where steps take `--step-ms`.
    ///
    /// # Errors
    /// If the device, the model or the calibration cannot be read.
    pub(super) fn of(args: &Args, scenario: &Scenario, setup: &Setup) -> Result<Option<Self>, Failure> {
        let time = &args.time;
        let Some(hardware) = time.hardware()? else { return Ok(None) };
        let name = &hardware.name;
        let file = CalibrationFile::for_platform(&time.calibration, &hardware.platform)?;
        let calibration = file.calibration()?;
        let imported = scenario.imported.as_ref();
        let model = match (&time.config, imported, models::guess(&scenario.name)) {
            (Some(config), None, _) => models::find(config)?,
            (Some(config), Some(from), _) => {
                let model = models::find(config)?;
                same_architecture(&from.config, &model)?;
                model
            }
            (None, Some(from), _) => models::find(&from.config.display().to_string())?,
            (None, None, Some(model)) => model,
            (None, None, None) => {
                return Err(Failure::new(format!("failed to predict times of `{}`", scenario.name))
                    .caused_by("its layers say what it keeps, not what it weighs")
                    .hint("give its config.json, or a public model's name, with `--config`"));
            }
        };
        let ranks = u32::try_from(scenario.settings.tensor_parallel_size).unwrap_or(u32::MAX);
        let kv = if scenario.model.specs.iter().any(|spec| format!("{spec:?}").contains("Fp8")) {
            "fp8"
        } else {
            "auto"
        };
        let cost = |model: &models::NamedModel| -> Result<CostModel, Failure> {
            let subject = Subject {
                shape: std::sync::Arc::clone(&model.shape),
                hardware: std::sync::Arc::new(hardware.clone()),
                precision: precision::named(&time.precision, &model.config, &model.shape, kv)?,
                layout: Layout { tensor_parallel: ranks, expert_parallel: false, early_fp8_experts: false },
                dispatch: Dispatch::default(),
                exposure: Exposure::Overlapped,
            };
            subject.model(&calibration.offsets).map_err(|error| {
                Failure::new(format!("failed to cost `{}` on {name}", model.name)).caused_by(error)
            })
        };
        let mut target = cost(&model)?;
        let imported_draft = imported.and_then(|from| from.draft.as_ref());
        let draft = time.draft_config.clone().or(imported_draft.map(|path| path.display().to_string()));
        if let Some(draft) = draft {
            target = target.with_draft(cost(&models::find(&draft)?)?, 1.0);
        }
        let measured_tpot = time
            .measured_tpot
            .as_deref()
            .map(|text| {
                slo::seconds(text).ok_or_else(|| {
                    Failure::new(format!("failed to read `--measured-tpot {text}`"))
                        .hint("write a time such as 11.09ms")
                })
            })
            .transpose()?;
        Ok(Some(Self {
            title: format!("{ranks}x {}", hardware.title),
            tensor_parallel: ranks,
            model: target,
            exposure: if setup.engine.async_scheduling && setup.engine.speculative.is_none() {
                Exposure::Overlapped
            } else {
                Exposure::Exposed
            },
            scale: 1.0,
            measured_tpot,
            slo: time.slo.as_deref().map(Slo::parse).transpose()?,
            tpot: file.errors.tpot,
            ttft: file.errors.ttft,
            host_times: (NINETY * calibration.deviation(Factor::LaunchUs)).exp(),
        }))
    }

    fn step(&self, step: &Step, meter: &mut Meter) -> Breakdown {
        let mut batch = Batch { tokens_each: 1.0, ..Batch::default() };
        let (mut context, mut tokens) = (0.0, 0.0);
        let (mut prompt, mut before) = (0.0, 0.0);
        for part in &step.scheduled {
            let own = f64::from(part.tokens);
            if part.generated == 0 || part.tokens > 1 + part.drafts {
                prompt += own;
                before += own * f64::from(part.computed);
            } else {
                batch.requests += 1.0;
                tokens += own;
                context += f64::from(part.computed);
            }
        }
        if batch.requests > 0.0 {
            batch.tokens_each = tokens / batch.requests;
            batch.context = context / batch.requests;
        }
        if prompt > 0.0 {
            batch.prompt = Some(Prompt { tokens: prompt, before: before / prompt });
        }
        let cost = meter.step(step);
        #[expect(clippy::cast_precision_loss, reason = "counts of one step")]
        let dispatch = Dispatch {
            builds: (cost.builds + cost.reuses) as f64,
            launches: (cost.launches + cost.h2d + cost.d2h) as f64,
        };
        let mut out = self.model.step(&batch);
        for part in &mut out.parts {
            *part *= self.scale;
        }
        let device = out.total();
        let factors = self.model.factors();
        let exposed = dispatch.exposed(factors, self.exposure, device);
        out.parts[Component::Groups as usize] += exposed;
        out.hidden = dispatch.time(factors) - exposed;
        out
    }
}

/// A clock that asks the device, and what came of all steps.
pub(super) struct Timed {
    device: Device,
    meter: Meter,
    pub(super) sums: Breakdown,
    pub(super) steps: u64,
    pub(super) itl: Times,
    pub(super) seen: Seen,
}

/// What clients saw.
pub(super) struct Seen {
    slo: Option<Slo>,
    first_token_ns: u64,
    pub(super) ttft: Times,
    pub(super) tpot: Times,
    pub(super) good: u64,
    pub(super) ended: u64,
}

/// Percentiles of times.
pub(super) struct Times {
    histogram: Option<Histogram<u64>>,
    sum: f64,
    count: u64,
}

impl Times {
    fn new() -> Self {
        // Three digits, from a nanosecond to a day.
        Self { histogram: Histogram::new_with_bounds(1, 86_400_000_000_000, 3).ok(), sum: 0.0, count: 0 }
    }

    fn add(&mut self, nanoseconds: u64, times: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record_n(nanoseconds.max(1), times);
        }
        #[expect(clippy::cast_precision_loss, reason = "milliseconds with two decimals are shown")]
        {
            self.sum += nanoseconds as f64 * times as f64;
        }
        self.count += times;
    }

    /// Mean, seconds.
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64 * 1e-9
    }

    /// A percentile, seconds.
    #[expect(clippy::cast_precision_loss, reason = "three digits are kept")]
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        self.histogram.as_ref().map_or(0.0, |histogram| histogram.value_at_percentile(percent) as f64 * 1e-9)
    }
}

impl Timed {
    pub(super) fn new(device: Device, meter: Meter) -> Self {
        let seen = Seen::new(&device);
        Self { device, meter, sums: Breakdown::default(), steps: 0, itl: Times::new(), seen }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }
}

impl Seen {
    pub(super) fn new(device: &Device) -> Self {
        // The way from client to scheduler and back.
        let first_token_ns = nanoseconds(device.model.factors().get(Factor::FirstTokenMs) * 1e-3);
        Self { slo: device.slo, first_token_ns, ttft: Times::new(), tpot: Times::new(), good: 0, ended: 0 }
    }

    /// A request came to its end.
    pub(super) fn request(&mut self, request: &EndedRequest) {
        let first = request.first_ns.saturating_sub(request.arrival_ns).saturating_add(self.first_token_ns);
        self.ttft.add(first, 1);
        let after = u64::from(request.output_tokens.saturating_sub(1));
        let between = request.last_ns.saturating_sub(request.first_ns).checked_div(after);
        if let Some(between) = between {
            self.tpot.add(between, 1);
        }
        self.ended += 1;
        if let Some(slo) = &self.slo {
            #[expect(clippy::cast_precision_loss, reason = "times are compared with bounds")]
            let seconds = |ns: u64| ns as f64 * 1e-9;
            let within = |bound: Option<f64>, ns: u64| bound.is_none_or(|bound| seconds(ns) <= bound);
            let whole =
                request.last_ns.saturating_sub(request.arrival_ns).saturating_add(self.first_token_ns);
            let kept =
                within(slo.ttft, first) && within(slo.tpot, between.unwrap_or(0)) && within(slo.e2e, whole);
            self.good += u64::from(kept);
        }
    }
}

impl Clock for Timed {
    fn length_ns(&mut self, step: &Step) -> u64 {
        let breakdown = self.device.step(step, &mut self.meter);
        for (sum, part) in self.sums.parts.iter_mut().zip(breakdown.parts) {
            *sum += part;
        }
        self.sums.hidden += breakdown.hidden;
        self.steps += 1;
        let length = nanoseconds(breakdown.total());
        let decoding =
            step.scheduled.iter().filter(|part| part.generated > 0 && part.tokens <= 1 + part.drafts).count();
        self.itl.add(length, decoding as u64);
        length
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).clamp(0.0, 1e18) as u64
}
