//! Whether one set of measured runs differs from another, and by how much.
//!
//! [`read`] turns result files into [`run::Run`]s, [`compare`] judges every figure that both arms have. The
//! method and its calibration are described in `docs/compare.md`. Nothing here knows whether the two arms
//! were run fairly: same load, same machine, servers warm.

pub mod bootstrap;
pub mod difference;
pub mod distribution;
pub mod drift;
pub mod metric;
pub mod noise_floor;
pub mod pool;
pub mod random;
pub mod read;
pub mod run;
pub mod same;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use difference::Observation;
use metric::{Metric, PRIMARY_ORDER, Scale};
use run::Run;
use verdict::{MetricComparison, Rules, Verdict, holm, judge, settle};

/// Why two arms cannot be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// An arm has no runs.
    #[error("arm {arm} has no runs")]
    NoRuns {
        /// `A` or `B`.
        arm: &'static str,
    },
    /// No figure is in both arms.
    #[error("the arms have no figure in common: A has {a}; B has {b}")]
    NothingInCommon {
        /// A's figures, comma-separated.
        a: String,
        /// B's figures, comma-separated.
        b: String,
    },
    /// The figure asked for is not in both arms.
    #[error("`{asked}` is not in both arms")]
    UnknownMetric {
        /// As asked.
        asked: String,
        /// The figures in both arms.
        available: Vec<String>,
    },
}

/// What to compare and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The figures that decide; empty: the first of [`PRIMARY_ORDER`] that all runs have, or an accuracy.
    pub metrics: Vec<String>,
    /// How sure to be.
    pub rules: Rules,
}

/// The runs of both arms under one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The load, as `concurrency=8`; empty where all runs have one.
    pub name: String,
    /// The figures that decide, in the order asked.
    pub primary: Vec<MetricComparison>,
    /// The other figures that both arms have, by name.
    pub secondary: Vec<MetricComparison>,
}

/// Two arms, compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// One an asked load, in the order of their names.
    pub points: Vec<Point>,
    /// What a reader should know first.
    pub warnings: Vec<String>,
    /// Worse if any deciding figure is worse, else not enough data if any lacks it, else better if any is
    /// better, else no difference.
    pub verdict: Verdict,
}

/// Compares arm B with arm A.
///
/// # Errors
/// Where an arm is empty, or no figure is in both arms, or one asked for is not.
pub fn compare(a: &[Run], b: &[Run], options: &Options) -> Result<Comparison, CompareError> {
    for (arm, runs) in [("A", a), ("B", b)] {
        if runs.is_empty() {
            return Err(CompareError::NoRuns { arm });
        }
    }
    let mut warnings = Vec::new();
    let mut points = Vec::new();
    for (name, a, b) in split_by_load(a, b, &mut warnings) {
        let (a, b) = pool::starts(&a, &b, &mut warnings);
        let (a, b): (Vec<&Run>, Vec<&Run>) =
            (a.iter().map(AsRef::as_ref).collect(), b.iter().map(AsRef::as_ref).collect());
        points.push(judge_point(name, &a, &b, options, &mut warnings)?);
    }
    care_for_many(&mut points, &options.rules);
    let verdict = overall(&points);
    warnings.dedup();
    Ok(Comparison { points, warnings, verdict })
}

/// The labels that say which load was asked.
const LOAD_LABELS: [&str; 5] = ["concurrency", "request_rate", "input_tokens", "output_tokens", "bucket"];

type BothArms<'a> = (Vec<&'a Run>, Vec<&'a Run>);

type PointRuns<'a> = (String, Vec<&'a Run>, Vec<&'a Run>);

