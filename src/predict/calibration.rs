//! The calibration file: by how much each factor differs from its default, and how far off predictions are.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use simulator::cost::Factor;
use simulator::cost::calibrate::{Calibration, Miss, quantile};
use simulator::cost::leftover::{Leftover, Leftovers, Place};

use crate::failure::Failure;
use crate::input_file;

/// The form of the file.
const SCHEMA: &str = "k3plan.calibration/1";

/// The largest calibration file, bytes.
const LIMIT: u64 = 1 << 20;

/// A factor's multiple of its default, and its 90% interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Times {
    pub(crate) times: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// How far points that were not seen are off: shares of them stay below these, as logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Off {
    pub(crate) median: f64,
    pub(crate) p90: f64,
}

/// Errors of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Errors {
    /// What was left out in turn: `model`, `fifth`, or `none` where nothing was fitted.
    pub(crate) left_out: String,
    pub(crate) points: u64,
    pub(crate) tpot: Option<Off>,
    pub(crate) ttft: Option<Off>,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CalibrationFile {
    pub(crate) schema: String,
    #[serde(default)]
    pub(crate) measured: Vec<String>,
    #[serde(default)]
    pub(crate) hardware: Vec<String>,
    #[serde(default)]
    pub(crate) factors: BTreeMap<String, Times>,
    pub(crate) errors: Errors,
    #[serde(default)]
    pub(crate) leftovers: Vec<Server>,
}

/// What the factors leave over at points of servers that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) model: String,
    pub(crate) hardware: String,
    pub(crate) weights: String,
    pub(crate) engine: String,
    pub(crate) spread: String,
    pub(crate) points: Vec<AtPoint>,
}

/// Requests, prompt tokens, output tokens, ranks; then logarithms of measured over computed times: between tokens, to
/// the first token.
type AtPoint = (f64, f64, f64, f64, Option<f64>, Option<f64>);

/// 90% of a normal distribution lie within so many standard deviations.
pub(crate) const NINETY: f64 = 1.645;

impl CalibrationFile {
    /// Puts a calibration and its errors into the file's form.
    pub(crate) fn of(
        calibration: &Calibration,
        errors: Errors,
        measured: Vec<String>,
        hardware: Vec<String>,
    ) -> Self {
        let factors = Factor::ALL
            .iter()
            .zip(calibration.offsets.iter().zip(&calibration.deviations))
            .map(|(factor, (offset, deviation))| {
                let times = Times {
                    times: offset.exp(),
                    low: (offset - NINETY * deviation).exp(),
                    high: (offset + NINETY * deviation).exp(),
                };
                (factor.name().to_owned(), times)
            })
            .collect();
        let leftovers = servers(&calibration.leftovers);
        Self { schema: SCHEMA.to_owned(), measured, hardware, factors, errors, leftovers }
    }

    /// What the cost model takes.
    ///
    /// # Errors
    /// If a factor is unknown or not above 0.
    pub(crate) fn calibration(&self) -> Result<Calibration, Failure> {
        let mut calibration = Calibration::default();
        for (name, Times { times, low, high }) in &self.factors {
            let failed = |cause: String| Failure::new("failed to read the calibration").caused_by(cause);
            let index = Factor::ALL.iter().position(|factor| factor.name() == name).ok_or_else(|| {
                failed(format!("no factor is called `{name}`"))
                    .hint("`k3plan calibrate -o FILE` writes such files")
            })?;
            if [*times, *low, *high].iter().any(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(failed(format!("`{name}` has a value that is not above 0")));
            }
            if let Some(slot) = calibration.offsets.get_mut(index) {
                *slot = times.ln();
            }
            if let Some(slot) = calibration.deviations.get_mut(index) {
                *slot = ((high / low).ln() / (2.0 * NINETY)).abs().max(1e-6);
            }
        }
        let mut leftovers = Vec::new();
        for server in &self.leftovers {
            for (requests, input, output, ranks, tpot, ttft) in &server.points {
                let at = [requests, input, output, ranks].map(|value| value.ln());
                if at.iter().chain(tpot).chain(ttft).any(|value| !value.is_finite()) {
                    return Err(Failure::new("failed to read the calibration").caused_by(format!(
                        "a point of `{}` on {} holds a number that is out of range",
                        server.model, server.hardware
                    )));
                }
                let Server { model, hardware, weights, engine, spread, .. } = server.clone();
                let place = Place { model, kinds: [hardware, weights, engine, spread], at };
                leftovers.push(Leftover { place, tpot: *tpot, ttft: *ttft });
            }
        }
        calibration.leftovers = Leftovers::of(leftovers);
        Ok(calibration)
    }

