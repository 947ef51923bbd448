//! Which tensors does a recurrent state have, on one rank?
//!
//! # Source
//! vLLM 0.32: `MambaStateShapeCalculator` and `MambaStateDtypeCalculator` in
//! `vllm/model_executor/layers/mamba/mamba_utils.py`; what platforms and models make of `auto` in
//! `vllm/platforms/cpu.py` and `vllm/model_executor/models/config.py`.

use super::config::Config;
use super::error::ImportError;
use super::layer::State;
use super::platform::Platform;
use super::settings::Context;
use crate::dtype::DType;
use crate::size;

/// Dtypes of the convolution's state and of the recurrent one.
#[derive(Debug, Clone, Copy)]
pub(super) struct StateDtypes {
    pub(super) conv: DType,
    pub(super) recurrent: DType,
}

/// What `--mamba-cache-dtype` and `--mamba-ssm-cache-dtype` come to for this model.
pub(super) fn dtypes(
    config: &Config<'_>,
    context: &Context<'_>,
    is_linear: bool,
) -> Result<StateDtypes, ImportError> {
    let settings = context.settings;
    let conv = parse("--mamba-cache-dtype", &settings.mamba_cache_dtype)?.unwrap_or(context.dtype);
    let mut ssm = parse("--mamba-ssm-cache-dtype", &settings.mamba_ssm_cache_dtype)?;
    if ssm.is_none() {
        ssm = match config.text_type() {
            "nemotron_h" | "nemotron_h_puzzle" => Some(
                config
                    .text("mamba_ssm_cache_dtype")?
                    .map_or(Ok(None), |name| parse("mamba_ssm_cache_dtype", &name))?
                    .unwrap_or(DType::Float32),
            ),
            "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" | "qwen4_exp_text" => {
                config.text("mamba_ssm_dtype")?.map_or(Ok(None), |name| parse("mamba_ssm_dtype", &name))?
            }
            _ => None,
        };
    }
    if settings.platform == Platform::Cpu && ssm != Some(DType::Float32) {
        // Its accelerated kernels keep the state in float32, but for what it takes for linear attention and that asks
        // for less.
        let keeps = is_linear && matches!(ssm, Some(DType::Float16 | DType::BFloat16));
        if !keeps {
            ssm = Some(DType::Float32);
        }
    }
    Ok(StateDtypes { conv, recurrent: ssm.unwrap_or(conv) })
}

fn parse(key: &str, name: &str) -> Result<Option<DType>, ImportError> {
    match name.trim().trim_start_matches("torch.").to_ascii_lowercase().as_str() {
        "auto" => Ok(None),
        "float32" | "float" => Ok(Some(DType::Float32)),
        "float16" | "half" => Ok(Some(DType::Float16)),
        "bfloat16" => Ok(Some(DType::BFloat16)),
        _ => Err(ImportError::UnknownValue { key: key.to_owned(), value: super::config::short(name) }),
    }
}

/// The state of a Mamba 1 layer.
pub(super) fn mamba1(
    context: &Context<'_>,
    dtypes: StateDtypes,
    intermediate: u64,
    state_size: u64,
    kernel: u64,
) -> Result<State, ImportError> {
    let channels = context.divide("the channels of a Mamba state", intermediate)?;
    Ok(State {
        shapes: vec![vec![kernel.saturating_sub(1), channels], vec![channels, state_size]],
        dtypes: vec![dtypes.conv, dtypes.recurrent],
        mamba_type: Some("MAMBA1"),
        checkpoint_alignment: None,
        checkpoints_end_blocks: false,
        tp_replicated: false,
    })
}

/// What a Mamba 2 layer is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mamba2 {
    pub(super) intermediate: u64,
    pub(super) groups: u64,
    pub(super) heads: u64,
    pub(super) head_dim: u64,
    pub(super) state_size: u64,
    pub(super) kernel: u64,
}

/// The state of a Mamba 2 layer, which can make a checkpoint at any token.
pub(super) fn mamba2(context: &Context<'_>, dtypes: StateDtypes, of: Mamba2) -> Result<State, ImportError> {
    let heads = context.divide("the heads of a Mamba state", of.heads)?;
    let groups = if of.groups.is_multiple_of(context.tp) {
        of.groups
    } else if of.groups == 1 {
        context.tp
    } else {
        return Err(ImportError::NotDivisible {
            what: "the groups of a Mamba state",
            size: of.groups,
            tensor_parallel_size: context.tp,
        });
    };
    let grouped = size::product("channels of a convolution", &[2, groups, of.state_size])?;
    let channels = size::add("channels of a convolution", of.intermediate, grouped)?;
    let channels = context.divide("the channels of a convolution", channels)?;
    Ok(State {
        shapes: vec![vec![state_len(context, of.kernel)?, channels], vec![heads, of.head_dim, of.state_size]],
        dtypes: vec![dtypes.conv, dtypes.recurrent],
        mamba_type: None,
        checkpoint_alignment: context.settings.version.rules().states_checkpoint.then_some(1),
        checkpoints_end_blocks: false,
        tp_replicated: false,
    })
}

/// Rows of a convolution's state: the kernel less one, and one more a draft token.
fn state_len(context: &Context<'_>, kernel: u64) -> Result<u64, ImportError> {
    Ok(size::add("rows of a convolution", kernel.saturating_sub(1), context.num_speculative_tokens)?)
}

/// What a gated delta net is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeltaNet {
    pub(super) key_heads: u64,
    pub(super) value_heads: u64,
    pub(super) key_dim: u64,
    pub(super) value_dim: u64,
    pub(super) kernel: u64,
}

/// The state of a gated delta net, or of a KDA layer.
pub(super) fn delta_net(
    context: &Context<'_>,
    dtypes: StateDtypes,
    of: DeltaNet,
) -> Result<State, ImportError> {
    let keys = size::product("channels of a convolution", &[2, of.key_heads, of.key_dim])?;
    let values = size::mul("channels of a convolution", of.value_heads, of.value_dim)?;
    let channels = context.divide("the channels of a convolution", size::add("channels", keys, values)?)?;
    let heads = context.divide("the heads of a delta net", of.value_heads)?;
    Ok(State {
        shapes: vec![vec![state_len(context, of.kernel)?, channels], vec![heads, of.value_dim, of.key_dim]],
        dtypes: vec![dtypes.conv, dtypes.recurrent],
        mamba_type: Some("GDN_ATTN"),
        checkpoint_alignment: None,
        checkpoints_end_blocks: false,
        tp_replicated: false,
    })
}

/// The state of a short convolution.
pub(super) fn short_conv(
    context: &Context<'_>,
    conv: DType,
    dim: u64,
    kernel: u64,
) -> Result<State, ImportError> {
    Ok(State {
        shapes: vec![vec![
            state_len(context, kernel)?,
            context.divide("the channels of a convolution", dim)?,
        ]],
        dtypes: vec![conv],
        mamba_type: Some("SHORT_CONV"),
        checkpoint_alignment: None,
        checkpoints_end_blocks: false,
        tp_replicated: false,
    })
}

/// Bytes of a state.
pub(super) fn bytes(state: &State) -> Result<u64, ImportError> {
    let mut sum = 0;
    for (shape, dtype) in state.shapes.iter().zip(&state.dtypes) {
        let elements = size::product("bytes of a state", shape)?;
        sum =
            size::add("bytes of a state", sum, size::mul("bytes of a state", elements, dtype.size_bytes())?)?;
    }
    Ok(sum)
}
