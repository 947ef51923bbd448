//! Models whose layers all keep keys and values: which heads, which windows?
//!
//! The differences between the architectures are data ([`Dense`]).
//!
//! # Source
//! The attention classes of vLLM 0.32's `vllm/model_executor/models/<model>.py`, and for the Transformers
//! backend `vllm/model_executor/models/transformers/base.py`.

use super::config::Config;
use super::error::ImportError;
use super::layer::{Attention, Cache, Layer, Layers};
use super::layer_types::{LayerType, layer_types, need_layer_types};
use super::settings::Context;

/// How one architecture's layers are named and sized.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dense {
    /// The layer's name; `{}` is its index.
    pub(super) name: &'static str,
    pub(super) head: Head,
    pub(super) kv: Kv,
    pub(super) window: Window,
}

/// Where the head size comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// `head_dim`, else hidden size / heads.
    Dim,
    /// `head_dim`, which the model cannot do without.
    Needed,
    /// Hidden size / heads.
    Hidden,
    /// The sum of MLA's two parts, without latents.
    QkParts,
}

/// Where the number of KV heads comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kv {
    /// `num_key_value_heads`, else the attention heads.
    Grouped,
    /// One each attention head.
    PerHead,
    /// Falcon's flags.
    Falcon,
    /// ChatGLM's.
    Glm,
    /// `attn_config.kv_n_heads`.
    Dbrx,
    /// One for all.
    One,
}

/// Which layers slide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    /// The model's own window, which is in force where all layers slide.
    Model,
    /// Layers of type sliding, by `sliding_window` and so many tokens more.
    Types(u64),
    /// The same where there is a list.
    MaybeTypes,
    /// `interleaved_sliding_window`, a window or null for each layer; without it as [`Self::MaybeTypes`].
    Interleaved,
    /// Every layer of an even index.
    EvenLayers,
}

pub(super) const LLAMA: Dense =
    Dense { name: "layers.{}.self_attn.attn", head: Head::Dim, kv: Kv::Grouped, window: Window::Model };

/// The window of the whole model, where vLLM applies one to every layer.
///
/// # Source
/// `create_engine_config` in `vllm/engine/arg_utils.py`.
pub(super) fn model_window(config: &Config<'_>) -> Result<Option<u64>, ImportError> {
    if let Some(window) = config.window_in_force() {
        return Ok(window);
    }
    // Its list of types goes by another name, which the engine does not look at.
    let listed = if config.text_type().starts_with("nemotron_h") { None } else { layer_types(config)? };
    let all_slide = listed.is_none_or(|types| types.iter().all(|t| *t == LayerType::Sliding));
    if all_slide { window(config) } else { Ok(None) }
}

/// `sliding_window`, where 0 is none, and where Qwen's classes drop it.
pub(super) fn window(config: &Config<'_>) -> Result<Option<u64>, ImportError> {
    // The file says so itself, or the class does.
    let qwen = config.has("use_sliding_window")
        && matches!(
            config.text_type(),
            "qwen2"
                | "qwen3"
                | "qwen2_moe"
                | "qwen3_moe"
                | "qwen2_vl_text"
                | "qwen2_5_vl_text"
                | "qwen2_5_omni_text"
        );
    if qwen && !config.flag("use_sliding_window")? {
        return Ok(None);
    }
    Ok(config.whole("sliding_window")?.filter(|w| *w > 0))
}

/// Attention heads of the model, one rank's share of which must be whole.
pub(super) fn heads(config: &Config<'_>, context: &Context<'_>) -> Result<u64, ImportError> {
    let heads = config.need("num_attention_heads")?;
    if heads == 0 {
        return Err(ImportError::Refused("the model has no attention heads".to_owned()));
    }
    context.divide("the attention heads", heads)?;
    Ok(heads)
}

/// Hidden size / heads.
pub(super) fn hidden_head(config: &Config<'_>, heads: u64) -> Result<u64, ImportError> {
    Ok(config.need("hidden_size")? / heads.max(1))
}

/// `head_dim` where it says something, else hidden size / heads.
pub(super) fn head_dim(config: &Config<'_>, heads: u64) -> Result<u64, ImportError> {
    match config.whole("head_dim")?.filter(|h| *h > 0) {
        Some(head) => Ok(head),
        None => hidden_head(config, heads),
    }
}

/// KV heads of the whole model.
pub(super) fn total_kv_heads(config: &Config<'_>, kv: Kv, heads: u64) -> Result<u64, ImportError> {
    match kv {
        Kv::Grouped => match config.whole("num_key_value_heads")? {
            Some(total) => Ok(total),
            // Its class leaves a null as it is.
            None if config.text_type() == "nemotron" => {
                Err(ImportError::Missing { key: "num_key_value_heads".to_owned() })
            }
            None => Ok(heads),
        },
        Kv::PerHead => Ok(heads),
        Kv::One => Ok(1),
        Kv::Falcon => {
            if config.flag("new_decoder_architecture")? {
                Ok(config.whole("n_head_kv")?.or(config.whole("num_kv_heads")?).unwrap_or(heads))
            } else if config.flag("multi_query")? {
                Ok(1)
            } else {
                Ok(heads)
            }
        }
        Kv::Glm => {
            if config.flag("multi_query_attention")? {
                config.need("multi_query_group_num")
            } else {
                Ok(heads)
            }
        }
        Kv::Dbrx => Ok(config.nested("attn_config", "kv_n_heads")?.unwrap_or(heads)),
    }
}

