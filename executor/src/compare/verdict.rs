//! Better, worse, no difference, or not enough data: what do the runs allow to say of one metric?

use super::bootstrap::{self, Interval};
use super::difference::{Difference, Observation, Pairing, PairingChoice, difference, share_difference};
use super::drift::{Drift, f64_from};
use super::metric::{Direction, Metric, Scale};
use super::noise_floor::{self, PRIOR_DF, PRIOR_SD};

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// B is better than A.
    Better,
    /// B is worse than A.
    Worse,
    /// A change as large as the margin is ruled out.
    NoDifference,
    /// The runs do not allow an answer.
    NotEnoughData,
}

impl Verdict {
    /// As a person reads it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference",
            Self::NotEnoughData => "not enough data",
        }
    }
}

/// Why a verdict is not a plain yes or no.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// An arm has one run, so that nothing tells noise from effect.
    OneRun,
    /// No standard error is known for an accuracy.
    NoStandardError,
    /// The interval reaches beyond the margin (a share of A).
    TooNoisy {
        /// The largest change, in either direction, that the runs leave open (a share of A).
        open: f64,
    },
    /// A drift explains the difference as well as the change does.
    Drift,
}

/// What to run to get an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advice {
    /// Runs an arm, those that exist included. `None`: more than 200, so that quieter runs are needed instead.
    pub runs_an_arm: Option<u32>,
    /// The effect that so many runs would find in nine of ten tries (a share of A).
    pub to_see: f64,
    /// Whether the order of the arms has to be interleaved for an answer.
    pub interleave: bool,
}

/// How sure a claim has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The probability of a false alarm that the test allows.
    pub level: f64,
    /// A change smaller than this does not matter (a share of A).
    pub margin: f64,
    /// Whether pairs may be used.
    pub pairing: PairingChoice,
    /// Whether nothing is claimed that a drift could explain, with few runs back to back too.
    pub rule_out_drift: bool,
    /// Of the bootstrap.
    pub seed: u64,
}

impl Rules {
    /// The rules that `docs/compare.md` gives reasons for: level 0.04, margin 5%, pairs by seed where they help.
    pub const STANDARD: Self =
        Self { level: 0.04, margin: 0.05, pairing: PairingChoice::Auto, rule_out_drift: false, seed: 0 };
}

/// One metric of both arms, compared.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricComparison {
    /// Which.
    pub metric: Metric,
    /// The runs' figures in the metric's unit.
    pub a: Vec<f64>,
    /// The runs' figures in the metric's unit.
    pub b: Vec<f64>,
    /// The middle of A: the geometric mean of the runs' figures (for a share, the mean).
    pub middle_a: f64,
    /// The middle of B.
    pub middle_b: f64,
    /// B less A as a share of A.
    pub effect: f64,
    /// The bootstrap interval of `effect`, at one less the level. `None` with one run an arm.
    pub interval: Option<Interval>,
    /// The test. `None` with one run an arm.
    pub difference: Option<Difference>,
    /// The p value after care for the number of metrics asked at once.
    pub p_adjusted: Option<f64>,
    /// What two identical arms stay within, as a share of A, at one less the level.
    pub noise_floor: Option<f64>,
    /// The smallest effect that these runs find in nine of ten tries, as a share of A.
    pub smallest_effect: Option<f64>,
    /// The answer.
    pub verdict: Verdict,
    /// Why there is no plain answer.
    pub reason: Option<Reason>,
    /// What to run, where there is no plain answer.
    pub advice: Option<Advice>,
}

/// Compares one metric, before any care for the number of metrics.
pub fn judge(metric: &Metric, a: &[Observation], b: &[Observation], rules: &Rules) -> MetricComparison {
    let back = |value: f64| match metric.scale {
        Scale::Logarithm => value.exp(),
        Scale::Share => value,
    };
    let figures = |arm: &[Observation]| arm.iter().map(|run| back(run.value)).collect::<Vec<f64>>();
    let middle =
        |arm: &[Observation]| back(arm.iter().map(|run| run.value).sum::<f64>() / f64_from(arm.len().max(1)));
    let (middle_a, middle_b) = (middle(a), middle(b));
    let test = match metric.scale {
        Scale::Logarithm => difference(a, b, rules.pairing),
        Scale::Share => share_difference(a, b),
    };
    // An effect on the scale of the test as a share of A.
    let share = |effect: f64| match metric.scale {
        Scale::Logarithm => effect.exp_m1(),
        Scale::Share if middle_a > 0.0 => effect / middle_a,
        Scale::Share => effect,
    };
    let effect = match (&test, metric.scale) {
        (Some(test), _) => share(test.effect),
        (None, Scale::Logarithm) => middle_b / middle_a - 1.0,
        (None, Scale::Share) => share(middle_b - middle_a),
    };
    let mut result = MetricComparison {
        metric: metric.clone(),
        a: figures(a),
        b: figures(b),
        middle_a,
        middle_b,
        effect,
        interval: None,
        difference: test,
        p_adjusted: test.map(|test| test.p_value),
        noise_floor: None,
        smallest_effect: None,
        verdict: Verdict::NotEnoughData,
        reason: None,
        advice: None,
    };
    if let Some(test) = test {
        let scaled = bootstrap::interval(&test, rules.level, rules.seed);
        result.interval = Some(Interval { low: share(scaled.low), high: share(scaled.high) });
        let floor = noise_floor::floor(test.standard_error, test.df, rules.level);
        let smallest = noise_floor::smallest_effect(test.standard_error, test.df, rules.level);
        result.noise_floor = Some(share(floor));
        result.smallest_effect = Some(share(smallest));
    }
    settle(&mut result, rules);
    result
}

