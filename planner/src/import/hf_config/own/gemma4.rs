//! Gemma 4: full layers have larger and fewer heads than sliding ones.
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/gemma4.py`; `Gemma4TextConfig.__post_init__` of transformers:
//! `per_layer_config`.

use serde_json::Value;

use super::super::config::{Config, whole_value};
use super::super::dense::{self, head_dim, heads, index, layer_name, window};
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers};
use super::super::layer_types::{LayerType, need_layer_types};
use super::super::settings::Context;
use super::plain;

pub(in super::super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let mut types = need_layer_types(config, n)?;
    types.truncate(index(n));
    if let Some(last) = types.last_mut() {
        *last = LayerType::Full;
    }
    let head_size = head_dim(config, heads)?;
    let kv = config.whole("num_key_value_heads")?.unwrap_or(heads);
    let global_head = config.whole("global_head_dim")?.unwrap_or(512);
    let same_kv = config.has("attention_k_eq_v") && !config.flag("attention_k_eq_v")?;
    let global_kv = config.whole("num_global_key_value_heads")?.filter(|_| !same_kv).unwrap_or(kv);
    let per_layer = config.object("per_layer_config");
    let own_window = window(config)?;
    let model_window = dense::model_window(config)?;
    let naming = dense::LLAMA;
    let shared = dense::kv_sharing(config, prefix, naming, n)?;
    let mut layers = Layers::default();
    for (i, kind) in types.iter().enumerate() {
        let name = layer_name(prefix, naming.name, i as u64);
        if let Some(target) = shared.get(i).and_then(Clone::clone) {
            layers.layers.push(Layer::new(name, Cache::Shared(target)));
            continue;
        }
        let full = *kind == LayerType::Full;
        let (mut total, mut size) =
            if full && per_layer.is_none() { (global_kv, global_head) } else { (kv, head_size) };
        if let Some(own) = per_layer.and_then(|map| own_entry(map, i)) {
            size = own_whole(own, "head_dim")?.unwrap_or(size);
            total = own_whole(own, "num_key_value_heads")?.unwrap_or(total);
        }
        let kv_heads = context.kv_heads(total)?;
        let layer_window = if *kind == LayerType::Sliding { own_window } else { model_window };
        layers.layers.push(Layer::new(name, plain(kv_heads, size, layer_window)));
    }
    Ok(layers)
}

/// The entry of layer `i`; keys may be padded with zeros.
pub(super) fn own_entry(map: &serde_json::Map<String, Value>, i: usize) -> Option<&Value> {
    map.get(&i.to_string()).or_else(|| (2..=6).find_map(|width| map.get(&format!("{i:0width$}"))))
}

pub(super) fn own_whole(object: &Value, key: &str) -> Result<Option<u64>, ImportError> {
    object.get(key).map_or(Ok(None), |value| whole_value(key, value))
}