/// Sorts runs by the load asked; loads in one arm only are left out with a warning.
fn split_by_load<'a>(a: &'a [Run], b: &'a [Run], warnings: &mut Vec<String>) -> Vec<PointRuns<'a>> {
    let all = || a.iter().chain(b);
    let splitting: Vec<&str> = LOAD_LABELS
        .into_iter()
        .filter(|label| {
            all().all(|run| run.labels.contains_key(*label))
                && all().map(|run| run.labels.get(*label)).collect::<BTreeSet<_>>().len() > 1
        })
        .collect();
    let key = |run: &Run| {
        let parts = splitting
            .iter()
            .filter_map(|label| run.labels.get(*label).map(|value| format!("{label}={value}")));
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut by_key: BTreeMap<(String, String), BothArms<'_>> = BTreeMap::new();
    let place = |run: &Run| (numbers_padded(&key(run)), key(run));
    for run in a {
        by_key.entry(place(run)).or_default().0.push(run);
    }
    for run in b {
        by_key.entry(place(run)).or_default().1.push(run);
    }
    let common = by_key.values().any(|(a, b)| !a.is_empty() && !b.is_empty());
    if !common {
        let loads =
            |arm: &[Run]| arm.iter().map(key).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
        warnings.push(format!(
            "the arms were run under different loads: A {}; B {}",
            loads(a).join(" and "),
            loads(b).join(" and ")
        ));
        return vec![(String::new(), a.iter().collect(), b.iter().collect())];
    }
    let mut points = Vec::new();
    for ((_, name), (a, b)) in by_key {
        if a.is_empty() || b.is_empty() {
            let arm = if a.is_empty() { "B" } else { "A" };
            warnings.push(format!("left out: only arm {arm} has runs at {name}"));
        } else {
            points.push((name, a, b));
        }
    }
    points
}

/// The text with its numbers padded, so that 8 sorts before 16.
fn numbers_padded(text: &str) -> String {
    let mut padded = String::with_capacity(text.len() + 16);
    let mut digits = String::new();
    for character in text.chars().chain(std::iter::once(' ')) {
        if character.is_ascii_digit() {
            digits.push(character);
        } else {
            if !digits.is_empty() {
                padded.push_str(&format!("{digits:0>12}"));
                digits.clear();
            }
            padded.push(character);
        }
    }
    padded
}

fn judge_point(
    name: String,
    a: &[&Run],
    b: &[&Run],
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<Point, CompareError> {
    warn_of_runs(a, b, warnings);
    let metrics = |arm: &[&Run]| -> BTreeSet<Metric> {
        arm.iter().flat_map(|run| run.figures.keys().cloned()).collect()
    };
    let (in_a, in_b) = (metrics(a), metrics(b));
    let common: Vec<&Metric> = in_a.intersection(&in_b).collect();
    if common.is_empty() {
        let list = |set: &BTreeSet<Metric>| {
            if set.is_empty() {
                "none".to_owned()
            } else {
                set.iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>().join(", ")
            }
        };
        return Err(CompareError::NothingInCommon { a: list(&in_a), b: list(&in_b) });
    }
    let chosen = choose(&common, a, b, &options.metrics)?;
    let orders = orders(a, b);
    let one = |metric: &Metric| {
        let arm = |runs: &[&Run], offset: usize| observe(runs, metric, orders.as_deref(), offset);
        judge(metric, &arm(a, 0), &arm(b, a.len()), &options.rules)
    };
    for metric in &chosen {
        warn_of_lacking(metric, "A", a, warnings);
        warn_of_lacking(metric, "B", b, warnings);
    }
    let primary = chosen.iter().map(|metric| one(metric)).collect();
    let secondary =
        common.iter().filter(|metric| !chosen.contains(metric)).map(|metric| one(metric)).collect();
    Ok(Point { name, primary, secondary })
}

/// Says which runs lack a deciding figure; rows of a table of figures hold one each by design.
fn warn_of_lacking(metric: &Metric, arm: &str, runs: &[&Run], warnings: &mut Vec<String>) {
    let lacking: Vec<&str> = runs
        .iter()
        .filter(|run| run.in_order && !run.figures.contains_key(metric))
        .map(|run| run.source.as_str())
        .collect();
    if !lacking.is_empty() {
        warnings.push(format!("left out of arm {arm}, without `{metric}`: {}", lacking.join(", ")));
    }
}

/// The figures that decide.
fn choose<'a>(
    common: &[&'a Metric],
    a: &[&Run],
    b: &[&Run],
    asked: &[String],
) -> Result<Vec<&'a Metric>, CompareError> {
    let mut chosen = Vec::new();
    for asked in asked {
        let name = Metric::full_name(asked);
        let found = common
            .iter()
            .copied()
            .find(|metric| metric.name == name || (name == "accuracy" && metric.scale == Scale::Share));
        match found {
            Some(metric) if !chosen.contains(&metric) => chosen.push(metric),
            Some(_) => {}
            None => {
                return Err(CompareError::UnknownMetric {
                    asked: asked.clone(),
                    available: common.iter().map(|metric| metric.name.clone()).collect(),
                });
            }
        }
    }
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let holders = |metric: &Metric| a.iter().chain(b).filter(|run| run.figures.contains_key(metric)).count();
    let ranked = PRIMARY_ORDER
        .iter()
        .filter_map(|name| common.iter().copied().find(|metric| metric.name == *name))
        .chain(common.iter().copied());
    // The first of those that most runs have.
    let mut best: Option<&Metric> = None;
    for metric in ranked {
        if best.is_none_or(|best| holders(metric) > holders(best)) {
            best = Some(metric);
        }
    }
    Ok(best.into_iter().collect())
}

/// The place of each run (A's, then B's) among all in time; `None` where times are unknown or repeated.
///
/// Tools write time in different ways, so the runs of one tool only can be put in order.
fn orders(a: &[&Run], b: &[&Run]) -> Option<Vec<f64>> {
    if a.iter().chain(b).map(|run| run.tool).collect::<BTreeSet<_>>().len() > 1 {
        return None;
    }
    let times: Option<Vec<&str>> = a.iter().chain(b).map(|run| run.time.as_deref()).collect();
    let times = times?;
    let sorted: BTreeSet<&str> = times.iter().copied().collect();
    if sorted.len() != times.len() {
        return None;
    }
    let place = |time: &&str| sorted.range(..*time).count() as f64;
    Some(times.iter().map(place).collect())
}

fn observe(runs: &[&Run], metric: &Metric, orders: Option<&[f64]>, offset: usize) -> Vec<Observation> {
    let mut observations = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let Some(figure) = run.figures.get(metric) else { continue };
        let (value, within) = match metric.scale {
            // The standard error of a logarithm, to first order.
            Scale::Logarithm => (figure.value.ln(), figure.standard_error.map(|error| error / figure.value)),
            Scale::Share => (figure.value, figure.standard_error),
        };
        let order = orders.and_then(|orders| orders.get(offset + index)).copied();
        observations.push(Observation { value, within, seed: run.seed, order, in_order: run.in_order });
    }
    observations
}

