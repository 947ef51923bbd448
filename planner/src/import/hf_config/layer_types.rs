//! Which layers slide, attend to all or keep a state, where a file gives a pattern instead of a list?
//!
//! # Source
//! `__post_init__` of transformers' config classes, 5.x; old names of types are renamed as transformers does.

use super::config::Config;
use super::error::ImportError;

/// The type of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LayerType {
    Full,
    Sliding,
    Chunked,
    Linear,
    Hybrid,
    Conv,
    Mlp,
    Other,
}

impl LayerType {
    /// Whether a name is one of a layer's.
    pub(super) fn is_known(name: &str) -> bool {
        Self::of(name) != Self::Other
    }

    fn of(name: &str) -> Self {
        match name {
            "full_attention" | "attention" | "global" | "indexed_attention" => Self::Full,
            "sliding_attention" | "sliding" | "local" => Self::Sliding,
            "chunked_attention" => Self::Chunked,
            "linear_attention" | "mamba" | "kda" => Self::Linear,
            "hybrid" => Self::Hybrid,
            "conv" => Self::Conv,
            "mlp" | "moe" => Self::Mlp,
            _ => Self::Other,
        }
    }
}

/// `layer_types`, or what the class makes of its pattern; `None` where the class has no such list.
pub(super) fn layer_types(config: &Config<'_>) -> Result<Option<Vec<LayerType>>, ImportError> {
    for key in ["layer_types", "layers_block_type"] {
        if let Some(list) = config.texts(key)? {
            super::config::layers_below_limit(list.len() as u64)?;
            return Ok(Some(list.into_iter().map(LayerType::of).collect()));
        }
    }
    // The class makes the list as it reads the file.
    derived(&config.as_read())
}

/// `layer_types`, at least one a layer.
pub(super) fn need_layer_types(config: &Config<'_>, layers: u64) -> Result<Vec<LayerType>, ImportError> {
    let types = layer_types(config)?.ok_or_else(|| ImportError::Missing { key: "layer_types".to_owned() })?;
    if (types.len() as u64) < layers {
        return Err(ImportError::ListTooShort { key: "layer_types".to_owned(), length: types.len(), layers });
    }
    Ok(types)
}

