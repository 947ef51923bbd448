//! The server's own metrics through a run: KV cache use, running and waiting requests, preemptions, drafts.
//!
//! # Source
//! vLLM 0.32 `v1/metrics/loggers.py`: names of the Prometheus series. Before 0.10 `kv_cache_usage_perc` was
//! `gpu_cache_usage_perc`.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::call::{self, Answer};
use crate::load::connection::Dialer;
use crate::load::target::Target;

/// The metrics at one moment; `None` where the server does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds after the start of the run.
    pub time: f64,
    /// Share of the KV cache's blocks in use, 0 to 1: the largest over engines.
    pub kv_cache_usage: Option<f64>,
    /// Requests being computed.
    pub requests_running: Option<f64>,
    /// Requests waiting.
    pub requests_waiting: Option<f64>,
    /// Preemptions since the server started.
    pub preemptions: Option<f64>,
    /// Drafts since the server started.
    pub drafts: Option<f64>,
    /// Draft tokens since the server started.
    pub draft_tokens: Option<f64>,
    /// Accepted draft tokens since the server started.
    pub accepted_tokens: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since the server started.
    pub prefix_cache_queries: Option<f64>,
    /// Prompt tokens found in the prefix cache since the server started.
    pub prefix_cache_hits: Option<f64>,
}

/// Reads the text that a server gives at `/metrics`; series of several engines are added up.
pub fn parse(text: &str, time: f64) -> Sample {
    let mut sample = Sample { time, ..Sample::default() };
    for line in text.lines() {
        let Some(series) = line.strip_prefix("vllm:") else { continue };
        let name = series.split(['{', ' ']).next().unwrap_or("");
        let place = match name {
            "kv_cache_usage_perc" | "gpu_cache_usage_perc" => &mut sample.kv_cache_usage,
            "num_requests_running" => &mut sample.requests_running,
            "num_requests_waiting" => &mut sample.requests_waiting,
            "num_preemptions_total" => &mut sample.preemptions,
            "spec_decode_num_drafts_total" => &mut sample.drafts,
            "spec_decode_num_draft_tokens_total" => &mut sample.draft_tokens,
            "spec_decode_num_accepted_tokens_total" => &mut sample.accepted_tokens,
            "prefix_cache_queries_total" => &mut sample.prefix_cache_queries,
            "prefix_cache_hits_total" => &mut sample.prefix_cache_hits,
            _ => continue,
        };
        // Labels may hold blanks, the value may not.
        let Some(value) = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()) else {
            continue;
        };
        if !value.is_finite() {
            continue;
        }
        let before = place.unwrap_or(0.0);
        *place = Some(if name.ends_with("usage_perc") { before.max(value) } else { before + value });
    }
    sample
}

/// How one server is asked for its metrics.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    dialer: Dialer,
    path: String,
    authority: String,
    headers: Vec<(String, String)>,
}

impl Call {
    pub(crate) fn new(target: &Target, dialer: &Dialer, headers: Vec<(String, String)>) -> Self {
        let (dialer, path) = (dialer.clone(), target.path("/metrics"));
        Self { dialer, path, authority: target.authority(), headers }
    }

    /// The metrics now; `None` when the server does not answer with any.
    pub(crate) async fn sample(&self, start: Instant) -> Option<Sample> {
        const PATIENCE: Duration = Duration::from_secs(2);
        let Self { dialer, path, authority, headers } = self;
        let Answer { status: 200, body } =
            call::get(dialer, path, authority, headers, PATIENCE).await.ok()?
        else {
            return None;
        };
        Some(parse(&String::from_utf8_lossy(&body), start.elapsed().as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_added_up_and_strangers_left_out() {
        let text = "# HELP vllm:num_requests_running x\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 3.0\n\
            vllm:num_requests_running{engine=\"1\",model_name=\"a b\"} 4.0\n\
            vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n\
            vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 9.0\n\
            vllm:num_preemptions_total{engine=\"0\"} NaN\n\
            vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 8\n\
            vllm:spec_decode_num_accepted_tokens_total 7\nother 1\n";
        let sample = parse(text, 1.5);
        assert_eq!((sample.requests_running, sample.kv_cache_usage), (Some(7.0), Some(0.5)));
        assert_eq!((sample.requests_waiting, sample.preemptions), (None, None));
        assert_eq!((sample.accepted_tokens, sample.time), (Some(7.0), 1.5));
    }
}
