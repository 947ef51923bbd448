//! Models with multi-head latent attention: latents, and the keys of sparse indexers.
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/{deepseek_v2,longcat_flash,openpangu,glm4_moe_lite,AXK1,sarvam}.py`
//! and `vllm/models/{deepseek_v32,hy_v4}`.

use super::config::Config;
use super::dense::{Dense, heads, index};
use super::error::ImportError;
use super::hybrid::latent_size;
use super::layer::{Cache, Latent, Layer, Layers};
use super::settings::Context;
use crate::size;
use crate::spec::SpecKind;

/// Which model's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mla {
    /// Latents in every layer; DeepSeek V2 without latents keeps plain keys and values.
    Plain,
    /// With an indexer in layers that choose tokens themselves.
    Sparse,
    /// Two attentions a layer.
    LongCat,
    /// By the library transformers: latents in every layer, and no indexer.
    Transformers,
}

pub(super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
    kind: Mla,
) -> Result<Layers, ImportError> {
    heads(config, context)?;
    let no_latents = config.text_type() == "deepseek"
        || (config.whole("qk_nope_head_dim")?.unwrap_or(0) == 0
            && config.whole("qk_rope_head_dim")?.unwrap_or(0) == 0);
    if no_latents {
        let dense = Dense { head: super::dense::Head::Hidden, ..super::dense::LLAMA };
        let mut layers = super::dense::layers(config, context, prefix, dense)?;
        if config.architecture() == "UnlimitedOCRForCausalLM" {
            reference_windows(config, context, &mut layers)?;
        }
        return Ok(layers);
    }
    let n = if kind == Mla::LongCat {
        super::config::layers_below_limit(match config.whole("num_layers")? {
            Some(n) => n,
            None => config.need("num_hidden_layers")? / 2,
        })?
    } else {
        config.num_layers()?
    };
    let sparse = kind == Mla::Sparse || (kind == Mla::Plain && config.has("index_topk"));
    let mut layers = Layers { use_mla: true, ..Layers::default() };
    for i in 0..n {
        match kind {
            Mla::LongCat => {
                for part in 0..2 {
                    let name = format!("{prefix}layers.{i}.self_attn.{part}.attn");
                    layers.layers.push(Layer::new(name, latent(config, false)?));
                }
            }
            Mla::Transformers => {
                let name = format!("{prefix}layers.{i}.self_attn.attn");
                layers.layers.push(Layer::new(name, latent(config, false)?));
            }
            Mla::Plain | Mla::Sparse => {
                let leads = sparse && leads_index_group(config, i)?;
                push_sparse(config, &mut layers, &format!("{prefix}layers.{i}.self_attn"), leads)?;
            }
        }
    }
    Ok(layers)
}

/// Reference sliding windows: a prompt is kept whole, and of what is generated a window.
///
/// # Source
/// `DeepseekAttention` in `vllm/model_executor/models/deepseek_v2.py` and `UnlimitedOCRForCausalLMConfig` in
/// `vllm/model_executor/models/config.py`, vLLM 0.32.
fn reference_windows(
    config: &Config<'_>,
    context: &Context<'_>,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let window = config.outer("rswa_window")?.unwrap_or(128);
    for layer in &mut layers.layers {
        if let Cache::Attention(attention) = &layer.cache {
            let mut raw = super::finish::keys_and_values(SpecKind::Rswa, attention, context);
            raw.rswa_window = Some(window);
            layer.cache = Cache::OwnWithBlock(Box::new(raw));
        }
    }
    Ok(())
}

/// One attention, with its indexer first where it leads.
pub(super) fn push_sparse(
    config: &Config<'_>,
    layers: &mut Layers,
    name: &str,
    leads: bool,
) -> Result<(), ImportError> {
    if leads {
        let head_size = indexer_row(config)?;
        layers.layers.push(Layer::new(format!("{name}.indexer.k_cache"), Cache::Indexer { head_size }));
    }
    layers.layers.push(Layer::new(format!("{name}.attn"), latent(config, leads)?));
    Ok(())
}

fn latent(config: &Config<'_>, leads_index_group: bool) -> Result<Cache, ImportError> {
    Ok(Cache::Latent(Latent { head_size: latent_size(config)?, leads_index_group, ..Latent::default() }))
}

/// Bytes of an indexer's key: fp8 elements, and a float32 scale each 128 of them.
pub(super) fn indexer_row(config: &Config<'_>) -> Result<u64, ImportError> {
    let dim = config.whole("index_head_dim")?.unwrap_or(128);
    Ok(size::add("an indexer's key", dim, size::mul("an indexer's scales", dim / 128, 4)?)?)
}

/// Names of sparse layers in HY V4's list.
///
/// # Source
/// `_SPARSE_LAYER_TYPES` in `vllm/models/hy_v4/nvidia/attention.py`, vLLM 0.32.
const HYV4_SPARSE: &[&str] =
    &["sparse_attention", "sparse", "indexed_attention", "deepseek_sparse_attention"];

/// Whether HY V4's head `i` chooses tokens, as the last layer of the list does where the list ends before it.
///
/// # Source
/// `_extend_layer_types` in `vllm/models/hy_v4/nvidia/mtp.py`, vLLM 0.32.
pub(super) fn hyv4_head_is_sparse(config: &Config<'_>, i: u64) -> Result<bool, ImportError> {
    let listed = config.texts("layer_types")?.unwrap_or_default();
    let kind = listed.get(index(i)).or(listed.last());
    Ok(config.has("index_topk") && kind.is_some_and(|name| HYV4_SPARSE.contains(name)))
}

/// Whether layer `i` chooses tokens itself, rather than taking the choice of a layer before it.
pub(super) fn leads_index_group(config: &Config<'_>, i: u64) -> Result<bool, ImportError> {
    let types = config.texts("indexer_types")?;
    if config.text_type() == "hy_v4" {
        // Sparse are only the layers that a list in the file names so.
        let listed = config.texts("layer_types")?.unwrap_or_default();
        if !listed.get(index(i)).is_some_and(|name| HYV4_SPARSE.contains(name)) {
            return Ok(false);
        }
        if let Some(types) = &types {
            return Ok(types.get(index(i)).is_none_or(|t| *t == "full"));
        }
    }
    if let Some(pattern) = config.find("index_topk_pattern") {
        match pattern {
            super::config::Found::File(serde_json::Value::String(text)) => {
                return Ok(text.as_bytes().get(index(i)) != Some(&b'S'));
            }
            super::config::Found::File(serde_json::Value::Array(list)) => {
                return Ok(list.get(index(i)).and_then(serde_json::Value::as_str) != Some("S"));
            }
            _ => {}
        }
    }
    let frequency = config.whole("index_topk_freq")?.unwrap_or(1);
    if frequency == 0 {
        return Err(ImportError::Refused("`index_topk_freq` is 0".to_owned()));
    }
    let offset = config.whole("index_skip_topk_offset")?.unwrap_or(2);
    Ok((i + 1).saturating_sub(offset) % frequency == 0)
}
