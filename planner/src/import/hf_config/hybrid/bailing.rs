//! Bailing MoE V2.5 and V3: latents in the last layer of each group, states in the others.
//!
//! # Source
//! `vllm/model_executor/models/{bailing_moe_linear,bailing_moe_v3}.py`,
//! `vllm/model_executor/layers/mamba/linear/base.py`, vLLM 0.32.

use super::super::config::Config;
use super::super::dense::{head_dim, heads};
use super::super::error::ImportError;
use super::super::layer::{Align, Cache, Latent, Layer, Layers, State};
use super::super::settings::Context;
use super::super::state;
use super::kda::kda_state;
use crate::size;

/// Elements of a latent; the defaults are the model file's.
pub(in super::super) fn latent_size(config: &Config<'_>) -> Result<u64, ImportError> {
    let rank = config.whole("kv_lora_rank")?.unwrap_or(512);
    Ok(size::add("a latent", rank, config.whole("qk_rope_head_dim")?.unwrap_or(64))?)
}

pub(super) fn linear(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head = head_dim(config, heads)?;
    // One tensor of head x head for each head, in the convolutions' dtype.
    let state = State {
        shapes: vec![vec![context.divide("the heads of a linear attention", heads)?, head, head]],
        dtypes: vec![state::dtypes(config, context, false)?.conv],
        mamba_type: Some("LINEAR"),
        checkpoint_alignment: None,
        checkpoints_end_blocks: false,
        tp_replicated: false,
    };
    let group = config.whole("layer_group_size")?.unwrap_or(1);
    mixed(config, context, prefix, n, &state, |i| group > 0 && (i + 1) % group != 0)
}

pub(super) fn kda(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let kernel = config.need("short_conv_kernel_size")?;
    let state = kda_state(config, context, heads, head_dim(config, heads)?, kernel)?;
    let group = config.need("layer_group_size")?;
    if group == 0 {
        return Err(ImportError::Refused("`layer_group_size` is 0".to_owned()));
    }
    let whole = n / group * group;
    mixed(config, context, prefix, n, &state, |i| (i + 1) % group != 0 && i < whole)
}

fn mixed(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
    n: u64,
    state: &State,
    keeps_state: impl Fn(u64) -> bool,
) -> Result<Layers, ImportError> {
    let head_size = latent_size(config)?;
    let align = if context.engine_mla {
        Align { kv_heads: 1, head_size, state_bytes: state::bytes(state)? }
    } else {
        super::align(config, context, state)?
    };
    let mut layers = Layers { align: Some(align), use_mla: true, ..Layers::default() };
    for i in 0..n {
        let name = format!("{prefix}layers.{i}.self_attn");
        layers.layers.push(if keeps_state(i) {
            Layer::new(name, Cache::State(state.clone()))
        } else {
            Layer::new(format!("{name}.attn"), Cache::Latent(Latent { head_size, ..Latent::default() }))
        });
    }
    Ok(layers)
}
