//! What a change of groups, or of a builder, did to a server: predicted beside measured.
//!
//! A change saves operations that the host dispatches one by one; what an operation takes differs from host to host by
//! a factor of three. So cases of one host calibrate each other: each is predicted with the median of what the others
//! imply, and never with its own measurement.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use simulator::cost::{Dispatch, Factor, Factors, Hardware};
use simulator::metadata::{Builder, builders};

use super::calibration::{CalibrationFile, NINETY};
use crate::failure::Failure;
use crate::input_file;

/// A case, as its line says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    what: String,
    source: String,
    /// What was served; for the reader.
    #[serde(default, rename = "model")]
    _model: Option<String>,
    #[serde(default)]
    hardware: Option<String>,
    /// Cases with one name here ran on one machine.
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    load: Option<Load>,
    /// Output tokens a second before the change.
    #[serde(default)]
    rate: Option<f64>,
    step: StepKind,
    /// Calls a step by builder.
    before: BTreeMap<String, f64>,
    after: BTreeMap<String, f64>,
    /// Operations of one call, where they are not those of builders.json.
    #[serde(default)]
    operations: BTreeMap<String, Operations>,
    /// Those after the change, where it changed them.
    #[serde(default)]
    operations_after: Option<BTreeMap<String, Operations>>,
    #[serde(default)]
    kernels: Option<[f64; 2]>,
    measured: Measured,
    #[serde(default)]
    missing: Option<String>,
    #[serde(default)]
    assumed: Option<String>,
}

/// How the server was loaded: so many requests at once, all alike.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    concurrency: f64,
    #[serde(rename = "input_len")]
    _input_len: f64,
    output_len: f64,
    #[serde(rename = "drafts")]
    _drafts: f64,
    /// Tokens that a step gives a request.
    accepted: f64,
}

/// Kernels and copies that one call dispatches.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operations {
    /// In a step without prompts.
    step: f64,
    /// In one with.
    prompts: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepKind {
    Decode,
    Verify,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    #[serde(default)]
    tpot_ms: Option<[f64; 2]>,
    #[serde(default)]
    itl_ms: Option<[f64; 2]>,
    #[serde(default)]
    kernel_us: Option<[f64; 2]>,
    #[serde(default)]
    throughput_pct: Option<f64>,
}

impl Measured {
    /// The effect and what it is counted in.
    fn effect(&self) -> (Unit, Option<f64>) {
        match self {
            Self { tpot_ms: Some([a, b]), .. } | Self { itl_ms: Some([a, b]), .. } => {
                (Unit::Token, Some(b - a))
            }
            Self { kernel_us: Some([a, b]), .. } => (Unit::Kernels, Some(b - a)),
            Self { throughput_pct: Some(percent), .. } => (Unit::Throughput, Some(*percent)),
            _ => (Unit::None, None),
        }
    }
}

/// What an effect is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Milliseconds a token.
    Token,
    /// Percent of the output tokens a second.
    Throughput,
    /// Microseconds of device kernels.
    Kernels,
    None,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Token => "ms a token",
            Self::Throughput => "% throughput",
            Self::Kernels => "us of kernels",
            Self::None => "",
        }
    }
}

/// What told how long an operation takes on a case's host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Host {
    /// Times the default.
    pub(crate) times: f64,
    /// The cases that say so; none where the default stands.
    pub(crate) from: Vec<String>,
    /// Standard deviation of the logarithm.
    deviation: f64,
}

/// A case with its prediction.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) source: String,
    /// What the effect is counted in.
    pub(crate) unit: &'static str,
    pub(crate) measured: Option<f64>,
    pub(crate) predicted: Option<f64>,
    pub(crate) interval: Option<(f64, f64)>,
    /// Where the effect is the host's.
    pub(crate) host: Option<Host>,
    pub(crate) missing: Option<String>,
    pub(crate) assumed: Option<String>,
}

impl Effect {
    /// Whether the prediction counts: all inputs are there.
    pub(crate) fn complete(&self) -> bool {
        self.missing.is_none()
    }

    /// How far the predicted effect is off the measured one, as a share of it.
    pub(crate) fn off(&self) -> Option<f64> {
        Some((self.predicted? - self.measured?) / self.measured?.abs())
    }

