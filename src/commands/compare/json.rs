//! The comparison as JSON, schema `k3plan.compare/1`. Shares of A are given in percent.

use executor::compare::difference::Pairing;
use executor::compare::run::Run;
use executor::compare::verdict::{MetricComparison, Reason, Rules, Verdict};
use executor::compare::{Comparison, metric::Direction};
use serde_json::{Value, json};

pub(super) fn document(comparison: &Comparison, rules: &Rules, a: &[Run], b: &[Run]) -> Value {
    let points: Vec<Value> = comparison
        .points
        .iter()
        .map(|point| {
            json!({
                "load": point.name,
                "primary": point.primary.iter().map(result).collect::<Vec<_>>(),
                "secondary": point.secondary.iter().map(result).collect::<Vec<_>>(),
            })
        })
        .collect();
    let first = comparison.points.first().and_then(|point| point.primary.first());
    json!({
        "schema": "k3plan.compare/1",
        "verdict": verdict(comparison.verdict),
        "metric": first.map(|first| first.metric.name.as_str()),
        "effect_percent": first.map(|first| first.effect * 100.0),
        "level": rules.level,
        "margin_percent": rules.margin * 100.0,
        "points": points,
        "warnings": comparison.warnings,
        "runs": { "a": runs(a), "b": runs(b) },
    })
}

fn runs(arm: &[Run]) -> Vec<Value> {
    arm.iter()
        .map(|run| {
            json!({ "source": run.source, "tool": run.tool.name(), "seed": run.seed, "time": run.time, "load": run.labels })
        })
        .collect()
}

fn result(result: &MetricComparison) -> Value {
    let test = result.difference.as_ref();
    let interval =
        result.interval.map(|interval| json!({ "low": interval.low * 100.0, "high": interval.high * 100.0 }));
    json!({
        "metric": result.metric.name,
        "unit": result.metric.unit,
        "better": match result.metric.direction {
            Direction::UpIsBetter => "up",
            Direction::DownIsBetter => "down",
        },
        "verdict": verdict(result.verdict),
        "reason": result.reason.as_ref().map(reason),
        "a": { "middle": result.middle_a, "runs": result.a },
        "b": { "middle": result.middle_b, "runs": result.b },
        "effect_percent": result.effect * 100.0,
        "interval_percent": interval,
        "p_value": test.map(|test| test.p_value),
        "p_adjusted": result.p_adjusted,
        "pairs": test.and_then(|test| match test.pairing {
            Pairing::Apart => None,
            Pairing::BySeed(pairs) => Some(pairs),
        }),
        "run_noise_percent": test.map(|test| test.noise.seen_sd * 100.0),
        "run_noise_used_percent": test.map(|test| test.noise.sd * 100.0),
        "noise_floor_percent": result.noise_floor.map(|floor| floor * 100.0),
        "smallest_effect_percent": result.smallest_effect.map(|smallest| smallest * 100.0),
        "drift": test.and_then(|test| test.drift).map(|drift| json!({
            "percent_per_run": drift.slope_per_run * 100.0,
            "p_value": drift.p_value,
            "order_known": drift.order_known,
            "explains": drift.explains,
            "could_explain": drift.could_explain,
        })),
        "advice": result.advice.map(|advice| json!({
            "runs_an_arm": advice.runs_an_arm,
            "to_see_percent": advice.to_see * 100.0,
            "interleave": advice.interleave,
        })),
    })
}

fn verdict(verdict: Verdict) -> &'static str {
    verdict.words()
}

fn reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::OneRun => "one run",
        Reason::NoStandardError => "no standard error",
        Reason::TooNoisy { .. } => "too noisy",
        Reason::Drift => "drift",
    }
}
