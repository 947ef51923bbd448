//! Models that mix attention with recurrent states: which layer keeps what?
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/{jamba,mamba,mamba2,granitemoehybrid,falcon_h1,nemotron_h,zamba2,
//! qwen3_next,qwen3_5,lfm2,lfm2_moe,olmo_hybrid}.py` and `vllm/models/kimi_k3`.

mod bailing;
mod glm5_next;
mod kda;
mod qwen4_exp;
mod zamba2;

pub(super) use bailing::latent_size as bailing_latent_size;
pub(super) use glm5_next::sparse as glm5_next_sparse;
pub(super) use qwen4_exp::indexed as qwen4_exp_indexed;

use super::config::{Config, layers_below_limit};
use super::dense::{head_dim, heads, hidden_head, index};
use super::error::ImportError;
use super::layer::{Align, Attention, Cache, Layer, Layers, State};
use super::layer_types::{LayerType, layer_types, need_layer_types};
use super::platform::Platform;
use super::settings::Context;
use super::state::{self, DeltaNet, Mamba2};
use crate::settings::MambaCacheMode;

/// The kinds of hybrid that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hybrid {
    AliceAi,
    /// Bailing MoE V2.5: linear attention and latents.
    BailingLinear,
    /// Bailing MoE V3: KDA and latents.
    BailingKda,
    Glm5Next,
    Qwen4Exp,
    Jamba,
    Mamba1,
    Mamba2,
    GraniteMoe,
    FalconH1,
    NemotronH,
    Zamba2,
    /// Qwen3-Next, Qwen3.5 and Olmo-Hybrid: gated delta nets.
    DeltaNet,
    Olmo,
    Lfm2,
    KimiLinear,
}

/// The engine's view of attention heads, which does not check that they divide.
fn align(config: &Config<'_>, context: &Context<'_>, state: &State) -> Result<Align, ImportError> {
    let heads = config.whole("num_attention_heads")?.unwrap_or(0);
    let total = config.whole("num_key_value_heads")?.unwrap_or(heads);
    let head_size = match config.whole("head_dim")?.filter(|h| *h > 0) {
        Some(head) => head,
        None if heads == 0 => 0,
        None => hidden_head(config, heads)?,
    };
    Ok(Align { kv_heads: (total / context.tp).max(1), head_size, state_bytes: state::bytes(state)? })
}

fn attention(config: &Config<'_>, context: &Context<'_>, head_size: u64) -> Result<Cache, ImportError> {
    let heads = heads(config, context)?;
    let total = config.whole("num_key_value_heads")?.unwrap_or(heads);
    let kv_heads = super::dense::grouped(context, heads, total)?;
    let window = super::dense::model_window(config)?;
    Ok(Cache::Attention(Attention { kv_heads, head_size, window, ..Attention::default() }))
}

pub(super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
    kind: Hybrid,
) -> Result<Layers, ImportError> {
    match kind {
        Hybrid::Mamba1 | Hybrid::Mamba2 => only_states(config, context, prefix, kind),
        Hybrid::Jamba | Hybrid::GraniteMoe | Hybrid::NemotronH | Hybrid::DeltaNet | Hybrid::Olmo => {
            by_types(config, context, prefix, kind)
        }
        Hybrid::Lfm2 => lfm2(config, context, prefix),
        Hybrid::FalconH1 => falcon_h1(config, context, prefix),
        Hybrid::Zamba2 => zamba2::layers(config, context, prefix),
        Hybrid::KimiLinear => kda::kimi_linear(config, context, prefix),
        Hybrid::AliceAi => kda::alice_ai(config, context, prefix),
        Hybrid::BailingLinear => bailing::linear(config, context, prefix),
        Hybrid::BailingKda => bailing::kda(config, context, prefix),
        Hybrid::Glm5Next => glm5_next::layers(config, context, prefix),
        Hybrid::Qwen4Exp => qwen4_exp::layers(config, context, prefix),
    }
}

fn only_states(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
    kind: Hybrid,
) -> Result<Layers, ImportError> {
    let dtypes = state::dtypes(config, context, true)?;
    let state = if kind == Hybrid::Mamba1 {
        let hidden = config.need("hidden_size")?;
        let intermediate = match config.whole("intermediate_size")? {
            Some(size) => size,
            None => scaled(config.real("expand")?.unwrap_or(2.0), hidden)?,
        };
        state::mamba1(context, dtypes, intermediate, config.need("state_size")?, config.need("conv_kernel")?)?
    } else {
        let of = Mamba2 {
            intermediate: scaled(config.real("expand")?.unwrap_or(2.0), config.need("hidden_size")?)?,
            groups: config.need("n_groups")?,
            heads: config.need("num_heads")?,
            head_dim: config.need("head_dim")?,
            state_size: config.need("state_size")?,
            kernel: config.need("conv_kernel")?,
        };
        state::mamba2(context, dtypes, of)?
    };
    let prefix = prefix.strip_suffix("model.").map_or_else(|| prefix.to_owned(), |p| format!("{p}backbone."));
    let layers = (0..config.num_layers()?)
        .map(|i| Layer::new(format!("{prefix}layers.{i}.mixer"), Cache::State(state.clone())))
        .collect();
    Ok(Layers { layers, ..Layers::default() })
}

