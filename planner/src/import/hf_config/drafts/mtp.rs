//! Which layers do the target's own prediction heads add?
//!
//! # Source
//! vLLM 0.32: `vllm/model_executor/models/{deepseek,mimo,mimo_v2,qwen3_next,qwen3_5,glm4_moe,glm4_moe_lite,
//! glm_ocr,ernie,nemotron_h,exaone_moe,exaone4_5,longcat_flash,step3p5,hy_v3,openpangu,bailing_moe,bailing_moe_v3,
//! gemma4}_mtp.py`, `vllm/models/{deepseek_v32,deepseek_v4,kimi_k3,hy_v4,dots3_note,inkling,qwen4_exp,minimax_m3}/*/mtp.py`,
//! `vllm/models/glm5next/common/mtp.py`; `vllm/models/step5/nvidia/mtp.py`, vLLM 0.33.

use super::super::config::{Config, whole_value};
use super::super::dense::{Dense, Head, LLAMA};
use super::super::error::ImportError;
use super::super::hybrid::{self, latent_size};
use super::super::layer::{Cache, Latent, Layer, Layers};
use super::super::layer_types::{LayerType, need_layer_types};
use super::super::mla;
use super::super::own;
use super::super::settings::Context;
use super::{inherited_window, keys_and_values};

/// Whether vLLM takes any draft with this config for a target's heads, whatever the method is called.
///
/// # Source
/// `SpeculativeConfig.hf_config_override` and the detection of the method in `vllm/config/speculative.py`, vLLM 0.32.
pub(super) fn is_converted(config: &Config<'_>) -> Result<bool, ImportError> {
    let by_root = matches!(
        config.root_type(),
        "deepseek_mtp"
            | "deepseek_v3"
            | "deepseek_v32"
            | "deepseek_v4"
            | "dots3_note"
            | "ernie4_5_moe"
            | "exaone_moe"
            | "glm5_next"
            | "glm_moe_dsa"
            | "hy_v3"
            | "hy_v4"
            | "intern_s2_preview"
            | "interns2_mobius"
            | "kimi_k3"
            | "longcat_flash"
            | "minimax_m3_mtp"
            | "minimax_m3_vl"
            | "pangu_ultra_moe"
            | "qwen3_5"
            | "qwen3_5_moe"
            | "qwen3_5_moe_text"
            | "qwen3_5_text"
            | "qwen3_next"
            | "qwen4_exp"
            | "qwen4_exp_text"
            | "step3p5"
            | "step3p7"
    ) || config.root_type().contains("exaone4_5");
    let by_architecture = matches!(
        config.architecture(),
        "BailingMoeV2_5ForCausalLM"
            | "BailingMoeV3ForCausalLM"
            | "BailingMoeV3VLForConditionalGeneration"
            | "Glm4MoeForCausalLM"
            | "Glm4MoeLiteForCausalLM"
            | "GlmOcrForConditionalGeneration"
            | "MiMoForCausalLM"
            | "MiMoV2FlashForCausalLM"
            | "MiMoV2ForCausalLM"
            | "MiMoV2OmniForCausalLM"
            | "Step3p5ForCausalLM"
            | "Step3p7ForConditionalGeneration"
    );
    let nemotron = matches!(config.text_type(), "nemotron_h" | "nemotron_h_puzzle");
    Ok(by_root
        || by_architecture
        || (nemotron && config.whole("num_nextn_predict_layers")?.is_some_and(|n| n > 0)))
}