    /// As [`Self::read`]; of `public`, the one for a platform.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn for_platform(name: &str, platform: &str) -> Result<Self, Failure> {
        Self::read(if name == "public" && platform == "rocm" { "public-rocm" } else { name })
    }

    /// Reads a file, or one of the shipped ones: `public` (fitted to public points), `none` (the defaults).
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn read(name: &str) -> Result<Self, Failure> {
        let text = match name {
            "public" => include_str!("public.yaml").to_owned(),
            "public-rocm" => include_str!("public-rocm.yaml").to_owned(),
            "none" => include_str!("none.yaml").to_owned(),
            path => input_file::text(Path::new(path), LIMIT).map_err(|error| {
                Failure::new(format!("failed to read the calibration `{path}`"))
                    .caused_by(error)
                    .hint("give a file of `k3plan calibrate -o`, or `public`, or `none`")
            })?,
        };
        let file: Self = serde_saphyr::from_str(&text).map_err(|error| {
            Failure::new(format!("failed to read the calibration `{name}`"))
                .caused_by(error)
                .hint("`k3plan calibrate -o FILE` writes such files")
        })?;
        if file.schema != SCHEMA {
            return Err(Failure::new(format!("failed to read the calibration `{name}`"))
                .caused_by(format!("its schema is `{}`, not `{SCHEMA}`", file.schema)));
        }
        file.calibration()?;
        Ok(file)
    }

    /// The file's text.
    pub(crate) fn yaml(&self) -> String {
        let mut out = format!(
            "# Factors as multiples of their defaults, with 90% intervals; errors as logarithms.\nschema: {SCHEMA}\n"
        );
        let list = |out: &mut String, key: &str, names: &[String]| {
            let _ = writeln!(out, "{key}: {}", serde_json::to_string(names).unwrap_or_default());
        };
        list(&mut out, "measured", &self.measured);
        list(&mut out, "hardware", &self.hardware);
        out.push_str(if self.factors.is_empty() { "factors: {}\n" } else { "factors:\n" });
        for (name, Times { times, low, high }) in &self.factors {
            let _ = writeln!(out, "  {name}: {{times: {times:.5}, low: {low:.5}, high: {high:.5}}}");
        }
        let Errors { left_out, points, tpot, ttft } = &self.errors;
        let _ = writeln!(out, "errors:\n  left_out: {left_out}\n  points: {points}");
        for (key, off) in [("tpot", tpot), ("ttft", ttft)] {
            match off {
                Some(Off { median, p90 }) => {
                    let _ = writeln!(out, "  {key}: {{median: {median:.5}, p90: {p90:.5}}}");
                }
                None => {
                    let _ = writeln!(out, "  {key}: null");
                }
            }
        }
        if !self.leftovers.is_empty() {
            out.push_str("# Where the factors alone are off: requests, prompt and output tokens, ranks; then logarithms of measured over\n# computed, time between tokens and to the first token.\nleftovers:\n");
        }
        for Server { model, hardware, weights, engine, spread, points } in &self.leftovers {
            let texts = [
                ("model", model),
                ("hardware", hardware),
                ("weights", weights),
                ("engine", engine),
                ("spread", spread),
            ];
            for (index, (key, text)) in texts.into_iter().enumerate() {
                let dash = if index == 0 { "- " } else { "  " };
                let _ = writeln!(out, "{dash}{key}: {}", Value::from(text.as_str()));
            }
            out.push_str("  points:\n");
            for (requests, input, output, ranks, tpot, ttft) in points {
                let off =
                    |off: &Option<f64>| off.map_or_else(|| "null".to_owned(), |off| format!("{off:.4}"));
                let _ = writeln!(
                    out,
                    "  - [{requests}, {input}, {output}, {ranks}, {}, {}]",
                    off(tpot),
                    off(ttft)
                );
            }
        }
        out
    }
}

/// Points that share everything but loads and ranks, together.
fn servers(leftovers: &Leftovers) -> Vec<Server> {
    let mut all: Vec<Server> = Vec::new();
    for Leftover { place, tpot, ttft } in leftovers.points() {
        let Place { model, kinds, at } = place;
        // Lengths are means over requests: a tenth of a token is enough.
        let [requests, input, output, ranks] = at.map(|value| (value.exp() * 10.0).round() / 10.0);
        let point = (requests, input, output, ranks, *tpot, *ttft);
        let alike = |server: &&mut Server| {
            server.model == *model
                && [&server.hardware, &server.weights, &server.engine, &server.spread]
                    .into_iter()
                    .eq(kinds.iter())
        };
        match all.last_mut().filter(alike) {
            Some(server) => server.points.push(point),
            None => {
                let [hardware, weights, engine, spread] = kinds.clone();
                all.push(Server {
                    model: model.clone(),
                    hardware,
                    weights,
                    engine,
                    spread,
                    points: vec![point],
                });
            }
        }
    }
    all
}

impl Errors {
    /// Of points that were not seen.
    pub(crate) fn of(misses: &[Miss], left_out: &str) -> Self {
        let off = |of: fn(&Miss) -> Option<f64>| {
            let all = || misses.iter().filter_map(of);
            Some(Off { median: quantile(all(), 0.5)?, p90: quantile(all(), 0.9)? })
        };
        Self {
            left_out: left_out.to_owned(),
            points: misses.len() as u64,
            tpot: off(|miss| miss.tpot),
            ttft: off(|miss| miss.ttft),
        }
    }
}
