//! A run's figures: throughput, goodput, and how each latency is spread.
//!
//! # Source
//! vLLM 0.32 `benchmarks/serve.py`, `calculate_metrics`: the same definitions over the same records, so that the
//! figures can be laid side by side. Percentiles are numpy's (linear between ranks), the deviation is the
//! population's, empty lists give 0.

use super::record::RequestRecord;

/// How one latency is spread, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// How many values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Standard deviation of the values themselves.
    pub deviation: f64,
    /// The percentiles asked for, beside the share in percent.
    pub percentiles: Vec<(f64, f64)>,
}

impl Spread {
    /// The spread of values in seconds.
    pub fn of(mut seconds: Vec<f64>, percentiles: &[f64]) -> Self {
        seconds.sort_by(f64::total_cmp);
        let count = seconds.len();
        let size = count.max(1) as f64;
        // From zero up, since the sum of nothing is -0.
        let mean = seconds.iter().fold(0.0, |sum, value| sum + value) / size;
        let variance = seconds.iter().fold(0.0, |sum, value| sum + (value - mean).powi(2)) / size;
        let at = |share: f64| 1000.0 * percentile(&seconds, share);
        Self {
            count,
            mean: 1000.0 * mean,
            median: at(50.0),
            deviation: 1000.0 * variance.sqrt(),
            percentiles: percentiles.iter().map(|share| (*share, at(*share))).collect(),
        }
    }
}

/// The percentile of sorted values, linear between the two ranks beside it; 0 when there are none.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = (share / 100.0).clamp(0.0, 1.0) * last as f64;
    let below = sorted.iter().enumerate().take_while(|(index, _)| *index as f64 <= rank).last();
    let Some((index, low)) = below else { return 0.0 };
    let high = sorted.get(index + 1).unwrap_or(low);
    low + (high - low) * (rank - index as f64)
}

/// Limits that a request must keep to count as good, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Goodput {
    /// Time to first token.
    pub ttft: Option<f64>,
    /// Time per output token.
    pub tpot: Option<f64>,
    /// End to end.
    pub e2el: Option<f64>,
}

impl Goodput {
    /// Whether any limit is set.
    pub fn is_set(&self) -> bool {
        self.ttft.or(self.tpot).or(self.e2el).is_some()
    }

    fn is_good(&self, record: &RequestRecord) -> bool {
        let within = |limit: Option<f64>, seconds: f64| limit.is_none_or(|limit| seconds * 1000.0 <= limit);
        within(self.ttft, record.ttft.unwrap_or(f64::INFINITY))
            && within(self.tpot, record.tpot().unwrap_or(0.0))
            && within(self.e2el, record.latency)
    }
}

/// The figures of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Requests that ended well.
    pub completed: usize,
    /// Requests that failed.
    pub failed: usize,
    /// Completed requests that kept all limits; all of them without limits.
    pub good: usize,
    /// Prompt tokens of the completed.
    pub total_input_tokens: u64,
    /// Output tokens of the completed.
    pub total_output_tokens: u64,
    /// From the start to the end of the last request, in seconds.
    pub duration: f64,
    /// Completed requests a second.
    pub request_throughput: f64,
    /// Completed requests a second that kept all limits; `None` without limits.
    pub request_goodput: Option<f64>,
    /// Output tokens a second.
    pub output_throughput: f64,
    /// Prompt and output tokens a second.
    pub total_token_throughput: f64,
    /// The most events with tokens in one second.
    pub max_output_tokens_per_s: f64,
    /// The most requests under way in one second.
    pub max_concurrent_requests: usize,
    /// Time to first token.
    pub ttft: Spread,
    /// Time per output token after the first, a value a request.
    pub tpot: Spread,
    /// Time between events, all requests together, as vLLM counts it.
    pub itl: Spread,
    /// Time between tokens: tokens that came together share the time before them. `None` where nobody knows
    /// which tokens came when.
    pub token_itl: Option<Spread>,
    /// End to end: from sending to the last token.
    pub e2el: Spread,
    /// Waiting for a place under the concurrency limit.
    pub queue: Spread,
    /// From being due to being sent, what the client added.
    pub send_lag: Spread,
}

