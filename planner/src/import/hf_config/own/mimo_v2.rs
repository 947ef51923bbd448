//! MiMo V2: sliding layers have heads of their own, and values are narrower than keys.
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/mimo_v2.py`.

use super::super::config::Config;
use super::super::dense::index;
use super::super::error::ImportError;
use super::super::layer::{Attention, Cache, Layer, Layers};
use super::super::settings::Context;

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let mut layers = Layers::default();
    let pattern = config
        .wholes("hybrid_layer_pattern")?
        .ok_or_else(|| ImportError::Missing { key: "hybrid_layer_pattern".to_owned() })?;
    for i in 0..n {
        let slides = *pattern.get(index(i)).ok_or_else(|| ImportError::ListTooShort {
            key: "hybrid_layer_pattern".to_owned(),
            length: pattern.len(),
            layers: n,
        })? == 1;
        layers.layers.push(Layer::new(
            format!("{prefix}layers.{i}.self_attn.attn"),
            attention(config, context, slides)?,
        ));
    }
    Ok(layers)
}

/// One attention of MiMo V2.
pub(in super::super) fn attention(
    config: &Config<'_>,
    context: &Context<'_>,
    slides: bool,
) -> Result<Cache, ImportError> {
    let key = |name: &str| if slides { format!("swa_{name}") } else { name.to_owned() };
    let heads = match config.whole(&key("num_attention_heads"))? {
        Some(heads) => heads,
        None => config.need("num_attention_heads")?,
    };
    context.divide("the attention heads", heads)?;
    let total =
        config.whole(&key("num_key_value_heads"))?.or(config.whole("num_key_value_heads")?).unwrap_or(heads);
    let head_size = match config.whole(&key("head_dim"))? {
        Some(head) => head,
        None => config.need("head_dim")?,
    };
    let window =
        if slides { config.whole("sliding_window_size")?.or(config.whole("sliding_window")?) } else { None };
    Ok(Cache::Attention(Attention {
        kv_heads: context.kv_heads(total)?,
        head_size,
        head_size_v: config.whole(&key("v_head_dim"))?,
        window,
        chunk: None,
        // Narrower values take kernels of their own, whose blocks are multiples of 16 on every platform.
        kernel_block: Some(16),
        non_causal: false,
    }))
}
