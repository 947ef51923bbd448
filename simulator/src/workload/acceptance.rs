//! How many draft tokens hold.

use thiserror::Error;

use crate::blocks::tokens::mix;
use crate::rng::unit;

/// A model of acceptance.
#[derive(Debug, Clone, PartialEq)]
pub enum Acceptance {
    /// Unconditional rates by position, not increasing: position `i` holds with rate `i`, and only if all
    /// before it do.
    Rates(Vec<f64>),
    /// Counts, taken in turn by each request from the first on.
    Recorded(Vec<u32>),
}

/// Why a model of acceptance makes no sense.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AcceptanceError {
    /// The length is out of range.
    #[error("the acceptance length is {length}; with {drafts} draft tokens it must be between 1 and {}", drafts + 1)]
    Length {
        /// What was given.
        length: f64,
        /// Draft tokens a step.
        drafts: u32,
    },
    /// A rate is no probability, or larger than the one before it.
    #[error("acceptance rate {position} is {rate}; rates are between 0 and 1 and do not increase")]
    Rate {
        /// 0-based position.
        position: usize,
        /// What was given.
        rate: f64,
    },
    /// There is another number of rates than draft tokens.
    #[error("{rates} acceptance rates do not go with {drafts} draft tokens")]
    Count {
        /// How many were given.
        rates: usize,
        /// Draft tokens a step.
        drafts: u32,
    },
    /// A recorded count is larger than what is drafted.
    #[error("{count} accepted draft tokens do not go with {drafts} draft tokens")]
    Accepted {
        /// What was given.
        count: u32,
        /// Draft tokens a step.
        drafts: u32,
    },
    /// The recorded counts are empty.
    #[error("there is no recorded acceptance count")]
    Empty,
}

impl Acceptance {
    /// Rates with this mean acceptance length, the sampled token included, and the least variance: as vLLM's
    /// synthetic rejection sampling, whole positions hold always and one holds with the rest as its rate.
    ///
    /// # Errors
    /// [`AcceptanceError::Length`] if no rates give it.
    ///
    /// # Source
    /// `SpeculativeConfig._acceptance_length_to_rates`, vLLM 0.32.
    pub fn from_length(length: f64, drafts: u32) -> Result<Self, AcceptanceError> {
        if !(1.0..=f64::from(drafts) + 1.0).contains(&length) {
            return Err(AcceptanceError::Length { length, drafts });
        }
        let accepted = length - 1.0;
        Ok(Self::Rates(
            (0..drafts).map(|position| (accepted - f64::from(position)).clamp(0.0, 1.0)).collect(),
        ))
    }

    /// Checks it against the number of draft tokens.
    ///
    /// # Errors
    /// [`AcceptanceError`] says what does not fit.
    pub fn check(&self, drafts: u32) -> Result<(), AcceptanceError> {
        match self {
            Self::Rates(rates) => {
                if rates.len() != drafts as usize {
                    return Err(AcceptanceError::Count { rates: rates.len(), drafts });
                }
                let mut before = 1.0;
                for (position, &rate) in rates.iter().enumerate() {
                    if !(0.0..=before).contains(&rate) {
                        return Err(AcceptanceError::Rate { position, rate });
                    }
                    before = rate;
                }
                Ok(())
            }
            Self::Recorded(counts) if counts.is_empty() => Err(AcceptanceError::Empty),
            Self::Recorded(counts) => match counts.iter().find(|&&count| count > drafts) {
                Some(&count) => Err(AcceptanceError::Accepted { count, drafts }),
                None => Ok(()),
            },
        }
    }

    /// How many of `drafts` hold in the step that starts at token `computed` of request `id`, its draft step
    /// number `turn`. The same place in the same request gives the same answer whatever else runs.
    pub(crate) fn draw(&self, seed: u64, id: u32, computed: u32, turn: u32, drafts: u32) -> u32 {
        match self {
            Self::Rates(rates) => {
                let luck = unit(mix(mix(seed, u64::from(id)), u64::from(computed)));
                let held = rates.iter().take(drafts as usize).take_while(|&&rate| luck <= rate).count();
                u32::try_from(held).unwrap_or(drafts)
            }
            Self::Recorded(counts) => {
                counts.get(turn as usize % counts.len().max(1)).copied().unwrap_or(0).min(drafts)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Acceptance;

    #[test]
    fn rates_add_up_to_the_length() {
        let Ok(Acceptance::Rates(rates)) = Acceptance::from_length(3.84, 7) else { panic!("no rates") };
        assert!((rates.iter().sum::<f64>() + 1.0 - 3.84).abs() < 1e-9);
        assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]));
    }

    #[test]
    fn draws_have_the_mean() {
        let model = Acceptance::from_length(3.84, 7).expect("a length in range");
        let total: u64 = (0..200_000).map(|at| u64::from(model.draw(1, 5, at, 0, 7)) + 1).sum();
        let mean = f64::from(u32::try_from(total).expect("small")) / 200_000.0;
        assert!((mean - 3.84).abs() < 0.02, "{mean}");
    }
}
