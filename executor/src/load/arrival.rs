//! When each request is due: at once, at a rate, along a ramp, or as a trace says.
//!
//! # Source
//! vLLM 0.32 `benchmarks/serve.py`: gaps are gamma variables of mean 1/rate whose shape is the burstiness, and
//! without a ramp the last request is due after exactly requests/rate seconds.

use super::random::Random;

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// All at once; the concurrency limit alone holds them back (a closed loop).
    AtOnce,
    /// At a rate (an open loop).
    Rate {
        /// Requests a second, above 0.
        requests_per_second: f64,
        /// Shape of the gaps' distribution, above 0: 1 is a Poisson process, infinity is even spacing.
        burstiness: f64,
    },
    /// At a rate that changes from the first request to the last.
    Ramp {
        /// How it changes.
        shape: RampShape,
        /// Requests a second at the first request, above 0.
        from: f64,
        /// Requests a second at the last, above 0.
        to: f64,
        /// As for `Rate`.
        burstiness: f64,
    },
    /// As each request says.
    Trace {
        /// How much faster than the trace: 2 halves every gap.
        speed: f64,
    },
}

/// How a rate changes along a ramp, over the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RampShape {
    /// By the same amount each request.
    Linear,
    /// By the same factor each request.
    Exponential,
}

impl Arrivals {
    /// When each of `count` requests is due, in seconds after the start, never falling. `traced` holds the
    /// trace's times where there is one.
    pub fn due(&self, count: usize, traced: &[f64], seed: u64) -> Vec<f64> {
        match *self {
            Self::AtOnce => vec![0.0; count],
            Self::Trace { speed } => {
                let first = traced.iter().copied().fold(f64::INFINITY, f64::min);
                (0..count).map(|index| traced.get(index).map_or(0.0, |time| (time - first) / speed)).collect()
            }
            Self::Rate { requests_per_second, burstiness } => {
                let mut due = sum_of_gaps(count, seed, burstiness, |_| requests_per_second);
                if let Some(last) = due.last().copied().filter(|last| *last > 0.0) {
                    let factor = count as f64 / requests_per_second / last;
                    due.iter_mut().for_each(|time| *time *= factor);
                }
                due
            }
            Self::Ramp { shape, from, to, burstiness } => {
                let last = count.saturating_sub(1).max(1) as f64;
                sum_of_gaps(count, seed, burstiness, |index| {
                    let progress = index as f64 / last;
                    match shape {
                        RampShape::Linear => from + (to - from) * progress,
                        RampShape::Exponential => from * (to / from).powf(progress),
                    }
                })
            }
        }
    }
}

fn sum_of_gaps(count: usize, seed: u64, burstiness: f64, rate: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut random = Random::new(seed, "arrivals");
    let mut time = 0.0;
    let gap = |index: usize, random: &mut Random| {
        let unit = if burstiness.is_finite() { random.gamma_of_mean_one(burstiness) } else { 1.0 };
        unit / rate(index)
    };
    (0..count)
        .map(|index| {
            time += gap(index, &mut random);
            time
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_to_the_last_request() {
        for burstiness in [0.3, 1.0, 5.0, f64::INFINITY] {
            let arrivals = Arrivals::Rate { requests_per_second: 4.0, burstiness };
            let due = arrivals.due(200, &[], 9);
            assert!((due[199] - 50.0).abs() < 1e-9, "{burstiness}: {}", due[199]);
            assert!(due.windows(2).all(|pair| pair[0] <= pair[1]));
            assert_eq!(due, arrivals.due(200, &[], 9));
            assert!(burstiness.is_infinite() || due != arrivals.due(200, &[], 10));
        }
    }

    #[test]
    fn a_ramp_begins_and_ends_at_its_rates() {
        let even = f64::INFINITY;
        let ramp = Arrivals::Ramp { shape: RampShape::Linear, from: 1.0, to: 10.0, burstiness: even };
        let due = ramp.due(10, &[], 0);
        assert!((due[0] - 1.0).abs() < 1e-9 && (due[9] - due[8] - 0.1).abs() < 1e-9, "{due:?}");
        let ramp = Arrivals::Ramp { shape: RampShape::Exponential, from: 1.0, to: 4.0, burstiness: even };
        let due = ramp.due(3, &[], 0);
        assert!((due[1] - due[0] - 0.5).abs() < 1e-9, "{due:?}");
    }

    #[test]
    fn a_trace_starts_at_once() {
        assert_eq!(Arrivals::Trace { speed: 2.0 }.due(3, &[10.0, 12.0, 16.0], 0), [0.0, 1.0, 3.0]);
        assert_eq!(Arrivals::AtOnce.due(2, &[], 0), [0.0, 0.0]);
    }
}
