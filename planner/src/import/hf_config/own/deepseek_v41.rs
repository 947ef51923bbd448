//! DeepSeek V4.1: a window in every layer; compressed latents and the indexer's keys where a layer is a source.
//!
//! # Source
//! vLLM 0.32: `vllm/models/deepseek_v41/{attention,compressor}.py`, `DeepseekV4SWACache` in
//! `vllm/v1/attention/backends/mla/sparse_swa.py`.

use super::super::config::Config;
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers};
use super::super::mla::indexer_row;
use super::super::platform::Platform;
use super::super::settings::Context;
use crate::dtype::DType;
use crate::size;
use crate::spec::{KvQuantMode, RawSpec, SpecKind, TokensPerState};

/// Tokens of a window's block.
const WINDOW_BLOCK: u64 = 32;

/// Bytes of a packed token, and what pages are aligned to: Blackwell has a record of its own.
fn record(context: &Context<'_>) -> (u64, u64) {
    if context.settings.platform == Platform::CudaBlackwell { (528, 512) } else { (584, 576) }
}

pub(super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    super::heads(config, context)?;
    if matches!(&*context.kv.name, "auto" | "fp8") {
        context.kv.name = "fp8_ds_mla".into();
    }
    if !context.kv.name.ends_with("_ds_mla") {
        return Err(ImportError::Refused(format!(
            "DeepSeek V4.1 packs its cache, which `{}` does not",
            context.kv.name
        )));
    }
    let ratios = config.wholes("compress_ratios")?.unwrap_or_default();
    let kv_sources = config.wholes("kv_source_layer_ids")?.unwrap_or_default();
    let index_sources = config.wholes("index_source_layer_ids")?.unwrap_or_default();
    let mut layers = Layers { use_mla: true, ..Layers::default() };
    for i in 0..n {
        let ratio = ratios.get(super::index(i)).copied().unwrap_or(0);
        if ratio > 2 {
            return Err(ImportError::Refused(format!("a compression of {ratio} to 1 is not known")));
        }
        let name = format!("{prefix}layers.{i}.attn");
        let is_source = kv_sources.contains(&i);
        if is_source {
            layers.layers.push(Layer::new(name.clone(), compressed(config, context, ratio)?));
            if index_sources.contains(&i) {
                let cache = indexer(config, context, ratio)?;
                layers.layers.push(Layer::new(format!("{name}.indexer.k_cache"), cache));
            }
        }
        window(config, context, &name, &mut layers)?;
        if is_source && ratio > 1 {
            let cache = ring(config, context)?;
            layers.layers.push(Layer::new(format!("{name}.compressor.state_cache"), cache));
        }
    }
    Ok(layers)
}

/// The window of one layer, which drafts have, too.
pub(in super::super) fn window(
    config: &Config<'_>,
    context: &Context<'_>,
    name: &str,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let (bytes, alignment) = record(context);
    let mut raw = RawSpec::empty(SpecKind::SlidingMla);
    raw.block_size = Some(WINDOW_BLOCK);
    raw.num_kv_heads = Some(1);
    raw.max_tp_shards = Some(1);
    raw.head_size = Some(config.need("head_dim")?);
    raw.dtype = Some(DType::UInt8);
    raw.sliding_window = Some(config.need("sliding_window")?);
    packed(&mut raw, context, bytes, alignment);
    padded(&mut raw, WINDOW_BLOCK, bytes, alignment)?;
    layers.layers.push(Layer::new(format!("{name}.swa_cache"), Cache::Own(Box::new(raw))));
    Ok(())
}

fn packed(raw: &mut RawSpec, context: &Context<'_>, bytes: u64, alignment: u64) {
    raw.cache_dtype_str = Some(context.kv.name.clone());
    let mode = context.kv.quant_mode();
    raw.kv_quant_mode = (mode != KvQuantMode::None).then_some(mode);
    raw.state_content_bytes = Some(bytes);
    raw.alignment = Some(alignment);
    raw.model_version = Some("deepseek_v4".into());
}

/// The page of `states` states, rounded up to the alignment.
fn padded(raw: &mut RawSpec, states: u64, bytes: u64, alignment: u64) -> Result<(), ImportError> {
    raw.page_size_padded = Some(size::round_up("a page", size::mul("a page", states, bytes)?, alignment)?);
    Ok(())
}

fn compressed(config: &Config<'_>, context: &Context<'_>, ratio: u64) -> Result<Cache, ImportError> {
    let (bytes, alignment) = record(context);
    let bytes = if &*context.kv.name == "nvfp4_ds_mla" { 288 } else { bytes };
    let mut raw = RawSpec::empty(SpecKind::Mla);
    raw.num_kv_heads = Some(1);
    raw.head_size = Some(config.need("head_dim")?);
    raw.dtype = Some(DType::UInt8);
    raw.tokens_per_state = Some(TokensPerState::Whole(ratio.max(1))).filter(|_| ratio > 1);
    packed(&mut raw, context, bytes, alignment);
    padded(&mut raw, block(context) / ratio.max(1), bytes, alignment)?;
    Ok(Cache::OwnWithBlock(Box::new(raw)))
}

fn indexer(config: &Config<'_>, context: &Context<'_>, ratio: u64) -> Result<Cache, ImportError> {
    let (_, alignment) = record(context);
    let row = indexer_row(config)?;
    let mut raw = RawSpec::empty(SpecKind::Mla);
    raw.num_kv_heads = Some(1);
    raw.head_size = Some(row);
    raw.dtype = Some(DType::UInt8);
    raw.tokens_per_state = Some(TokensPerState::Whole(ratio.max(1))).filter(|_| ratio > 1);
    raw.alignment = Some(alignment);
    padded(&mut raw, block(context) / ratio.max(1), row, alignment)?;
    Ok(Cache::OwnWithBlock(Box::new(raw)))
}

/// The block that its kernels take, tokens.
///
/// # Source
/// `get_supported_kernel_block_sizes` in `vllm/models/deepseek_v41/sparse_mla.py` and `amd/rocm.py`.
pub(in super::super) fn block(context: &Context<'_>) -> u64 {
    context.settings.block_size.unwrap_or(match context.settings.platform {
        Platform::CudaHopper | Platform::Rocm => 64,
        Platform::CudaBlackwell | Platform::CudaSm120 | Platform::Cpu => 128,
    })
}

/// The open group's keys and scores: a ring that holds a step's drafts, too.
fn ring(config: &Config<'_>, context: &Context<'_>) -> Result<Cache, ImportError> {
    let rows = size::add("a ring", context.num_speculative_tokens, 2)?
        .checked_next_power_of_two()
        .ok_or_else(|| ImportError::Refused("a ring leaves 64 bits".to_owned()))?;
    let mut raw = RawSpec::empty(SpecKind::CircularBuffer);
    raw.block_size = Some(rows.max(8));
    raw.num_kv_heads = Some(1);
    raw.head_size = Some(size::mul("a ring", 2, config.need("head_dim")?)?);
    raw.head_size_v = Some(0);
    raw.dtype = Some(DType::Float32);
    Ok(Cache::Own(Box::new(raw)))
}
