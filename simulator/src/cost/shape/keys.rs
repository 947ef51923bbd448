//! What does a config say under a key, whatever the key is called there?

use serde_json::{Map, Value};

use super::{MAX_LAYERS, ShapeError};

/// Where language models nest their config.
const NESTED: &[&str] = &["text_config", "llm_config", "language_config", "thinker_config", "text_model"];

/// Sizes above this are a mistake, and would leave what 64-bit floats count exactly.
const LARGEST: u64 = 1 << 40;

/// A config.
pub(super) struct Keys<'a> {
    text: &'a Map<String, Value>,
    /// `model_type` of the text config.
    pub(super) model_type: &'a str,
}

impl<'a> Keys<'a> {
    pub(super) fn of(config: &'a Value) -> Result<Self, ShapeError> {
        let mut text = config.as_object().ok_or(ShapeError::NotAnObject)?;
        for _ in 0..3 {
            let Some(inner) = NESTED.iter().find_map(|key| text.get(*key).and_then(Value::as_object)) else {
                break;
            };
            text = inner;
        }
        let model_type = text.get("model_type").and_then(Value::as_str).unwrap_or_default();
        Ok(Self { text, model_type })
    }

    /// The value, where it is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.text.get(key).filter(|value| !value.is_null())
    }

    /// The first of some keys that is there, as a size.
    pub(super) fn number(&self, keys: &[&str]) -> Result<f64, ShapeError> {
        self.optional(keys)?.ok_or_else(|| ShapeError::Missing { keys: keys.join("` or `") })
    }

    /// Likewise, where all may be missing.
    pub(super) fn optional(&self, keys: &[&str]) -> Result<Option<f64>, ShapeError> {
        let Some((key, value)) = keys.iter().find_map(|key| self.get(key).map(|value| (*key, value))) else {
            return Ok(None);
        };
        size(key, value, LARGEST).map(Some)
    }

    /// A size that may be 0.
    pub(super) fn count(&self, keys: &[&str]) -> Result<f64, ShapeError> {
        let zero = |value: &Value| value.as_u64() == Some(0) || value.as_bool() == Some(false);
        match keys.iter().find_map(|key| self.get(key)) {
            Some(value) if zero(value) => Ok(0.0),
            _ => Ok(self.optional(keys)?.unwrap_or(0.0)),
        }
    }

    /// The number of layers.
    pub(super) fn num_layers(&self) -> Result<usize, ShapeError> {
        let (key, value) = ["num_hidden_layers", "n_layer", "num_layers"]
            .iter()
            .find_map(|key| self.get(key).map(|value| (*key, value)))
            .ok_or_else(|| ShapeError::Missing { keys: "num_hidden_layers".to_owned() })?;
        size(key, value, MAX_LAYERS)?;
        Ok(usize::try_from(value.as_u64().unwrap_or(0)).unwrap_or(0))
    }

    /// Whether a flag is set.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A list.
    pub(super) fn list(&self, key: &str) -> Option<&'a Vec<Value>> {
        self.get(key).and_then(Value::as_array)
    }

    /// A text.
    pub(super) fn string(&self, key: &str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// A nested object.
    pub(super) fn object(&self, key: &str) -> Option<Self> {
        let text = self.get(key)?.as_object()?;
        Some(Self { text, model_type: self.model_type })
    }
}

fn size(key: &str, value: &Value, most: u64) -> Result<f64, ShapeError> {
    match value.as_u64() {
        #[expect(clippy::cast_precision_loss, reason = "at most 2 to the 40")]
        Some(number) if (1..=most).contains(&number) => Ok(number as f64),
        _ => {
            let mut found = value.to_string();
            if found.len() > 40 {
                found = format!("{}...", found.chars().take(40).collect::<String>());
            }
            Err(ShapeError::Number { key: key.to_owned(), found, most })
        }
    }
}
