//! How far are two arms apart, and how likely is that without a difference?
//!
//! Runs are compared by the logarithm of their figure (for a latency, of the run's median), so that the effect
//! is a ratio. The test is Student's t with a pooled, moderated variance ([`Noise`]). Pairs of runs with the
//! same seed are used only where the seed clearly matters: with three pairs the paired test has two degrees
//! of freedom instead of four, which costs more than it gains unless the seeds differ much more than the rest.

use super::distribution::{NORMAL_DF, f_upper, t_two_sided};
use super::drift::{self, Drift, f64_from};
use super::noise_floor::Noise;

/// One run's figure on the scale of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The figure, or its logarithm.
    pub value: f64,
    /// Standard error of `value` within the run; `None` where unknown.
    pub within: Option<f64>,
    /// The seed of the load.
    pub seed: Option<u64>,
    /// The place among all runs of both arms in time.
    pub order: Option<f64>,
    /// Whether the place among the arm's observations follows time.
    pub in_order: bool,
}

impl Observation {
    /// A value of which nothing else is known but its place in its arm.
    pub fn bare(value: f64) -> Self {
        Self { value, within: None, seed: None, order: None, in_order: true }
    }
}

/// Whether runs are compared pair by pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// As two independent samples.
    Apart,
    /// By seed, this many pairs.
    BySeed(usize),
}

/// Whether pairing may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairingChoice {
    /// By seed where seeds are known and matter.
    Auto,
    /// Never.
    Off,
}

/// The difference B less A of one metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// B less A on the scale of the test.
    pub effect: f64,
    /// Of `effect`.
    pub standard_error: f64,
    /// Degrees of freedom of `standard_error`.
    pub df: f64,
    /// The probability of such an effect, or a larger one, without a difference.
    pub p_value: f64,
    /// The noise of one run.
    pub noise: Noise,
    /// How runs were matched.
    pub pairing: Pairing,
    /// The slope within the arms, where it can be told.
    pub drift: Option<Drift>,
}

/// A seed counts as mattering when the seeds' spread has less than this probability of being chance.
const SEED_LEVEL: f64 = 0.02;

/// Fewer pairs than this are not used as pairs.
const PAIRS_AT_LEAST: usize = 3;

/// Compares two arms; `None` where an arm has fewer than two runs, so that its noise is unknown.
pub fn difference(a: &[Observation], b: &[Observation], pairing: PairingChoice) -> Option<Difference> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let within = within_variance(a, b);
    let mut result = match pairing {
        PairingChoice::Auto => by_seed(a, b, within).unwrap_or_else(|| apart(a, b, within)),
        PairingChoice::Off => apart(a, b, within),
    };
    let either_sign = matches!(result.pairing, Pairing::BySeed(_));
    result.drift = drift::fit(a, b, result.effect, within, either_sign);
    Some(result)
}

/// Compares two shares (accuracies) by their standard errors; `None` where an arm has none.
///
/// Runs of one arm ask the same questions, so further runs do not shrink the error that comes from the choice
/// of questions: an arm's standard error is the root mean square of its runs' errors, or the error of the mean
/// over the runs where that is larger.
pub fn share_difference(a: &[Observation], b: &[Observation]) -> Option<Difference> {
    let error_a = share_error(a)?;
    let error_b = share_error(b)?;
    let effect = mean(b) - mean(a);
    let standard_error = error_a.hypot(error_b);
    let p_value = if effect == 0.0 { 1.0 } else { t_two_sided(effect / standard_error, NORMAL_DF) };
    let sd = standard_error / std::f64::consts::SQRT_2;
    let noise = Noise { seen_sd: sd, seen_df: NORMAL_DF, sd, df: NORMAL_DF };
    Some(Difference {
        effect,
        standard_error,
        df: NORMAL_DF,
        p_value,
        noise,
        pairing: Pairing::Apart,
        drift: None,
    })
}

fn share_error(arm: &[Observation]) -> Option<f64> {
    if arm.is_empty() {
        return None;
    }
    let mut questions = 0.0;
    for run in arm {
        questions += run.within?.powi(2);
    }
    let count = f64_from(arm.len());
    let between = if arm.len() > 1 { squares(arm) / (count - 1.0) / count } else { 0.0 };
    let error = (questions / count).max(between).sqrt();
    (error > 0.0).then_some(error)
}

fn apart(a: &[Observation], b: &[Observation], within: f64) -> Difference {
    let (count_a, count_b) = (f64_from(a.len()), f64_from(b.len()));
    let noise = Noise::moderated(squares(a) + squares(b), count_a + count_b - 2.0, within);
    let effect = mean(b) - mean(a);
    let standard_error = noise.sd * (1.0 / count_a + 1.0 / count_b).sqrt();
    finish(effect, standard_error, noise, Pairing::Apart)
}

/// The paired comparison, where it is worth it.
fn by_seed(a: &[Observation], b: &[Observation], within: f64) -> Option<Difference> {
    let pairs = pairs(a, b)?;
    let count = f64_from(pairs.len());
    let df = count - 1.0;
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    let middles: Vec<f64> = pairs.iter().map(|(a, b)| f64::midpoint(*a, *b)).collect();
    // Mean squares of the seeds and of the rest in the two-way layout without interaction.
    let seeds = 2.0 * spread(&middles) / df;
    let rest = spread(&differences) / 2.0 / df;
    if seeds <= 0.0 || f_upper(seeds / rest, df, df) >= SEED_LEVEL {
        return None;
    }
    let noise = Noise::moderated(rest * df, df, within);
    let effect = differences.iter().sum::<f64>() / count;
    Some(finish(effect, noise.sd * (2.0 / count).sqrt(), noise, Pairing::BySeed(pairs.len())))
}

/// The values of both arms by seed; `None` where seeds are unknown, repeated, or too few match.
fn pairs(a: &[Observation], b: &[Observation]) -> Option<Vec<(f64, f64)>> {
    let mut matched = Vec::new();
    for (index, run) in a.iter().enumerate() {
        let seed = run.seed?;
        if a.iter().skip(index + 1).any(|other| other.seed == Some(seed)) {
            return None;
        }
        let mut partners = b.iter().filter(|other| other.seed == Some(seed));
        if let Some(partner) = partners.next() {
            matched.push((run.value, partner.value));
        }
        if partners.next().is_some() {
            return None;
        }
    }
    (matched.len() >= PAIRS_AT_LEAST && b.iter().all(|run| run.seed.is_some())).then_some(matched)
}

fn finish(effect: f64, standard_error: f64, noise: Noise, pairing: Pairing) -> Difference {
    let p_value = t_two_sided(effect / standard_error, noise.df);
    Difference { effect, standard_error, df: noise.df, p_value, noise, pairing, drift: None }
}

fn within_variance(a: &[Observation], b: &[Observation]) -> f64 {
    let known: Vec<f64> = a.iter().chain(b).filter_map(|run| run.within).collect();
    if known.is_empty() { 0.0 } else { known.iter().map(|se| se * se).sum::<f64>() / f64_from(known.len()) }
}

fn mean(arm: &[Observation]) -> f64 {
    arm.iter().map(|run| run.value).sum::<f64>() / f64_from(arm.len())
}

fn squares(arm: &[Observation]) -> f64 {
    let values: Vec<f64> = arm.iter().map(|run| run.value).collect();
    spread(&values)
}

/// The sum of squared distances from the mean.
fn spread(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / f64_from(values.len());
    values.iter().map(|value| (value - mean).powi(2)).sum()
}