/// `factor x size`, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "checked to be in range; the engine computes in floating point too"
)]
fn scaled(factor: f64, size: u64) -> Result<u64, ImportError> {
    let product = factor * size as f64;
    if product.is_finite() && (0.0..1e15).contains(&product) {
        Ok(product as u64)
    } else {
        Err(ImportError::Refused(format!("an expansion of {factor} is out of range")))
    }
}

/// The state of each kind that lists its layers' types.
fn listed_state(config: &Config<'_>, context: &Context<'_>, kind: Hybrid) -> Result<State, ImportError> {
    let hidden = config.need("hidden_size")?;
    match kind {
        Hybrid::Jamba => {
            let dtypes = state::dtypes(config, context, true)?;
            let intermediate = scaled(config.real("mamba_expand")?.unwrap_or(2.0), hidden)?;
            state::mamba1(
                context,
                dtypes,
                intermediate,
                config.need("mamba_d_state")?,
                config.need("mamba_d_conv")?,
            )
        }
        Hybrid::NemotronH => {
            let (heads, head_dim) = (config.need("mamba_num_heads")?, config.need("mamba_head_dim")?);
            let of = Mamba2 {
                intermediate: crate::size::mul("channels of a Mamba state", heads, head_dim)?,
                groups: config.need("n_groups")?,
                heads,
                head_dim,
                state_size: config.need("ssm_state_size")?,
                kernel: config.need("conv_kernel")?,
            };
            state::mamba2(context, state::dtypes(config, context, true)?, of)
        }
        Hybrid::DeltaNet | Hybrid::Olmo => {
            let of = delta_net(config, hidden, kind)?;
            let mut state = state::delta_net(context, state::dtypes(config, context, true)?, of)?;
            if kind == Hybrid::DeltaNet && keeps_ends_of_blocks(context, of.key_dim) {
                state.checkpoint_alignment = Some(64);
                state.checkpoints_end_blocks = true;
            }
            Ok(state)
        }
        _ => mamba2_by_mamba_keys(config, context, hidden),
    }
}

/// Whether FlashInfer runs the prefill of a gated delta net and so keeps the states at the ends of blocks.
///
/// # Source
/// `_resolve_gdn_prefill_backend` in `vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py`, vLLM 0.33, with the CUDA
/// 13 of its builds.
fn keeps_ends_of_blocks(context: &Context<'_>, key_dim: u64) -> bool {
    let settings = context.settings;
    let flashinfer = match settings.platform {
        Platform::CudaHopper => true,
        Platform::CudaBlackwell | Platform::CudaSm120 => key_dim == 128,
        _ => false,
    };
    flashinfer
        && settings.version.rules().delta_nets_checkpoint
        && settings.mamba_cache_mode == MambaCacheMode::Align
}

fn delta_net(config: &Config<'_>, hidden: u64, kind: Hybrid) -> Result<DeltaNet, ImportError> {
    if kind != Hybrid::Olmo {
        return Ok(DeltaNet {
            key_heads: config.need("linear_num_key_heads")?,
            value_heads: config.need("linear_num_value_heads")?,
            key_dim: config.need("linear_key_head_dim")?,
            value_dim: config.need("linear_value_head_dim")?,
            kernel: config.need("linear_conv_kernel_dim")?,
        });
    }
    let heads = config.need("num_attention_heads")?;
    let key_heads = config.whole("linear_num_key_heads")?.unwrap_or(heads).max(1);
    let key_dim = match config.whole("linear_key_head_dim")? {
        Some(dim) => dim,
        None => scaled(0.75, hidden)? / key_heads,
    };
    Ok(DeltaNet {
        key_heads,
        value_heads: config.whole("linear_num_value_heads")?.unwrap_or(heads),
        key_dim,
        value_dim: config.whole("linear_value_head_dim")?.unwrap_or(key_dim.saturating_mul(2)),
        kernel: config.whole("linear_conv_kernel_dim")?.unwrap_or(4),
    })
}

/// `mamba_d_head`, where `auto` is the channels over the heads.
fn mamba_d_head(config: &Config<'_>, intermediate: u64, heads: u64) -> Result<u64, ImportError> {
    match config.whole("mamba_d_head") {
        Ok(Some(dim)) => Ok(dim),
        Ok(None) => Ok(intermediate / heads.max(1)),
        Err(error) => match config.text("mamba_d_head") {
            Ok(Some(text)) if text == "auto" => Ok(intermediate / heads.max(1)),
            _ => Err(error),
        },
    }
}

fn mamba2_by_mamba_keys(
    config: &Config<'_>,
    context: &Context<'_>,
    hidden: u64,
) -> Result<State, ImportError> {
    let expanded = scaled(config.real("mamba_expand")?.unwrap_or(2.0), hidden)?;
    let intermediate = config.whole("mamba_d_ssm")?.unwrap_or(expanded);
    let heads = config.need("mamba_n_heads")?;
    let of = Mamba2 {
        intermediate,
        groups: config.need("mamba_n_groups")?,
        heads,
        head_dim: mamba_d_head(config, intermediate, heads)?,
        state_size: config.need("mamba_d_state")?,
        kernel: config.need("mamba_d_conv")?,
    };
    // What has both in each layer is no linear attention to the platform.
    let is_linear = config.text_type() != "falcon_h1";
    state::mamba2(context, state::dtypes(config, context, is_linear)?, of)
}

