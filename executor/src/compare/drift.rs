//! Could a machine that slowly changes speed explain the difference?
//!
//! Arms measured one after the other differ by a drift as well as by the change under test. The slope within
//! the arms says how strong the drift is; extended over the distance between the arms it says what is left of
//! the difference. What is left must be clear of zero by itself, else nothing is claimed. The check can only
//! withdraw a claim, never make one.

use super::difference::Observation;
use super::distribution::{t_quantile, t_two_sided};
use super::noise_floor::Noise;

/// A slope within both arms, and what it would do between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Change a run, on the scale of the test.
    pub slope_per_run: f64,
    /// The probability of such a slope without any drift.
    pub p_value: f64,
    /// The distance between the middles of the arms, in runs; positive where B came later.
    pub runs_apart: f64,
    /// Whether the order of measuring is known for all runs. Otherwise A is taken to come first.
    pub order_known: bool,
    /// The part of the difference that the drift would leave (1: all of it).
    pub share_left: f64,
    /// Whether what is left could be chance, so that a drift is as good an explanation as the change.
    pub explains: bool,
    /// The same at the level that bounds false alarms whatever the drift and however few the runs.
    pub could_explain: bool,
}

/// How likely what is left may be by chance, in its own direction, with few runs and with many.
///
/// Three runs an arm, back to back, know their slope badly: with the noise of vLLM PR 59733 no test can find a
/// true 3% in 90 of 100 tries and take a drift for it in fewer than 12 of 100 (docs/compare.md). There the level
/// is as strict as that power allows; from four an arm on it bounds false alarms whatever the drift. Who needs the
/// bound with three runs too asks for it ([`super::verdict::Rules::rule_out_drift`]) and finds less.
const LEVEL_FEW: f64 = 0.25;
const LEVEL_MANY: f64 = 0.045;
const MANY_RUNS: usize = 8;

/// Arms whose middles lie no farther apart than this, in runs, took turns: a slope known as badly says enough about
/// so short a distance, and the strict level costs no power.
const INTERLEAVED: f64 = 1.0;

/// What a drift must leave of the difference besides, where the level is that lax: keeps drifts out that are far
/// stronger than the noise.
const SHARE_FEW: f64 = 0.25;

/// Seeds that differ much make slopes by chance: among pairs in unknown order only a slope less likely than this
/// is looked at.
const SLOPE_LEVEL_PAIRED: f64 = 0.1;

/// Fits one slope to both arms; `None` where too few runs have a place in the order.
///
/// `within_variance` is the sampling variance of a run's figure within the run. `either_sign` is for the paired
/// test, which sees a drift between the two runs of a pair whichever came first.
pub fn fit(
    a: &[Observation],
    b: &[Observation],
    effect: f64,
    within_variance: f64,
    either_sign: bool,
) -> Option<Drift> {
    let all_known = a.iter().chain(b).all(|run| run.order.is_some());
    let places = |arm: &[Observation]| -> Option<Vec<f64>> {
        arm.iter()
            .enumerate()
            .map(|(index, run)| if all_known { run.order } else { run.in_order.then(|| f64_from(index)) })
            .collect()
    };
    let (places_a, places_b) = (places(a)?, places(b)?);
    let slope_a = sums(&places_a, a);
    let slope_b = sums(&places_b, b);
    let spread = slope_a.spread + slope_b.spread;
    let (count_a, count_b) = (f64_from(a.len()), f64_from(b.len()));
    let df = count_a + count_b - 3.0;
    if spread <= 0.0 || df < 1.0 || effect == 0.0 {
        return None;
    }
    let slope = (slope_a.product + slope_b.product) / spread;
    let rest = (slope_a.squares + slope_b.squares - slope * slope * spread).max(0.0);
    let p_value = t_two_sided(slope / (rest / df / spread).sqrt(), df);
    let runs_apart = if all_known { slope_b.middle - slope_a.middle } else { (count_a + count_b) / 2.0 };
    let unsure_of_sign = either_sign && !all_known;
    let mut explained = slope * runs_apart / effect;
    if unsure_of_sign {
        explained = explained.abs();
    }
    let share_left = 1.0 - explained;
    let noise = Noise::moderated(rest, df, within_variance);
    let error = noise.sd * (1.0 / count_a + 1.0 / count_b + runs_apart * runs_apart / spread).sqrt();
    let left = share_left * effect.abs();
    let looked_at = !unsure_of_sign || p_value < SLOPE_LEVEL_PAIRED;
    let explains_at = |level: f64, share: f64| {
        let clear = left > t_quantile(2.0 * level, noise.df) * error && share_left >= share;
        looked_at && !clear
    };
    let could_explain = explains_at(LEVEL_MANY, 0.0);
    let few = a.len() + b.len() < MANY_RUNS && runs_apart.abs() > INTERLEAVED;
    let explains = if few { explains_at(LEVEL_FEW, SHARE_FEW) } else { could_explain };
    Some(Drift {
        slope_per_run: slope,
        p_value,
        runs_apart,
        order_known: all_known,
        share_left,
        explains,
        could_explain,
    })
}

struct Sums {
    middle: f64,
    spread: f64,
    product: f64,
    squares: f64,
}

fn sums(places: &[f64], arm: &[Observation]) -> Sums {
    let count = f64_from(arm.len());
    let middle = places.iter().sum::<f64>() / count;
    let mean = arm.iter().map(|run| run.value).sum::<f64>() / count;
    let mut sums = Sums { middle, spread: 0.0, product: 0.0, squares: 0.0 };
    for (place, run) in places.iter().zip(arm) {
        sums.spread += (place - middle).powi(2);
        sums.product += (place - middle) * (run.value - mean);
        sums.squares += (run.value - mean).powi(2);
    }
    sums
}

/// A count as a number; counts of runs are far below 2^52.
pub(crate) fn f64_from(count: usize) -> f64 {
    count as f64
}
