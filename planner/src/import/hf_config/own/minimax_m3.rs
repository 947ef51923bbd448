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
    let heads = dense::heads(config, context)?;
    let head_size = dense::head_dim(config, heads)?;
    // The class's default, as in `vllm/transformers_utils/configs/minimax_m3.py`.
    let kv_heads = context.kv_heads(config.whole("num_key_value_heads")?.unwrap_or(4))?;
    let window = dense::model_window(config)?;
    let sparse = config.object("sparse_attention_config");
    let frequency = sparse.and_then(|map| map.get("sparse_attention_freq")).and_then(Value::as_array);
    let dim = sparse
        .and_then(|map| map.get("sparse_index_dim"))
        .map_or(Ok(None), |value| whole_value("sparse_attention_config.sparse_index_dim", value))?
        .unwrap_or(128);
    let mut layers = Layers::default();
    for i in 0..n {
        let name = format!("{prefix}layers.{i}.self_attn.attn");
        let is_sparse = frequency
            .and_then(|list| list.get(index(i)))
            .and_then(Value::as_u64)
            .is_some_and(|flag| flag != 0);
        if is_sparse {
            let mut raw = RawSpec::empty(SpecKind::Mla);
            raw.num_kv_heads = Some(1);
            raw.head_size = Some(dim);
            raw.dtype = Some(DType::BFloat16);
            raw.cache_role = Some(SparseCacheRole::Indexer);
            let cache = Cache::OwnWithBlock(Box::new(raw));
            layers.layers.push(Layer::new(format!("{name}.index_cache"), cache));
        }
        let layer_window = if is_sparse { None } else { window };
        layers.layers.push(Layer::new(name, super::plain(kv_heads, head_size, layer_window)));
    }
    Ok(layers)
}