/// NemotronH's pattern: `M` is a state, `*` attention, the rest keeps nothing.
pub(super) fn nemotron_types(config: &Config<'_>) -> Result<Vec<LayerType>, ImportError> {
    if let Some(pattern) = config.text("hybrid_override_pattern")? {
        layers_below_limit(pattern.len() as u64)?;
        return Ok(pattern
            .chars()
            .filter(|c| *c != '|')
            .map(|c| match c {
                'M' => LayerType::Linear,
                '*' => LayerType::Full,
                _ => LayerType::Mlp,
            })
            .collect());
    }
    Ok(layer_types(config)?
        .unwrap_or_else(|| vec![LayerType::Linear, LayerType::Mlp, LayerType::Full, LayerType::Mlp]))
}

fn by_types(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
    kind: Hybrid,
) -> Result<Layers, ImportError> {
    let types = if kind == Hybrid::NemotronH {
        nemotron_types(config)?
    } else {
        let n = config.num_layers()?;
        let mut types = need_layer_types(config, n)?;
        types.truncate(index(n));
        types
    };
    let state = listed_state(config, context, kind)?;
    let mut layers = Layers::default();
    let is_hybrid = kind != Hybrid::GraniteMoe || types.iter().any(|t| *t != LayerType::Full);
    if is_hybrid {
        layers.align = Some(align(config, context, &state)?);
    }
    let (state_name, attention_name) = match kind {
        Hybrid::Jamba => ("mixer", "attn"),
        Hybrid::GraniteMoe => ("mixer", "self_attn.attn"),
        Hybrid::NemotronH => ("mixer", "mixer.attn"),
        _ => ("linear_attn", "self_attn.attn"),
    };
    let full = if types.contains(&LayerType::Full) {
        let heads = heads(config, context)?;
        let head_size = match kind {
            Hybrid::NemotronH | Hybrid::DeltaNet => head_dim(config, heads)?,
            _ => hidden_head(config, heads)?,
        };
        Some(attention(config, context, head_size)?)
    } else {
        None
    };
    for (i, layer) in types.iter().enumerate() {
        match (layer, &full) {
            (LayerType::Linear, _) => layers
                .layers
                .push(Layer::new(format!("{prefix}layers.{i}.{state_name}"), Cache::State(state.clone()))),
            (LayerType::Full, Some(full)) => {
                layers.layers.push(Layer::new(format!("{prefix}layers.{i}.{attention_name}"), full.clone()));
            }
            _ => {}
        }
    }
    Ok(layers)
}

fn lfm2(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let types = need_layer_types(config, n)?;
    let hidden = config.need("hidden_size")?;
    let dim = config.whole("conv_dim")?.unwrap_or(hidden);
    let conv = state::dtypes(config, context, false)?.conv;
    let state = state::short_conv(context, conv, dim, config.whole("conv_L_cache")?.unwrap_or(3))?;
    let heads = heads(config, context)?;
    let full = attention(config, context, hidden_head(config, heads)?)?;
    // What the class tells the engine leaves draft tokens out.
    let without_drafts = Context { num_speculative_tokens: 0, ..context.clone() };
    let told = state::short_conv(&without_drafts, conv, dim, config.whole("conv_L_cache")?.unwrap_or(3))?;
    let mut layers = Layers { align: Some(align(config, context, &told)?), ..Layers::default() };
    for i in 0..n {
        let layer = if types.get(index(i)) == Some(&LayerType::Full) {
            Layer::new(format!("{prefix}layers.{i}.self_attn.attn"), full.clone())
        } else {
            Layer::new(format!("{prefix}layers.{i}.short_conv"), Cache::State(state.clone()))
        };
        layers.layers.push(layer);
    }
    Ok(layers)
}

/// Every layer has both; the states are numbered after the attention.
fn falcon_h1(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let state = mamba2_by_mamba_keys(config, context, config.need("hidden_size")?)?;
    let heads = heads(config, context)?;
    let full = attention(config, context, head_dim(config, heads)?)?;
    let first = prefix.split('.').next().unwrap_or_default();
    let mut layers = Layers { align: Some(align(config, context, &state)?), ..Layers::default() };
    for i in 0..n {
        layers.layers.push(Layer::new(format!("{prefix}layers.{i}.attn"), full.clone()));
        layers.layers.push(Layer::new(format!("{first}.{}.mixer", n + i), Cache::State(state.clone())));
    }
    Ok(layers)
}

/// Elements of a latent and of its rotary part.
pub(super) fn latent_size(config: &Config<'_>) -> Result<u64, ImportError> {
    Ok(crate::size::add("a latent", config.need("kv_lora_rank")?, config.need("qk_rope_head_dim")?)?)
}
