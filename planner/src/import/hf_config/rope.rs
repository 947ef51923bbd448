//! Which rotary positions does vLLM refuse?
//!
//! # Source
//! `validate_rope` in transformers' `modeling_rope_utils.py`, 5.19, which its classes run; `patch_legacy_rope_type` in
//! `vllm/transformers_utils/config.py` and `get_rope` in `vllm/model_executor/layers/rotary_embedding/__init__.py`, vLLM 0.32.

use serde_json::{Map, Value};

use super::config::{Config, Found, short};
use super::error::ImportError;
use super::fields;

/// The types that vLLM has positions for, and the keys that each cannot do without.
const TYPES: &[(&str, &[&str])] = &[
    ("bailing_mrope", &[]),
    ("deepseek_llama_scaling", &["factor"]),
    ("deepseek_yarn", &["factor"]),
    ("default", &[]),
    ("dynamic", &["factor"]),
    ("linear", &["factor"]),
    ("llama3", &["factor", "high_freq_factor", "low_freq_factor"]),
    ("longrope", &["long_factor", "short_factor"]),
    ("mllama4", &[]),
    ("mrope", &["mrope_section"]),
    ("ntk", &["factor"]),
    ("openpangu", &[]),
    ("proportional", &[]),
    ("su", &["long_factor", "short_factor"]),
    ("telechat3-yarn", &["factor"]),
    ("yarn", &["factor"]),
];

/// Model types whose attention does not look at the type: it rotates by one of its own, by none, or not always.
///
/// # Source
/// The attention classes of `vllm/model_executor/models/{dbrx,deepseek_v2,gpt_oss,granitemoehybrid,jamba,mimo_v2,nemotron_h,
/// zamba2}.py`, vLLM 0.32.
const DO_NOT_LOOK: &[&str] = &[
    "dbrx",
    "deepseek",
    "gpt_oss",
    "granitemoehybrid",
    "jamba",
    "mimo_v2",
    "mimo_v2_flash",
    "nemotron_h",
    "nemotron_h_puzzle",
    "zamba2",
];

/// Refuses positions that attention to keys cannot rotate by.
pub(super) fn check(config: &Config<'_>) -> Result<(), ImportError> {
    if !fields::declares(config.text_type(), "rope_parameters") || DO_NOT_LOOK.contains(&config.text_type()) {
        return Ok(());
    }
    let parameters = config.rope_parameters();
    if let Some(Found::File(theta)) = config.find("rope_theta")
        && !theta.is_number()
        && parameters.is_none_or(|set| !set.contains_key("rope_theta"))
    {
        return Err(super::config::wrong("rope_theta", "a number", theta));
    }
    let Some(parameters) = parameters else { return Ok(()) };
    let nested = parameters.values().any(Value::is_object)
        && parameters.values().all(|set| set.is_object() || set.is_null());
    if nested {
        return parameters.values().filter_map(Value::as_object).try_for_each(set);
    }
    set(parameters)
}

/// One set of parameters.
fn set(parameters: &Map<String, Value>) -> Result<(), ImportError> {
    let (new, old) = (parameters.get("rope_type"), parameters.get("type"));
    if let (Some(new), Some(old)) = (new, old)
        && new != old
        && !matches!(
            (old.as_str(), new.as_str()),
            (Some("su"), Some("longrope")) | (Some("mrope"), Some("default"))
        )
    {
        return Err(ImportError::Refused(format!(
            "the rotary positions have the `rope_type` {new} and the `type` {old}: vLLM takes one of them only"
        )));
    }
    let Some(stated) = new.or(old) else { return factor(parameters) };
    let known = stated.as_str().and_then(|name| TYPES.iter().find(|(known, _)| *known == name));
    let Some((name, needed)) = known else {
        return Err(ImportError::UnknownValue { key: "rope_type".to_owned(), value: short(&plain(stated)) });
    };
    // Hunyuan's kind of it goes by another key.
    let by_alpha = *name == "dynamic" && parameters.contains_key("alpha");
    for key in needed.iter().filter(|_| !by_alpha) {
        match parameters.get(*key) {
            None => {
                return Err(ImportError::Refused(format!(
                    "rotary positions of the type `{name}` need a `{key}`"
                )));
            }
            Some(value) if *key == "factor" && !value.is_number() => {
                return Err(super::config::wrong("factor", "a number", value));
            }
            Some(_) => {}
        }
    }
    factor(parameters)
}

/// The part of a head that is rotated.
fn factor(parameters: &Map<String, Value>) -> Result<(), ImportError> {
    match parameters.get("partial_rotary_factor").and_then(Value::as_f64) {
        Some(part) if !(part > 0.0 && part <= 1.0) => Err(ImportError::Refused(format!(
            "`partial_rotary_factor` is {part}, which must be above 0 and at most 1"
        ))),
        _ => Ok(()),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