/// The layers of the heads of `config`, whose target has `start` layers.
pub(super) fn layers(
    target: &Config<'_>,
    config: &Config<'_>,
    context: &Context<'_>,
    start: u64,
    method: &str,
) -> Result<Vec<Layer>, ImportError> {
    let heads = |default: Option<u64>| -> Result<u64, ImportError> {
        let n = config.whole("num_nextn_predict_layers")?.or(default);
        let n = n.ok_or_else(|| ImportError::Missing { key: "num_nextn_predict_layers".to_owned() })?;
        super::super::config::layers_below_limit(n)
    };
    let window = inherited_window(target)?;
    let plain = |dense: Dense| keys_and_values(config, context, dense, window);
    let hidden = Dense { head: Head::Hidden, ..LLAMA };
    // One cache for each of the layers from `first`, named with `tail` after the number.
    let same = |head: &str, first: u64, n: u64, tail: &str, cache: &Cache| -> Vec<Layer> {
        (first..first + n).map(|i| Layer::new(format!("{head}.{i}.{tail}"), cache.clone())).collect()
    };
    let attn = "self_attn.attn";
    repeated(config, context)?;
    Ok(match config.text_type() {
        "deepseek_v3" | "kimi_k2" | "deepseek_mtp" | "pangu_ultra_moe" => {
            same("model.layers", start, heads(None)?, attn, &latent(config)?)
        }
        "deepseek_v32" | "glm_moe_dsa" | "hy_v4" => {
            let mut layers = Layers::default();
            for i in start..start + heads(None)? {
                let leads = config.text_type() != "hy_v4" || mla::hyv4_head_is_sparse(config, i)?;
                mla::push_sparse(config, &mut layers, &format!("model.layers.{i}.self_attn"), leads)?;
            }
            layers.layers
        }
        "deepseek_v4" => deepseek_v4_heads(config, context, start, heads(None)?)?,
        "bailing_hybrid" | "bailing_moe_v3" | "bailing_moe_linear" => {
            let head_size = hybrid::bailing_latent_size(config)?;
            let cache = Cache::Latent(Latent { head_size, ..Latent::default() });
            same("model.layers", start, heads(None)?, attn, &cache)
        }
        "dots3_note" => {
            let mut layers = Layers::default();
            for i in start..start + heads(Some(1))? {
                own::dots3_note_sparse(config, &format!("model.layers.{i}.self_attn"), i, &mut layers)?;
            }
            layers.layers
        }
        "glm5_next" | "glm5_next_text" => {
            let mut layers = Layers::default();
            for i in start..start + heads(None)? {
                let name = format!("model.layers.{i}.self_attn");
                hybrid::glm5_next_sparse(config, context, &name, &mut layers)?;
            }
            layers.layers
        }
        "qwen4_exp" | "qwen4_exp_text" => {
            let n = config.whole("mtp_num_hidden_layers")?.unwrap_or(1);
            let n = super::super::config::layers_below_limit(n)?;
            let mut layers = Layers::default();
            for i in start..start + n {
                hybrid::qwen4_exp_indexed(config, context, &format!("mtp.layers.{i}"), &mut layers)?;
            }
            layers.layers
        }
        "inkling_model" | "inkling_text" | "inkling_mm_model" => inkling(config, context)?,
        "minimax_m3" | "minimax_m3_vl" | "minimax_m3_vl_text" | "minimax_m3_text" => {
            let n = config.whole("num_mtp_modules")?.unwrap_or(1);
            let n = super::super::config::layers_below_limit(n)?;
            own::minimax_m3_heads(config, context, n)?
        }
        // The assistant's layers read the caches of the target's.
        "gemma4_assistant" | "gemma4_unified_assistant" => Vec::new(),
        "longcat_flash" => same("model.layers", start.saturating_mul(2), 1, attn, &latent(config)?),
        "kimi_k3" | "kimi_linear" => same("model.layers", start, heads(None)?, "self_attn", &latent(config)?),
        "glm4_moe_lite" => same("model.layers", 0, heads(None)?, attn, &latent(config)?),
        "mimo" => same("model.layers", 0, heads(None)?, attn, &plain(hidden)?),
        "mimo_v2_flash" | "mimo_v2" => {
            vec![Layer::new(
                "model.mtp.layers.0.self_attn.attn",
                own::mimo_v2_attention(config, context, true)?,
            )]
        }
        "qwen3_5" | "qwen3_5_text" | "qwen3_5_moe" | "qwen3_5_moe_text" => {
            let n = config.whole("mtp_num_hidden_layers")?.unwrap_or(1);
            let n = super::super::config::layers_below_limit(n)?;
            same("mtp.layers", 0, n, attn, &plain(LLAMA)?)
        }
        "qwen3_next" => same("mtp.layers", 0, heads(Some(1))?, attn, &plain(LLAMA)?),
        "glm4_moe" | "ernie4_5_moe" | "hy_v3" => {
            same("model.layers", start, heads(None)?, attn, &plain(LLAMA)?)
        }
        "glm_ocr_text" | "glm_ocr" => same("model.layers", 0, heads(None)?, attn, &plain(LLAMA)?),
        "exaone_moe" => exaone_moe(config, context, heads(Some(1))?)?,
        "exaone4_5_text" | "exaone4_5" => same("mtp.layers", 0, heads(Some(1))?, attn, &plain(LLAMA)?),
        "step3p5" | "step3p7" | "step3p7_text" => {
            let n = heads(Some(1))?;
            (start..start + n)
                .map(|i| {
                    let cache = own::step3p5_attention(config, context, i)?;
                    Ok(Layer::new(format!("model.layers.{i}.mtp_block.self_attn.attn"), cache))
                })
                .collect::<Result<_, ImportError>>()?
        }
        "step5" => own::step5_heads(config, context, start, heads(None)?)?,
        "nemotron_h" | "nemotron_h_puzzle" if heads(Some(0))? > 0 => nemotron_h(config, &plain(LLAMA)?)?,
        "deepseek_v41" => {
            return Err(ImportError::Refused(
                "DeepSeek V4.1 has no heads for the speculative method `mtp`: its own is `dspark`".to_owned(),
            ));
        }
        other => {
            let name = if other.is_empty() { target.architecture() } else { other };
            return Err(ImportError::UnknownDraft {
                name: super::super::config::short(name),
                method: method.to_owned(),
            });
        }
    })
}

