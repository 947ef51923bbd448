//! The same as JSON, `k3plan.import-log/1`.

use std::io;

use planner::import::beside::{Beside, Verdict};
use planner::import::log::{Found, ServerLog, Value};
use serde::Serialize;

use super::{Side, text};
use crate::terminal::Terminal;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    lines: u64,
    starts: u64,
    other_engines: u64,
    other_servers: Vec<serde_json::Value>,
    untold_workers: u64,
    too_large: Vec<serde_json::Value>,
    found: serde_json::Map<String, serde_json::Value>,
    arguments: Option<Arguments>,
    settings: Option<Arguments>,
    missing: Vec<&'static str>,
    beside: Option<BesideJson>,
}

#[derive(Serialize)]
struct Arguments {
    line: u64,
    whole: bool,
    values: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct BesideJson {
    scenario: String,
    engine: Option<String>,
    agrees: bool,
    error: Option<String>,
    notes: Vec<String>,
    figures: Vec<Figure>,
    memory_bytes: Option<(u64, u64)>,
    num_blocks: Option<(u64, u64)>,
}

#[derive(Serialize)]
struct Figure {
    name: &'static str,
    line: u64,
    log: String,
    plan: String,
    verdict: &'static str,
}

/// A value and its line.
fn at<T: Serialize>(value: T, line: u64) -> serde_json::Value {
    serde_json::json!({ "value": value, "line": line })
}

/// Numbers as numbers where the text of [`text::said`] dresses them.
fn exact(log: &ServerLog, key: &str) -> Option<serde_json::Value> {
    let gib = |list: &[Found<planner::import::log::Hundredths>]| {
        list.iter().map(|found| at(found.value.to_string(), found.line)).collect::<Vec<_>>()
    };
    Some(match key {
        "weights_gib" => gib(&log.weights).into(),
        "available_memory" => gib(&log.available_memory).into(),
        "max_model_len" => at(log.max_model_len.as_ref()?.value, log.max_model_len.as_ref()?.line),
        "max_num_batched_tokens" => {
            let found = log.max_num_batched_tokens.as_ref()?;
            at(found.value, found.line)
        }
        "attention_block_size" => {
            let found = log.attention_block_size.as_ref()?;
            at(found.value, found.line)
        }
        "backend_block_size" => {
            let found = log.backend_block_size.as_ref()?;
            at(found.value, found.line)
        }
        "lcm_block_size" => {
            let found = log.lcm_block_size.as_ref()?;
            at(found.value, found.line)
        }
        "group_block_sizes" => {
            let found = log.group_block_sizes.as_ref()?;
            at(&found.value, found.line)
        }
        "padding_layers" => log
            .padding
            .iter()
            .map(|found| {
                serde_json::json!({
                    "layers": found.value.layers, "percent": found.value.percent.to_string(), "line": found.line
                })
            })
            .collect::<Vec<_>>()
            .into(),
        "kv_cache_size" => log
            .tokens
            .iter()
            .map(|found| {
                serde_json::json!({"device": found.value.device, "tokens": found.value.tokens, "line": found.line})
            })
            .collect::<Vec<_>>()
            .into(),
        "max_concurrency" => log
            .concurrency
            .iter()
            .map(|found| {
                serde_json::json!({
                    "max_model_len": found.value.max_model_len,
                    "requests": found.value.requests.to_string(),
                    "line": found.line
                })
            })
            .collect::<Vec<_>>()
            .into(),
        "num_gpu_blocks" => {
            log.blocks.iter().map(|found| at(found.value, found.line)).collect::<Vec<_>>().into()
        }
        "num_gpu_blocks_override" => {
            let found = log.blocks_override.as_ref()?;
            serde_json::json!({
                "profiled": found.value.profiled_blocks, "blocks": found.value.blocks, "line": found.line
            })
        }
        "auto_fit" => {
            let found = log.auto_fit.as_ref()?;
            serde_json::json!({
                "derived": found.value.derived, "fitted": found.value.fitted,
                "memory_gib": found.value.memory.map(|gib| gib.to_string()), "line": found.line
            })
        }
        "refusal" => {
            let found = log.refusal.as_ref()?;
            let refusal = &found.value;
            serde_json::json!({
                "message": refusal.message, "max_model_len": refusal.max_model_len,
                "needed_gib": refusal.needed.map(|gib| gib.to_string()),
                "available_gib": refusal.available.map(|gib| gib.to_string()),
                "estimated_max_model_len": refusal.estimated_max_model_len, "line": found.line
            })
        }
        _ => return None,
    })
}

/// Writes the report.
pub(super) fn write(log: &ServerLog, side: Option<&Side>, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let said = text::said(log);
    let found = said
        .iter()
        .filter(|said| !said.found.is_empty())
        .filter_map(|said| {
            let (text, line) = said.found.first()?;
            Some((said.key.to_owned(), exact(log, said.key).unwrap_or_else(|| at(text, *line))))
        })
        .collect();
    let report = Report {
        schema: "k3plan.import-log/1",
        lines: log.lines,
        starts: log.starts,
        other_engines: log.other_engines,
        other_servers: log
            .other_servers
            .iter()
            .map(|server| serde_json::json!({"line": server.line, "model": server.model, "pid": server.pid}))
            .collect(),
        untold_workers: log.untold_workers,
        too_large: log.too_large.iter().map(|found| at(found.value, found.line)).collect(),
        found,
        arguments: log.flags.as_ref().map(|flags| arguments(flags, log.flags_whole)),
        settings: log.config.as_ref().map(|config| arguments(config, true)),
        missing: text::missing(log, &said),
        beside: side.map(beside),
    };
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}

fn arguments(found: &Found<Vec<(String, Value)>>, whole: bool) -> Arguments {
    Arguments {
        line: found.line,
        whole,
        values: found.value.iter().map(|(name, value)| (name.clone(), json(value))).collect(),
    }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::None => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Text(text) | Value::Other(text) => text.clone().into(),
        Value::List(items) => items.iter().map(json).collect::<Vec<_>>().into(),
        Value::Map(entries) => {
            serde_json::Value::Object(entries.iter().map(|(key, value)| (key.clone(), json(value))).collect())
        }
    }
}

fn beside(side: &Side) -> BesideJson {
    let scenario = side.scenario.clone();
    match &side.beside {
        Err(error) => BesideJson {
            scenario,
            engine: None,
            agrees: false,
            error: Some(error.to_string()),
            notes: Vec::new(),
            figures: Vec::new(),
            memory_bytes: None,
            num_blocks: None,
        },
        Ok(beside) => of(scenario, beside),
    }
}

fn of(scenario: String, beside: &Beside) -> BesideJson {
    BesideJson {
        scenario,
        engine: Some(beside.version.to_string()),
        agrees: !beside.disagrees(),
        error: None,
        notes: beside.notes.clone(),
        figures: beside
            .rows
            .iter()
            .map(|row| Figure {
                name: row.name,
                line: row.line,
                log: row.log.clone(),
                plan: row.plan.clone(),
                verdict: match row.verdict {
                    Verdict::Equal => "equal",
                    Verdict::Possible => "possible",
                    Verdict::Different => "different",
                },
            })
            .collect(),
        memory_bytes: beside.agreement.and_then(|agreement| agreement.memory_bytes),
        num_blocks: beside.agreement.and_then(|agreement| agreement.num_blocks),
    }
}
