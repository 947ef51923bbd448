//! Arms whose truth is known.

use executor::compare::difference::{Observation, difference};
use executor::compare::random::Random;
use executor::compare::verdict::{Rules, is_claim};

/// How a simulated run differs from its arm's truth, in units of the noise.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    Normal,
    /// Student's t with this many degrees of freedom.
    Heavy(f64),
    /// Interleaved runs A B A B ... on a machine that changes by this much a run.
    Interleaved(f64),
    /// Both arms' runs of one seed share a drift of this much a seed.
    SharedBySeed(f64),
    /// Both arms' runs of one seed share a part with this standard deviation.
    Seeds(f64),
    /// The first run of one arm is off by this much.
    ColdOne(f64),
    /// The first run of both arms is off by this much.
    ColdBoth(f64),
    /// Arms one after the other on a machine that changes by this much a run.
    BackToBack(f64),
}

pub(crate) struct Setup {
    pub(crate) runs: usize,
    pub(crate) sd: f64,
    pub(crate) effect: f64,
    pub(crate) noise: Noise,
}

/// [`found_by`] by the standard rules.
pub(crate) fn found(setup: &Setup, pairs: u32, seed: u64) -> f64 {
    found_by(setup, pairs, seed, &Rules::STANDARD)
}

/// The share of `pairs` simulated pairs for which the verdict is a difference.
pub(crate) fn found_by(setup: &Setup, pairs: u32, seed: u64, rules: &Rules) -> f64 {
    let mut random = Random::new(seed);
    let mut claims = 0;
    for _ in 0..pairs {
        let (a, b) = pair(setup, &mut random);
        let Some(test) = difference(&a, &b, rules.pairing) else { continue };
        claims += u32::from(is_claim(&test, test.p_value, rules));
    }
    f64::from(claims) / f64::from(pairs)
}

fn pair(setup: &Setup, random: &mut Random) -> (Vec<Observation>, Vec<Observation>) {
    let mut a = Vec::new();
    let mut b = Vec::new();
    for index in 0..setup.runs {
        let place = index as f64;
        let mut one = || match setup.noise {
            Noise::Heavy(df) => random.student(df),
            _ => random.normal(),
        };
        let (mut left, mut right) = (one(), one());
        match setup.noise {
            Noise::Normal | Noise::Heavy(_) => {}
            Noise::Interleaved(slope) => {
                left += slope * 2.0 * place;
                right += slope * (2.0 * place + 1.0);
            }
            Noise::SharedBySeed(slope) => {
                left += slope * place;
                right += slope * place;
            }
            Noise::Seeds(size) => {
                let shared = size * random.normal();
                left += shared;
                right += shared;
            }
            Noise::ColdOne(size) => right += if index == 0 { size } else { 0.0 },
            Noise::ColdBoth(size) => {
                let cold = if index == 0 { size } else { 0.0 };
                left += cold;
                right += cold;
            }
            Noise::BackToBack(slope) => {
                left += slope * place;
                right += slope * (place + setup.runs as f64);
            }
        }
        let interleaved = matches!(setup.noise, Noise::Interleaved(_));
        let run = |value: f64, later: f64| Observation {
            seed: Some(index as u64),
            order: interleaved.then_some(2.0 * place + later),
            ..Observation::bare(11.09_f64.ln() + value * setup.sd)
        };
        a.push(run(left, 0.0));
        let mut second = run(right, 1.0);
        second.value += setup.effect;
        b.push(second);
    }
    (a, b)
}
