//! The comparison as a person reads it on a terminal.

use std::io;

use executor::compare::Comparison;
use executor::compare::verdict::{MetricComparison, Rules, Verdict, pairing_words};

use super::words;
use crate::terminal::{Style, Terminal};

/// Writes warnings to the second stream and the comparison to the first.
pub(super) fn write(comparison: &Comparison, rules: &Rules, terminal: &mut Terminal<'_>) -> io::Result<()> {
    for warning in &comparison.warnings {
        let label = terminal.paint(Style::Warn, "warning:");
        writeln!(terminal.err, "{label} {warning}")?;
    }
    for (index, point) in comparison.points.iter().enumerate() {
        if index > 0 {
            writeln!(terminal.out)?;
        }
        if !point.name.is_empty() {
            let name = terminal.paint(Style::Bold, &point.name);
            writeln!(terminal.out, "{name}")?;
        }
        for result in &point.primary {
            write_deciding(result, rules, terminal)?;
        }
        write_others(&point.secondary, terminal)?;
    }
    Ok(())
}

fn write_deciding(result: &MetricComparison, rules: &Rules, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let style = match result.verdict {
        Verdict::Better => Style::Good,
        Verdict::Worse => Style::Bad,
        Verdict::NoDifference => Style::Bold,
        Verdict::NotEnoughData => Style::Warn,
    };
    let verdict = terminal.paint(style, &words::verdict(result));
    writeln!(terminal.out, "{}: {verdict}", result.metric)?;
    let runs =
        |values: &[f64]| values.iter().map(|value| words::figure(*value)).collect::<Vec<_>>().join(" ");
    let unit = result.metric.unit;
    let lines = [("A", result.middle_a, &result.a), ("B", result.middle_b, &result.b)];
    for (arm, middle, values) in lines {
        writeln!(terminal.out, "  {arm}  {} {unit}  runs {}", words::figure(middle), runs(values))?;
    }
    writeln!(terminal.out, "  effect           {}", words::effect(result, rules))?;
    if let (Some(test), Some(p_value)) = (&result.difference, result.p_adjusted) {
        writeln!(
            terminal.out,
            "  test             p = {p_value:.4}, level {}, {}",
            rules.level,
            pairing_words(test.pairing)
        )?;
    }
    if let (Some(floor), Some(smallest)) = (result.noise_floor, result.smallest_effect) {
        writeln!(terminal.out, "  noise floor      {} (A/A)", words::size(floor))?;
        writeln!(
            terminal.out,
            "  smallest effect  {} would be found in 9 of 10 tries",
            words::size(smallest)
        )?;
    }
    if let Some(reason) = words::reason(result, rules) {
        writeln!(terminal.out, "  why              {reason}")?;
    }
    if let Some(caveat) = words::caveat(result) {
        writeln!(terminal.out, "  unless           {caveat}")?;
    }
    Ok(())
}

fn write_others(others: &[MetricComparison], terminal: &mut Terminal<'_>) -> io::Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    writeln!(terminal.out, "other figures, p adjusted for their number")?;
    let width = others.iter().map(|result| result.metric.name.len()).max().unwrap_or(0);
    for result in others {
        writeln!(
            terminal.out,
            "  {:width$}  {:>10}  {:>10}  {:>7}  {}",
            result.metric.name,
            words::figure(result.middle_a),
            words::figure(result.middle_b),
            words::percent(result.effect),
            result.verdict.words()
        )?;
    }
    Ok(())
}
