//! How many tokens has a block, and to what is a state's page padded?
//!
//! # Source
//! vLLM 0.32: `check_and_update_config` in `vllm/platforms/cpu.py`, `update_block_size_for_backend` and
//! `_align_hybrid_block_size` in `vllm/platforms/interface.py`, `_largest_kernel_block_within` in
//! `vllm/model_executor/layers/attention/attention.py`, `MambaModelConfig` in
//! `vllm/model_executor/models/config.py`.

use super::config::Config;
use super::error::ImportError;
use super::finish::keys_and_values;
use super::hybrid::nemotron_types;
use super::layer::{Align, Attention, Cache, Layers};
use super::layer_types::{LayerType, layer_types};
use super::platform::{self, Kernels};
use super::settings::Context;
use crate::engine::{Rules, WindowBlocks};
use crate::settings::MambaCacheMode;
use crate::size;
use crate::spec::{KvCacheSpec, RawSpec, SpecKind};

/// The block sizes of a model, tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    /// `cache_config.block_size`.
    pub(super) block_size: u64,
    /// Of sliding-window layers, which choose their own.
    pub(super) window_block_size: u64,
    /// `cache_config.mamba_block_size`.
    pub(super) mamba_block_size: u64,
    /// `cache_config.mamba_page_size_padded`, bytes.
    pub(super) mamba_page_size_padded: Option<u64>,
    /// The block before it was raised, and the bytes of a state.
    raised_from: Option<u64>,
    state_bytes: Option<u64>,
}

impl Blocks {
    /// What the engine logs of the alignment.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.raised_from.is_some_and(|before| before < self.block_size) {
            lines.push(format!(
                "Setting attention block size to {} tokens to ensure that attention page size is >= mamba page size.",
                self.block_size
            ));
        }
        if let (Some(padded), Some(own)) =
            (self.mamba_page_size_padded, self.state_bytes.filter(|own| *own > 0))
        {
            lines.push(format!(
                "Padding mamba page size by {}% to ensure that mamba page size and attention page size are exactly \
                 equal.",
                percent(padded.saturating_sub(own), own)
            ));
        }
        lines
    }
}

/// `part` of `whole` in percent, with two digits.
fn percent(part: u64, whole: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the engine computes in floating point too")]
    let share = 100.0 * part as f64 / whole as f64;
    format!("{share:.2}")
}

/// Settles the block sizes.
pub(super) fn blocks(
    config: &Config<'_>,
    context: &Context<'_>,
    layers: &Layers,
) -> Result<Blocks, ImportError> {
    let settings = context.settings;
    if settings.block_size == Some(0) {
        return Err(ImportError::Refused("the block size is 0".to_owned()));
    }
    let rules = settings.version.rules();
    let kernels = Kernels::of(settings, config, layers.use_mla, &context.kv.name);
    let mut block_size = context.block_of_draft.unwrap_or_else(|| kernels.block_size(settings.block_size));
    let mut padded = None;
    let align = layers.align.filter(|_| !only_attention(config));
    // Without any attention there is no block to align.
    let has_attention = layers.layers.iter().any(|l| !matches!(l.cache, Cache::State(_) | Cache::Shared(_)));
    // The engine settles a state's block before the platform speaks, so that without attention its default holds.
    let unaligned =
        if has_attention { block_size } else { settings.block_size.unwrap_or(platform::DEFAULT_BLOCK) };
    if let Some(align) = align.filter(|a| a.state_bytes > 0 && has_attention) {
        let unit = checkpoint_unit(layers);
        (block_size, padded) = aligned(&align, context, &kernels, block_size, unit, &rules)?;
    }
    let aligns_states = align.is_some();
    let mamba_block_size = match settings.mamba_cache_mode {
        MambaCacheMode::None => settings.max_model_len.max(1),
        MambaCacheMode::Align | MambaCacheMode::All if aligns_states && has_attention => block_size,
        MambaCacheMode::Align | MambaCacheMode::All => unaligned,
    };
    let windows = Kernels::of(settings, config, false, &context.kv.name).backend;
    Ok(Blocks {
        block_size,
        window_block_size: match rules.window_blocks {
            WindowBlocks::Engine => block_size,
            WindowBlocks::Smallest => windows.smallest(),
            WindowBlocks::LargestWithin => windows.largest_within(block_size),
        },
        mamba_block_size,
        mamba_page_size_padded: padded,
        raised_from: align.filter(|_| has_attention).map(|_| kernels.block_size(settings.block_size)),
        state_bytes: align.map(|align| align.state_bytes),
    })
}

