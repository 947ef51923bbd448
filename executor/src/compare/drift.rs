//! Could a machine that slowly changes speed explain the difference?
//!
//! Arms measured one after the other differ by a drift as well as by the change under test. The slope within
//! the arms says how strong the drift is; where the drift, extended over the distance between the arms, would
//! leave little of the difference, nothing is claimed. The check can only withdraw a claim, never make one.

use super::difference::Observation;
use super::distribution::t_two_sided;

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
    /// Whether a drift is as good an explanation as the change.
    pub explains: bool,
}

/// A slope less likely than this without a drift is looked at.
const SLOPE_LEVEL: f64 = 0.5;

/// The same for pairs in unknown order: seeds that differ much make slopes by chance, so it has to be surer.
const SLOPE_LEVEL_PAIRED: f64 = 0.1;

/// What a drift must leave of the difference, with few runs and with many.
///
/// Few runs know a slope badly, so a stricter share would throw away real effects: with three an arm and the
/// noise of vLLM PR 59733, a quarter costs about 2 of 100 true findings of 3%, a third about 3.
const SHARE_FEW: f64 = 0.25;
const SHARE_MANY: f64 = 0.5;
const MANY_RUNS: usize = 8;

/// Fits one slope to both arms; `None` where too few runs have a place in the order.
///
/// `either_sign` is for the paired test, which sees a drift between the two runs of a pair whichever came
/// first.
pub fn fit(a: &[Observation], b: &[Observation], effect: f64, either_sign: bool) -> Option<Drift> {
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
    let df = f64_from(a.len() + b.len()) - 3.0;
    if spread <= 0.0 || df < 1.0 || effect == 0.0 {
        return None;
    }
    let slope = (slope_a.product + slope_b.product) / spread;
    let rest = (slope_a.squares + slope_b.squares - slope * slope * spread).max(0.0) / df;
    let p_value = t_two_sided(slope / (rest / spread).sqrt(), df);
    let runs_apart =
        if all_known { slope_b.middle - slope_a.middle } else { f64_from(a.len() + b.len()) / 2.0 };
    let mut explained = slope * runs_apart / effect;
    let mut level = SLOPE_LEVEL;
    if either_sign && !all_known {
        explained = explained.abs();
        level = SLOPE_LEVEL_PAIRED;
    }
    let share_left = 1.0 - explained;
    let wanted = if a.len() + b.len() < MANY_RUNS { SHARE_FEW } else { SHARE_MANY };
    let explains = slope != 0.0 && p_value < level && share_left < wanted;
    Some(Drift { slope_per_run: slope, p_value, runs_apart, order_known: all_known, share_left, explains })
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
