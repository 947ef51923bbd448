//! How noisy is one run, and what is the smallest effect that a number of runs can see?
//!
//! With three runs an arm the spread between runs is itself poorly known: a t test claims a difference when
//! the runs happened to agree. So a spread below what public repeated runs show is pulled towards theirs
//! (the moderated variance of Smyth 2004, used here one way only: a spread above the prior is taken as it is,
//! so that noisy servers gain nothing from quiet ones).

use super::distribution::t_quantile;

/// The standard deviation between identical runs, of the logarithm of a metric, that a spread is pulled up to.
///
/// The upper quartile of the spreads of TPOT in public repeats without speculation: a quarter of those points
/// are noisier than this. `executor/tests/compare_prior.rs` computes it from the tables in
/// `executor/tests/data/compare/`.
pub const PRIOR_SD: f64 = 0.008;

/// How many degrees of freedom the prior is worth: as many as three seeds an arm give.
pub const PRIOR_DF: f64 = 4.0;

/// The probability of finding an effect of the size called the smallest that can be seen.
pub const POWER: f64 = 0.9;

/// The noise of one run, on the scale of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Standard deviation between runs of one arm, as seen.
    pub seen_sd: f64,
    /// Degrees of freedom of `seen_sd`.
    pub seen_df: f64,
    /// The standard deviation that the test uses.
    pub sd: f64,
    /// The degrees of freedom that the test uses.
    pub df: f64,
}

impl Noise {
    /// Moderates a sum of squares over `df` degrees of freedom.
    ///
    /// `within_variance` is the sampling variance of a run's figure within the run (0 where unknown): runs
    /// cannot truly differ less than their own sampling makes them.
    pub fn moderated(sum_of_squares: f64, df: f64, within_variance: f64) -> Self {
        let seen = sum_of_squares / df;
        let variance = seen.max(within_variance);
        let prior = PRIOR_SD * PRIOR_SD;
        let (variance, used_df) = if variance < prior {
            ((PRIOR_DF * prior + df * variance) / (PRIOR_DF + df), PRIOR_DF + df)
        } else {
            (variance, df)
        };
        Self { seen_sd: seen.sqrt(), seen_df: df, sd: variance.sqrt(), df: used_df }
    }
}

/// How far apart two identical arms stay with probability `1 - level`.
pub fn floor(standard_error: f64, df: f64, level: f64) -> f64 {
    t_quantile(level, df) * standard_error
}

/// The smallest effect that is found with probability [`POWER`] at `level`.
pub fn smallest_effect(standard_error: f64, df: f64, level: f64) -> f64 {
    (t_quantile(level, df) + t_quantile(2.0 * (1.0 - POWER), df)) * standard_error
}

/// How many runs an arm see an effect of `target` with probability [`POWER`] at `level`, where one run has the
/// noise `noise`.
///
/// `None` where more than 200 an arm are needed.
pub fn runs_needed(noise: &Noise, target: f64, level: f64) -> Option<u32> {
    let prior_df = noise.df - noise.seen_df;
    (2..=200).find(|&runs| {
        let runs = f64::from(runs);
        let df = 2.0 * runs - 2.0 + prior_df;
        smallest_effect(noise.sd * (2.0 / runs).sqrt(), df, level) <= target
    })
}
