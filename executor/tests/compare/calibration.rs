//! False alarms on equal arms, and how often a true 3% is found.
//!
//! `cargo run --release -p k3plan-executor --example compare_calibration` runs the same with more pairs and
//! prints the table of docs/compare.md.

use executor::compare::difference::PairingChoice;
use executor::compare::verdict::Rules;

use super::simulate::{Noise, Setup, found, found_by};

/// Pairs a case; the standard error of a share of 5% over 800 pairs is 0.8%.
const PAIRS: u32 = 800;

/// The spread between runs of PR 59733: pooled over both arms, of the logarithm of the median TPOT.
fn pr_noise() -> f64 {
    let arms: [[f64; 3]; 2] = [[11.43, 11.44, 11.54], [11.10, 10.99, 11.18]];
    let squares: f64 = arms
        .iter()
        .map(|arm| {
            let mean = arm.iter().map(|value| value.ln()).sum::<f64>() / 3.0;
            arm.iter().map(|value| (value.ln() - mean).powi(2)).sum::<f64>()
        })
        .sum();
    (squares / 4.0).sqrt()
}

#[test]
fn equal_arms_raise_few_alarms() {
    for noise in [
        Noise::Normal,
        Noise::Heavy(2.0),
        Noise::Heavy(3.0),
        Noise::Interleaved(0.5),
        Noise::Interleaved(3.0),
        Noise::SharedBySeed(2.0),
        Noise::Seeds(3.0),
        Noise::ColdOne(2.0),
        Noise::ColdOne(8.0),
        Noise::ColdBoth(4.0),
    ] {
        let mut total = 0.0;
        let mut cases = 0.0;
        for (runs, sd) in [(3, pr_noise()), (3, 0.03), (5, 0.015)] {
            total += found(&Setup { runs, sd, effect: 0.0, noise }, PAIRS, 59_733);
            cases += 1.0;
        }
        let alarms = total / cases;
        assert!(alarms <= 0.05, "{noise:?}: {alarms}");
    }
}

#[test]
fn a_true_three_percent_is_found_with_three_seeds() {
    for effect in [1.03_f64.ln(), -(1.03_f64.ln())] {
        let setup = Setup { runs: 3, sd: pr_noise(), effect, noise: Noise::Normal };
        let share = found(&setup, 2_000, 8_192);
        assert!(share >= 0.9, "{share}");
    }
}

#[test]
fn a_strong_drift_of_arms_one_after_the_other_is_not_taken_for_a_change() {
    let setup = Setup { runs: 5, sd: 0.007, effect: 0.0, noise: Noise::BackToBack(2.0) };
    assert!(found(&setup, PAIRS, 1) <= 0.05);
}

#[test]
fn with_a_drift_ruled_out_none_is_taken_for_a_change() {
    let rules = Rules { rule_out_drift: true, ..Rules::STANDARD };
    for sd in [pr_noise(), 0.02] {
        for drift in [0.1, 0.25, 0.5, 1.0, 2.0, 4.0] {
            let setup = Setup { runs: 3, sd, effect: 0.0, noise: Noise::BackToBack(drift) };
            let alarms = found_by(&setup, PAIRS, 5, &rules);
            assert!(alarms <= 0.06, "{sd} {drift}: {alarms}");
        }
    }
    let effect = 1.03_f64.ln();
    let interleaved = Setup { runs: 3, sd: pr_noise(), effect, noise: Noise::Interleaved(0.0) };
    assert!(found_by(&interleaved, PAIRS, 6, &rules) >= 0.9);
}

#[test]
fn pairs_by_seed_see_what_the_seeds_hide() {
    let setup = Setup { runs: 6, sd: 0.007, effect: 0.02, noise: Noise::Seeds(6.0) };
    let as_pairs = |pairing| found_by(&setup, PAIRS, 3, &Rules { pairing, ..Rules::STANDARD });
    let (paired, apart) = (as_pairs(PairingChoice::Auto), as_pairs(PairingChoice::Off));
    assert!(paired > 5.0 * apart, "{paired} against {apart}");
}
