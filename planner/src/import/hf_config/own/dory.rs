//! Dory: layers that attend or compute, the middle ones run several times.
//!
//! # Source
//! vLLM 0.33: `vllm/model_executor/models/dory.py`, `vllm/transformers_utils/configs/dory.py`.

use super::super::config::{self, Config};
use super::super::dense::{Kv, head_dim, heads, index, total_kv_heads};
use super::super::error::ImportError;
use super::super::layer::{Layer, Layers};
use super::super::settings::Context;

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = context.kv_heads(total_kv_heads(config, Kv::Grouped, heads)?)?;
    if context.tp > 1 {
        return Err(ImportError::Refused("vLLM runs a Dory on one tensor parallel rank only".to_owned()));
    }
    let own = if config.has("sliding_window") { config.whole("sliding_window")? } else { Some(1024) };
    let types = config.texts("layer_types")?;
    let kind = |i: u64| match &types {
        Some(types) => types.get(index(i)).copied().unwrap_or("mlp"),
        None if i % 2 == 1 => "mlp",
        None if i % 8 == 6 => "full_attention",
        None => "sliding_attention",
    };
    let before = config.whole("n_input_layers")?.unwrap_or(0);
    let after = config.whole("n_output_layers")?.unwrap_or(0);
    let recurrent =
        config.whole("n_recurrent_layers")?.unwrap_or_else(|| n.saturating_sub(before).saturating_sub(after));
    let each_loop = config.text("recurrent_kv_cache_mode")?.is_none_or(|mode| mode == "per_loop");
    let loops = config.whole("n_recurrent_loops")?.unwrap_or(1).max(1);
    config::layers_below_limit(loops.saturating_mul(n))?;
    let mut layers = Layers::default();
    for i in (0..n).filter(|i| kind(*i) != "mlp") {
        let repeats = each_loop && i >= before && i < before.saturating_add(recurrent);
        let window = own.filter(|_| kind(i) == "sliding_attention");
        for turn in 0..if repeats { loops } else { 1 } {
            let name = format!("{prefix}layers.{}.mixer.attn", turn * n + i);
            layers.layers.push(Layer::new(name, super::plain(kv_heads, head_size, window)));
        }
    }
    Ok(layers)
}
