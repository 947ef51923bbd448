//! openPangu Pro MoE V2: keys and values with sinks in front, latents where the config has them.
//!
//! # Source
//! vLLM 0.32: `vllm/model_executor/models/openpangu.py`, `StaticSinkAttention.get_kv_cache_spec`.

use super::super::config::Config;
use super::super::dense::{self, Kv, heads};
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers};
use super::super::mla::{self, Mla};
use super::super::settings::Context;
use crate::size;
use crate::spec::{RawSpec, SpecKind};

pub(super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    if ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"]
        .iter()
        .all(|key| config.has(key))
    {
        return mla::layers(config, context, prefix, Mla::Plain);
    }
    let sinks = config.whole("param_sink_number")?.unwrap_or(0);
    if sinks == 0 {
        return dense::layers(config, context, prefix, dense::LLAMA);
    }
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let total = dense::total_kv_heads(config, Kv::Grouped, heads)?;
    if total < context.tp {
        return Err(ImportError::Refused(format!(
            "attention with sinks does not repeat its {total} KV heads over {} ranks",
            context.tp
        )));
    }
    let kv_heads = context.kv_heads(total)?;
    let mut raw = RawSpec::empty(SpecKind::Sink);
    raw.num_kv_heads = Some(kv_heads);
    raw.head_size = Some(size::add("a key", config.need("qk_rope_dim")?, config.need("qk_nope_dim")?)?);
    raw.head_size_v = Some(config.need("v_channels")?).filter(|v| Some(*v) != raw.head_size);
    raw.sink_len = Some(sinks);
    raw.dtype = Some(context.kv.dtype(context.dtype));
    let mode = context.kv.quant_mode();
    raw.kv_quant_mode = (mode != Default::default()).then_some(mode);
    let layers = (0..n)
        .map(|i| {
            let name = format!("{prefix}layers.{i}.self_attn.attn");
            Layer::new(name, Cache::OwnWithBlock(Box::new(raw.clone())))
        })
        .collect();
    Ok(Layers { layers, ..Layers::default() })
}
