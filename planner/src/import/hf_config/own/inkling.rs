//! Inkling: attention with or without a window, and the last inputs of four short convolutions in each layer.
//!
//! # Source
//! vLLM 0.32: `vllm/models/inkling/{configs.py,nvidia/attention.py,nvidia/sconv_swa_attn.py,nvidia/mtp.py}`.

use super::super::config::Config;
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers};
use super::super::settings::Context;
use crate::dtype::DType;
use crate::size;
use crate::spec::{RawSpec, SpecKind};

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = super::super::config::layers_below_limit(config.stated("num_hidden_layers")?.unwrap_or(16))?;
    let local = config.wholes("local_layer_ids")?.unwrap_or_default();
    let mut layers = Layers::default();
    for i in 0..n {
        layer(config, context, &format!("{prefix}layers.{i}"), local.contains(&i), &mut layers)?;
    }
    Ok(layers)
}

/// The two caches of one layer, which slides where it is local.
///
/// vLLM reads the text config with a class of its own, so that only what the file states counts.
pub(in super::super) fn layer(
    config: &Config<'_>,
    context: &Context<'_>,
    name: &str,
    local: bool,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let or =
        |key: &str, default: u64| -> Result<u64, ImportError> { Ok(config.stated(key)?.unwrap_or(default)) };
    let hidden = or("hidden_size", 1536)?;
    let mut heads = or("num_attention_heads", 12)?;
    let mut kv = or("num_key_value_heads", 4)?;
    let mut head_size = or("head_dim", hidden / heads.max(1))?;
    if local {
        heads = or("swa_num_attention_heads", heads)?;
        kv = or("swa_num_key_value_heads", kv)?;
        head_size = or("swa_head_dim", head_size)?;
    }
    let kernel = match config.stated("sconv_kernel_size")? {
        Some(size) => size,
        None => or("conv_kernel_size", 4)?,
    };
    context.divide("the attention heads", heads)?;
    let kv_heads = context.kv_heads(kv)?;
    if context.tp > kv || context.dtype != DType::BFloat16 {
        return Err(ImportError::Refused(
            "the convolutions' cache needs a KV head for each rank, and bfloat16".to_owned(),
        ));
    }
    // Keys, values and this head's part of two outputs, up to a power of two.
    let parts = size::add("a convolution's row", head_size, hidden / kv.max(1))?;
    let row = size::mul("a convolution's row", 2, parts)?
        .checked_next_power_of_two()
        .ok_or_else(|| ImportError::Refused("a convolution's row leaves 64 bits".to_owned()))?;
    let mut state = RawSpec::empty(SpecKind::Sliding);
    state.block_size = Some(kernel);
    state.num_kv_heads = Some(kv_heads);
    state.head_size = Some(row);
    state.head_size_v = Some(0);
    state.dtype = Some(DType::BFloat16);
    state.sliding_window = Some(kernel);
    layers.layers.push(Layer::new(format!("{name}.conv_state"), Cache::Own(Box::new(state))));
    let mut raw = RawSpec::empty(if local { SpecKind::Sliding } else { SpecKind::Full });
    raw.num_kv_heads = Some(kv_heads);
    raw.head_size = Some(head_size);
    raw.dtype = Some(context.kv.dtype(context.dtype));
    if local {
        raw.sliding_window = Some(or("sliding_window_size", 512)?);
    }
    layers.layers.push(Layer::new(format!("{name}.attn"), Cache::OwnWithBlock(Box::new(raw))));
    Ok(())
}