/// One rank's share of `total` KV heads, of which each serves as many of the attention `heads`.
///
/// # Errors
/// If they do not divide over ranks, or the heads over them.
pub(super) fn grouped(context: &Context<'_>, heads: u64, total: u64) -> Result<u64, ImportError> {
    let kv_heads = context.kv_heads(total)?;
    if !heads.is_multiple_of(total.max(1)) {
        return Err(ImportError::HeadsNotDivisible { heads, kv_heads: total });
    }
    Ok(kv_heads)
}

pub(super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
    dense: Dense,
) -> Result<Layers, ImportError> {
    if dense.kv == Kv::Falcon {
        // Its attention is not told of the cache's dtype: `FalconAttention` in `falcon.py`.
        context.kv.name = "auto".into();
    }
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = match dense.head {
        Head::Dim => head_dim(config, heads)?,
        Head::Needed => config.need("head_dim")?,
        Head::Hidden => hidden_head(config, heads)?,
        Head::QkParts => config.need("qk_nope_head_dim")?.saturating_add(config.need("qk_rope_head_dim")?),
    };
    let total = total_kv_heads(config, dense.kv, heads)?;
    if config.text_type() == "gpt_oss" && total < context.tp {
        // It keeps no copies of KV heads: `OAIAttention` in `gpt_oss.py`.
        context.divide("the KV heads", total)?;
    }
    let kv_heads = grouped(context, heads, total)?;
    let windows = windows(config, dense.window, n)?;
    let shared = kv_sharing(config, prefix, dense, n)?;
    let mut layers = Layers::default();
    for i in 0..n {
        let name = layer_name(prefix, dense.name, i);
        if let Some(target) = shared.get(index(i)).and_then(Clone::clone) {
            layers.layers.push(Layer::new(name, Cache::Shared(target)));
            continue;
        }
        let window = windows.get(index(i)).copied().flatten();
        layers.layers.push(Layer::new(
            name,
            Cache::Attention(Attention { kv_heads, head_size, window, ..Attention::default() }),
        ));
    }
    Ok(layers)
}

pub(super) fn index(i: u64) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

/// `prefix` and `name` with the index in it.
pub(super) fn layer_name(prefix: &str, name: &str, i: u64) -> String {
    format!("{prefix}{}", name.replacen("{}", &i.to_string(), 1))
}

/// The window of each layer.
pub(super) fn windows(config: &Config<'_>, rule: Window, n: u64) -> Result<Vec<Option<u64>>, ImportError> {
    let model = model_window(config)?;
    let by_types = |types: Vec<LayerType>, more: u64| -> Result<Vec<Option<u64>>, ImportError> {
        let own = config.whole("sliding_window")?.filter(|w| *w > 0);
        let own = own.map(|w| w.saturating_add(more));
        if more > 0 && own.is_none() && types.contains(&LayerType::Sliding) {
            return Err(ImportError::Missing { key: "sliding_window".to_owned() });
        }
        Ok(types.into_iter().map(|t| if t == LayerType::Sliding { own.or(model) } else { model }).collect())
    };
    match rule {
        Window::Model => Ok(vec![model; index(n)]),
        Window::Types(more) => by_types(need_layer_types(config, n)?, more),
        Window::Interleaved if config.has("interleaved_sliding_window") => {
            let key = "interleaved_sliding_window";
            let listed = config.list(key)?.unwrap_or_default();
            if (listed.len() as u64) < n {
                return Err(ImportError::ListTooShort {
                    key: key.to_owned(),
                    length: listed.len(),
                    layers: n,
                });
            }
            listed.iter().map(|value| Ok(super::config::whole_value(key, value)?.or(model))).collect()
        }
        Window::MaybeTypes | Window::Interleaved => match layer_types(config)? {
            Some(types) if !types.is_empty() => by_types(types, 0),
            _ => Ok(vec![model; index(n)]),
        },
        Window::EvenLayers => {
            let own = config.whole("sliding_window")?;
            Ok((0..n).map(|i| if i % 2 == 0 { own.or(model) } else { model }).collect())
        }
    }
}

/// Whose cache each layer uses, for the last layers of Gemma 3n and 4.
///
/// # Source
/// `vllm/model_executor/models/gemma3n.py`, `gemma4.py`.
pub(super) fn kv_sharing(
    config: &Config<'_>,
    prefix: &str,
    dense: Dense,
    n: u64,
) -> Result<Vec<Option<String>>, ImportError> {
    let kind = config.text_type();
    let gemma3n = kind.starts_with("gemma3n");
    let gemma4 = kind.starts_with("gemma4") || kind.starts_with("diffusion_gemma");
    if !(gemma3n || gemma4) {
        return Ok(Vec::new());
    }
    let sharing = config.whole("num_kv_shared_layers")?.unwrap_or(0);
    if sharing == 0 || sharing > n {
        return Ok(Vec::new());
    }
    let first = n - sharing;
    let types = need_layer_types(config, n)?;
    let before = types.get(..index(first)).unwrap_or_default();
    Ok((0..n)
        .map(|i| {
            if i < first {
                return None;
            }
            let own = types.get(index(i))?;
            let target = if gemma3n {
                first.checked_sub(if *own == LayerType::Sliding { 2 } else { 1 })?
            } else {
                before.iter().rposition(|t| t == own)? as u64
            };
            Some(layer_name(prefix, dense.name, target))
        })
        .collect())
}
