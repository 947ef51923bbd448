//! The result file: the keys of `vllm bench serve`, so that its tools read it, and ours under `k3plan`.
//!
//! # Source
//! vLLM 0.32 `benchmarks/serve.py`: names, order and units of the keys; times in seconds in lists, in
//! milliseconds in figures.

use std::collections::BTreeMap;

use executor::load::client_cost::{Bottleneck, ClientCost, Delivered};
use executor::load::record::{FailureKind, RequestRecord, TokenCount};
use executor::load::run::Warmups;
use executor::load::summary::{Spread, Summary};
use executor::server::metrics::Sample;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Value, json};

use super::load_args::Latency;

pub(super) const SCHEMA: &str = "k3plan.bench/1";

/// Everything that a finished, killed or resumed run has to tell.
pub(super) struct Measured {
    pub(super) model: String,
    pub(super) label: Option<String>,
    pub(super) seed: u64,
    pub(super) settings: Value,
    pub(super) started_at: f64,
    pub(super) parts: usize,
    pub(super) interrupted: bool,
    pub(super) requests_planned: usize,
    pub(super) records: Vec<RequestRecord>,
    pub(super) summary: Summary,
    /// `None` when read from a journal.
    pub(super) client: Option<(ClientCost, Delivered, Vec<Bottleneck>)>,
    pub(super) warmups: Warmups,
    pub(super) samples: Vec<Sample>,
    /// Facts of the server: version, models, groups.
    pub(super) server: Value,
    pub(super) machine: Value,
    pub(super) notes: Vec<String>,
    pub(super) metadata: Vec<(String, String)>,
    /// Whether the lists of single requests are written.
    pub(super) detailed: bool,
    /// The latencies that are reported.
    pub(super) latencies: Vec<Latency>,
}

/// How often each kind of failure came.
pub(super) fn failures(records: &[RequestRecord]) -> BTreeMap<FailureKind, (usize, &str)> {
    let mut kinds = BTreeMap::new();
    for failure in records.iter().filter_map(|record| record.failure.as_ref()) {
        kinds.entry(failure.kind).or_insert((0, failure.detail.as_str())).0 += 1;
    }
    kinds
}

struct List<I>(I);

impl<I: Iterator<Item = T> + Clone, T: Serialize> Serialize for List<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let setting = |name: &str| self.settings.get(name).cloned().unwrap_or(Value::Null);
        map.serialize_entry("date", &date(self.started_at))?;
        map.serialize_entry("endpoint_type", &setting("backend"))?;
        map.serialize_entry("backend", &setting("backend"))?;
        map.serialize_entry("label", &self.label)?;
        map.serialize_entry("model_id", &self.model)?;
        map.serialize_entry("tokenizer_id", &self.model)?;
        map.serialize_entry("num_prompts", &self.requests_planned)?;
        for (name, value) in &self.metadata {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("request_rate", &setting("request_rate"))?;
        map.serialize_entry("burstiness", &setting("burstiness"))?;
        map.serialize_entry("max_concurrency", &setting("max_concurrency"))?;
        if !setting("ramp_up_strategy").is_null() {
            for name in ["ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps"] {
                map.serialize_entry(name, &setting(name))?;
            }
        }
        let summary = &self.summary;
        map.serialize_entry("duration", &summary.duration)?;
        map.serialize_entry("completed", &summary.completed)?;
        map.serialize_entry("failed", &summary.failed)?;
        map.serialize_entry("total_input_tokens", &summary.total_input_tokens)?;
        map.serialize_entry("total_output_tokens", &summary.total_output_tokens)?;
        map.serialize_entry("request_throughput", &summary.request_throughput)?;
        map.serialize_entry("request_goodput", &summary.request_goodput)?;
        map.serialize_entry("output_throughput", &summary.output_throughput)?;
        map.serialize_entry("total_token_throughput", &summary.total_token_throughput)?;
        if self.detailed {
            let records = &self.records;
            let good = |record: &RequestRecord, value: f64| if record.succeeded() { value } else { 0.0 };
            map.serialize_entry("input_lens", &List(records.iter().map(|record| record.prompt_tokens)))?;
            let lengths = records.iter().map(|r| if r.succeeded() { r.output_tokens } else { 0 });
            map.serialize_entry("output_lens", &List(lengths))?;
            map.serialize_entry("ttfts", &List(records.iter().map(|record| record.ttft.unwrap_or(0.0))))?;
            map.serialize_entry("itls", &List(records.iter().map(|record| &record.itl)))?;
            map.serialize_entry("latencies", &List(records.iter().map(|r| good(r, r.latency))))?;
            map.serialize_entry("start_times", &List(records.iter().map(|record| record.start)))?;
            map.serialize_entry("queue_times", &List(records.iter().map(|record| record.queue)))?;
            let texts = records.iter().map(|record| record.text.as_deref().unwrap_or(""));
            map.serialize_entry("generated_texts", &List(texts))?;
            let errors = records.iter().map(|record| {
                record.failure.as_ref().map_or_else(String::new, |f| format!("{}: {}", f.kind, f.detail))
            });
            map.serialize_entry("errors", &List(errors))?;
        }
        map.serialize_entry("max_output_tokens_per_s", &summary.max_output_tokens_per_s)?;
        map.serialize_entry("max_concurrent_requests", &summary.max_concurrent_requests)?;
        map.serialize_entry("rtfx", &0.0)?;
        let drafts = drafts(&self.samples);
        for (name, value) in &drafts {
            map.serialize_entry(name, value)?;
        }
        for latency in self.latencies() {
            for (prefix, value) in figures(self.spread(latency)) {
                map.serialize_entry(&format!("{prefix}_{}_ms", latency.key()), &value)?;
            }
        }
        map.serialize_entry("k3plan", &self.own())?;
        map.end()
    }
}