/// Draws the verdict from the adjusted p value.
pub fn settle(result: &mut MetricComparison, rules: &Rules) {
    result.reason = None;
    result.advice = None;
    let (Some(test), Some(interval), Some(p_value)) = (result.difference, result.interval, result.p_adjusted)
    else {
        result.verdict = Verdict::NotEnoughData;
        let share = result.metric.scale == Scale::Share;
        result.reason = Some(if share { Reason::NoStandardError } else { Reason::OneRun });
        result.advice = (!share).then(|| advice_without_noise(rules));
        return;
    };
    if p_value <= rules.level {
        if !is_claim(&test, p_value, rules) {
            result.verdict = Verdict::NotEnoughData;
            result.reason = Some(Reason::Drift);
            result.advice = Some(advice(result, &test, result.effect.abs(), rules, true));
            return;
        }
        let up = result.effect > 0.0;
        let good = up == (result.metric.direction == Direction::UpIsBetter);
        result.verdict = if good { Verdict::Better } else { Verdict::Worse };
        return;
    }
    let open = interval.low.abs().max(interval.high.abs());
    if open <= rules.margin {
        result.verdict = Verdict::NoDifference;
        return;
    }
    result.verdict = Verdict::NotEnoughData;
    result.reason = Some(Reason::TooNoisy { open });
    // An effect as small as the margin is worth finding; a larger one that was seen needs less.
    result.advice = Some(advice(result, &test, result.effect.abs().max(rules.margin), rules, false));
}

/// Whether the test claims a difference: the p value is small and no drift explains it as well.
pub fn is_claim(test: &Difference, p_value: f64, rules: &Rules) -> bool {
    let stands_against = |drift: Drift| !(drift.explains || (rules.rule_out_drift && drift.could_explain));
    p_value <= rules.level && test.drift.is_none_or(stands_against)
}

fn advice(
    result: &MetricComparison,
    test: &Difference,
    to_see: f64,
    rules: &Rules,
    interleave: bool,
) -> Advice {
    let have = u32::try_from(result.a.len().min(result.b.len())).unwrap_or(u32::MAX);
    let runs_an_arm = match result.metric.scale {
        Scale::Logarithm => noise_floor::runs_needed(&test.noise, to_see.ln_1p(), rules.level),
        Scale::Share => None,
    };
    // More than there are: the same number again would be the same answer.
    let runs_an_arm = runs_an_arm.map(|runs| runs.max(have.saturating_add(u32::from(!interleave))));
    Advice { runs_an_arm, to_see, interleave }
}

/// With one run nothing is known of the noise but the prior.
fn advice_without_noise(rules: &Rules) -> Advice {
    let noise = noise_floor::Noise { seen_sd: PRIOR_SD, seen_df: 0.0, sd: PRIOR_SD, df: PRIOR_DF };
    let runs = noise_floor::runs_needed(&noise, 0.03, rules.level).map(|runs| runs.max(3));
    Advice { runs_an_arm: runs, to_see: 0.03, interleave: false }
}

/// Holm's step-down adjustment of p values, in place (Holm 1979).
pub fn holm(p_values: &mut [f64]) {
    let count = p_values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&left, &right| {
        let value = |index: usize| p_values.get(index).copied().unwrap_or(1.0);
        value(left).total_cmp(&value(right))
    });
    let mut highest = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        if let Some(p_value) = p_values.get_mut(index) {
            highest = highest.max((*p_value * f64_from(count - rank)).min(1.0));
            *p_value = highest;
        }
    }
}

/// How the runs of a comparison were matched, in words.
pub fn pairing_words(pairing: Pairing) -> String {
    match pairing {
        Pairing::Apart => "two independent samples".to_owned(),
        Pairing::BySeed(pairs) => format!("{pairs} pairs of runs with the same seed"),
    }
}
