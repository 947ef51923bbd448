//! What a change of groups, or of a builder, did to a server: predicted beside measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use simulator::cost::calibrate::Subject;
use simulator::cost::closed_loop::{Kind, Load};
use simulator::cost::{Dispatch, Exposure, Factor, Factors, Hardware, Layout};
use simulator::metadata::{Builder, builders};

use super::calibration::CalibrationFile;
use super::{models, precision};
use crate::failure::Failure;

/// A case, as its line says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    what: String,
    source: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    hardware: Option<String>,
    #[serde(default = "one")]
    tensor_parallel: u32,
    #[serde(default = "auto")]
    kv_cache_dtype: String,
    #[serde(default)]
    concurrency: Option<f64>,
    #[serde(default)]
    input_len: f64,
    #[serde(default)]
    output_len: f64,
    #[serde(default)]
    drafts: f64,
    #[serde(default)]
    accepted: Option<f64>,
    step: StepKind,
    /// Time of a builder's call where a source says it, microseconds.
    #[serde(default)]
    build_us: BTreeMap<String, f64>,
    #[serde(default)]
    build_us_after: Option<BTreeMap<String, f64>>,
    /// Calls a step by builder.
    before: BTreeMap<String, f64>,
    after: BTreeMap<String, f64>,
    #[serde(default)]
    kernels: Option<[f64; 2]>,
    measured: Measured,
    #[serde(default)]
    missing: Option<String>,
    #[serde(default)]
    assumed: Option<String>,
}

fn one() -> u32 {
    1
}

fn auto() -> String {
    "auto".to_owned()
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

/// Reads cases and predicts them.
///
/// # Errors
/// Names the file and the line.
pub(crate) fn read(path: &Path, calibration: &str) -> Result<Vec<Effect>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("failed to read `{}`", path.display())).caused_by(error))?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            let failed = |cause: &dyn std::fmt::Display| {
                Failure::new(format!("failed to read {}:{}", path.display(), index + 1)).caused_by(cause)
            };
            let line: Line = serde_json::from_str(line).map_err(|error| failed(&error))?;
            effect(line, calibration).map_err(|failure| failed(&failure.message))
        })
        .collect()
}

/// Dispatches of a step, by builder.
fn dispatch(
    calls: &BTreeMap<String, f64>,
    measured_us: &BTreeMap<String, f64>,
    kind: StepKind,
    known: &[Builder],
) -> Result<Dispatch, Failure> {
    let mut out = Dispatch::default();
    for (name, &count) in calls {
        if let Some(us) = measured_us.get(name) {
            out.measured += count * us * 1e-6;
            continue;
        }
        let builder = known
            .iter()
            .find(|builder| builder.name == *name)
            .ok_or_else(|| Failure::new(format!("no metadata builder is called `{name}`")))?;
        let each = match kind {
            StepKind::Decode => builder.decode,
            StepKind::Verify => builder.verify,
        };
        #[expect(clippy::cast_precision_loss, reason = "counts of one call")]
        let each = (each.launches + each.h2d + each.d2h) as f64;
        out.builds += count;
        out.launches += count * each;
    }
    Ok(out)
}

fn effect(line: Line, calibration: &str) -> Result<Effect, Failure> {
    let tables = builders();
    let known = &tables.builders;
    let before = dispatch(&line.before, &line.build_us, line.step, known)?;
    let after_us = line.build_us_after.as_ref().unwrap_or(&line.build_us);
    let after = dispatch(&line.after, after_us, line.step, known)?;
    let (unit, measured) = match &line.measured {
        Measured { tpot_ms: Some([a, b]), .. } | Measured { itl_ms: Some([a, b]), .. } => {
            ("ms a token", Some(b - a))
        }
        Measured { kernel_us: Some([a, b]), .. } => ("us of kernels", Some(b - a)),
        Measured { throughput_pct: Some(percent), .. } => ("% throughput", Some(*percent)),
        _ => ("", None),
    };
    let calibrated = |platform: &str| -> Result<(Vec<f64>, f64), Failure> {
        let calibration = CalibrationFile::for_platform(calibration, platform)?.calibration()?;
        let deviation = calibration.deviations.get(Factor::LaunchUs as usize).copied().unwrap_or(0.3);
        Ok((calibration.offsets, (1.645 * deviation).exp()))
    };
    let mut predicted = None;
    let mut interval = None;
    if let (Some(model), Some(hardware), Some(concurrency)) = (&line.model, &line.hardware, line.concurrency)
    {
        let model = models::find(model)?;
        let hardware = Hardware::find(hardware).map_err(|error| Failure::new(error.to_string()))?;
        let (offsets, times) = calibrated(&hardware.platform)?;
        let subject = |dispatch: Dispatch| -> Result<Subject, Failure> {
            Ok(Subject {
                shape: Arc::clone(&model.shape),
                hardware: Arc::new(hardware.clone()),
                precision: precision::named("auto", &model.config, &model.shape, &line.kv_cache_dtype)?,
                layout: Layout {
                    tensor_parallel: line.tensor_parallel,
                    expert_parallel: false,
                    early_fp8_experts: false,
                },
                dispatch,
                exposure: Exposure::Exposed,
            })
        };
        let accepted = line.accepted.unwrap_or(1.0);
        let load = Load {
            kind: Kind::ClosedLoop,
            concurrency,
            input: line.input_len,
            output: line.output_len,
            prompts: f64::MAX,
            running_at_most: f64::MAX,
            chunk: 8192.0,
            drafts: line.drafts,
            accepted,
        };
        let at = |times: f64| -> Result<f64, Failure> {
            let scale = |d: Dispatch| Dispatch {
                builds: d.builds * times,
                launches: d.launches * times,
                measured: d.measured,
            };
            let tpot = |dispatch: Dispatch| -> Result<f64, Failure> {
                let model =
                    subject(dispatch)?.model(&offsets).map_err(|error| Failure::new(error.to_string()))?;
                Ok(model.estimate(&load).tpot)
            };
            let (a, b) = (tpot(scale(before))?, tpot(scale(after))?);
            Ok(if unit == "% throughput" { (a / b - 1.0) * 100.0 } else { (b - a) * 1e3 })
        };
        predicted = Some(at(1.0)?);
        let (low, high) = (at(1.0 / times)?, at(times)?);
        interval = Some((low.min(high), low.max(high)));
    } else if let Some([a, b]) = line.kernels {
        let us = Hardware::find("h200").map_or(4.0, |hardware| hardware.kernel_us);
        predicted = Some((b - a) * us);
    } else if before != after && !unit.is_empty() {
        // Without a device only the host's part can be said, and of rates only the direction.
        let factors = Factors::default();
        let change = (after.time(&factors) - before.time(&factors)) * 1e3 / line.accepted.unwrap_or(1.0);
        predicted = Some(if unit == "% throughput" { -change.signum() } else { change });
    }
    let Line { id, what, source, missing, assumed, .. } = line;
    Ok(Effect { id, what, source, unit, measured, predicted, interval, missing, assumed })
}
