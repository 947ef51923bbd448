//! Models: the recorded layers, planned again.

use std::path::Path;

use planner::import::hf_config::{ImportSettings, Platform, Speculative, import};
use planner::{EngineVersion, MambaCacheMode, RawSpec, Rules};
use serde_json::Value;

use super::Replayed;
use crate::failure::Failure;
use crate::record::expect::{Difference, Expect};
use crate::record::model_line::ModelLine;
use crate::record::read;

/// Plans one line again.
pub(super) fn replay(file: &Path, number: usize, line: &str) -> Result<Replayed, Failure> {
    let case: ModelLine = read::parse(file, number, line)?;
    let wrong = |cause: String| {
        Failure::new(format!("failed to verify `{}`, line {number}, case `{}`", file.display(), case.id))
            .caused_by(cause)
    };
    let version: EngineVersion =
        case.oracle.parse().map_err(|error: planner::engine::UnknownVersion| wrong(error.to_string()))?;
    let mut differences: Vec<(String, Difference)> = import_differences(&case, version)
        .into_iter()
        .map(|difference| (version.to_string(), difference))
        .collect();
    if let Some(recorded) = &case.expect.plan {
        let model = case.recorded_model().map_err(wrong)?;
        let settings = case.engine.settings().map_err(wrong)?;
        let rules = version.rules();
        let plan = planner::plan(&model, &settings, &rules);
        let planned = Expect::of_plan(&model, &settings, &rules, plan.as_ref());
        let recorded = recorded.by_index(&model).map_err(wrong)?;
        differences.extend(recorded.differences(&planned).into_iter().map(|d| (version.to_string(), d)));
    }
    Ok(Replayed { id: case.id, differences })
}

/// At most so many layers are shown.
const LAYERS_SHOWN: usize = 3;

/// What the import of the config makes of the model, against the recorded layers.
fn import_differences(case: &ModelLine, version: EngineVersion) -> Vec<Difference> {
    let Some(recorded) = &case.expect.layers else { return Vec::new() };
    let settings = import_settings(case, version, recorded);
    let imported = match import(&case.config, case.draft_config.as_ref(), &settings) {
        Ok(imported) => imported,
        Err(error) => {
            return vec![Difference {
                field: "import",
                recorded: format!("{} layers", recorded.len()),
                planned: error.to_string(),
            }];
        }
    };
    let rules = version.rules();
    let mut found = Vec::new();
    let mut differ = |field: &'static str, recorded: String, planned: String| {
        if recorded != planned {
            found.push(Difference { field, recorded, planned });
        }
    };
    differ("layers", recorded.len().to_string(), imported.model.len().to_string());
    let mut shown = 0;
    for (i, raw) in recorded.iter().enumerate() {
        let Some(ours) = spec_of(&imported.model, i, &rules) else { break };
        if ours != *raw && shown < LAYERS_SHOWN {
            shown += 1;
            let text = |raw: &RawSpec| serde_json::to_string(raw).unwrap_or_default();
            differ("layer", text(raw), text(&ours));
        }
    }
    let shared: std::collections::BTreeMap<String, String> = imported.shared.into_iter().collect();
    // A dump may come from a process that does not see the layers.
    if !case.expect.shared.is_empty() {
        differ("shared", format!("{:?}", case.expect.shared), format!("{shared:?}"));
    }
    let number = |n: Option<u64>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
    if case.expect.block_size.is_some() {
        differ("block_size", number(case.expect.block_size), number(Some(imported.block_size)));
        differ(
            "mamba_page_size_padded",
            number(case.expect.mamba_page_size_padded),
            number(imported.mamba_page_size_padded),
        );
    }
    found
}

fn spec_of(model: &planner::Model, i: usize, rules: &Rules) -> Option<RawSpec> {
    let spec = model.spec_of(i)?;
    let mut raw = RawSpec::from(spec);
    raw.name = Some(model.name_of(i).into_owned());
    raw.page_size_bytes = spec.page_size_bytes(rules).ok();
    Some(raw)
}

/// The settings that a case was recorded with.
fn import_settings(case: &ModelLine, version: EngineVersion, recorded: &[RawSpec]) -> ImportSettings {
    let engine = &case.engine;
    let speculative = engine.speculative.as_ref().map(|map| Speculative {
        method: map.get("method").and_then(Value::as_str).unwrap_or("mtp").to_owned(),
        num_speculative_tokens: map.get("num_speculative_tokens").and_then(Value::as_u64).unwrap_or(1),
    });
    let has_prefix =
        recorded.iter().any(|raw| raw.name.as_deref().is_some_and(|name| name.starts_with("draft.")));
    ImportSettings {
        tensor_parallel_size: engine.tp.unwrap_or(1),
        max_model_len: engine.max_model_len.and_then(|n| u64::try_from(n).ok()).unwrap_or(8192),
        block_size: engine.block_size,
        kv_cache_dtype: engine.kv_cache_dtype.clone().unwrap_or_else(|| "auto".to_owned()),
        dtype: engine.dtype.clone().unwrap_or_else(|| "bfloat16".to_owned()),
        speculative,
        mamba_cache_mode: engine.mamba_cache_mode.unwrap_or(MambaCacheMode::None),
        mamba_cache_dtype: engine.mamba_cache_dtype.clone().unwrap_or_else(|| "auto".to_owned()),
        mamba_ssm_cache_dtype: engine.mamba_ssm_cache_dtype.clone().unwrap_or_else(|| "auto".to_owned()),
        language_model_only: engine.language_model_only.unwrap_or(false),
        splits_encoder: engine.mm_encoder_tp_mode.as_deref() != Some("data"),
        disable_sliding_window: engine.disable_sliding_window.unwrap_or(false),
        hf_overrides: engine.hf_overrides.clone().unwrap_or_default(),
        platform: engine.platform.as_deref().and_then(|name| name.parse().ok()).unwrap_or(Platform::Cpu),
        version,
        draft_prefix: if has_prefix { "draft".to_owned() } else { String::new() },
    }
}
