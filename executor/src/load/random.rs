//! Repeatable random numbers: the same seed and purpose give the same load on every machine.
//!
//! # Source
//! Blackman and Vigna, "Scrambled linear pseudorandom number generators" (xoshiro256++); Marsaglia and Tsang,
//! "A simple method for generating gamma variables" (2000).

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream of a seed for one purpose, so that one more draw for the prompts does not move the arrivals.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut state = seed;
        for byte in purpose.bytes() {
            state = splitmix(&mut state) ^ u64::from(byte);
        }
        Self { state: std::array::from_fn(|_| splitmix(&mut state)) }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number from 0 up to, without, `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.bits()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number from 0 to 1, never 0.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A gamma variable with mean 1 and the given shape above 0: 1 is the exponential distribution.
    pub fn gamma_of_mean_one(&mut self, shape: f64) -> f64 {
        if shape == 1.0 {
            return -self.unit().ln();
        }
        let (d, boost) = if shape < 1.0 {
            (shape + 1.0 - 1.0 / 3.0, self.unit().powf(1.0 / shape))
        } else {
            (shape - 1.0 / 3.0, 1.0)
        };
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * boost / shape;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_purpose_decide() {
        let draw = |seed, purpose| Random::new(seed, purpose).bits();
        assert_eq!(draw(7, "prompts"), draw(7, "prompts"));
        assert_ne!(draw(7, "prompts"), draw(8, "prompts"));
        assert_ne!(draw(7, "prompts"), draw(7, "arrivals"));
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        for shape in [0.5, 1.0, 4.0] {
            let mut random = Random::new(1, "gamma");
            let values: Vec<f64> = (0..40_000).map(|_| random.gamma_of_mean_one(shape)).collect();
            let mean = values.iter().sum::<f64>() / 40_000.0;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 40_000.0;
            assert!((mean - 1.0).abs() < 0.03, "shape {shape}: mean {mean}");
            assert!((variance * shape - 1.0).abs() < 0.08, "shape {shape}: variance {variance}");
        }
    }

    #[test]
    fn below_stays_below() {
        let mut random = Random::new(3, "below");
        assert_eq!(random.below(0), 0);
        let mut seen = [false; 6];
        for _ in 0..200 {
            seen[usize::try_from(random.below(6)).unwrap()] = true;
        }
        assert_eq!(seen, [true; 6]);
    }
}
