//! What is known of one measured run?

use std::collections::BTreeMap;

use super::metric::Metric;

/// The program that wrote a result file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// `vllm bench serve`, and the tools that keep its keys.
    Vllm,
    /// `k3plan bench`: vLLM's keys and a `k3plan` object.
    K3plan,
    /// guidellm's `benchmarks.json`.
    Guidellm,
    /// aiperf's `profile_export_aiperf.json` or `profile_export.jsonl`.
    Aiperf,
    /// InferenceX's aggregated result.
    InferenceX,
    /// lm-eval's `results_*.json`.
    LmEval,
    /// A table of repeated runs.
    Table,
}

impl Tool {
    /// The tool's own name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::K3plan => "k3plan",
            Self::Guidellm => "guidellm",
            Self::Aiperf => "aiperf",
            Self::InferenceX => "inferencex",
            Self::LmEval => "lm-eval",
            Self::Table => "table",
        }
    }
}

/// One figure of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// In the metric's unit.
    pub value: f64,
    /// The standard error of `value` within the run, in the same unit: from the tool (lm-eval) or from the
    /// spread of the run's requests. `None` where neither is known.
    pub standard_error: Option<f64>,
}

/// One run of one arm under one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The file, with its place in it where a file holds several runs.
    pub source: String,
    /// Who wrote it.
    pub tool: Tool,
    /// The seed of the load. `None` where the file does not say.
    pub seed: Option<u64>,
    /// Which start of its arm's server was measured, from 0. `None` where the file does not say.
    pub start: Option<u64>,
    /// When the run happened, as text that sorts by time (`20251020-153000`, or seconds since the epoch with
    /// leading zeros). `None` where the file does not say.
    pub time: Option<String>,
    /// Whether the place among the arm's other runs says anything about the order of measuring.
    pub in_order: bool,
    /// What was asked of the server: `concurrency`, `request_rate`, `input_tokens`, `model`, a table's columns.
    pub labels: BTreeMap<String, String>,
    /// The figures.
    pub figures: BTreeMap<Metric, Measured>,
    /// Whether it was read from a journal, which its result beside it repeats.
    pub journal: bool,
    /// Tells the requests' times apart from another run's. `None` where the file lists none.
    pub requests: Option<u64>,
    /// Requests that failed. `None` where the file does not say.
    pub failed: Option<u64>,
    /// What a reader should know before trusting the run.
    pub remarks: Vec<String>,
}

impl Run {
    /// A run without figures.
    pub fn new(source: impl Into<String>, tool: Tool) -> Self {
        Self {
            source: source.into(),
            tool,
            seed: None,
            start: None,
            time: None,
            in_order: true,
            labels: BTreeMap::new(),
            figures: BTreeMap::new(),
            journal: false,
            requests: None,
            failed: None,
            remarks: Vec::new(),
        }
    }

    /// Adds a figure without a standard error.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: f64) -> Self {
        self.figures.insert(metric, Measured { value, standard_error: None });
        self
    }
}
