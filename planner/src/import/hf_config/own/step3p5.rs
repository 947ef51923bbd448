//! Step 3.5: layers of one type have other heads.
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/step3p5.py`.

use serde_json::Value;

use super::super::config::{Config, whole_value};
use super::super::dense::{hidden_head, index, window};
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers};
use super::super::settings::Context;
use super::plain;

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let mut layers = Layers::default();
    for i in 0..n {
        layers
            .layers
            .push(Layer::new(format!("{prefix}layers.{i}.self_attn.attn"), attention(config, context, i)?));
    }
    Ok(layers)
}

/// The attention of layer `i` of Step 3.5.
pub(in super::super) fn attention(
    config: &Config<'_>,
    context: &Context<'_>,
    i: u64,
) -> Result<Cache, ImportError> {
    let names = config.texts("layer_types")?.unwrap_or_default();
    let name = names.get(index(i)).copied();
    let slides = if names.is_empty() { i.is_multiple_of(2) } else { name == Some("sliding_attention") };
    let other = config.object("attention_other_setting");
    let mut heads = config.need("num_attention_heads")?;
    let mut groups =
        config.whole("num_attention_groups")?.or(config.whole("num_key_value_heads")?).unwrap_or(heads);
    let mut head = config.whole("head_dim")?;
    if let Some(other) =
        other.filter(|o| name.is_some() && o.get("attention_type").and_then(Value::as_str) == name)
    {
        let read = |key: &str| other.get(key).map_or(Ok(None), |v| whole_value(key, v));
        heads = read("num_attention_heads")?.filter(|h| *h > 0).unwrap_or(heads);
        groups = read("num_attention_groups")?.filter(|h| *h > 0).unwrap_or(groups);
        head = read("head_dim")?.filter(|h| *h > 0).or(head);
    } else if other.is_none() && slides {
        heads = config.whole("num_sliding_attention_heads")?.unwrap_or(heads);
    }
    context.divide("the attention heads", heads)?;
    let head_size = match head.filter(|h| *h > 0) {
        Some(head) => head,
        None => hidden_head(config, heads)?,
    };
    let layer_window = if slides { window(config)? } else { None };
    Ok(plain(context.kv_heads(groups)?, head_size, layer_window))
}
