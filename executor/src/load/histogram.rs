//! How a duration is spread, in little memory: counts in buckets that are never wider than 1/16 of their value.

use std::time::Duration;

const STEPS: u64 = 16;
const BUCKETS: usize = 61 * 16;

/// Counts of durations, from a nanosecond up; a percentile read from it is at most 1/16 too high.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: Duration::ZERO }
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return usize::try_from(nanos).unwrap_or(0);
    }
    let exponent = u64::from(nanos.ilog2()) - 4;
    let index = exponent * STEPS + (nanos >> exponent);
    usize::try_from(index).unwrap_or(BUCKETS - 1)
}

fn upper_bound(index: usize) -> Duration {
    let index = index as u64;
    if index < STEPS {
        return Duration::from_nanos(index);
    }
    let exponent = index / STEPS - 1;
    let step = index - exponent * STEPS;
    Duration::from_nanos((step << exponent) | ((1 << exponent) - 1))
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Takes in what another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The smallest duration that at least `share` (0 to 1) of the values do not exceed; zero when empty.
    pub fn quantile(&self, share: f64) -> Duration {
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= share * self.total as f64 {
                return upper_bound(index).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_within_a_sixteenth() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.add(Duration::from_micros(micros));
        }
        for (share, micros) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(share).as_secs_f64() * 1e6;
            assert!(found >= micros && found <= micros * (1.0 + 1.0 / 16.0), "{share}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn every_duration_has_a_bucket() {
        let mut histogram = Histogram::default();
        for value in [Duration::ZERO, Duration::from_nanos(15), Duration::from_nanos(16), Duration::MAX] {
            histogram.add(value);
        }
        assert_eq!(histogram.counts.iter().sum::<u64>(), 4);
        for nanos in [0, 1, 15, 16, 17, 31, 32, 1000, u64::MAX / 2, u64::MAX] {
            let bound = upper_bound(bucket(nanos)).as_nanos();
            assert!(bound >= u128::from(nanos) && bucket(nanos) < BUCKETS, "{nanos}");
        }
    }
}
