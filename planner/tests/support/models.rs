//! How does an imported config compare to what a real vLLM recorded for it?

use planner::import::hf_config::{ImportSettings, Imported, Platform, Speculative, import};
use planner::{EngineSettings, EngineVersion, MambaCacheMode, RawSpec};
use serde_json::Value;

/// The import settings of a recorded case.
pub(crate) fn import_settings(engine: &Value, version: EngineVersion) -> ImportSettings {
    let number = |key: &str| engine.get(key).and_then(Value::as_u64);
    let text =
        |key: &str, default: &str| engine.get(key).and_then(Value::as_str).unwrap_or(default).to_owned();
    ImportSettings {
        tensor_parallel_size: number("tp").unwrap_or(1),
        max_model_len: number("max_model_len").unwrap_or(8192),
        block_size: number("block_size"),
        kv_cache_dtype: text("kv_cache_dtype", "auto"),
        dtype: text("dtype", "bfloat16"),
        speculative: engine.get("speculative").filter(|s| s.is_object()).map(|s| Speculative {
            method: s.get("method").and_then(Value::as_str).unwrap_or_default().to_owned(),
            num_speculative_tokens: s.get("num_speculative_tokens").and_then(Value::as_u64).unwrap_or(0),
        }),
        mamba_cache_mode: mamba_cache_mode(engine),
        mamba_cache_dtype: text("mamba_cache_dtype", "auto"),
        mamba_ssm_cache_dtype: text("mamba_ssm_cache_dtype", "auto"),
        language_model_only: engine.get("language_model_only").and_then(Value::as_bool).unwrap_or(false),
        disable_sliding_window: engine
            .get("disable_sliding_window")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        hf_overrides: engine.get("hf_overrides").and_then(Value::as_object).cloned().unwrap_or_default(),
        // A recording without it is a CPU's.
        platform: text("platform", "cpu").parse().unwrap_or(Platform::Cpu),
        version,
        draft_prefix: "draft".to_owned(),
        ..ImportSettings::default()
    }
}

fn mamba_cache_mode(engine: &Value) -> MambaCacheMode {
    engine
        .get("mamba_cache_mode")
        .and_then(|mode| serde_json::from_value(mode.clone()).ok())
        .unwrap_or(MambaCacheMode::None)
}

/// The version that answered.
fn version(case: &Value) -> EngineVersion {
    case.get("oracle").and_then(Value::as_str).and_then(|name| name.parse().ok()).unwrap_or_default()
}

/// Imports a recorded case.
pub(crate) fn imported(case: &Value) -> Result<Imported, planner::import::hf_config::ImportError> {
    let null = Value::Null;
    let settings = import_settings(case.get("engine").unwrap_or(&null), version(case));
    import(case.get("config").unwrap_or(&null), case.get("draft_config"), &settings)
}

/// Every difference between what is imported (and planned) and what was recorded.
pub(crate) fn differences(case: &Value) -> Vec<String> {
    let null = Value::Null;
    let expect = case.get("expect").unwrap_or(&null);
    let imported = match (imported(case), expect.get("error")) {
        (Err(_), Some(_)) => return Vec::new(),
        (Err(error), None) => return vec![format!("not imported: {error}")],
        (Ok(_), Some(_)) => return Vec::new(),
        (Ok(imported), None) => imported,
    };
    let mut found = Vec::new();
    let layers = expect.get("layers").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if layers.len() != imported.model.len() {
        found.push(format!("{} layers, recorded {}", imported.model.len(), layers.len()));
    }
    for (i, recorded) in layers.iter().enumerate() {
        let Some(spec) = imported.model.spec_of(i) else { break };
        let mut raw = RawSpec::from(spec);
        raw.name = Some(imported.model.name_of(i).into_owned());
        raw.page_size_bytes = spec.page_size_bytes(&version(case).rules()).ok();
        let ours = serde_json::to_value(&raw).unwrap_or(Value::Null);
        if ours != *recorded {
            found.push(format!("layer {i}\n      ours     {ours}\n      recorded {recorded}"));
            if found.len() > 3 {
                break;
            }
        }
    }
    let shared: serde_json::Map<String, Value> =
        imported.shared.iter().map(|(a, b)| (a.clone(), Value::from(b.as_str()))).collect();
    let recorded_shared = expect.get("shared").and_then(Value::as_object).cloned().unwrap_or_default();
    if shared != recorded_shared {
        found.push(format!("shared: ours {shared:?}, recorded {recorded_shared:?}"));
    }
    for (key, ours) in [
        ("block_size", Some(imported.block_size)),
        ("mamba_page_size_padded", imported.mamba_page_size_padded),
    ] {
        let recorded = expect.get(key).and_then(Value::as_u64);
        if ours != recorded {
            found.push(format!("{key}: ours {ours:?}, recorded {recorded:?}"));
        }
    }
    if let Some(plan) = expect.get("plan").filter(|_| found.is_empty()) {
        found.extend(plan_differences(case, &imported, plan));
    }
    found
}

fn plan_differences(case: &Value, imported: &Imported, recorded: &Value) -> Vec<String> {
    let engine = case.get("engine").unwrap_or(&Value::Null);
    let number = |key: &str| engine.get(key).and_then(Value::as_u64);
    let settings = EngineSettings {
        tensor_parallel_size: number("tp").unwrap_or(1),
        max_model_len: number("max_model_len").unwrap_or(8192),
        max_num_batched_tokens: number("max_num_batched_tokens").unwrap_or(8192),
        available_memory_bytes: number("available_memory").into_iter().collect(),
        mamba_cache_mode: mamba_cache_mode(engine),
        disable_hybrid_kv_cache_manager: engine
            .get("disable_hybrid")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        ..EngineSettings::default()
    };
    let rules = version(case).rules();
    let mut found = Vec::new();
    let plan = match planner::plan(&imported.model, &settings, &rules) {
        Ok(plan) => plan,
        Err(error) => {
            if recorded.get("error").and_then(Value::as_str) != Some(error.class().name()) {
                found.push(format!("plan: ours refused ({error}), recorded {recorded}"));
            }
            return found;
        }
    };
    let grouping = &plan.grouping;
    let groups: Vec<Value> = grouping
        .groups
        .iter()
        .map(|group| {
            let names: Vec<String> =
                group.layers.iter().map(|i| imported.model.name_of(*i as usize).into_owned()).collect();
            serde_json::json!({
                "layers": names,
                "type": grouping.class_name(group),
                "block_size": grouping.block_size(group),
                "page_size_bytes": grouping.page_size_bytes(group).ok(),
            })
        })
        .collect();
    let mut check = |key: &str, ours: Value| {
        let theirs = recorded.get(key).cloned().unwrap_or(Value::Null);
        if theirs != ours {
            let short = |v: &Value| v.to_string().chars().take(300).collect::<String>();
            found.push(format!("plan.{key}: ours {}, recorded {}", short(&ours), short(&theirs)));
        }
    };
    check("groups", Value::Array(groups));
    check("group_size", grouping.group_size().into());
    check("kv_tp_replicas", plan.kv_tp_replicas.into());
    check("bytes_per_block", plan.bytes_per_block.into());
    check("num_blocks", plan.fitting_pool().map(|pool| pool.num_blocks).into());
    check("max_concurrency", plan.fitting_pool().map(|pool| pool.max_concurrency).into());
    let blocks = plan.pool.as_ref().and_then(|_| plan.blocks_per_max_len_request(&settings, &rules).ok());
    check("blocks_per_max_len_request", blocks.into());
    found
}