fn derived(config: &Config<'_>) -> Result<Option<Vec<LayerType>>, ImportError> {
    use LayerType::{Chunked, Conv, Full, Hybrid, Linear, Sliding};
    let every =
        |key: &str, default: u64| -> Result<u64, ImportError> { Ok(config.whole(key)?.unwrap_or(default)) };
    let Some(n) = config.whole("num_hidden_layers")? else { return Ok(None) };
    let n = super::config::layers_below_limit(n)?;
    // The last of every `k` layers is of type `last`, the others of type `others`.
    let pattern = |k: u64, others: LayerType, last: LayerType| -> Vec<LayerType> {
        (0..n).map(|i| if k == 0 || (i + 1) % k != 0 { others.clone() } else { last.clone() }).collect()
    };
    let types = match config.text_type() {
        "gemma2" | "gpt_oss" | "vaultgemma" => pattern(2, Sliding, Full),
        "gemma3" | "gemma3_text" => {
            // The class divides by what the file says.
            if config.is_null("sliding_window_pattern") {
                return Err(ImportError::Missing { key: "sliding_window_pattern".to_owned() });
            }
            pattern(every("sliding_window_pattern", 6)?, Sliding, Full)
        }
        "gemma3n" | "gemma3n_text" => pattern(5, Sliding, Full),
        "gemma4" | "gemma4_text" | "gemma4_unified_text" | "diffusion_gemma_text" => {
            let mut types = pattern(6, Sliding, Full);
            if let Some(last) = types.last_mut() {
                *last = Full;
            }
            types
        }
        "cohere2" => pattern(every("sliding_window_pattern", 4)?, Sliding, Full),
        "cohere2_moe" => {
            let dense = every("first_k_dense_replace", 0)?.min(n);
            let prefix = every("prefix_dense_sliding_window_pattern", 1)?.max(1);
            let rest = every("sliding_window_pattern", 4)?.max(1);
            (0..n)
                .map(|i| {
                    let (index, k) = if i < dense { (i, prefix) } else { (i - dense, rest) };
                    if (index + 1) % k == 0 { Full } else { Sliding }
                })
                .collect()
        }
        "olmo3" => pattern(4, Sliding, Full),
        "afmoe" => pattern(every("global_attn_every_n_layers", 4)?.max(1), Sliding, Full),
        "cwm" | "granite_swa" | "granitemoe_swa" => {
            (0..n).map(|i| if i % 4 == 0 { Full } else { Sliding }).collect()
        }
        "mimo_v2_flash" => (0..n).map(|i| if i == 0 || (i + 1) % 6 == 0 { Full } else { Sliding }).collect(),
        "exaone4" | "exaone4_5_text" | "exaone_moe" => exaone4(config, n)?,
        "qwen2"
        | "qwen3"
        | "qwen2_vl_text"
        | "qwen2_5_vl_text"
        | "qwen2_5_omni_text"
        | "qwen2_5_omni_talker" => {
            let from = every("max_window_layers", 28)?;
            let slides = config.flag("use_sliding_window")? && config.whole("sliding_window")?.is_some();
            (0..n).map(|i| if slides && i >= from { Sliding } else { Full }).collect()
        }
        "qwen2_moe" => {
            let until = every("max_window_layers", 28)?;
            let slides = config.flag("use_sliding_window")?;
            (0..n).map(|i| if slides && (i + 1) % 2 != 0 && i < until { Sliding } else { Full }).collect()
        }
        "ministral" => {
            let slides = config.whole("sliding_window")?.is_some();
            (0..n).map(|_| if slides { Sliding } else { Full }).collect()
        }
        "mellum" | "laguna" | "step3p7_text" | "step3p7" => (0..n).map(|_| Full).collect(),
        "smollm3" => {
            let without_rope = config.wholes("no_rope_layers")?;
            let interval = every("no_rope_layer_interval", 4)?.max(1);
            let slides = config.flag("use_sliding_window")? && config.whole("sliding_window")?.is_some();
            (0..n)
                .map(|i| {
                    let rope = without_rope.as_ref().map_or((i + 1) % interval != 0, |list| {
                        list.get(usize::try_from(i).unwrap_or(usize::MAX)).is_none_or(|r| *r != 0)
                    });
                    if slides && !rope { Sliding } else { Full }
                })
                .collect()
        }
        "llama4" | "llama4_text" => {
            let without_rope = config.wholes("no_rope_layers")?.filter(|list| !list.is_empty());
            let interval = every("no_rope_layer_interval", 4)?.max(1);
            (0..n)
                .map(|i| {
                    let rope = without_rope.as_ref().map_or((i + 1) % interval != 0, |list| {
                        list.get(usize::try_from(i).unwrap_or(usize::MAX)).is_none_or(|r| *r != 0)
                    });
                    if rope { Chunked } else { Full }
                })
                .collect()
        }
        "qwen3_next" | "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" | "qwen4_exp_text" => {
            pattern(every("full_attention_interval", 4)?.max(1), Linear, Full)
        }
        "glm5_next_text" | "glm5_next" => pattern(4, Linear, Full),
        "cohere_compass_text" => (0..n).map(|_| Full).collect(),
        "jamba" => {
            let period = every("attn_layer_period", 8)?.max(1);
            let offset = every("attn_layer_offset", 4)?;
            (0..n).map(|i| if i % period == offset { Full } else { Linear }).collect()
        }
        "bamba" => {
            let attention = config.wholes("attn_layer_indices")?.unwrap_or_default();
            (0..n).map(|i| if attention.contains(&i) { Full } else { Linear }).collect()
        }
        "granitemoehybrid" => (0..n).map(|_| Linear).collect(),
        "falcon_h1" => (0..n).map(|_| Hybrid).collect(),
        "olmo_hybrid" => {
            let mut types = pattern(4, Linear, Full);
            if !types.contains(&Full)
                && let Some(last) = types.last_mut()
            {
                *last = Full;
            }
            types
        }
        "lfm2" => {
            let full = config.wholes("full_attn_idxs")?;
            (0..n)
                .map(|i| if full.as_ref().is_none_or(|list| list.contains(&i)) { Full } else { Conv })
                .collect()
        }
        _ => return Ok(None),
    };
    Ok(Some(types))
}

fn exaone4(config: &Config<'_>, n: u64) -> Result<Vec<LayerType>, ImportError> {
    use LayerType::{Full, Sliding};
    if config.whole("sliding_window")?.is_none() {
        return Ok((0..n).map(|_| Full).collect());
    }
    let k = match config.find("sliding_window_pattern") {
        // A text such as "LLLG": its length is the period, the last entry global.
        Some(super::config::Found::File(serde_json::Value::String(text))) => text.len() as u64,
        _ => config.whole("sliding_window_pattern")?.unwrap_or(4),
    };
    Ok((0..n).map(|i| if k > 0 && (i + 1) % k != 0 && i < n { Sliding } else { Full }).collect())
}
