//! The comparison as Markdown for a pull request.

use std::fmt::Write as _;

use executor::compare::verdict::{MetricComparison, Rules};
use executor::compare::{Comparison, Point};

use super::words;

pub(super) fn document(comparison: &Comparison, rules: &Rules) -> String {
    let mut text = format!("### Verdict: {}\n\n", comparison.verdict.words());
    for point in &comparison.points {
        table(&mut text, point, rules);
    }
    for result in comparison.points.iter().flat_map(|point| &point.primary) {
        if let Some(reason) = words::reason(result, rules) {
            add(&mut text, format_args!("- `{}`: {reason}\n", result.metric));
        }
        if let Some(caveat) = words::caveat(result) {
            add(&mut text, format_args!("- `{}`: {caveat}\n", result.metric));
        }
        if let (Some(floor), Some(smallest)) = (result.noise_floor, result.smallest_effect) {
            add(
                &mut text,
                format_args!(
                    "- `{}`: noise floor (A/A) {}, smallest effect found in 9 of 10 tries {}\n",
                    result.metric,
                    words::size(floor),
                    words::size(smallest)
                ),
            );
        }
    }
    for warning in &comparison.warnings {
        add(&mut text, format_args!("- warning: {}\n", escape(warning)));
    }
    text
}

fn table(text: &mut String, point: &Point, rules: &Rules) {
    if !point.name.is_empty() {
        add(text, format_args!("**{}**\n\n", escape(&point.name)));
    }
    add(
        text,
        format_args!(
            "| figure | A | B | effect | {}% interval | p | runs | verdict |\n\
             |---|---:|---:|---:|---:|---:|---:|---|\n",
            words::confidence(rules)
        ),
    );
    for result in &point.primary {
        row(text, result, true);
    }
    for result in &point.secondary {
        row(text, result, false);
    }
    text.push('\n');
}

fn row(text: &mut String, result: &MetricComparison, deciding: bool) {
    let interval = result.interval.map_or_else(String::new, |interval| {
        format!("{} to {}", words::percent(interval.low), words::percent(interval.high))
    });
    let p_value = result.p_adjusted.map_or_else(String::new, |p_value| format!("{p_value:.4}"));
    let name = escape(&result.metric.name);
    let (name, verdict) = if deciding {
        (format!("**{name}**"), format!("**{}**", words::verdict(result)))
    } else {
        (name, words::verdict(result))
    };
    add(
        text,
        format_args!(
            "| {name} | {} | {} | {} | {interval} | {p_value} | {}+{} | {verdict} |\n",
            words::figure(result.middle_a),
            words::figure(result.middle_b),
            words::percent(result.effect),
            result.a.len(),
            result.b.len()
        ),
    );
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}

fn add(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(arguments);
}
