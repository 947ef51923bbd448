//! Moondream 3: a config with names of its own.
//!
//! # Source
//! vLLM 0.32: `vllm/transformers_utils/configs/moondream3.py`, `vllm/model_executor/models/moondream3.py`.

use serde_json::Value;

use super::super::config::{self, Config, whole_value};
use super::super::error::ImportError;
use super::super::layer::{Layer, Layers};
use super::super::settings::Context;

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let text = config.tower("config").and_then(|map| map.get("text")).and_then(Value::as_object);
    let or = |key: &str, default: u64| -> Result<u64, ImportError> {
        let value = text.and_then(|map| map.get(key));
        Ok(value.map_or(Ok(None), |v| whole_value(&format!("config.text.{key}"), v))?.unwrap_or(default))
    };
    let n = config::layers_below_limit(or("n_layers", 24)?)?;
    let heads = or("n_heads", 32)?;
    context.divide("the attention heads", heads)?;
    // Its KV heads are not checked to divide.
    let kv_heads = (or("n_kv_heads", 32)? / context.tp).max(1);
    let head_size = or("dim", 2048)? / heads.max(1);
    let layers = (0..n)
        .map(|i| Layer::new(format!("{prefix}blocks.{i}.attn.attn"), super::plain(kv_heads, head_size, None)))
        .collect();
    Ok(Layers { layers, ..Layers::default() })
}