/// Whether the outer config lists attention alone, so that the engine takes the model for no hybrid.
///
/// # Source
/// `ModelConfig.is_hybrid` in `vllm/config/model.py`, vLLM 0.32, which reads `layer_types`; Jamba's and Nemotron-H's classes
/// make it of their own keys.
fn only_attention(config: &Config<'_>) -> bool {
    let own_name = |types: Option<Vec<&str>>| {
        types.is_none_or(|names| names.iter().all(|name| !matches!(*name, "global" | "indexed_attention")))
    };
    let types = match config.text_type() {
        "nemotron_h" | "nemotron_h_puzzle" => nemotron_types(config).map(Some),
        _ => layer_types(config),
    };
    !config.is_nested()
        && config.texts("layer_types").is_ok_and(own_name)
        && matches!(types, Ok(Some(types)) if types.iter().all(|kind| *kind == LayerType::Full))
}

/// What blocks are multiples of where states are kept at their ends, tokens.
fn checkpoint_unit(layers: &Layers) -> u64 {
    let mut states = layers.layers.iter().filter_map(|layer| match &layer.cache {
        Cache::State(state) => Some(state),
        _ => None,
    });
    let first = states.next().filter(|state| state.checkpoints_end_blocks);
    first.and_then(|state| state.checkpoint_alignment).unwrap_or(1)
}

/// The attention block whose page is at least a state's, and the padding of the state.
fn aligned(
    align: &Align,
    context: &Context<'_>,
    kernels: &Kernels,
    block_size: u64,
    checkpoints: u64,
    rules: &Rules,
) -> Result<(u64, Option<u64>), ImportError> {
    let token = token_bytes(align, context, rules)?;
    let mut unit = kernels.backend.smallest().max(block_size);
    if context.engine_mla && rules.latent_blocks_of_128 {
        unit = unit.max(128);
    }
    unit = size::lcm("kernel block", unit, checkpoints)?;
    let unit_bytes = size::mul("bytes of a kernel block", unit, token)?;
    let whole = size::div_ceil("attention block", align.state_bytes, unit_bytes)?;
    let mut block = size::mul("attention block", unit, whole)?;
    if rules.blocks_of_every_backend {
        block = size::round_up("attention block", block, kernels.every())?;
    }
    let block = block.max(block_size);
    let page = size::mul("attention page", block, token)?;
    Ok((block, (page != align.state_bytes).then_some(page)))
}

/// Bytes of one token of an attention layer, as its backend packs them.
fn token_bytes(align: &Align, context: &Context<'_>, rules: &Rules) -> Result<u64, ImportError> {
    let mut raw = if context.engine_mla {
        let mut raw = RawSpec::empty(SpecKind::Mla);
        raw.num_kv_heads = Some(1);
        raw.head_size = Some(align.head_size);
        raw.dtype = Some(context.kv.dtype(context.dtype));
        raw.cache_dtype_str = Some(context.kv.name.clone());
        let mode = context.kv.quant_mode();
        raw.kv_quant_mode = (mode != Default::default()).then_some(mode);
        raw
    } else {
        let one = Attention { kv_heads: align.kv_heads, head_size: align.head_size, ..Attention::default() };
        keys_and_values(SpecKind::Full, &one, context)
    };
    raw.block_size = Some(1);
    let of_spec = |source| ImportError::Spec { layer: "attention".to_owned(), source };
    Ok(KvCacheSpec::try_from(raw).map_err(of_spec)?.unpadded_page_size_bytes(rules)?)
}
