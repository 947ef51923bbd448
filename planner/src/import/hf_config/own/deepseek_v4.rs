//! DeepSeek V4: a window, and above it latents that are compressed 4 or 128 to 1.
//!
//! # Source
//! vLLM 0.32: `vllm/models/deepseek_v4/{attention,compressor}.py`,
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

/// Bytes of a token in the packed form: 448 of fp8, 128 of rotary bfloat16, 8 of scales.
const PACKED_BYTES: u64 = 584;
/// What packed pages are aligned to, bytes.
const PACKED_ALIGNMENT: u64 = 576;
/// Tokens of a window's block.
const WINDOW_BLOCK: u64 = 64;

pub(in super::super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    super::heads(config, context)?;
    if &*context.kv.name == "auto" || context.kv.name.starts_with("fp8") {
        context.kv.name = "fp8_ds_mla".into();
    } else if matches!(context.settings.platform, Platform::Cpu | Platform::CudaHopper) {
        // Other platforms have kernels for plain rows.
        return Err(ImportError::Refused(format!(
            "DeepSeek V4 packs its cache here, which takes fp8 and not `{}`: use `--kv-cache-dtype fp8`",
            context.kv.name
        )));
    }
    let ratios = config.wholes("compress_ratios")?;
    let mut layers = Layers { use_mla: true, ..Layers::default() };
    for i in 0..n {
        let ratio = match &ratios {
            Some(list) => list.get(super::index(i)).copied().ok_or_else(|| ImportError::ListTooShort {
                key: "compress_ratios".to_owned(),
                length: list.len(),
                layers: n,
            })?,
            None => return Err(ImportError::Missing { key: "compress_ratios".to_owned() }),
        };
        layer(config, context, &format!("{prefix}layers.{i}.attn"), ratio, &mut layers)?;
    }
    Ok(layers)
}

/// The caches of one layer, in the order in which it makes them.
pub(in super::super) fn layer(
    config: &Config<'_>,
    context: &Context<'_>,
    name: &str,
    ratio: u64,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let head = config.need("head_dim")?;
    let window = config.need("sliding_window")?;
    let index_head = config.whole("index_head_dim")?.unwrap_or(128);
    if ratio == 4 {
        let mut raw = base(SpecKind::Mla, indexer_row(config)?, DType::UInt8);
        compressed(&mut raw, context, ratio);
        pad(&mut raw, 256 / ratio, indexer_row(config)?)?;
        layers.layers.push(Layer::new(format!("{name}.indexer.k_cache"), Cache::OwnWithBlock(Box::new(raw))));
        push_state(layers, format!("{name}.indexer.compressor.state_cache"), ratio, index_head)?;
    }
    let mut swa = base(SpecKind::SlidingMla, head, DType::UInt8);
    swa.block_size = Some(WINDOW_BLOCK);
    swa.sliding_window = Some(window);
    packed(&mut swa);
    pad(&mut swa, WINDOW_BLOCK, PACKED_BYTES)?;
    layers.layers.push(Layer::new(format!("{name}.swa_cache"), Cache::Own(Box::new(swa))));
    if ratio > 1 {
        let mut raw = base(SpecKind::Mla, head, DType::UInt8);
        compressed(&mut raw, context, ratio);
        packed(&mut raw);
        pad(&mut raw, 256 / ratio, PACKED_BYTES)?;
        layers.layers.push(Layer::new(name.to_owned(), Cache::OwnWithBlock(Box::new(raw))));
        push_state(layers, format!("{name}.compressor.state_cache"), ratio, head)?;
    }
    Ok(())
}

fn base(kind: SpecKind, head_size: u64, dtype: DType) -> RawSpec {
    let mut raw = RawSpec::empty(kind);
    raw.num_kv_heads = Some(1);
    raw.max_tp_shards = Some(1);
    raw.head_size = Some(head_size);
    raw.dtype = Some(dtype);
    raw.alignment = Some(PACKED_ALIGNMENT);
    raw
}

/// One state for `ratio` tokens, by the name that the version has for it.
fn compressed(raw: &mut RawSpec, context: &Context<'_>, ratio: u64) {
    if context.settings.version.rules().tokens_per_state {
        raw.tokens_per_state = Some(TokensPerState::Whole(ratio));
    } else {
        raw.compress_ratio = Some(ratio);
    }
}

fn packed(raw: &mut RawSpec) {
    raw.cache_dtype_str = Some("fp8_ds_mla".into());
    raw.kv_quant_mode = Some(KvQuantMode::Fp8PerTensor);
    raw.state_content_bytes = Some(PACKED_BYTES);
    raw.model_version = Some("deepseek_v4".into());
}

/// The page of `states` states, rounded up to the alignment.
fn pad(raw: &mut RawSpec, states: u64, bytes: u64) -> Result<(), ImportError> {
    let page = size::mul("a page", states, bytes)?;
    let padded = size::round_up("a page", page, PACKED_ALIGNMENT)?;
    raw.page_size_padded = Some(padded);
    Ok(())
}

/// The running sums of a compressor: keys and scores, doubled where windows overlap.
fn push_state(layers: &mut Layers, name: String, ratio: u64, head: u64) -> Result<(), ImportError> {
    let (overlap, block) = match ratio {
        4 => (2, 4),
        128 => (1, 8),
        _ => return Err(ImportError::Refused(format!("a compression of {ratio} to 1 is not known"))),
    };
    let dim = size::product("a compressor's state", &[2, overlap, head])?;
    let mut raw = base(SpecKind::SlidingMla, dim, DType::Float32);
    raw.block_size = Some(block);
    raw.sliding_window = Some(overlap * ratio);
    pad(&mut raw, block, size::mul("a compressor's state", dim, 4)?)?;
    layers.layers.push(Layer::new(name, Cache::Own(Box::new(raw))));
    Ok(())
}
