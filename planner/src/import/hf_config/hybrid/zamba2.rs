//! Zamba 2: shared attention blocks in front of some layers' states.
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/zamba2.py`.

use super::super::config::Config;
use super::super::dense::heads;
use super::super::error::ImportError;
use super::super::layer::{Align, Attention, Cache, Layer, Layers};
use super::super::layer_types::{LayerType, layer_types};
use super::super::settings::Context;
use super::super::state::{self, Mamba2};
use super::scaled;

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let types = zamba2_types(config, n)?;
    let hidden = config.need("hidden_size")?;
    let intermediate = scaled(config.real("mamba_expand")?.unwrap_or(2.0), hidden)?;
    let mamba_heads = config.need("n_mamba_heads")?.max(1);
    let of = Mamba2 {
        intermediate,
        groups: config.need("mamba_ngroups")?,
        heads: mamba_heads,
        head_dim: intermediate / mamba_heads,
        state_size: config.need("mamba_d_state")?,
        kernel: config.need("mamba_d_conv")?,
    };
    let dtypes = state::dtypes(config, context, true)?;
    // The engine aligns blocks to a state of the heads that the file states, the layers keep one of heads that fit.
    if config.is_null("mamba_headdim") {
        return Err(ImportError::Missing { key: "mamba_headdim".to_owned() });
    }
    let aligned = Mamba2 { head_dim: config.stated("mamba_headdim")?.unwrap_or(of.head_dim), ..of };
    let aligned = state::bytes(&state::mamba2(context, dtypes, aligned)?)?;
    let state = state::mamba2(context, dtypes, of)?;
    let all_heads = heads(config, context)?;
    let per_rank = context.divide("the attention heads", all_heads)?;
    let head_size = hidden.saturating_mul(2) / all_heads;
    // A list of the file stays beside the types that the class makes, and counts the shared blocks' turns.
    let hybrids = match config.wholes("hybrid_layer_ids")? {
        Some(listed) => listed.len(),
        None => types.iter().filter(|t| **t == LayerType::Hybrid).count(),
    } as u64;
    super::layers_below_limit(hybrids)?;
    let memories = config.whole("num_mem_blocks")?.unwrap_or(1).max(1);
    if memories > hybrids.max(1).saturating_add(1024) {
        return Err(ImportError::Refused(format!("{memories} shared blocks are out of range")));
    }
    let total = config.whole("num_key_value_heads")?.unwrap_or(all_heads);
    let align = Align { kv_heads: (total / context.tp).max(1), head_size, state_bytes: aligned };
    let mut layers = Layers { align: Some(align), ..Layers::default() };
    let full = Attention { kv_heads: per_rank, head_size, ..Attention::default() };
    for block in 0..memories {
        let mut number = block * (hybrids + memories - 1) / memories;
        for position in 0..hybrids {
            if position % memories == block {
                layers.layers.push(Layer::new(format!("{prefix}attn.{number}"), Cache::Attention(full)));
                number += 1;
            }
        }
    }
    for (i, _) in types.iter().enumerate() {
        layers.layers.push(Layer::new(format!("{}.mixer", hybrids + i as u64), Cache::State(state.clone())));
    }
    Ok(layers)
}

/// # Source
/// `Zamba2Config.__post_init__` of transformers.
fn zamba2_types(config: &Config<'_>, n: u64) -> Result<Vec<LayerType>, ImportError> {
    if let Some(types) = layer_types(config)? {
        return Ok(types);
    }
    if let Some(hybrid) = config.wholes("hybrid_layer_ids")? {
        return Ok((0..n)
            .map(|i| if hybrid.contains(&i) { LayerType::Hybrid } else { LayerType::Linear })
            .collect());
    }
    Ok((0..n)
        .map(|i| {
            if i > 0 && (i == 6 || (i > 6 && (i - 5) % 6 == 0)) {
                LayerType::Hybrid
            } else {
                LayerType::Linear
            }
        })
        .collect())
}
