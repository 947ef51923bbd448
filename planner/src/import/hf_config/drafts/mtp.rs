//! Which layers do the target's own prediction heads add?
//!
//! # Source
//! vLLM 0.32: `vllm/model_executor/models/{deepseek,mimo,mimo_v2,qwen3_next,qwen3_5,glm4_moe,glm4_moe_lite,
//! glm_ocr,ernie,nemotron_h,exaone_moe,exaone4_5,longcat_flash,step3p5,hy_v3,openpangu}_mtp.py`,
//! `vllm/models/{deepseek_v32,deepseek_v4,kimi_k3,hy_v4}/*/mtp.py`.

use super::super::config::Config;
use super::super::dense::{Dense, Head, LLAMA};
use super::super::error::ImportError;
use super::super::hybrid::latent_size;
use super::super::layer::{Cache, Latent, Layer, Layers};
use super::super::mla;
use super::super::own;
use super::super::settings::Context;
use super::{inherited_window, keys_and_values};

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
    Ok(match config.text_type() {
        "deepseek_v3" | "kimi_k2" | "deepseek_mtp" | "pangu_ultra_moe" => {
            same("model.layers", start, heads(None)?, attn, &latent(config)?)
        }
        "deepseek_v32" | "glm_moe_dsa" | "hy_v4" => {
            let mut layers = Layers::default();
            for i in start..start + heads(None)? {
                mla::push_sparse(config, &mut layers, &format!("model.layers.{i}.self_attn"), true)?;
            }
            layers.layers
        }
        "deepseek_v4" => deepseek_v4_heads(config, start, heads(None)?)?,
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
        "exaone_moe" | "exaone4_5_text" | "exaone4_5" => {
            same("mtp.layers", 0, heads(Some(1))?, attn, &plain(LLAMA)?)
        }
        "step3p5" | "step3p7" | "step3p7_text" => {
            let n = heads(Some(1))?;
            (start..start + n)
                .map(|i| {
                    let cache = own::step3p5_attention(config, context, i)?;
                    Ok(Layer::new(format!("model.layers.{i}.mtp_block.self_attn.attn"), cache))
                })
                .collect::<Result<_, ImportError>>()?
        }
        "nemotron_h" | "nemotron_h_puzzle" => nemotron_h(config, &plain(LLAMA)?)?,
        other => {
            let name = if other.is_empty() { target.architecture() } else { other };
            return Err(ImportError::UnknownDraft {
                name: super::super::config::short(name),
                method: method.to_owned(),
            });
        }
    })
}

fn latent(config: &Config<'_>) -> Result<Cache, ImportError> {
    Ok(Cache::Latent(Latent { head_size: latent_size(config)?, ..Latent::default() }))
}

/// A pattern of attention and experts.
fn nemotron_h(config: &Config<'_>, cache: &Cache) -> Result<Vec<Layer>, ImportError> {
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
fn deepseek_v4_heads(config: &Config<'_>, start: u64, n: u64) -> Result<Vec<Layer>, ImportError> {
    let ratios = config.wholes("compress_ratios")?.unwrap_or_default();
    let mut layers = Layers::default();
    for i in start..start + n {
        let ratio = ratios.get(super::index(i)).copied().unwrap_or(0);
        own::deepseek_v4_layer(config, &format!("model.layers.{i}.mtp_block.attn"), ratio, &mut layers)?;
    }
    Ok(layers.layers)
}

/// DSpark's stages of a DeepSeek V4: windows only.
pub(super) fn deepseek_v4_stages(config: &Config<'_>, start: u64) -> Result<Vec<Layer>, ImportError> {
    let n = match config.whole("n_mtp_layers")? {
        Some(n) => n,
        None => config
            .whole("num_nextn_predict_layers")?
            .ok_or_else(|| ImportError::Missing { key: "n_mtp_layers".to_owned() })?,
    };
    let n = super::super::config::layers_below_limit(n)?;
    let mut layers = Layers::default();
    for i in start..start + n {
        own::deepseek_v4_layer(config, &format!("model.layers.{i}.attn"), 0, &mut layers)?;
    }
    Ok(layers.layers)
}
