//! What do `--hf-overrides` and `--disable-sliding-window` make of a config?
//!
//! # Source
//! `ModelConfig.__post_init__`, `_apply_dict_overrides` and `_update_nested` in `vllm/config/model.py`, vLLM 0.32.

use serde_json::{Map, Value};

use super::config::{Config, NESTED};
use super::error::ImportError;

/// Sub-configs besides the language model's.
const TOWERS: &[&str] =
    &["vision_config", "audio_config", "audio_tower_config", "talker_config", "code2wav_config"];

/// Lays `overrides` over the config, as the server does.
///
/// An object for a sub-config is merged into it; for any other key it takes the old value's place.
pub fn override_config(config: &mut Value, overrides: &Map<String, Value>) {
    let Some(config) = config.as_object_mut() else { return };
    for (key, value) in overrides {
        let is_config = NESTED.contains(&key.as_str()) || TOWERS.contains(&key.as_str());
        match (value, config.get_mut(key)) {
            (Value::Object(value), Some(Value::Object(old))) if is_config => merge(old, value),
            _ => {
                config.insert(key.clone(), value.clone());
            }
        }
    }
}

fn merge(target: &mut Map<String, Value>, updates: &Map<String, Value>) {
    for (key, value) in updates {
        match (value, target.get_mut(key)) {
            (Value::Object(value), Some(Value::Object(old))) => merge(old, value),
            _ => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Takes the window away, so that every layer attends to all; gives the window, tokens, that no request may pass.
///
/// # Errors
/// If the config is no object, or its window no whole number.
pub fn disable_sliding_window(config: &mut Value) -> Result<Option<u64>, ImportError> {
    let window = Config::new(config)?.whole("sliding_window")?;
    let mut text = config.as_object_mut().ok_or(ImportError::NotAnObject)?;
    // As deep as a text config is looked for.
    for _ in 0..3 {
        let Some(key) = NESTED.iter().find(|key| text.get(**key).is_some_and(Value::is_object)) else {
            break;
        };
        match text.get_mut(*key).and_then(Value::as_object_mut) {
            Some(nested) => text = nested,
            None => return Err(ImportError::NotAnObject),
        }
    }
    text.insert("sliding_window".to_owned(), Value::Null);
    Ok(window)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_merged_into_a_sub_config_alone() {
        let mut config = json!({"text_config": {"a": 1, "rope": {"b": 2, "c": 3}}, "rope": {"b": 2, "c": 3}});
        let over = json!({"text_config": {"a": 5, "rope": {"b": 6}}, "rope": {"b": 6}, "d": null});
        override_config(&mut config, over.as_object().unwrap());
        let expected =
            json!({"text_config": {"a": 5, "rope": {"b": 6, "c": 3}}, "rope": {"b": 6}, "d": null});
        assert_eq!(config, expected);
    }

    #[test]
    fn the_window_of_the_text_config_is_taken() {
        let mut config = json!({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}});
        // The class's own.
        assert_eq!(disable_sliding_window(&mut config).unwrap(), Some(4096));
        assert_eq!(config["text_config"]["sliding_window"], Value::Null);
        assert_eq!(disable_sliding_window(&mut config).unwrap(), None);
    }
}
