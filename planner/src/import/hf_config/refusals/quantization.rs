//! Which quantised checkpoints does vLLM refuse before it looks for a kernel?
//!
//! # Source
//! `_verify_quantization` in `vllm/config/model.py`, `_normalize_quantization_config` in
//! `vllm/transformers_utils/model_arch_config_convertor.py`, `from_config` of the methods in
//! `vllm/model_executor/layers/quantization`, and `validate_kv_cache_scheme` in its
//! `compressed_tensors/compressed_tensors.py`, vLLM 0.32.

use serde_json::{Map, Value};

use super::super::config::{Config, short, wrong};
use super::super::error::ImportError;
use crate::engine::EngineVersion;

/// Methods whose config cannot do without one of these keys.
const NEEDED: &[(&[&str], &[&str])] = &[
    (&["fp8", "deepseek_v4_fp8"], &["activation_scheme"]),
    (&["auto_gptq", "gptq", "gptq_marlin", "inc", "auto-round", "moe_wna16"], &["bits"]),
    (&["auto_awq", "awq", "awq_marlin"], &["w_bit", "bits"]),
    (&["quark"], &["export"]),
];

/// What `modelopt` may have quantised by, where it names itself as the producer.
const MODELOPT: &[&str] = &["FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4"];

/// Refuses a quantisation that the engine does not know, or cannot read.
pub(super) fn check(config: &Config<'_>, version: EngineVersion) -> Result<(), ImportError> {
    let key = "quantization_config";
    if let Some(value) = config.at_root(key).filter(|value| !value.is_null() && !value.is_object()) {
        return Err(wrong(key, "an object", value));
    }
    let Some(quantization) = config.quantization().and_then(Value::as_object) else { return Ok(()) };
    let (method, own) = (method(quantization)?, |key: &str| quantization.get(key));
    if method.is_empty() {
        return Ok(());
    }
    if !version.quantises_by(&method) {
        return Err(ImportError::UnknownQuantization { method: short(&method), version });
    }
    let needed = NEEDED.iter().find(|(methods, _)| methods.contains(&method.as_str()));
    if let Some((_, keys)) = needed
        && !keys.iter().any(|key| own(key).is_some())
    {
        return Err(ImportError::Missing { key: format!("{key}.{}", keys.join("` or `")) });
    }
    match method.as_str() {
        "compressed-tensors" => {
            own("kv_cache_scheme").filter(|scheme| !scheme.is_null()).map_or(Ok(()), scheme)
        }
        "modelopt" | "modelopt_fp4" => algorithms(quantization),
        _ => Ok(()),
    }
}

/// What to say of a method that the engine gives up.
///
/// # Source
/// `DEPRECATED_QUANTIZATION_METHODS` in `vllm/model_executor/layers/quantization/__init__.py`, vLLM 0.32.
pub(in super::super) fn note(config: &Config<'_>) -> Option<String> {
    let named = method(config.quantization()?.as_object()?).ok()?;
    matches!(named.as_str(), "fbgemm_fp8" | "fp_quant").then(|| {
        format!("vLLM runs checkpoints of the method `{named}` with `--allow-deprecated-quantization` only")
    })
}

/// The method as the engine reads it.
fn method(quantization: &Map<String, Value>) -> Result<String, ImportError> {
    let key = "quantization_config.quant_method";
    let named = match quantization.get("quant_method") {
        None => String::new(),
        Some(Value::String(name)) => name.to_lowercase().replace("compressed_tensors", "compressed-tensors"),
        Some(value) => return Err(wrong(key, "a text", value)),
    };
    let inner = quantization.get("quantization").and_then(Value::as_object);
    let producer = quantization.get("producer").and_then(|p| p.get("name")).and_then(Value::as_str);
    let algorithm = inner.and_then(|inner| inner.get("quant_algo")).filter(|value| !value.is_null());
    let Some(algorithm) = algorithm.filter(|_| producer == Some("modelopt")) else { return Ok(named) };
    let algorithm = algorithm.as_str().map_or_else(|| algorithm.to_string(), str::to_uppercase);
    match algorithm.as_str() {
        "NVFP4" => Ok("modelopt_fp4".to_owned()),
        known if MODELOPT.contains(&known) => Ok("modelopt".to_owned()),
        other => Err(ImportError::UnknownValue { key: "quant_algo".to_owned(), value: short(other) }),
    }
}

/// A scheme of keys and values of the library compressed-tensors.
fn scheme(scheme: &Value) -> Result<(), ImportError> {
    let key = "kv_cache_scheme";
    let Some(map) = scheme.as_object() else { return Err(wrong(key, "an object", scheme)) };
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    let eight = map.get("num_bits").and_then(Value::as_f64) == Some(8.0);
    if !eight || text("type") != Some("float") {
        return Err(ImportError::Refused(format!(
            "`{key}` must be of 8 bits (`num_bits`) and of the type `float`: vLLM keeps keys and values in no other \
             format of compressed-tensors"
        )));
    }
    if !matches!(text("strategy"), Some("tensor" | "attn_head")) {
        return Err(ImportError::Refused(format!(
            "`{key}.strategy` must be `tensor` or `attn_head`: vLLM scales keys and values by no other"
        )));
    }
    if map.get("symmetric").and_then(Value::as_bool) != Some(true) {
        return Err(ImportError::Refused(format!(
            "`{key}.symmetric` must be true: vLLM scales keys and values by no other way"
        )));
    }
    Ok(())
}

/// What a checkpoint of modelopt quantises by, weights and cache.
fn algorithms(quantization: &Map<String, Value>) -> Result<(), ImportError> {
    let inner = quantization.get("quantization").and_then(Value::as_object);
    let own = inner.unwrap_or(quantization);
    if own.get("quant_algo").is_none_or(Value::is_null) {
        return Err(ImportError::Missing { key: "quantization_config.quant_algo".to_owned() });
    }
    match inner.and_then(|inner| inner.get("kv_cache_quant_algo")) {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(value) => Err(wrong("kv_cache_quant_algo", "a text", value)),
    }
}