impl Measured {
    /// The latencies that are reported, in vLLM's order.
    pub(super) fn latencies(&self) -> impl Iterator<Item = Latency> {
        Latency::ALL.into_iter().filter(|latency| self.latencies.contains(latency))
    }

    pub(super) fn spread(&self, latency: Latency) -> &Spread {
        match latency {
            Latency::Ttft => &self.summary.ttft,
            Latency::Tpot => &self.summary.tpot,
            Latency::Itl => &self.summary.itl,
            Latency::E2el => &self.summary.e2el,
        }
    }

    fn own(&self) -> Value {
        let assumed = self.records.iter().any(|r| r.succeeded() && r.counted_by == TokenCount::Assumed);
        let failures: Vec<Value> = failures(&self.records)
            .into_iter()
            .map(|(kind, (count, detail))| json!({"kind": kind, "count": count, "first": detail}))
            .collect();
        let client = self.client.as_ref().map(|(cost, delivered, bottlenecks)| {
            json!({
                "threads": cost.threads,
                "cpu_seconds": cost.cpu_seconds,
                "cpu_share_max": cost.cpu_share_max,
                "arrival_times": if cost.read_lag.count() > 0 { "kernel" } else { "read" },
                "reads": cost.read_lag.count(),
                "read_lag_ms_p50": cost.read_lag.quantile(0.5).as_secs_f64() * 1e3,
                "read_lag_ms_p99": cost.read_lag.quantile(0.99).as_secs_f64() * 1e3,
                "read_lag_ms_max": cost.read_lag.max().as_secs_f64() * 1e3,
                "send_lag_ms": spread(&self.summary.send_lag),
                "request_rate_asked": delivered.rate_asked,
                "request_rate_sent": delivered.rate_sent,
                "concurrency_asked": delivered.concurrency_asked,
                "concurrency_mean": delivered.concurrency_mean,
                "resent": self.records.iter().filter(|record| record.resent).count(),
                "bottlenecks": bottlenecks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        });
        json!({
            "schema": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "seed": self.seed,
            "started_at": self.started_at,
            "parts": self.parts,
            "interrupted": self.interrupted,
            "requests_not_sent": self.requests_planned.saturating_sub(self.records.len()),
            "settings": self.settings,
            "failures": failures,
            "tokens_assumed": assumed,
            "token_itl_ms": self.summary.token_itl.as_ref().map(spread),
            "queue_ms": spread(&self.summary.queue),
            "client": client,
            "warmups": {"sent": self.warmups.sent, "failed": self.warmups.failed,
                "first_failure": self.warmups.first_failure},
            "server": self.server,
            "metrics": self.samples,
            "machine": self.machine,
            "notes": self.notes,
        })
    }
}

fn figures(spread: &Spread) -> Vec<(String, f64)> {
    let mut figures = vec![
        ("mean".to_owned(), spread.mean),
        ("median".to_owned(), spread.median),
        ("std".to_owned(), spread.deviation),
    ];
    figures.extend(spread.percentiles.iter().map(|(share, value)| (format!("p{share}"), *value)));
    figures
}

fn spread(spread: &Spread) -> Value {
    let mut map: serde_json::Map<String, Value> =
        figures(spread).into_iter().map(|(name, value)| (name, value.into())).collect();
    map.insert("count".to_owned(), spread.count.into());
    map.into()
}

/// What speculative decoding did between the first and the last sample.
fn drafts(samples: &[Sample]) -> Vec<(&'static str, f64)> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Vec::new() };
    let grown = |count: fn(&Sample) -> Option<f64>| Some(count(last)? - count(first)?);
    let counts = (grown(|s| s.drafts), grown(|s| s.draft_tokens), grown(|s| s.accepted_tokens));
    let (Some(drafts), Some(tokens), Some(accepted)) = counts else { return Vec::new() };
    if drafts <= 0.0 || tokens <= 0.0 {
        return Vec::new();
    }
    vec![
        ("spec_decode_acceptance_rate", 100.0 * accepted / tokens),
        ("spec_decode_acceptance_length", 1.0 + accepted / drafts),
        ("spec_decode_num_drafts", drafts),
        ("spec_decode_draft_tokens", tokens),
        ("spec_decode_accepted_tokens", accepted),
    ]
}

/// A time as vLLM writes it, `20261231-235959`, in UTC.
pub(super) fn date(seconds: f64) -> String {
    let seconds = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in cycles of 400 years.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_over_leap_days() {
        assert_eq!(date(0.0), "19700101-000000");
        assert_eq!(date(951_782_400.0), "20000229-000000");
        assert_eq!(date(1_798_761_599.5), "20261231-235959");
    }

    #[test]
    fn acceptance_is_vllms() {
        let sample = |drafts, tokens, accepted| Sample {
            drafts: Some(drafts),
            draft_tokens: Some(tokens),
            accepted_tokens: Some(accepted),
            ..Sample::default()
        };
        let found = drafts(&[sample(10.0, 70.0, 20.0), sample(20.0, 140.0, 48.4)]);
        assert_eq!(found[1].0, "spec_decode_acceptance_length");
        assert!((found[1].1 - 3.84).abs() < 1e-9);
        assert!(drafts(&[Sample::default()]).is_empty());
    }
}