/// K-EXAONE's heads, each of which slides as the layer of its own number does, or as a list of their own says.
///
/// # Source
/// `ExaoneMoeAttention` in `vllm/model_executor/models/exaone_moe.py`, vLLM 0.32.
fn exaone_moe(config: &Config<'_>, context: &Context<'_>, n: u64) -> Result<Vec<Layer>, ImportError> {
    let own = config.texts("mtp_layer_types")?.filter(|list| !list.is_empty());
    let types = match own {
        Some(own) => own.iter().map(|name| *name == "full_attention").collect(),
        None => need_layer_types(config, n)?.iter().map(|kind| *kind == LayerType::Full).collect::<Vec<_>>(),
    };
    let windows = match config.list("mtp_sliding_windows")?.filter(|list| !list.is_empty()) {
        Some(windows) => Some(windows),
        None => config.list("sliding_windows")?,
    };
    (0..n)
        .map(|i| {
            let full = *types.get(super::index(i)).ok_or_else(|| ImportError::ListTooShort {
                key: "mtp_layer_types".to_owned(),
                length: types.len(),
                layers: n,
            })?;
            let window = match windows {
                _ if full => None,
                Some(windows) => windows
                    .get(super::index(i))
                    .map_or(Ok(None), |value| whole_value("mtp_sliding_windows", value))?,
                None => config.whole("sliding_window")?,
            };
            let cache = keys_and_values(config, context, LLAMA, window)?;
            Ok(Layer::new(format!("mtp.layers.{i}.self_attn.attn"), cache))
        })
        .collect()
}

/// The heads must be used a whole number of times a step.
///
/// # Source
/// `SpeculativeConfig.__post_init__`, vLLM 0.32, and which key is `n_predict` in `hf_config_override`.
fn repeated(config: &Config<'_>, context: &Context<'_>) -> Result<(), ImportError> {
    let kind = config.text_type();
    let heads = if kind.starts_with("qwen3_5") || kind.starts_with("qwen4_exp") {
        config.whole("mtp_num_hidden_layers")?
    } else if matches!(kind, "mimo_v2_flash" | "mimo_v2") {
        Some(1)
    } else {
        config.whole("num_nextn_predict_layers")?
    };
    let asked = context.num_speculative_tokens;
    match heads {
        Some(heads) if asked > heads && asked.checked_rem(heads).is_none_or(|rest| rest != 0) => {
            Err(ImportError::Refused(format!(
                "num_speculative_tokens:{asked} must be divisible by n_predict={heads}"
            )))
        }
        _ => Ok(()),
    }
}

