//! Qwen4 Exp (Qwen3.8-Flash-Next): gated delta nets, attention with an index of compressed keys, and the
//! convolution of per-layer embeddings.
//!
//! # Source
//! vLLM 0.32: `vllm/models/qwen4_exp/nvidia/{model,qsa,indexer_qsa,ple_layer}.py` and `common/qsa_cache.py`;
//! `Qwen4ExpTextConfig` of transformers.

use super::super::config::Config;
use super::super::dense::{head_dim, heads, index};
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers, State};
use super::super::layer_types::{LayerType, need_layer_types};
use super::super::settings::Context;
use super::super::state;
use super::{Hybrid, align, attention, delta_net};
use crate::dtype::DType;
use crate::size;
use crate::spec::{RawSpec, SpecKind, TokensPerState};

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let types = need_layer_types(config, n)?;
    let hidden = config.need("hidden_size")?;
    if config.need("hc_count")? <= 1 {
        return Err(ImportError::Refused("Qwen4Exp requires hc_count > 1".to_owned()));
    }
    let nets = delta_net(config, hidden, Hybrid::DeltaNet)?;
    let state = state::delta_net(context, state::dtypes(config, context, true)?, nets)?;
    let embedding = embedding(config, context, hidden)?;
    let mut aligned = align(config, context, &state)?;
    aligned.state_bytes = aligned.state_bytes.max(state::bytes(&embedding)?);
    let embedded = config.wholes("ple_layer_ids")?.unwrap_or_default();
    let mut layers = Layers { align: Some(aligned), ..Layers::default() };
    for (i, kind) in types.iter().take(index(n)).enumerate() {
        let name = format!("{prefix}layers.{i}");
        // The list counts from 1.
        if embedded.contains(&(i as u64 + 1)) {
            layers.layers.push(Layer::new(format!("{name}.ple"), Cache::State(embedding.clone())));
        }
        if *kind == LayerType::Linear {
            layers.layers.push(Layer::new(format!("{name}.linear_attn"), Cache::State(state.clone())));
        } else {
            indexed(config, context, &name, &mut layers)?;
        }
    }
    Ok(layers)
}

/// The last inputs of a dilated convolution over all residual streams, on every rank.
fn embedding(config: &Config<'_>, context: &Context<'_>, hidden: u64) -> Result<State, ImportError> {
    let kernel = config.whole("ple_conv_kernel_size")?.unwrap_or(4).saturating_sub(1);
    let rows = size::mul("rows of a convolution", kernel, config.whole("ngram_size")?.unwrap_or(3))?;
    let rows = size::add("rows of a convolution", rows, context.num_speculative_tokens)?;
    let channels = size::mul("channels of a convolution", hidden, config.need("hc_count")?)?;
    Ok(State {
        shapes: vec![vec![rows, channels]],
        dtypes: vec![state::dtypes(config, context, false)?.conv],
        mamba_type: Some("SHORT_CONV"),
        checkpoint_alignment: None,
        checkpoints_end_blocks: false,
        tp_replicated: true,
    })
}

/// Keys and values, and with an indexer its raw keys and one compressed key a group of tokens.
pub(in super::super) fn indexed(
    config: &Config<'_>,
    context: &Context<'_>,
    name: &str,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let all_heads = heads(config, context)?;
    let full = attention(config, context, head_dim(config, all_heads)?)?;
    if config.whole("indexer_n_heads")?.is_none() {
        layers.layers.push(Layer::new(format!("{name}.self_attn.attn"), full));
        return Ok(());
    }
    if context.dtype != DType::BFloat16 {
        return Err(ImportError::Refused("Qwen4Exp QSA currently requires BF16".to_owned()));
    }
    if !matches!(&*context.kv.name, "auto" | "bfloat16" | "fp8" | "fp8_e4m3") {
        return Err(ImportError::Refused(
            "Qwen4Exp QSA requires a BF16 or FP8-e4m3 main KV cache".to_owned(),
        ));
    }
    let ratio = config.need("indexer_compress_ratio")?;
    let head = config.need("indexer_head_dim")?;
    if ratio == 0 {
        return Err(ImportError::Refused("`indexer_compress_ratio` is 0".to_owned()));
    }
    let span = size::add("a ring", ratio, context.num_speculative_tokens)?;
    let mut raw = RawSpec::empty(SpecKind::CircularBuffer);
    raw.block_size = Some(size::round_up("a ring", span, ratio)?);
    raw.num_kv_heads = Some(1);
    raw.head_size = Some(if config.sections().is_some() && !context.settings.language_model_only {
        // Three positions of 64 bits beside the key.
        size::add("a raw key", size::round_up("a raw key", head, 4)?, 12)?
    } else {
        head
    });
    raw.head_size_v = Some(0);
    raw.dtype = Some(DType::BFloat16);
    let side = format!("{name}.self_attn.indexer");
    layers.layers.push(Layer::new(format!("{side}.raw_key_cache"), Cache::Own(Box::new(raw))));
    let mut keys = RawSpec::empty(SpecKind::Mla);
    keys.num_kv_heads = Some(1);
    keys.head_size = Some(head);
    keys.dtype = Some(DType::BFloat16);
    keys.tokens_per_state = Some(TokensPerState::Whole(ratio));
    let keys = Cache::OwnWithBlock(Box::new(keys));
    layers.layers.push(Layer::new(format!("{side}.compressed_key_cache"), keys));
    layers.layers.push(Layer::new(format!("{name}.self_attn.attn"), full));
    Ok(())
}