    /// Whether both go the same way.
    pub(crate) fn same_direction(&self) -> Option<bool> {
        Some(self.predicted? * self.measured? > 0.0)
    }
}

/// Reads cases and predicts them, each from the others.
///
/// # Errors
/// Names the file and the line.
pub(crate) fn read(path: &Path, calibration: &str) -> Result<Vec<Effect>, Failure> {
    let text = input_file::text(path, input_file::SETTINGS)
        .map_err(|error| Failure::new(format!("failed to read `{}`", path.display())).caused_by(error))?;
    let mut cases = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let failed = |cause: &dyn std::fmt::Display| {
            Failure::new(format!("failed to read {}:{}", path.display(), index + 1)).caused_by(cause)
        };
        let line: Line = serde_json::from_str(line).map_err(|error| failed(&error))?;
        cases.push(Case::new(line, calibration).map_err(|failure| failed(&failure.message))?);
    }
    Ok((0..cases.len()).map(|at| effect(&cases, at)).collect())
}

/// What an arm's host does for its groups.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Arm {
    step: Dispatch,
    prompts: Dispatch,
}

impl Arm {
    fn new(
        calls: &BTreeMap<String, f64>,
        own: &BTreeMap<String, Operations>,
        kind: StepKind,
        known: &[Builder],
    ) -> Result<Self, Failure> {
        let mut arm = Self { step: Dispatch::default(), prompts: Dispatch::default() };
        for (name, &count) in calls {
            let each = match own.get(name) {
                Some(operations) => *operations,
                None => counted(name, kind, known)?,
            };
            for (dispatch, operations) in [(&mut arm.step, each.step), (&mut arm.prompts, each.prompts)] {
                dispatch.builds += count;
                dispatch.launches += count * operations;
            }
        }
        Ok(arm)
    }
}

/// The operations of a builder that builders.json knows.
fn counted(name: &str, kind: StepKind, known: &[Builder]) -> Result<Operations, Failure> {
    let builder = known.iter().find(|builder| builder.name == name).ok_or_else(|| {
        Failure::new(format!("no metadata builder is called `{name}`; say its `operations`"))
    })?;
    let (step, prompts) = match kind {
        StepKind::Decode => (builder.decode, builder.mixed),
        StepKind::Verify => (builder.verify, builder.mixed_drafts),
    };
    Ok(Operations { step: step.operations(), prompts: prompts.operations() })
}

/// A line with what the change saves by default figures.
struct Case {
    line: Line,
    unit: Unit,
    measured: Option<f64>,
    /// Host time saved by a request from its first token to its last, seconds; negative where the change costs.
    saved: f64,
    /// Standard deviation of the logarithm of an operation's time.
    deviation: f64,
}

impl Case {
    fn new(line: Line, calibration: &str) -> Result<Self, Failure> {
        for (name, value) in [
            ("rate", line.rate),
            ("load.concurrency", line.load.map(|load| load.concurrency)),
            ("load.output_len", line.load.map(|load| load.output_len)),
            ("load.accepted", line.load.map(|load| load.accepted)),
        ] {
            if value.is_some_and(|value| !(value > 0.0 && value.is_finite())) {
                return Err(Failure::new(format!("`{name}` must be above 0")));
            }
        }
        let known = &builders().builders;
        let before = Arm::new(&line.before, &line.operations, line.step, known)?;
        let operations_after = line.operations_after.as_ref().unwrap_or(&line.operations);
        let after = Arm::new(&line.after, operations_after, line.step, known)?;
        let platform = match &line.hardware {
            Some(name) => {
                Some(Hardware::find(name).map_err(|error| Failure::new(error.to_string()))?.platform.clone())
            }
            None => None,
        };
        let (factors, deviation) = match platform {
            Some(platform) => {
                let fitted = CalibrationFile::for_platform(calibration, &platform)?.calibration()?;
                (Factors::default().times(&fitted.offsets), fitted.deviation(Factor::LaunchUs))
            }
            None => (Factors::default(), Factor::LaunchUs.spread()),
        };
        let saved = |of: fn(&Arm) -> Dispatch| of(&before).time(&factors) - of(&after).time(&factors);
        let (step, prompts) = (saved(|arm| arm.step), saved(|arm| arm.prompts));
        let saved = match line.load {
            Some(load) => {
                // Of the steps that a request sees, one a request at once computes a prompt.
                let steps = load.output_len / load.accepted;
                let with_prompts = load.concurrency.min(steps);
                (steps - with_prompts) * step + with_prompts * prompts
            }
            None => step,
        };
        let (unit, measured) = line.measured.effect();
        Ok(Self { line, unit, measured, saved, deviation })
    }