/// Care for the number of figures: the deciding ones together, the others together (Holm).
fn care_for_many(points: &mut [Point], rules: &Rules) {
    for deciding in [true, false] {
        let mut results: Vec<&mut MetricComparison> = points
            .iter_mut()
            .flat_map(|point| if deciding { &mut point.primary } else { &mut point.secondary })
            .filter(|result| result.p_adjusted.is_some())
            .collect();
        let mut p_values: Vec<f64> = results.iter().filter_map(|result| result.p_adjusted).collect();
        holm(&mut p_values);
        for (result, p_value) in results.iter_mut().zip(p_values) {
            result.p_adjusted = Some(p_value);
            settle(result, rules);
        }
    }
}

fn overall(points: &[Point]) -> Verdict {
    let verdicts: Vec<Verdict> =
        points.iter().flat_map(|point| &point.primary).map(|result| result.verdict).collect();
    [Verdict::Worse, Verdict::NotEnoughData, Verdict::Better]
        .into_iter()
        .find(|verdict| verdicts.contains(verdict))
        .unwrap_or(Verdict::NoDifference)
}

/// What the files themselves give reason to doubt.
fn warn_of_runs(a: &[&Run], b: &[&Run], warnings: &mut Vec<String>) {
    for run in a.iter().chain(b) {
        if let Some(failed) = run.failed.filter(|failed| *failed > 0) {
            warnings.push(format!("`{}`: {failed} requests failed", run.source));
        }
        warnings.extend(run.remarks.iter().map(|remark| format!("`{}`: {remark}", run.source)));
    }
    let sources = |arm: &[&Run]| arm.iter().map(|run| run.source.clone()).collect::<BTreeSet<_>>();
    for source in sources(a).intersection(&sources(b)) {
        warnings.push(format!("`{source}` is in both arms"));
    }
    for label in ["model", "num_prompts"] {
        let values = |arm: &[&Run]| {
            arm.iter().filter_map(|run| run.labels.get(label).cloned()).collect::<BTreeSet<_>>()
        };
        let (in_a, in_b) = (values(a), values(b));
        if !in_a.is_empty() && !in_b.is_empty() && in_a != in_b {
            let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
            warnings.push(format!("the arms' `{label}` differ: A {}; B {}", list(in_a), list(in_b)));
        }
    }
}
