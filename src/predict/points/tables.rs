//! Tables of public measurements: serving points (time to the first token and between tokens at a concurrency), and
//! latencies of one batch from prompt to last token.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use simulator::cost::calibrate::{Point, Subject};
use simulator::cost::closed_loop::{Kind, Load};
use simulator::cost::{Dispatch, Exposure, Hardware, Layout, WeightFormat};

use super::{Measured, Settings, Setup};
use crate::failure::Failure;
use crate::predict::models::{self, NamedModel};
use crate::predict::precision;
use crate::predict::running::{self, NoRoom, Room};

static SETTINGS: LazyLock<Option<Settings>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../serving.json")).ok());

/// A row, by the names of its columns.
struct Row<'a> {
    columns: &'a HashMap<String, usize>,
    record: &'a csv::StringRecord,
    file: &'a str,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|&index| self.record.get(index)).unwrap_or_default().trim()
    }

    fn failure(&self, column: &str, cause: String) -> Failure {
        let line = self.record.position().map_or(0, csv::Position::line);
        Failure::new(format!("failed to read {}:{line}, column `{column}`", self.file)).caused_by(cause)
    }

    fn number(&self, column: &str) -> Result<f64, Failure> {
        let text = self.text(column);
        match text.parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
            _ => Err(self.failure(column, format!("`{text}` is no number above 0"))),
        }
    }

    fn count(&self, column: &str) -> Result<u32, Failure> {
        let text = self.text(column);
        text.parse::<u32>()
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| self.failure(column, format!("`{text}` is no whole number above 0")))
    }
}

/// What several rows share.
#[derive(Default)]
struct Cache {
    models: HashMap<String, NamedModel>,
}

impl Cache {
    fn model(&mut self, name: &str) -> Result<NamedModel, Failure> {
        if let Some(model) = self.models.get(name) {
            return Ok(model.clone());
        }
        let model = models::find(name)?;
        self.models.insert(name.to_owned(), model.clone());
        Ok(model)
    }
}

pub(super) fn read(file: &str, text: &str, all: &mut Vec<Measured>) -> Result<(), Failure> {
    let mut reader =
        csv::ReaderBuilder::new().comment(Some(b'#')).flexible(true).from_reader(text.as_bytes());
    let failed = |cause: csv::Error| Failure::new(format!("failed to read `{file}`")).caused_by(cause);
    let columns: HashMap<String, usize> = reader
        .headers()
        .map_err(failed)?
        .iter()
        .enumerate()
        .map(|(i, name)| (name.trim().to_owned(), i))
        .collect();
    let has = |name: &str| columns.contains_key(name);
    let serving = has("model_path") && has("silicon_tpot_ms");
    let latencies = has("model") && has("latency_s");
    if !serving && !latencies {
        return Err(Failure::new(format!("failed to read `{file}`"))
            .caused_by("its first line names no columns that are known")
            .hint("serving points have `model_path`, `system`, `isl`, `osl`, `batch_size`, `tp_size`, `silicon_ttft_ms`, \
                   `silicon_tpot_ms`; latencies `model`, `system`, `precision`, `tp`, `batch_size`, `input_tokens`, \
                   `output_tokens`, `latency_s`; or give JSON lines (docs/predict.md)"));
    }
    let mut cache = Cache::default();
    for record in reader.records() {
        let record = record.map_err(failed)?;
        let row = Row { columns: &columns, record: &record, file };
        all.push(if serving { serving_point(&row, &mut cache)? } else { latency(&row, &mut cache)? });
    }
    Ok(())
}

fn setup(model: &str, system: &str, precision: &str) -> Option<&'static Setup> {
    let settings = SETTINGS.as_ref()?;
    let lower = model.to_ascii_lowercase();
    settings
        .setups
        .iter()
        .find(|setup| {
            lower.contains(&setup.model)
                && system.starts_with(&setup.system)
                && precision.starts_with(&setup.precision)
        })
        .or(Some(&settings.default))
}

fn early(version: &str) -> bool {
    let mut parts = version.split('.').map(str::parse::<u32>);
    matches!((parts.next(), parts.next()), (Some(Ok(0)), Some(Ok(minor))) if minor < 18)
}

