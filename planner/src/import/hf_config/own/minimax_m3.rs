//! MiniMax M3: keys and values in every layer, and an indexer's keys beside them in sparse layers.
//!
//! # Source
//! vLLM 0.32: `vllm/models/minimax_m3/{nvidia/model.py,common/indexer.py}`.

use serde_json::Value;

use super::super::config::{Config, whole_value};
use super::super::dense::{self, index};
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers};
use super::super::settings::Context;
use crate::dtype::DType;
use crate::spec::{RawSpec, SparseCacheRole, SpecKind};

pub(in super::super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let parts = Parts::of(config, context)?;
    let sparse = config.object("sparse_attention_config");
    let frequency = sparse.and_then(|map| map.get("sparse_attention_freq")).and_then(Value::as_array);
    let mut layers = Layers::default();
    for i in 0..n {
        let is_sparse = frequency
            .and_then(|list| list.get(index(i)))
            .and_then(Value::as_u64)
            .is_some_and(|flag| flag != 0);
        parts.push(&format!("{prefix}layers.{i}.self_attn.attn"), is_sparse, &mut layers.layers);
    }
    Ok(layers)
}

/// The prediction heads, which are always sparse.
pub(in super::super) fn heads(
    config: &Config<'_>,
    context: &Context<'_>,
    n: u64,
) -> Result<Vec<Layer>, ImportError> {
    let parts = Parts::of(config, context)?;
    let mut layers = Vec::new();
    for i in 0..n {
        parts.push(&format!("model.layers.{i}.self_attn.attn"), true, &mut layers);
    }
    Ok(layers)
}

/// What the layers have in common.
struct Parts {
    kv_heads: u64,
    head_size: u64,
    window: Option<u64>,
    index_dim: u64,
}

impl Parts {
    fn of(config: &Config<'_>, context: &Context<'_>) -> Result<Self, ImportError> {
        let heads = dense::heads(config, context)?;
        let dim = config
            .object("sparse_attention_config")
            .and_then(|map| map.get("sparse_index_dim"))
            .map_or(Ok(None), |value| whole_value("sparse_attention_config.sparse_index_dim", value))?;
        Ok(Self {
            // The class's default, as in `vllm/transformers_utils/configs/minimax_m3.py`.
            kv_heads: context.kv_heads(config.whole("num_key_value_heads")?.unwrap_or(4))?,
            head_size: dense::head_dim(config, heads)?,
            window: dense::model_window(config)?,
            index_dim: dim.unwrap_or(128),
        })
    }

    /// One layer's caches.
    fn push(&self, name: &str, is_sparse: bool, layers: &mut Vec<Layer>) {
        if is_sparse {
            let mut raw = RawSpec::empty(SpecKind::Mla);
            raw.num_kv_heads = Some(1);
            raw.head_size = Some(self.index_dim);
            raw.dtype = Some(DType::BFloat16);
            raw.cache_role = Some(SparseCacheRole::Indexer);
            let cache = Cache::OwnWithBlock(Box::new(raw));
            layers.push(Layer::new(format!("{name}.index_cache"), cache));
        }
        let window = if is_sparse { None } else { self.window };
        layers.push(Layer::new(name, super::plain(self.kv_heads, self.head_size, window)));
    }
}
