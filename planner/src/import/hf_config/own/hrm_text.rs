//! HRM: two stacks that a token passes again and again, each time with a cache of its own.
//!
//! # Source
//! vLLM 0.32: `vllm/model_executor/models/hrm_text.py`, `PrefillPrefixLMAttention`; `HrmTextConfig` of transformers.

use super::super::config::{self, Config};
use super::super::dense::{head_dim, heads};
use super::super::error::ImportError;
use super::super::layer::{Attention, Cache, Layer, Layers};
use super::super::settings::Context;

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = context.kv_heads(heads)?;
    let high = config.whole("H_cycles")?.unwrap_or(2);
    let low = config.whole("L_cycles")?.unwrap_or(3);
    // The class multiplies the number of layers out, and then states the stack's own.
    let stack = match config.whole("num_layers_per_stack")? {
        Some(n) => n,
        None => config.need("num_hidden_layers")?,
    };
    let steps = high.saturating_mul(low.saturating_add(1));
    config::layers_below_limit(steps.saturating_mul(stack))?;
    let attention = Attention { kv_heads, head_size, non_causal: true, ..Attention::default() };
    let mut layers = Layers::default();
    for module in ["L_module", "H_module"] {
        for i in 0..stack {
            for step in (0..steps).filter(|step| (step % (low + 1) == low) == (module == "H_module")) {
                let name = format!("{prefix}{module}.layers.{}.self_attn.attn", step * stack + i);
                layers.layers.push(Layer::new(name, Cache::Attention(attention)));
            }
        }
    }
    Ok(layers)
}
