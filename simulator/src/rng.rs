//! Random numbers: a stream a purpose, from one seed.

use crate::blocks::tokens::mix;

/// A stream of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    state: u64,
}

impl Stream {
    /// The stream of `purpose` under `seed`.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self { state: mix(mix(seed, 0x51D_EED), purpose) }
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.next())
    }

    /// Uniform in `low..=high`.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.max(low) - low) + 1;
        let wide = u128::from(self.next()) * u128::from(span);
        low + u32::try_from(wide >> 64).unwrap_or(0)
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Gamma with this shape and mean 1 (Marsaglia and Tsang; shapes below 1 by Ahrens' boost).
    pub(crate) fn gamma(&mut self, shape: f64) -> f64 {
        let boost = if shape < 1.0 { self.unit().powf(1.0 / shape) } else { 1.0 };
        let d = if shape < 1.0 { shape + 1.0 } else { shape } - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
            let v = (1.0 + c * normal).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
                return boost * d * v / shape;
            }
        }
    }
}

/// 53 bits as a number in (0, 1].
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
pub(crate) fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / 9_007_199_254_740_992.0
}
