//! Measured points as JSON lines (docs/predict.md): what k3plan's own scripts write of a server.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use simulator::cost::calibrate::{Point, Subject};
use simulator::cost::closed_loop::{Kind, Load};
use simulator::cost::{Dispatch, Exposure, Hardware, Layout};

use super::{Measured, Peaks};
use crate::failure::Failure;
use crate::predict::{models, precision};

/// A line.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default = "cpu")]
    hardware: String,
    #[serde(default)]
    bandwidth: Option<f64>,
    #[serde(default)]
    flops: Option<f64>,
    #[serde(default = "one")]
    tensor_parallel: u32,
    #[serde(default)]
    expert_parallel: bool,
    #[serde(default = "auto")]
    precision: String,
    #[serde(default = "auto")]
    kv_cache_dtype: String,
    /// The engine's version.
    #[serde(default)]
    vllm: String,
    #[serde(default)]
    groups: Option<f64>,
    #[serde(default)]
    launches: f64,
    #[serde(default)]
    exposed: bool,
    concurrency: f64,
    input_len: f64,
    output_len: f64,
    /// Which start of a server it was.
    #[serde(default)]
    start: Option<u64>,
    #[serde(default)]
    prompts: Option<f64>,
    #[serde(default)]
    drafts: f64,
    #[serde(default)]
    accepted: Option<f64>,
    #[serde(default)]
    median_itl_ms: Option<f64>,
    #[serde(default)]
    tpot_ms: Option<f64>,
    #[serde(default)]
    ttft_ms: Option<f64>,
}

fn cpu() -> String {
    "cpu".to_owned()
}

fn auto() -> String {
    "auto".to_owned()
}

fn one() -> u32 {
    1
}

pub(super) fn read(file: &str, text: &str, peaks: Peaks, all: &mut Vec<Measured>) -> Result<(), Failure> {
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let failed = |cause: &dyn std::fmt::Display| {
            Failure::new(format!("failed to read {file}:{}", index + 1)).caused_by(cause)
        };
        let line: Line = serde_json::from_str(line).map_err(|error| failed(&error))?;
        let inline = line.config.is_some();
        let model = match (&line.model, line.config) {
            (name, Some(config)) => models::of(name.as_deref().unwrap_or("config"), config)?,
            (Some(name), None) => models::find(name)?,
            (None, None) => return Err(failed(&"it has neither `model` nor `config`")),
        };
        let mut hardware = Hardware::find(&line.hardware).map_err(|error| failed(&error))?.clone();
        hardware.bandwidth = hardware.bandwidth.or(line.bandwidth).or(peaks.bandwidth);
        hardware.bf16 = hardware.bf16.or(line.flops).or(peaks.flops);
        let precision = precision::named(&line.precision, &model.config, &model.shape, &line.kv_cache_dtype)?;
        let name = line.model.unwrap_or_else(|| model.name.clone());
        // Configs at hand are told apart by their layers; those of one kind are one model.
        let family = match model.config.get("model_type").and_then(Value::as_str) {
            Some(kind) if inline => kind.to_owned(),
            _ => name.clone(),
        };
        let groups = line.groups.unwrap_or(0.0);
        let cpu = hardware.platform == "cpu";
        let id = line.id.unwrap_or_else(|| format!("{name} {groups} groups c{}", line.concurrency));
        all.push(Measured {
            pair: format!("{family} on {}", hardware.name),
            point: Point {
                id,
                model: family,
                same: format!("{name} {groups} {} {} {}", line.concurrency, line.input_len, line.output_len),
                engine: line.vllm,
                replicas: 1,
                server: line.start.map_or_else(
                    || format!("{file}:{}", index + 1),
                    |start| format!("{name} {groups} {start}"),
                ),
                load: Load {
                    kind: Kind::ClosedLoop,
                    concurrency: line.concurrency,
                    input: line.input_len,
                    output: line.output_len,
                    prompts: line.prompts.unwrap_or(10.0 * line.concurrency),
                    running_at_most: f64::MAX,
                    chunk: 8192.0,
                    drafts: line.drafts,
                    accepted: line.accepted.unwrap_or(1.0),
                },
                subject: Subject {
                    shape: model.shape,
                    hardware: Arc::new(hardware),
                    precision,
                    layout: Layout {
                        tensor_parallel: line.tensor_parallel,
                        expert_parallel: line.expert_parallel,
                        early_fp8_experts: false,
                    },
                    dispatch: Dispatch { builds: groups, launches: line.launches },
                    // On a CPU the host is the device.
                    exposure: if line.exposed || cpu { Exposure::Exposed } else { Exposure::Overlapped },
                },
                tpot: line.tpot_ms.map(|ms| ms * 1e-3),
                ttft: line.ttft_ms.map(|ms| ms * 1e-3),
                itl: line.median_itl_ms.map(|ms| ms * 1e-3),
            },
            note: None,
        });
    }
    Ok(())
}
