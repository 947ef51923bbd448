//! From what families say to specs: alignment, block sizes, dtypes.
//!
//! # Source
//! `get_kv_cache_spec` of vLLM 0.32's `Attention`, `ChunkedLocalAttention`, `MLAAttention`,
//! `CrossAttention`, `DeepseekV32IndexerCache` and `MambaBase`.

use super::Imported;
use super::align::{self, Blocks};
use super::causal;
use super::config::Config;
use super::error::ImportError;
use super::layer::{Attention, Cache, Latent, Layers, State};
use super::platform::{self, Kernels};
use super::settings::Context;
use crate::dtype::DType;
use crate::engine::WindowBlocks;
use crate::model::Model;
use crate::settings::MambaCacheMode;
use crate::spec::{KvCacheSpec, KvQuantMode, RawSpec, SparseCacheRole, SpecKind};

pub(super) fn finish(
    config: &Config<'_>,
    mut context: Context<'_>,
    layers: &Layers,
) -> Result<Imported, ImportError> {
    let kernels = Kernels::of(context.settings, config, layers.use_mla, &context.kv.name);
    if layers.use_mla && kernels.backend.packs(&context.kv.name) {
        context.kv.name = "fp8_ds_mla".into();
    }
    kernels.check(context.settings)?;
    let blocks = align::blocks(config, &context, layers)?;
    if layers.layers.iter().any(|layer| matches!(layer.cache, Cache::Attention(_) | Cache::Latent(_))) {
        context.notes.extend(kernels.worker_ends(context.settings, blocks.block_size));
    }
    // Blocks are aligned to the attention that the config tells of, cached or not.
    let encodes = causal::encodes(config)?;
    let mut model = Model::default();
    let mut shared = Vec::new();
    let mut draft_from = None;
    for (index, layer) in layers.layers.iter().enumerate() {
        if layers.draft_from == Some(index) {
            draft_from = Some(model.layers.len());
        }
        let of_target = layers.draft_from.is_none_or(|from| index < from);
        match &layer.cache {
            Cache::Attention(_) | Cache::Latent(_) | Cache::Shared(_) if encodes && of_target => {}
            Cache::Shared(target) => shared.push((layer.name.clone(), target.clone())),
            cache => {
                let raw = spec(cache, &context, &blocks)?;
                let spec = KvCacheSpec::try_from(raw)
                    .map_err(|source| ImportError::Spec { layer: layer.name.clone(), source })?;
                model.push(spec);
                model.names.push(layer.name.clone());
            }
        }
    }
    model.draft_from = draft_from.filter(|from| *from < model.layers.len());
    Ok(Imported {
        model,
        block_size: blocks.block_size,
        block_sizes: kernels.choices(),
        mamba_page_size_padded: blocks.mamba_page_size_padded,
        shared,
        architecture: config.architecture().to_owned(),
        kv_cache_dtype: context.kv.name.to_string(),
        layout: platform::layout(config),
        alignment: blocks.lines(),
        notes: context.notes,
    })
}

fn spec(cache: &Cache, context: &Context<'_>, blocks: &Blocks) -> Result<RawSpec, ImportError> {
    Ok(match cache {
        Cache::Attention(attention) => attention_spec(attention, context, blocks),
        Cache::Cross(attention) => {
            let mut raw = keys_and_values(SpecKind::Cross, attention, context);
            raw.block_size = Some(blocks.block_size);
            raw
        }
        Cache::Latent(latent) => latent_spec(latent, context, blocks),
        Cache::Indexer { head_size } => indexer_spec(*head_size, blocks),
        Cache::State(state) => state_spec(state, context, blocks),
        Cache::Own(raw) => RawSpec::clone(raw),
        Cache::OwnWithBlock(raw) => RawSpec { block_size: Some(blocks.block_size), ..RawSpec::clone(raw) },
        Cache::Shared(_) => RawSpec::empty(SpecKind::Full),
    })
}

/// Keys and values of one rank, packed as the backend of the cache's dtype does.
///
/// # Source
/// `customize_spec` in `vllm/v1/attention/backends/{flashinfer,triton_attn}.py`, since vLLM 0.28.
pub(super) fn keys_and_values(kind: SpecKind, attention: &Attention, context: &Context<'_>) -> RawSpec {
    let mut raw = RawSpec::empty(kind);
    raw.num_kv_heads = Some(attention.kv_heads);
    raw.head_size = Some(attention.head_size);
    raw.head_size_v = attention.head_size_v.filter(|v| *v != attention.head_size);
    raw.dtype = Some(context.kv.dtype(context.dtype));
    let mode = context.kv.quant_mode();
    raw.kv_quant_mode = (mode != Default::default()).then_some(mode);
    if context.settings.version.rules().page_from_state_content {
        let (key, value) = (attention.head_size, attention.head_size_v.unwrap_or(attention.head_size));
        match mode {
            // Half a byte an element, and a scale of a byte for 16 of them, keys and values apart.
            KvQuantMode::Nvfp4 => {
                raw.num_head_slots = attention.kv_heads.checked_mul(2);
                raw.state_content_bytes = Some(key / 2 + key / 16);
            }
            // A float32 scale a key and a value.
            KvQuantMode::Int4PerTokenHead => {
                raw.state_content_bytes = (key / 2).saturating_add(value / 2).checked_add(8);
            }
            KvQuantMode::Int8PerTokenHead | KvQuantMode::Fp8PerTokenHead => {
                raw.state_content_bytes = key.saturating_add(value).checked_add(8);
            }
            _ => {}
        }
    }
    raw
}

