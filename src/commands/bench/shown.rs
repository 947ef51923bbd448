//! What a table shows of a run, measured just now or read from a result file.

use executor::load::summary::Spread;
use serde_json::Value;

use super::load_args::Latency;
use super::result::{Measured, failures};

/// The figures of a run, ready to be laid out.
pub(super) struct Shown {
    pub(super) planned: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    /// Whether the run ended before its last request.
    pub(super) interrupted: bool,
    /// Kind, count and the first detail.
    pub(super) failures: Vec<(String, u64, String)>,
    /// Tokens of prompts.
    pub(super) input: u64,
    /// Tokens of answers.
    pub(super) output: u64,
    /// Seconds.
    pub(super) duration: f64,
    pub(super) goodput: Option<f64>,
    /// Requests, output tokens and all tokens a second.
    pub(super) rates: [f64; 3],
    /// The shares of the percentiles, as they are named.
    pub(super) percentiles: Vec<String>,
    pub(super) rows: Vec<Row>,
    /// What the client added.
    pub(super) client: Option<String>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// One latency: median, mean, deviation and percentiles, in milliseconds.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) figures: Vec<f64>,
}

impl Row {
    fn of(name: &str, spread: &Spread) -> Self {
        let shares = spread.percentiles.iter().map(|(_, ms)| *ms);
        let figures = [spread.median, spread.mean, spread.deviation].into_iter().chain(shares).collect();
        Self { name: name.to_owned(), figures }
    }
}

impl Shown {
    /// What was measured just now, or is made of a journal.
    pub(super) fn of(measured: &Measured) -> Self {
        let summary = &measured.summary;
        let mut rows = Vec::new();
        for latency in measured.latencies() {
            rows.push(Row::of(&latency.key().to_uppercase(), measured.spread(latency)));
            let apart = summary.token_itl.as_ref().filter(|token| token.count != summary.itl.count);
            if let (Latency::Itl, Some(token_itl)) = (latency, apart) {
                rows.push(Row::of("ITL/token", token_itl));
            }
        }
        let kinds = failures(&measured.records).into_iter();
        let client = measured.client.as_ref().map(|(cost, delivered, _)| {
            let send = summary.send_lag.percentiles.last().map_or(0.0, |(_, ms)| *ms);
            let read = cost.read_lag.quantile(0.99).as_secs_f64() * 1e3;
            client(cost.cpu_share_max, read, send, delivered.concurrency_mean)
        });
        let bottlenecks = measured.client.as_ref().map(|(_, _, bottlenecks)| bottlenecks.as_slice());
        Self {
            planned: measured.requests_planned as u64,
            completed: summary.completed as u64,
            failed: summary.failed as u64,
            interrupted: measured.interrupted,
            failures: kinds
                .map(|(kind, (count, detail))| (kind.to_string(), count as u64, detail.to_owned()))
                .collect(),
            input: summary.total_input_tokens,
            output: summary.total_output_tokens,
            duration: summary.duration,
            goodput: summary.request_goodput,
            rates: [summary.request_throughput, summary.output_throughput, summary.total_token_throughput],
            percentiles: summary.ttft.percentiles.iter().map(|(share, _)| share.to_string()).collect(),
            rows,
            client,
            warnings: bottlenecks.unwrap_or(&[]).iter().map(ToString::to_string).collect(),
            notes: measured.notes.clone(),
        }
    }

    /// What a result file of `vllm bench serve` or `k3plan bench` holds; `None` for another file.
    pub(super) fn read(result: &Value) -> Option<Self> {
        let object = result.as_object()?;
        let number = |key: &str| object.get(key).and_then(Value::as_f64);
        let count = |key: &str| object.get(key).and_then(Value::as_u64);
        let (completed, duration) = (count("completed")?, number("duration")?);
        let failed = count("failed").unwrap_or(0);
        let mut percentiles: Vec<(f64, String)> = object
            .keys()
            .filter_map(|key| key.strip_prefix('p')?.strip_suffix("_ms")?.split_once('_'))
            .filter_map(|(share, _)| Some((share.parse().ok()?, share.to_owned())))
            .collect();
        percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        percentiles.dedup();
        let percentiles: Vec<String> = percentiles.into_iter().map(|(_, share)| share).collect();
        let row = |latency: Latency| {
            let named = |statistic: &str| number(&format!("{statistic}_{}_ms", latency.key()));
            let mut figures = vec![named("median")?, named("mean")?, named("std").unwrap_or(0.0)];
            figures.extend(percentiles.iter().map(|share| named(&format!("p{share}")).unwrap_or(f64::NAN)));
            Some(Row { name: latency.key().to_uppercase(), figures })
        };
        let own = object.get("k3plan");
        let nested = |key: &str| own.and_then(|own| own.get(key));
        let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let texts = |value: Option<&Value>| -> Vec<String> {
            list(value).iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let added = nested("client").filter(|client| client.is_object());
        Some(Self {
            planned: count("num_prompts").unwrap_or(completed + failed),
            completed,
            failed,
            interrupted: nested("interrupted").and_then(Value::as_bool).unwrap_or(false),
            failures: list(nested("failures"))
                .iter()
                .map(|failure| {
                    let count = failure.get("count").and_then(Value::as_u64).unwrap_or(0);
                    (text(failure, "kind"), count, text(failure, "first"))
                })
                .collect(),
            input: count("total_input_tokens").unwrap_or(0),
            output: count("total_output_tokens").unwrap_or(0),
            duration,
            goodput: number("request_goodput"),
            rates: ["request_throughput", "output_throughput", "total_token_throughput"]
                .map(|key| number(key).unwrap_or(0.0)),
            rows: Latency::ALL.into_iter().filter_map(row).collect(),
            client: added.and_then(|added| {
                let figure = |key: &str| added.get(key).and_then(Value::as_f64);
                let send = added.get("send_lag_ms");
                let last = percentiles.last().and_then(|share| send?.get(format!("p{share}"))?.as_f64());
                Some(client(
                    figure("cpu_share_max")?,
                    figure("read_lag_ms_p99")?,
                    last.unwrap_or(0.0),
                    figure("concurrency_mean")?,
                ))
            }),
            warnings: texts(added.and_then(|added| added.get("bottlenecks"))),
            notes: texts(nested("notes")),
            percentiles,
        })
    }
}

fn client(cpu_share: f64, read_ms: f64, send_ms: f64, under_way: f64) -> String {
    format!(
        "{:.1}% of a core, read {read_ms:.3} ms late at P99, sent {send_ms:.3} ms late at most P99, {under_way:.1} \
         under way",
        100.0 * cpu_share
    )
}
