//! Kimi Linear, Kimi K3 and Alice AI: KDA with attention between.
//!
//! # Source
//! vLLM 0.32's `vllm/models/kimi_k3`; vLLM 0.33's `vllm/model_executor/models/alice_ai.py`.

use super::super::config::{Config, whole_value};
use super::super::dense::{head_dim, heads, index};
use super::super::error::ImportError;
use super::super::layer::{Align, Cache, Latent, Layer, Layers, State};
use super::super::layer_types::{LayerType, need_layer_types};
use super::super::settings::Context;
use super::super::state::{self, DeltaNet};
use super::{align, attention, latent_size};

/// Kimi Linear and Kimi K3: KDA with MLA between.
pub(super) fn kimi_linear(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    if !config.flag("mla_use_nope")? {
        return Err(ImportError::Refused("Kimi-K3 MLA (MultiHeadLatentAttention) is NoPE-only".to_owned()));
    }
    config.need("v_head_dim")?;
    let n = config.num_layers()?;
    let linear = |key: &str| config.nested("linear_attn_config", key);
    let missing = |key: &str| ImportError::Missing { key: format!("linear_attn_config.{key}") };
    let kda = linear_list(config, "kda_layers")?;
    let kda_heads = linear("num_heads")?.ok_or_else(|| missing("num_heads"))?;
    let dim = linear("head_dim")?.ok_or_else(|| missing("head_dim"))?;
    let kernel = linear("short_conv_kernel_size")?.unwrap_or(4);
    let mut state = kda_state(config, context, kda_heads, dim, kernel)?;
    if context.settings.platform.is_cuda() {
        // FlashKDA and CuTeDSL can end a chunk at a multiple of 16 tokens.
        state.checkpoint_alignment = Some(16);
    }
    let head_size = latent_size(config)?;
    let align = Align { kv_heads: 1, head_size, state_bytes: state::bytes(&state)? };
    let mut layers = Layers { align: Some(align), use_mla: true, ..Layers::default() };
    for i in 0..n {
        // The list counts from 1.
        let cache = if kda.contains(&(i + 1)) {
            Cache::State(state.clone())
        } else {
            Cache::Latent(Latent { head_size, ..Latent::default() })
        };
        layers.layers.push(Layer::new(format!("{prefix}layers.{i}.self_attn"), cache));
    }
    Ok(layers)
}

/// The state of a KDA layer, whose recurrent part is float32 unless a flag says otherwise.
pub(super) fn kda_state(
    config: &Config<'_>,
    context: &Context<'_>,
    heads: u64,
    dim: u64,
    kernel: u64,
) -> Result<State, ImportError> {
    let mut dtypes = state::dtypes(config, context, false)?;
    if context.settings.mamba_ssm_cache_dtype == "auto" {
        dtypes.recurrent = crate::dtype::DType::Float32;
    }
    let of = DeltaNet { key_heads: heads, value_heads: heads, key_dim: dim, value_dim: dim, kernel };
    state::delta_net(context, dtypes, of)
}

/// KDA with Qwen3-Next's attention between.
///
/// # Source
/// `vllm/model_executor/models/alice_ai.py`, vLLM 0.33.
pub(super) fn alice_ai(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let types = need_layer_types(config, n)?;
    let (heads_of_kda, dim) = (config.need("linear_num_key_heads")?, config.need("linear_key_head_dim")?);
    if heads_of_kda != config.need("linear_num_value_heads")?
        || dim != config.need("linear_value_head_dim")?
    {
        return Err(ImportError::Refused(
            "AliceAI's KDA needs as many key heads as value heads, of one dimension".to_owned(),
        ));
    }
    let state = kda_state(config, context, heads_of_kda, dim, config.need("linear_conv_kernel_dim")?)?;
    let all_heads = heads(config, context)?;
    let full = attention(config, context, head_dim(config, all_heads)?)?;
    let mut layers = Layers { align: Some(align(config, context, &state)?), ..Layers::default() };
    for (i, kind) in types.iter().take(index(n)).enumerate() {
        layers.layers.push(if *kind == LayerType::Linear {
            Layer::new(format!("{prefix}layers.{i}.linear_attn"), Cache::State(state.clone()))
        } else {
            Layer::new(format!("{prefix}layers.{i}.self_attn.attn"), full.clone())
        });
    }
    Ok(layers)
}

fn linear_list(config: &Config<'_>, key: &str) -> Result<Vec<u64>, ImportError> {
    let full = format!("linear_attn_config.{key}");
    let list = config
        .object("linear_attn_config")
        .and_then(|map| map.get(key))
        .and_then(serde_json::Value::as_array)
        .ok_or_else(|| ImportError::Missing { key: full.clone() })?;
    list.iter()
        .map(|v| whole_value(&full, v)?.ok_or_else(|| ImportError::Missing { key: full.clone() }))
        .collect()
}
