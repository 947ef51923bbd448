//! Which figures of a benchmark are compared, in which unit, and which direction is good?
//!
//! Names are those of vLLM's result file (`vllm/benchmarks/serve.py`, 0.32.0): `median_tpot_ms`,
//! `p99_ttft_ms`, `output_throughput`. Other tools' names are mapped to them by their readers.

use std::fmt::{self, Display};

/// Whether more or less of a metric is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Throughput, interactivity, accuracy.
    UpIsBetter,
    /// Latency.
    DownIsBetter,
}

/// The scale on which arms are subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// Differences of logarithms, so that the effect is a ratio: times and rates, always above zero.
    Logarithm,
    /// Plain differences: shares in [0, 1], zero included.
    Share,
}

/// One comparable figure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// vLLM's name, or `task/metric,filter` for an accuracy.
    pub name: String,
    /// Which way is better.
    pub direction: Direction,
    /// `ms`, `tok/s`, `req/s`, `tok/s/GPU`, `tok`, or empty for a share.
    pub unit: &'static str,
    /// How arms are subtracted.
    pub scale: Scale,
}

/// The order in which a primary metric is looked for when none is asked for.
pub const PRIMARY_ORDER: [&str; 16] = [
    "median_tpot_ms",
    "median_itl_ms",
    "mean_tpot_ms",
    "mean_itl_ms",
    "median_intvty",
    "output_throughput",
    "output_tput_per_gpu",
    "total_token_throughput",
    "tput_per_gpu",
    "request_throughput",
    "median_e2el_ms",
    "mean_e2el_ms",
    "median_ttft_ms",
    "mean_ttft_ms",
    "request_goodput",
    "acceptance_length",
];

const RATES: [(&str, &str); 8] = [
    ("output_throughput", "tok/s"),
    ("total_token_throughput", "tok/s"),
    ("request_throughput", "req/s"),
    ("request_goodput", "req/s"),
    ("tput_per_gpu", "tok/s/GPU"),
    ("output_tput_per_gpu", "tok/s/GPU"),
    ("input_tput_per_gpu", "tok/s/GPU"),
    ("acceptance_length", "tok"),
];

impl Metric {
    /// The metric with this name, or `None` where the name is no comparable figure (a spread, a count).
    pub fn named(name: &str) -> Option<Self> {
        if let Some((name, unit)) = RATES.iter().find(|(rate, _)| *rate == name) {
            return Some(Self::on_logarithm(name, Direction::UpIsBetter, unit));
        }
        let (statistic, rest) = name.split_once('_')?;
        if !is_location(statistic) {
            return None;
        }
        match rest {
            "ttft_ms" | "tpot_ms" | "itl_ms" | "e2el_ms" => {
                Some(Self::on_logarithm(name, Direction::DownIsBetter, "ms"))
            }
            "intvty" => Some(Self::on_logarithm(name, Direction::UpIsBetter, "tok/s")),
            _ => None,
        }
    }

    /// An accuracy in [0, 1], named `task/metric,filter`.
    pub fn accuracy(name: impl Into<String>) -> Self {
        Self { name: name.into(), direction: Direction::UpIsBetter, unit: "", scale: Scale::Share }
    }

    fn on_logarithm(name: &str, direction: Direction, unit: &'static str) -> Self {
        Self { name: name.to_owned(), direction, unit, scale: Scale::Logarithm }
    }

    /// A person's short name for a metric (`tpot`, `throughput`) as the full one; others are unchanged.
    pub fn full_name(short: &str) -> &str {
        match short {
            "tpot" => "median_tpot_ms",
            "itl" => "median_itl_ms",
            "ttft" => "median_ttft_ms",
            "e2el" | "e2e" | "latency" => "median_e2el_ms",
            "intvty" | "interactivity" => "median_intvty",
            "throughput" => "output_throughput",
            "goodput" => "request_goodput",
            _ => short,
        }
    }
}

/// Whether `statistic` says where a distribution lies: `mean`, `median`, or a percentile as `p99` or `p99.9`.
fn is_location(statistic: &str) -> bool {
    if statistic == "mean" || statistic == "median" {
        return true;
    }
    statistic
        .strip_prefix('p')
        .and_then(|number| number.parse::<f64>().ok())
        .is_some_and(|percentile| percentile > 0.0 && percentile <= 100.0)
}

impl Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
