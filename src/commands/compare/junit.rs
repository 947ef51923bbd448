//! The comparison as a JUnit report: one case a deciding figure.
//!
//! Worse is a failure where `--fail-on` says so (and always without it), not enough data is skipped.

use executor::compare::Comparison;
use executor::compare::verdict::{Rules, Verdict};

use super::{FailOn, result_fails, words};

pub(super) fn report(comparison: &Comparison, rules: &Rules, fail_on: Option<FailOn>) -> String {
    let fail_on = fail_on.unwrap_or(FailOn { percent: 0.0 });
    let (mut cases, mut count, mut failures, mut skipped) = (String::new(), 0, 0, 0);
    for point in &comparison.points {
        for result in &point.primary {
            count += 1;
            let class = if point.name.is_empty() {
                "k3plan.compare".to_owned()
            } else {
                format!("k3plan.compare.{}", point.name)
            };
            let detail = escape(&words::effect(result, rules));
            let message = escape(&words::verdict(result));
            let inner = if result_fails(result, fail_on) {
                failures += 1;
                format!("      <failure message=\"{message}\">{detail}</failure>\n")
            } else if result.verdict == Verdict::NotEnoughData {
                skipped += 1;
                let reason = escape(&words::reason(result, rules).unwrap_or_default());
                format!("      <skipped message=\"{message}: {reason}\"/>\n")
            } else {
                format!("      <system-out>{message}: {detail}</system-out>\n")
            };
            cases.push_str(&format!(
                "    <testcase classname=\"{}\" name=\"{}\">\n{inner}    </testcase>\n",
                escape(&class),
                escape(&result.metric.name)
            ));
        }
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"k3plan compare\" \
         tests=\"{count}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n{cases}  \
         </testsuite>\n</testsuites>\n"
    )
}

/// XML's five, and no control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}
