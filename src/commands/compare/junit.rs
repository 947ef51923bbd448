//! The comparison as a JUnit report: one case a deciding figure.
//!
//! Worse is a failure where `--fail-on` says so (and always without it), not enough data is skipped.

use executor::compare::Comparison;
use executor::compare::verdict::{Rules, Verdict};

use super::{FailOn, result_fails, words};
use crate::render::junit::{Case, Outcome, suite};

pub(super) fn report(comparison: &Comparison, rules: &Rules, fail_on: Option<FailOn>) -> String {
    let fail_on = fail_on.unwrap_or(FailOn { percent: 0.0 });
    let mut cases = Vec::new();
    for point in &comparison.points {
        for result in &point.primary {
            let message = words::verdict(result);
            let outcome = if result_fails(result, fail_on) {
                Outcome::Failed(message, words::effect(result, rules))
            } else if result.verdict == Verdict::NotEnoughData {
                let reason = words::reason(result, rules).unwrap_or_default();
                Outcome::Skipped(format!("{message}: {reason}"))
            } else {
                Outcome::Noted(format!("{message}: {}", words::effect(result, rules)))
            };
            let class = if point.name.is_empty() {
                "k3plan.compare".to_owned()
            } else {
                format!("k3plan.compare.{}", point.name)
            };
            cases.push(Case { class, name: result.metric.name.clone(), outcome });
        }
    }
    suite("k3plan compare", &cases)
}