    /// How long a request takes before the change, seconds.
    fn request(&self) -> Option<f64> {
        let load = self.line.load?;
        Some(load.concurrency * load.output_len / self.line.rate?)
    }

    /// The effect where operations take so many times the default.
    fn effect(&self, times: f64) -> Option<f64> {
        let saved = self.saved * times;
        match self.unit {
            Unit::Token => Some(-saved * 1e3 / self.line.load.map_or(1.0, |load| load.output_len)),
            Unit::Throughput => match self.request() {
                // No more can be saved than there is.
                Some(request) => Some((request / (request - saved).max(request * 0.01) - 1.0) * 100.0),
                None if saved == 0.0 => None,
                // Without a rate only the direction can be said.
                None => Some(saved.signum()),
            },
            Unit::Kernels | Unit::None => None,
        }
    }

    /// How many times the default an operation took, by what was measured.
    fn implied(&self) -> Option<f64> {
        if self.line.missing.is_some() || self.saved == 0.0 {
            return None;
        }
        let saved = match self.unit {
            Unit::Token => -self.measured? * 1e-3 * self.line.load?.output_len,
            Unit::Throughput => {
                let request = self.request()?;
                request - request / (1.0 + self.measured? / 100.0)
            }
            Unit::Kernels | Unit::None => return None,
        };
        Some(saved / self.saved).filter(|times| *times > 0.0 && times.is_finite())
    }
}

/// What the other cases of a host say of its speed: their median, since one of them may be no matter of the host.
fn host(cases: &[Case], at: usize) -> Host {
    let case = &cases[at];
    let others = cases
        .iter()
        .enumerate()
        .filter(|(other, of)| *other != at && of.line.host.is_some() && of.line.host == case.line.host);
    let mut known: Vec<(f64, &str)> =
        others.filter_map(|(_, other)| Some((other.implied()?.ln(), other.line.id.as_str()))).collect();
    if known.is_empty() {
        return Host { times: 1.0, from: Vec::new(), deviation: case.deviation };
    }
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = known.len() / 2;
    let median = if known.len() % 2 == 1 {
        known[middle].0
    } else {
        f64::midpoint(known[middle - 1].0, known[middle].0)
    };
    let apart: f64 = known.iter().map(|(log, _)| (log - median).powi(2)).sum();
    // The default's spread stands for one more case.
    #[expect(clippy::cast_precision_loss, reason = "a handful of cases")]
    let deviation = ((apart + case.deviation.powi(2)) / (known.len() + 1) as f64).sqrt();
    Host { times: median.exp(), from: known.into_iter().map(|(_, id)| id.to_owned()).collect(), deviation }
}

fn effect(cases: &[Case], at: usize) -> Effect {
    let case = &cases[at];
    let line = &case.line;
    let (mut predicted, mut interval, mut of_host) = (None, None, None);
    if let Some([a, b]) = line.kernels {
        let us = Hardware::find("h200").map_or(4.0, |hardware| hardware.kernel_us);
        predicted = Some((b - a) * us);
    } else if line.before != line.after || line.operations_after.is_some() {
        let host = host(cases, at);
        predicted = case.effect(host.times);
        if line.missing.is_none() {
            let spread = (NINETY * host.deviation).exp();
            let ends = [case.effect(host.times / spread), case.effect(host.times * spread)];
            interval = match ends {
                [Some(a), Some(b)] => Some((a.min(b), a.max(b))),
                _ => None,
            };
        }
        of_host = Some(host);
    }
    Effect {
        id: line.id.clone(),
        what: line.what.clone(),
        source: line.source.clone(),
        unit: case.unit.name(),
        measured: case.measured,
        predicted,
        interval,
        host: of_host,
        missing: line.missing.clone(),
        assumed: line.assumed.clone(),
    }
}
