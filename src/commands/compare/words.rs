//! How is a result said in words?

use executor::compare::metric::Scale;
use executor::compare::verdict::{Advice, MetricComparison, Reason, Rules, Verdict};

/// `+3.4%`, `-0.2%`.
pub(super) fn percent(share: f64) -> String {
    format!("{:+.*}%", digits(share), share * 100.0)
}

/// `3.4%`, without a sign.
pub(super) fn size(share: f64) -> String {
    if !share.is_finite() {
        return "unbounded".to_owned();
    }
    format!("{:.*}%", digits(share), share.abs() * 100.0)
}

/// One digit after the point; two for what would be zero, none for what is large.
fn digits(share: f64) -> usize {
    let percent = share.abs() * 100.0;
    if percent >= 99.5 {
        0
    } else if percent < 0.095 && percent > 0.0 {
        2
    } else {
        1
    }
}

/// A figure with four digits that matter.
pub(super) fn figure(value: f64) -> String {
    /// From here on a power of ten says more than zeros.
    const LARGE: f64 = 1e9;
    if value >= LARGE {
        return format!("{value:.3e}");
    }
    let digits = if value >= 1000.0 {
        0
    } else if value >= 100.0 {
        1
    } else if value >= 10.0 {
        2
    } else if value >= 1.0 {
        3
    } else {
        4
    };
    format!("{value:.digits$}")
}

/// `worse by 3.4%`, `no difference`, `not enough data`.
pub(super) fn verdict(result: &MetricComparison) -> String {
    match result.verdict {
        Verdict::Better | Verdict::Worse => {
            format!("{} by {}", result.verdict.words(), size(result.effect))
        }
        other => other.words().to_owned(),
    }
}

/// `+3.4% (96% interval +1.7% to +5.2%)`.
pub(super) fn effect(result: &MetricComparison, rules: &Rules) -> String {
    let mut text = percent(result.effect);
    if let Some(interval) = result.interval {
        text.push_str(&format!(
            " ({}% interval {} to {})",
            confidence(rules),
            percent(interval.low),
            percent(interval.high)
        ));
    }
    if result.metric.scale == Scale::Share {
        text.push_str(&format!(", {:+.2} points", (result.middle_b - result.middle_a) * 100.0));
    }
    text
}

/// One less the level, in percent.
pub(super) fn confidence(rules: &Rules) -> String {
    let confidence = (1.0 - rules.level) * 100.0;
    format!("{confidence:.0}")
}

/// Why there is no plain answer, and what to run.
pub(super) fn reason(result: &MetricComparison, rules: &Rules) -> Option<String> {
    let why = match result.reason? {
        Reason::OneRun => "an arm has one run, which cannot tell noise from effect".to_owned(),
        Reason::NoStandardError => "an accuracy has no standard error in its file".to_owned(),
        Reason::TooNoisy { open } => format!(
            "these runs leave a change of up to {} open, more than the {} that matters",
            size(open),
            size(rules.margin)
        ),
        Reason::Drift => {
            "the runs within the arms drift the same way, which explains the difference as well \
                          as the change does"
                .to_owned()
        }
    };
    Some(match result.advice {
        Some(advice) => format!("{why}; {}", what_to_run(&advice)),
        None => why,
    })
}

/// What else would explain a claim: few runs back to back leave a drift open.
pub(super) fn caveat(result: &MetricComparison) -> Option<String> {
    let claimed = matches!(result.verdict, Verdict::Better | Verdict::Worse);
    let drift = result.difference?.drift.filter(|drift| claimed && drift.could_explain)?;
    let runs_apart = drift.runs_apart.abs();
    let per_run = if runs_apart > 0.0 { result.effect / runs_apart } else { result.effect };
    let order = if drift.order_known {
        "the arms ran one after the other"
    } else {
        "the order of the runs is not known"
    };
    Some(format!(
        "{order}: a machine that drifts by {} a run would look the same; interleave the arms (A B B A) to rule it out",
        size(per_run)
    ))
}

fn what_to_run(advice: &Advice) -> String {
    let see = size(advice.to_see);
    let order = if advice.interleave { ", in the order A B B A" } else { "" };
    match advice.runs_an_arm {
        Some(runs) => format!("run {runs} seeds an arm{order} to see {see}"),
        None if advice.interleave => "run the arms again in the order A B B A".to_owned(),
        None => format!("more runs of this noise will not show {see}: measure longer or on a quieter host"),
    }
}