impl Summary {
    /// Counts a run's records.
    pub fn of(records: &[RequestRecord], duration: f64, percentiles: &[f64], goodput: &Goodput) -> Self {
        let good: Vec<&RequestRecord> = records.iter().filter(|record| record.succeeded()).collect();
        let input: u64 = good.iter().map(|record| record.prompt_tokens).fold(0, u64::saturating_add);
        let output: u64 = good.iter().map(|record| record.output_tokens).fold(0, u64::saturating_add);
        let per_second = |count: f64| if duration > 0.0 { count / duration } else { 0.0 };
        let spread = |values: Vec<f64>| Spread::of(values, percentiles);
        let kept = good.iter().filter(|record| goodput.is_good(record)).count();
        let gaps: Option<Vec<Vec<f32>>> = good.iter().map(|record| record.token_gaps()).collect();
        let (max_output_tokens_per_s, max_concurrent_requests) = peaks(&good);
        Self {
            completed: good.len(),
            failed: records.len() - good.len(),
            good: kept,
            total_input_tokens: input,
            total_output_tokens: output,
            duration,
            request_throughput: per_second(good.len() as f64),
            request_goodput: goodput.is_set().then(|| per_second(kept as f64)),
            output_throughput: per_second(output as f64),
            total_token_throughput: per_second(input.saturating_add(output) as f64),
            max_output_tokens_per_s,
            max_concurrent_requests,
            ttft: spread(good.iter().filter_map(|record| record.ttft).collect()),
            tpot: spread(good.iter().filter_map(|record| record.tpot()).collect()),
            itl: spread(good.iter().flat_map(|record| &record.itl).map(|gap| f64::from(*gap)).collect()),
            token_itl: gaps.map(|gaps| spread(gaps.into_iter().flatten().map(f64::from).collect())),
            e2el: spread(good.iter().map(|record| record.latency).collect()),
            queue: spread(good.iter().map(|record| record.queue).collect()),
            send_lag: spread(records.iter().map(|record| record.lag).collect()),
        }
    }
}

/// The most tokens and the most requests of any second after the first request's start.
fn peaks(records: &[&RequestRecord]) -> (f64, usize) {
    let start = records.iter().map(|record| record.start).fold(f64::INFINITY, f64::min);
    let second = |time: f64| {
        let after = std::time::Duration::try_from_secs_f64((time - start).max(0.0)).unwrap_or_default();
        usize::try_from(after.as_secs()).unwrap_or(0)
    };
    let end = records.iter().map(|record| record.start + record.latency).fold(0.0, f64::max);
    if records.is_empty() {
        return (0.0, 0);
    }
    let mut tokens = vec![0_u32; second(end) + 2];
    let mut requests = vec![0_usize; second(end) + 2];
    for record in records {
        let mut time = record.start + record.ttft.unwrap_or(0.0);
        let gaps = record.itl.iter().map(|gap| f64::from(*gap));
        for gap in std::iter::once(0.0).chain(gaps) {
            time += gap;
            if let Some(count) = tokens.get_mut(second(time)) {
                *count += 1;
            }
        }
        for place in second(record.start)..=second(record.start + record.latency) {
            if let Some(count) = requests.get_mut(place) {
                *count += 1;
            }
        }
    }
    let most = tokens.into_iter().max().unwrap_or(0);
    (f64::from(most), requests.into_iter().max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::{FailureKind, RequestFailure, TokenCount};

    fn record(index: usize, ttft: f64, itl: &[f32]) -> RequestRecord {
        RequestRecord {
            index,
            start: index as f64,
            queue: 0.0,
            lag: 0.001,
            connect: None,
            ttft: Some(ttft),
            latency: ttft + itl.iter().map(|gap| f64::from(*gap)).sum::<f64>(),
            itl: itl.to_vec(),
            event_tokens: Vec::new(),
            prompt_tokens: 10,
            output_tokens: itl.len() as u64 + 1,
            counted_by: TokenCount::Usage,
            resent: false,
            text: None,
            failure: None,
        }
    }

    #[test]
    fn percentiles_are_numpys() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(percentile(&values, 50.0), 2.5);
        assert!((percentile(&values, 99.0) - 3.97).abs() < 1e-12);
        assert_eq!((percentile(&values, 0.0), percentile(&values, 100.0)), (1.0, 4.0));
        assert_eq!(percentile(&[], 50.0), 0.0);
    }

    #[test]
    fn figures_are_vllms() {
        let mut failed = record(2, 9.0, &[]);
        failed.failure = Some(RequestFailure { kind: FailureKind::Reset, detail: String::new() });
        let records = [record(0, 0.5, &[0.25, 0.25]), record(1, 0.25, &[0.5]), failed];
        let limits = Goodput { ttft: Some(400.0), ..Goodput::default() };
        let summary = Summary::of(&records, 2.0, &[99.0], &limits);
        assert_eq!((summary.completed, summary.failed), (2, 1));
        assert_eq!((summary.total_input_tokens, summary.total_output_tokens), (20, 5));
        assert_eq!((summary.request_goodput, summary.output_throughput), (Some(0.5), 2.5));
        assert_eq!((summary.ttft.median, summary.ttft.mean, summary.ttft.deviation), (375.0, 375.0, 125.0));
        assert_eq!((summary.tpot.median, summary.itl.median), (375.0, 250.0));
        assert_eq!((summary.max_output_tokens_per_s, summary.max_concurrent_requests), (3.0, 2));
        assert_eq!(summary.token_itl.map(|spread| spread.count), Some(3));
    }

    #[test]
    fn nothing_is_zero() {
        let summary = Summary::of(&[], 0.0, &[99.0], &Goodput::default());
        assert!(summary.itl.mean.is_sign_positive() && summary.itl.deviation.is_sign_positive());
        assert_eq!(
            (summary.ttft.median, summary.request_throughput, summary.request_goodput),
            (0.0, 0.0, None)
        );
    }
}