fn attention_spec(attention: &Attention, context: &Context<'_>, blocks: &Blocks) -> RawSpec {
    if let Some(chunk) = attention.chunk {
        let mut raw = keys_and_values(SpecKind::Chunked, attention, context);
        raw.attention_chunk_size = Some(chunk);
        raw.block_size = Some(blocks.block_size);
        raw.head_size_v = None;
        return raw;
    }
    if let Some(window) = attention.window {
        let mut raw = keys_and_values(SpecKind::Sliding, attention, context);
        raw.sliding_window = Some(window);
        let by_kernel = attention.kernel_block.filter(|block| *block > 0);
        raw.block_size = Some(match (by_kernel, context.settings.version.rules().window_blocks) {
            (Some(multiple), WindowBlocks::LargestWithin) => {
                (blocks.block_size / multiple * multiple).max(multiple)
            }
            (Some(multiple), WindowBlocks::Smallest) => multiple,
            _ => blocks.window_block_size,
        });
        return raw;
    }
    let mut raw = keys_and_values(SpecKind::Full, attention, context);
    raw.block_size = Some(blocks.block_size);
    raw.non_causal = attention.non_causal.then_some(true);
    raw
}

fn latent_spec(latent: &Latent, context: &Context<'_>, blocks: &Blocks) -> RawSpec {
    let kind = if latent.window.is_some() { SpecKind::SlidingMla } else { SpecKind::Mla };
    let mut raw = RawSpec::empty(kind);
    raw.block_size = Some(blocks.block_size);
    raw.num_kv_heads = Some(1);
    raw.max_tp_shards = Some(1);
    raw.head_size = Some(latent.head_size);
    raw.dtype = Some(context.kv.dtype(context.dtype));
    raw.cache_dtype_str = Some(context.kv.name.clone());
    let mode = context.kv.quant_mode();
    raw.kv_quant_mode = (mode != Default::default()).then_some(mode);
    raw.state_content_bytes = context.kv.mla_state_content_bytes();
    raw.sliding_window = latent.window;
    if latent.window.is_none() {
        raw.is_index_group_leader = latent.leads_index_group.then_some(true);
        raw.non_causal_multi_token_decode = latent.non_causal_multi_token_decode.then_some(true);
    }
    raw
}

fn indexer_spec(head_size: u64, blocks: &Blocks) -> RawSpec {
    let mut raw = RawSpec::empty(SpecKind::Mla);
    raw.block_size = Some(blocks.block_size);
    raw.num_kv_heads = Some(1);
    raw.max_tp_shards = Some(1);
    raw.head_size = Some(head_size);
    raw.dtype = Some(DType::UInt8);
    raw.cache_role = Some(SparseCacheRole::Indexer);
    raw
}

fn state_spec(state: &State, context: &Context<'_>, blocks: &Blocks) -> RawSpec {
    let mut raw = RawSpec::empty(SpecKind::Mamba);
    raw.block_size = Some(blocks.mamba_block_size);
    raw.shapes = Some(state.shapes.clone());
    raw.dtypes = Some(state.dtypes.clone());
    raw.page_size_padded = blocks.mamba_page_size_padded;
    raw.mamba_type = state.mamba_type.map(Into::into);
    raw.mamba_cache_mode = match context.settings.mamba_cache_mode {
        MambaCacheMode::None => None,
        MambaCacheMode::Align => Some("align".into()),
        MambaCacheMode::All => Some("all".into()),
    };
    raw.num_speculative_blocks =
        (context.num_speculative_tokens > 0).then_some(context.num_speculative_tokens);
    raw.num_prefill_checkpoint_blocks = state.checkpoint_alignment.map(|_| 1);
    raw.prefill_checkpoint_alignment = state
        .checkpoint_alignment
        .map(|alignment| if state.checkpoints_end_blocks { blocks.mamba_block_size } else { alignment });
    raw.tp_replicated = state.tp_replicated.then_some(true);
    raw
}
