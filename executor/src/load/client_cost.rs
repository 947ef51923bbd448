//! What the client itself added: how late it read, how busy it was, whether it kept up with the load.

use std::time::Duration;

use super::histogram::Histogram;
use super::record::RequestRecord;

/// One thread's cost.
#[derive(Debug, Default)]
pub(crate) struct ThreadCost {
    /// CPU time from the start to the end of the run.
    pub(crate) cpu: Duration,
    /// From bytes reaching this machine to their tokens being counted.
    pub(crate) read_lag: Histogram,
}

/// The whole client's cost.
#[derive(Debug, Clone)]
pub struct ClientCost {
    /// Threads that sent and read.
    pub threads: usize,
    /// CPU time of all threads, in seconds.
    pub cpu_seconds: f64,
    /// The busiest thread's share of a core, 0 to 1.
    pub cpu_share_max: f64,
    /// From bytes reaching this machine to their tokens being counted; empty where the system does not tell.
    /// These waits are not part of any reported time: times are taken when the bytes arrive.
    pub read_lag: Histogram,
}

impl ClientCost {
    pub(crate) fn of(threads: &[ThreadCost], duration: f64) -> Self {
        let mut read_lag = Histogram::default();
        for thread in threads {
            read_lag.merge(&thread.read_lag);
        }
        let busiest = threads.iter().map(|thread| thread.cpu.as_secs_f64()).fold(0.0, f64::max);
        Self {
            threads: threads.len(),
            cpu_seconds: threads.iter().map(|thread| thread.cpu.as_secs_f64()).sum(),
            cpu_share_max: if duration > 0.0 { busiest / duration } else { 0.0 },
            read_lag,
        }
    }
}

/// Load asked for and load delivered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delivered {
    /// Requests a second that were asked for; `None` without a rate.
    pub rate_asked: Option<f64>,
    /// Requests a second that were sent, first to last.
    pub rate_sent: f64,
    /// Requests under way that were asked for; `None` without a limit.
    pub concurrency_asked: Option<usize>,
    /// Requests under way on average, until no request was left to send.
    pub concurrency_mean: f64,
}

impl Delivered {
    /// Counts what was delivered.
    pub fn of(records: &[RequestRecord], rate_asked: Option<f64>, concurrency_asked: Option<usize>) -> Self {
        let first = records.iter().map(|record| record.start).fold(f64::INFINITY, f64::min);
        let last = records.iter().map(|record| record.start).fold(0.0, f64::max);
        let span = last - first;
        let busy: f64 = records.iter().map(|r| (r.start + r.latency).min(last) - r.start).sum();
        let whole = span > 0.0;
        Self {
            rate_asked,
            // The last of n requests is due after n / rate, as the first is after one gap.
            rate_sent: if whole { records.len() as f64 / last } else { 0.0 },
            concurrency_asked,
            concurrency_mean: if whole { busy / span } else { records.len() as f64 },
        }
    }
}

/// A sign that the client, not the server, set the figures.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Bottleneck {
    /// A thread was busy nearly all the time.
    #[error("a client thread was busy {:.0}% of the time: raise `--threads`", share * 100.0)]
    Busy {
        /// Share of a core.
        share: f64,
    },
    /// Bytes lay unread for long.
    #[error("1% of the reads came {:.1} ms or more after their bytes: the client had too little CPU", p99 * 1e3)]
    LateReads {
        /// 99th percentile, in seconds.
        p99: f64,
    },
    /// Requests went out late.
    #[error("1% of the requests went out {:.1} ms or more after they were due", p99 * 1e3)]
    LateSends {
        /// 99th percentile, in seconds.
        p99: f64,
    },
    /// Fewer requests went out than were asked for.
    #[error("{sent:.2} requests/s were sent where {asked:.2} were asked for")]
    Undelivered {
        /// Requests a second asked for.
        asked: f64,
        /// Requests a second sent.
        sent: f64,
    },
}

/// The signs that the client was the bottleneck. `typical` is the typical time between tokens, in seconds:
/// lateness matters against it.
pub fn bottlenecks(
    cost: &ClientCost,
    delivered: &Delivered,
    send_lag_p99: f64,
    typical: f64,
) -> Vec<Bottleneck> {
    const BUSY: f64 = 0.85;
    const SHORTFALL: f64 = 0.95;
    /// Lateness below this disturbs no server.
    const LATE: f64 = 0.005;
    let late = LATE.max(typical);
    let mut found = Vec::new();
    if cost.cpu_share_max > BUSY {
        found.push(Bottleneck::Busy { share: cost.cpu_share_max });
    }
    let read_p99 = cost.read_lag.quantile(0.99).as_secs_f64();
    if read_p99 > late {
        found.push(Bottleneck::LateReads { p99: read_p99 });
    }
    if send_lag_p99 > late {
        found.push(Bottleneck::LateSends { p99: send_lag_p99 });
    }
    if let Some(asked) = delivered.rate_asked
        && delivered.concurrency_asked.is_none()
        && delivered.rate_sent > 0.0
        && delivered.rate_sent < SHORTFALL * asked
    {
        found.push(Bottleneck::Undelivered { asked, sent: delivered.rate_sent });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(share: f64, lag: Duration) -> ClientCost {
        let mut read_lag = Histogram::default();
        read_lag.add(lag);
        ClientCost { threads: 1, cpu_seconds: share, cpu_share_max: share, read_lag }
    }

    const FINE: Delivered =
        Delivered { rate_asked: Some(10.0), rate_sent: 9.9, concurrency_asked: None, concurrency_mean: 3.0 };

    #[test]
    fn a_calm_client_is_no_bottleneck() {
        assert!(bottlenecks(&cost(0.2, Duration::from_micros(80)), &FINE, 0.0001, 0.01).is_empty());
    }

    #[test]
    fn each_sign_is_told() {
        let slow = Delivered { rate_sent: 5.0, ..FINE };
        let found = bottlenecks(&cost(0.97, Duration::from_millis(30)), &slow, 0.05, 0.01);
        assert_eq!(found.len(), 4);
        assert!(found[0].to_string().contains("97%"), "{}", found[0]);
        assert!(found[3].to_string().contains("5.00 requests/s"), "{}", found[3]);
        // A limit on the concurrency holds an open loop back on purpose.
        let held = Delivered { concurrency_asked: Some(2), ..slow };
        assert!(bottlenecks(&cost(0.2, Duration::ZERO), &held, 0.0, 0.01).is_empty());
    }
}