fn latent(config: &Config<'_>) -> Result<Cache, ImportError> {
    Ok(Cache::Latent(Latent { head_size: latent_size(config)?, ..Latent::default() }))
}

/// Blocks beside the text config, which says which of them slide.
fn inkling(config: &Config<'_>, context: &Context<'_>) -> Result<Vec<Layer>, ImportError> {
    let empty = serde_json::Map::new();
    let own = config.tower("mtp_config").unwrap_or(&empty);
    let key = "mtp_config.num_nextn_predict_layers";
    let n = own
        .get("num_nextn_predict_layers")
        .map_or(Ok(None), |value| whole_value(key, value))?
        .filter(|n| *n > 0)
        .ok_or_else(|| ImportError::Missing { key: key.to_owned() })?;
    // As many blocks as there are draft tokens, and not more than there are.
    let n = super::super::config::layers_below_limit(n)?.min(context.num_speculative_tokens.max(1));
    let local = own.get("local_layer_ids").and_then(serde_json::Value::as_array);
    let is_local = |i: u64| local.is_some_and(|list| list.iter().any(|id| id.as_u64() == Some(i)));
    let mut layers = Layers::default();
    for i in 0..n {
        let name = format!("model.layers.{i}.transformer_block");
        own::inkling_layer(config, context, &name, is_local(i), &mut layers)?;
    }
    Ok(layers.layers)
}

/// A pattern of attention and experts.
fn nemotron_h(config: &Config<'_>, cache: &Cache) -> Result<Vec<Layer>, ImportError> {
    if config.whole("num_nextn_predict_layers")?.is_some_and(|heads| heads != 1) {
        return Err(ImportError::Refused("only one MTP layer is supported for Nemotron-H".to_owned()));
    }
    let attends: Vec<bool> = if let Some(pattern) = config.text("mtp_hybrid_override_pattern")? {
        pattern.chars().map(|c| c == '*').collect()
    } else if let Some(types) = config.texts("mtp_layers_block_type")? {
        types.iter().map(|t| matches!(*t, "full_attention" | "attention")).collect()
    } else {
        vec![true, false]
    };
    Ok(attends
        .iter()
        .enumerate()
        .filter(|(_, attends)| **attends)
        .map(|(i, _)| Layer::new(format!("mtp.layers.{i}.mixer.attn"), cache.clone()))
        .collect())
}

/// DeepSeek V4's heads keep a window only, or what the longer list of ratios says.
fn deepseek_v4_heads(
    config: &Config<'_>,
    context: &Context<'_>,
    start: u64,
    n: u64,
) -> Result<Vec<Layer>, ImportError> {
    let ratios = config.wholes("compress_ratios")?.unwrap_or_default();
    let mut layers = Layers::default();
    for i in start..start + n {
        let ratio = ratios.get(super::index(i)).copied().unwrap_or(0);
        let name = format!("model.layers.{i}.mtp_block.attn");
        own::deepseek_v4_layer(config, context, &name, ratio, &mut layers)?;
    }
    Ok(layers.layers)
}

/// DSpark's stages of a DeepSeek V4: windows only.
pub(super) fn deepseek_v4_stages(
    config: &Config<'_>,
    context: &Context<'_>,
    start: u64,
) -> Result<Vec<Layer>, ImportError> {
    let n = match config.whole("n_mtp_layers")? {
        Some(n) => n,
        None => config
            .whole("num_nextn_predict_layers")?
            .ok_or_else(|| ImportError::Missing { key: "n_mtp_layers".to_owned() })?,
    };
    let n = super::super::config::layers_below_limit(n)?;
    let mut layers = Layers::default();
    for i in start..start + n {
        let name = format!("model.layers.{i}.attn");
        if config.text_type() == "deepseek_v41" {
            own::deepseek_v41_window(config, context, &name, &mut layers)?;
        } else {
            own::deepseek_v4_layer(config, context, &name, 0, &mut layers)?;
        }
    }
    Ok(layers.layers)
}
