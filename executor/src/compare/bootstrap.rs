//! Which effects are compatible with the runs?
//!
//! A parametric bootstrap over runs. Three runs can be resampled with replacement into ten distinct sets only,
//! none of which reaches beyond the runs themselves; so each draw takes a noise from what the runs and the
//! prior leave open (a scaled inverse chi-square) and then an effect with that noise. Draws come in pairs of
//! opposite sign, which keeps the interval centred on the effect.

use super::difference::Difference;
use super::random::Random;

/// An interval on the scale of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

const DRAWS: usize = 10_000;

/// The central interval of the effect that misses the truth with probability `level`.
pub fn interval(difference: &Difference, level: f64, seed: u64) -> Interval {
    let mut random = Random::new(seed);
    let mut sizes: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let scale = (difference.df / random.chi_square(difference.df)).sqrt();
            (random.normal() * scale * difference.standard_error).abs()
        })
        .collect();
    sizes.sort_by(f64::total_cmp);
    let half = quantile(&sizes, 1.0 - level);
    Interval { low: difference.effect - half, high: difference.effect + half }
}

/// The `share` quantile of sorted values, between neighbours by their distance.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = floor_index(place).min(last);
    let above = (below + 1).min(last);
    let (low, high) = (sorted.get(below), sorted.get(above));
    match (low, high) {
        (Some(low), Some(high)) => low + (high - low) * (place - below as f64),
        _ => f64::NAN,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a slice: not negative, far below 2^52"
)]
fn floor_index(place: f64) -> usize {
    place.floor() as usize
}