/// A row of the serving table: `batch_size` is the concurrency of each of `attention_dp_size` data parallel ranks.
fn serving_point(row: &Row<'_>, cache: &mut Cache) -> Result<Measured, Failure> {
    let (name, system) = (row.text("model_path"), row.text("system"));
    let model = cache.model(name)?;
    let hardware = Hardware::find(system).map_err(|error| row.failure("system", error.to_string()))?;
    let modes = ["moe_quant_mode", "gemm_quant_mode", "precision"];
    let mode = modes.into_iter().find(|mode| !row.text(mode).is_empty());
    let mut quantization = mode.map_or("bf16", |mode| row.text(mode)).to_owned();
    let own = model.config.get("quantization_config").and_then(|q| q.get("quant_method")?.as_str());
    if own == Some("mxfp4") {
        "mxfp4".clone_into(&mut quantization);
    }
    let known = setup(name, system, row.text("precision"));
    let dtype = match known.map_or("auto", |setup| setup.kv_cache_dtype.as_str()) {
        "quantized" if quantization == "bf16" => "auto",
        "quantized" => "fp8",
        dtype => dtype,
    };
    let precision = precision::named(&quantization, &model.config, &model.shape, dtype)
        .map_err(|failure| row.failure(mode.unwrap_or("moe_quant_mode"), failure.message))?;
    let ranks = row.count("tp_size")?;
    let replicas: u32 = row.text("attention_dp_size").parse().ok().filter(|&n| n >= 1).unwrap_or(1);
    let expert_ranks: u32 = row.text("moe_ep_size").parse().unwrap_or(1);
    // Each stage of a pipeline works on its share of the requests, one stage after the other.
    let stages = if row.text("pp_size").is_empty() { 1 } else { row.count("pp_size")? };
    let ranged = !row.text("attention_dp_size").is_empty();
    let share = match SETTINGS.as_ref() {
        Some(settings) if ranged => settings.lengths.share,
        _ => 1.0,
    };
    let (input, output) = (row.number("isl")? * share, row.number("osl")? * share);
    let concurrency = (row.number("batch_size")? * f64::from(replicas) / f64::from(stages)).max(1.0);
    let subject = Subject {
        shape: Arc::clone(&model.shape),
        hardware: Arc::new(hardware.clone()),
        precision,
        layout: Layout {
            tensor_parallel: ranks,
            expert_parallel: expert_ranks > 1,
            early_fp8_experts: precision.experts == WeightFormat::Fp8Block
                && early(row.text("backend_version")),
        },
        dispatch: Dispatch::default(),
        exposure: Exposure::Overlapped,
    };
    let utilization = known.map_or(0.9, |setup| setup.utilization);
    let room = Room { hardware, tensor_parallel: ranks, utilization, kv_cache_dtype: dtype, input, output };
    let (running_at_most, note) = limit(&model, &subject, &room)?;
    let load = Load {
        kind: Kind::ClosedLoop,
        concurrency,
        input,
        output,
        prompts: 10.0 * concurrency,
        running_at_most,
        chunk: known.and_then(|setup| setup.chunk).unwrap_or(8192.0),
        drafts: 0.0,
        accepted: 1.0,
    };
    let id = row.text("id");
    Ok(Measured {
        pair: format!("{name} on {}", hardware.name),
        point: Point {
            id: if id.is_empty() { format!("{name} {system}") } else { id.to_owned() },
            model: name.to_owned(),
            same: format!(
                "{name} {system} {quantization} {} {ranks} {expert_ranks} {input} {output} {concurrency}",
                row.text("backend_version")
            ),
            engine: row.text("backend_version").to_owned(),
            replicas,
            server: row.record.position().map_or_else(String::new, |place| place.line().to_string()),
            subject,
            load,
            tpot: Some(row.number("silicon_tpot_ms")? * 1e-3),
            ttft: Some(row.number("silicon_ttft_ms")? * 1e-3),
            itl: None,
        },
        note,
    })
}

/// A row of latencies: all requests come at once; the time a token is the latency over the output tokens.
fn latency(row: &Row<'_>, cache: &mut Cache) -> Result<Measured, Failure> {
    let (name, system) = (row.text("model"), row.text("system"));
    let model = cache.model(name)?;
    let hardware = Hardware::find(system).map_err(|error| row.failure("system", error.to_string()))?;
    let quantization = row.text("precision");
    let precision = precision::named(quantization, &model.config, &model.shape, "auto")
        .map_err(|failure| row.failure("precision", failure.message))?;
    let ranks = row.count("tp")?;
    let (input, output) = (row.number("input_tokens")?, row.number("output_tokens")?);
    let concurrency = row.number("batch_size")?;
    let subject = Subject {
        shape: Arc::clone(&model.shape),
        hardware: Arc::new(hardware.clone()),
        precision,
        layout: Layout { tensor_parallel: ranks, expert_parallel: false, early_fp8_experts: false },
        dispatch: Dispatch::default(),
        exposure: Exposure::Overlapped,
    };
    let room =
        Room { hardware, tensor_parallel: ranks, utilization: 0.9, kv_cache_dtype: "auto", input, output };
    let (running_at_most, note) = limit(&model, &subject, &room)?;
    let load = Load {
        kind: Kind::OneBatch,
        concurrency,
        input,
        output,
        prompts: concurrency,
        running_at_most,
        chunk: 8192.0,
        drafts: 0.0,
        accepted: 1.0,
    };
    let id = format!("{name} {system} tp{ranks} batch {concurrency} {input}/{output}");
    Ok(Measured {
        pair: format!("{name} on {}", hardware.name),
        point: Point {
            same: id.clone(),
            id,
            model: name.to_owned(),
            engine: row.text("vllm").to_owned(),
            replicas: 1,
            server: row.record.position().map_or_else(String::new, |place| place.line().to_string()),
            subject,
            load,
            tpot: Some(row.number("latency_s")? / output),
            ttft: None,
            itl: None,
        },
        note,
    })
}

/// The limit by memory; where the plan says that nothing fits, which the measurement shows to be wrong, the note.
fn limit(model: &NamedModel, subject: &Subject, room: &Room<'_>) -> Result<(f64, Option<String>), Failure> {
    let cost = subject.model(&[]).map_err(|error| {
        Failure::new(format!("failed to cost `{}` on {}", model.name, room.hardware.name)).caused_by(error)
    })?;
    match running::at_once(model, &cost, room) {
        Ok(running) => Ok((running.unwrap_or(f64::MAX), None)),
        Err(reason @ (NoRoom::Weights { .. } | NoRoom::Request { .. })) => {
            Ok((f64::MAX, Some(reason.to_string())))
        }
    }
}
