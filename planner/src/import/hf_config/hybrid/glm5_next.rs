//! GLM 5 Next (GLM-5.3-Flash): KDA, and sparse latents whose indexer keeps one key a pool of tokens.
//!
//! # Source
//! vLLM 0.32: `vllm/models/glm5next/common/{attention,kda,model,mtp}.py`; `Glm5NextTextConfig` of transformers.

use super::super::config::{Config, whole_value};
use super::super::dense::heads;
use super::super::error::ImportError;
use super::super::layer::{Align, Cache, Latent, Layer, Layers};
use super::super::layer_types::{LayerType, need_layer_types};
use super::super::mla::indexer_row;
use super::super::settings::Context;
use super::super::state;
use super::kda::kda_state;
use super::{index, latent_size};
use crate::dtype::DType;
use crate::size;
use crate::spec::{RawSpec, SparseCacheRole, SpecKind, TokensPerState};

/// A size of KDA: the object of older files comes before the key.
fn linear(config: &Config<'_>, old: &str, key: &str) -> Result<u64, ImportError> {
    let nested = config.object("linear_attn_config").and_then(|map| map.get(old));
    match nested.map_or(Ok(None), |value| whole_value(&format!("linear_attn_config.{old}"), value))? {
        Some(value) => Ok(value),
        None => config.need(key),
    }
}

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    heads(config, context)?;
    let types = need_layer_types(config, n)?;
    let dim = linear(config, "head_dim", "linear_head_dim")?;
    let kernel = linear(config, "short_conv_kernel_size", "linear_conv_kernel_dim")?;
    let mut state =
        kda_state(config, context, linear(config, "num_heads", "linear_num_heads")?, dim, kernel)?;
    // FlashKDA takes bfloat16 heads of 128 with a bounded gate, and can end a chunk at 16 tokens.
    let checkpoints = context.settings.version.rules().states_checkpoint;
    if checkpoints && context.settings.platform.is_cuda() && dim == 128 && context.dtype == DType::BFloat16 {
        state.checkpoint_alignment = Some(16);
    }
    let align = Align { kv_heads: 1, head_size: latent_size(config)?, state_bytes: state::bytes(&state)? };
    let mut layers = Layers { align: Some(align), use_mla: true, ..Layers::default() };
    for (i, kind) in types.iter().take(index(n)).enumerate() {
        let name = format!("{prefix}layers.{i}.self_attn");
        if *kind == LayerType::Linear {
            layers.layers.push(Layer::new(name, Cache::State(state.clone())));
        } else {
            sparse(config, context, &name, &mut layers)?;
        }
    }
    Ok(layers)
}

/// The three caches of an attention: pooled keys, the open pool, and the latents.
pub(in super::super) fn sparse(
    config: &Config<'_>,
    context: &Context<'_>,
    name: &str,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let head_size = latent_size(config)?;
    let pool = config.need("index_kpool")?;
    let leads = config.whole("index_topk")?.is_some();
    if leads {
        if pool < 2 {
            return Err(ImportError::Refused(format!("an indexer's pool of {pool} is not known")));
        }
        let mut keys = RawSpec::empty(SpecKind::Mla);
        keys.num_kv_heads = Some(1);
        keys.max_tp_shards = Some(1);
        keys.head_size = Some(indexer_row(config)?);
        keys.dtype = Some(DType::UInt8);
        keys.cache_role = Some(SparseCacheRole::Indexer);
        keys.tokens_per_state = Some(TokensPerState::Whole(pool));
        layers
            .layers
            .push(Layer::new(format!("{name}.indexer.k_cache"), Cache::OwnWithBlock(Box::new(keys))));
        let span = size::add("a ring", pool, context.num_speculative_tokens)?;
        let pools = span
            .div_ceil(pool)
            .checked_next_power_of_two()
            .ok_or_else(|| ImportError::Refused("a ring leaves 64 bits".to_owned()))?;
        let mut tail = RawSpec::empty(SpecKind::CircularBuffer);
        tail.block_size = Some(size::mul("a ring", pool, pools)?);
        tail.num_kv_heads = Some(2);
        tail.head_size = Some(config.whole("index_head_dim")?.unwrap_or(128));
        tail.head_size_v = Some(0);
        tail.dtype = Some(DType::BFloat16);
        tail.dcp_sharded = Some(false);
        layers.layers.push(Layer::new(format!("{name}.indexer.tail_cache"), Cache::Own(Box::new(tail))));
    }
    let latent = Latent { head_size, leads_index_group: leads, ..Latent::default() };
    layers.layers.push(Layer::new(format!("{name}.attn"), Cache::Latent(latent)));
    Ok(())
}
