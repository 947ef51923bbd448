//! What of a peak is reached: the few free factors, their defaults, and how far they may be off.

use std::sync::LazyLock;

use serde::Deserialize;
use thiserror::Error;

macro_rules! factors {
    ($($variant:ident $name:literal,)*) => {
        /// A free factor; `data/factors.json` says what each is and where its default comes from.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "data/factors.json describes each by its name")]
        pub enum Factor { $($variant,)* }

        impl Factor {
            /// All of them, in the order of the data file.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

factors! {
    DenseBandwidth "dense_bandwidth",
    ExpertBandwidth "expert_bandwidth",
    ExpertWidth "expert_width",
    RoutingSpread "routing_spread",
    Int4Experts "int4_experts",
    Fp4Bandwidth "fp4_bandwidth",
    KvBandwidth "kv_bandwidth",
    DenseFlops "dense_flops",
    Fp8Flops "fp8_flops",
    Fp4Flops "fp4_flops",
    ExpertFlops "expert_flops",
    AttentionFlops "attention_flops",
    SmallBatch "small_batch",
    KernelTime "kernel_time",
    EarlyFp8Experts "early_fp8_experts",
    AllReduceUs "all_reduce_us",
    AllReduceDoubling "all_reduce_doubling",
    LinkBandwidth "link_bandwidth",
    StepUs "step_us",
    RequestUs "request_us",
    FirstTokenMs "first_token_ms",
    StepsToFirstToken "steps_to_first_token",
    PromptMs "prompt_ms",
    PromptLayerUs "prompt_layer_us",
    QueueShare "queue_share",
    BuildUs "build_us",
    LaunchUs "launch_us",
}

const COUNT: usize = Factor::ALL.len();

/// What is known of a factor before anything is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactorText {
    /// Its name.
    pub name: String,
    /// Its default.
    pub value: f64,
    /// Standard deviation of its logarithm.
    pub spread: f64,
    /// Of what kind it is.
    pub unit: String,
    /// What it is.
    pub what: String,
    /// Where the default comes from.
    pub source: String,
}

#[derive(Deserialize)]
struct File {
    factors: Vec<FactorText>,
}

static TEXTS: LazyLock<Vec<FactorText>> = LazyLock::new(|| {
    let file: File =
        serde_json::from_str(include_str!("../../data/factors.json")).unwrap_or(File { factors: Vec::new() });
    file.factors
});

/// Why a set of factors cannot be made.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum FactorError {
    /// Nothing is called so.
    #[error("no factor is called `{name}`; they are {}", Factor::ALL.iter().map(|f| f.name()).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// It must be above 0.
    #[error("the factor `{name}` is {value}; it must be a number above 0")]
    Value {
        /// Its name.
        name: String,
        /// What was given.
        value: f64,
    },
}

/// A value for each factor, all above 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors([f64; COUNT]);

impl Default for Factors {
    /// The defaults of `data/factors.json`.
    fn default() -> Self {
        Self(std::array::from_fn(|i| TEXTS.get(i).map_or(1.0, |text| text.value)))
    }
}

impl Factors {
    /// A factor's value.
    pub fn get(&self, factor: Factor) -> f64 {
        self.0.get(factor as usize).copied().unwrap_or(1.0)
    }

    /// Sets one.
    ///
    /// # Errors
    /// If there is no such factor, or the value is not above 0.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), FactorError> {
        let factor = Factor::ALL
            .iter()
            .find(|factor| factor.name() == name)
            .ok_or_else(|| FactorError::Unknown { name: name.to_owned() })?;
        if !(value > 0.0 && value.is_finite()) {
            return Err(FactorError::Value { name: name.to_owned(), value });
        }
        self.put(*factor, value);
        Ok(())
    }

    /// Multiplies all by what `offsets` are logarithms of; missing offsets count as 0.
    #[must_use]
    pub fn times(&self, offsets: &[f64]) -> Self {
        Self(std::array::from_fn(|i| {
            self.0[i] * offsets.get(i).map_or(1.0, |offset| offset.clamp(-5.0, 5.0).exp())
        }))
    }

    fn put(&mut self, factor: Factor, value: f64) {
        if let Some(slot) = self.0.get_mut(factor as usize) {
            *slot = value;
        }
    }
}

impl Factor {
    /// What is known of it.
    pub fn text(self) -> Option<&'static FactorText> {
        TEXTS.get(self as usize)
    }

    /// Standard deviation of its logarithm, before anything is measured.
    pub fn spread(self) -> f64 {
        self.text().map_or(0.3, |text| text.spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_names_every_factor_in_order() {
        let names: Vec<&str> = TEXTS.iter().map(|text| text.name.as_str()).collect();
        let known: Vec<&str> = Factor::ALL.iter().map(|factor| factor.name()).collect();
        assert_eq!(names, known);
        assert!(TEXTS.iter().all(|text| text.value > 0.0 && text.spread > 0.0 && !text.source.is_empty()));
    }
}
