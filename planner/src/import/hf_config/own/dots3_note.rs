//! Dots 3 Note: latents with a window beside sparse ones, in rows of one width.
//!
//! # Source
//! vLLM 0.32: `Dots3NotePaddedMLAAttention` and `Dots3NoteSlidingAttention` in
//! `vllm/models/dots3_note/nvidia/model.py`.

use super::super::config::Config;
use super::super::dense::heads;
use super::super::error::ImportError;
use super::super::layer::{Cache, Layer, Layers};
use super::super::layer_types::{LayerType, need_layer_types};
use super::super::mla;
use super::super::settings::Context;
use crate::size;
use crate::spec::{RawSpec, SpecKind};

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    heads(config, context)?;
    context.divide("the sliding layers' heads", config.need("swa_num_attention_heads")?)?;
    let types = need_layer_types(config, n)?;
    let row = row(config)?;
    let window = config.need("sliding_window_size")?;
    let mut layers = Layers { use_mla: true, ..Layers::default() };
    for (i, kind) in types.iter().take(super::index(n)).enumerate() {
        let name = format!("{prefix}layers.{i}.self_attn");
        if *kind == LayerType::Sliding {
            layers.layers.push(Layer::new(format!("{name}.attn"), sliding(context, row, window)));
            continue;
        }
        sparse(config, &name, i as u64, &mut layers)?;
    }
    Ok(layers)
}

/// The latents of layer `i`, in rows as wide as the sliding layers', and its indexer's keys.
pub(in super::super) fn sparse(
    config: &Config<'_>,
    name: &str,
    i: u64,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let leads = config.has("index_topk") && mla::leads_index_group(config, i)?;
    mla::push_sparse(config, layers, name, leads)?;
    let row = row(config)?;
    if let Some(Cache::Latent(latent)) = layers.layers.last_mut().map(|layer| &mut layer.cache) {
        latent.head_size = row;
    }
    Ok(())
}

fn row(config: &Config<'_>) -> Result<u64, ImportError> {
    Ok(size::add("a latent", config.need("swa_kv_lora_rank")?, config.need("swa_qk_rope_head_dim")?)?)
}

/// A latent with a window, whose rows are never packed.
fn sliding(context: &Context<'_>, row: u64, window: u64) -> Cache {
    let packed = &*context.kv.name == "fp8_ds_mla";
    let mut raw = RawSpec::empty(SpecKind::SlidingMla);
    raw.num_kv_heads = Some(1);
    raw.max_tp_shards = Some(1);
    raw.head_size = Some(row);
    raw.dtype = Some(context.kv.dtype(context.dtype));
    raw.cache_dtype_str = Some(if packed { "fp8".into() } else { context.kv.name.clone() });
    let mode = context.kv.quant_mode();
    raw.kv_quant_mode = (mode != Default::default()).then_some(mode);
    raw.sliding_window = Some(window);
    Cache::OwnWithBlock(Box::new(raw))
}
