//! What does vLLM refuse in a config whose layers alone would be fine?
//!
//! A missing kernel of one platform is no refusal here: another may have it.

mod counts;
mod lists;
mod quantization;
mod shapes;

use serde_json::{Map, Value};

use super::config::{Config, whole_value, wrong};
use super::dense::head_dim;
use super::error::ImportError;
use super::layer::{Cache, Layers};
use super::platform::Platform;
use super::rope;
use super::settings::Context;
use crate::settings::MambaCacheMode;
pub(super) use quantization::note as note_on_quantization;

/// Keys whose class wants a whole number, so that a null is refused, the file's or the engine's.
///
/// # Source
/// Fields of type `int` in transformers' `configuration_{cwm,diffusion_gemma,exaone_moe,gemma3n,gemma4,gemma4_unified,
/// laguna,mimo_v2_flash,moshi}.py`, 5.x, whose classes check their types (`@strict`), also of what is set later.
const NOT_NULL: &[(&str, &str)] = &[
    ("cwm", "sliding_window"),
    ("diffusion_gemma_text", "sliding_window"),
    ("exaone_moe", "sliding_window"),
    ("gemma3n_text", "sliding_window"),
    ("gemma4_text", "sliding_window"),
    ("gemma4_unified_text", "sliding_window"),
    ("laguna", "sliding_window"),
    ("mimo_v2_flash", "sliding_window"),
    ("moshi", "sliding_window"),
];

/// Refuses what the class of a config does, a target's or a draft's, beside what `fields` does.
pub(super) fn class(config: &Config<'_>) -> Result<(), ImportError> {
    let config = config.as_read();
    lists::check(&config)?;
    shapes::check(&config)
}

/// Refuses what vLLM does.
pub(super) fn check(config: &Config<'_>, context: &Context<'_>, layers: &Layers) -> Result<(), ImportError> {
    let settings = context.settings;
    if settings.mamba_cache_mode == MambaCacheMode::All && !settings.version.rules().state_mode_all_grows {
        return Err(ImportError::Refused(format!(
            "vLLM {} knows the mamba cache modes `none` and `align`",
            settings.version
        )));
    }
    class(config)?;
    quantization::check(config, settings.version)?;
    whole_model(config)?;
    states_beside_latents(context, layers)?;
    counts::experts(config, context)?;
    counts::widths(config, context)?;
    counts::vocabulary(config, context)?;
    counts::norm_groups(config, context)?;
    if settings.splits_encoder && !settings.language_model_only {
        counts::encoder(config, context)?;
    }
    for (class, key) in NOT_NULL {
        if *class == config.text_type() && config.is_null(key) {
            return Err(ImportError::Refused(format!(
                "`{key}` is null, where its class wants a whole number"
            )));
        }
    }
    // A model of states alone rotates nothing.
    let rotates = layers.layers.iter().any(|layer| matches!(layer.cache, Cache::Attention(_)));
    if rotates {
        rope::check(config)?;
        sections(config)?;
    }
    Ok(())
}

/// What single models demand of their own config.
///
/// # Source
/// `CohereCompassForCausalLM` in `vllm/model_executor/models/cohere_compass.py` asserts it of the outer value; the number of
/// tokens of an image in `qianfan_ocr.py` divides the size; vLLM 0.32.
fn whole_model(config: &Config<'_>) -> Result<(), ImportError> {
    // The engine asks the root and the language model's part in turn.
    let is_truth = |value: &Value| match value {
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => matches!(number.as_u64(), Some(0 | 1)),
        _ => false,
    };
    let key = "is_encoder_decoder";
    if let Some(value) = config.at_root(key).filter(|value| !config.is_nested() && !is_truth(value)) {
        return Err(wrong(key, "true or false", value));
    }
    match config.architecture() {
        "CohereCompassForConditionalGeneration"
            if config.at_root("tie_word_embeddings").and_then(Value::as_bool) != Some(true) =>
        {
            Err(ImportError::Refused("vLLM runs this model with `tie_word_embeddings` only".to_owned()))
        }
        "QianfanOCRForConditionalGeneration"
            if config
                .tower("vision_config")
                .and_then(|map| map.get("image_size"))
                .is_some_and(Value::is_array) =>
        {
            Err(ImportError::WrongType {
                key: "vision_config.image_size".to_owned(),
                wanted: "a whole number",
                found: "a list".to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// Latents on a CPU switch prefix caching off, after states have taken their blocks from it.
///
/// # Source
/// `check_and_update_config` in `vllm/platforms/cpu.py`, `MambaModelConfig` in `vllm/model_executor/models/config.py` and
/// `validate_mamba_block_size` in `vllm/config/vllm.py`, vLLM 0.32.
fn states_beside_latents(context: &Context<'_>, layers: &Layers) -> Result<(), ImportError> {
    let settings = context.settings;
    let cached = settings.mamba_cache_mode != MambaCacheMode::None
        && settings.block_size != Some(settings.max_model_len);
    if settings.platform == Platform::Cpu && context.engine_mla && cached && layers.align.is_some() {
        return Err(ImportError::Refused(
            "on a CPU vLLM switches prefix caching off for a model with latents, and then refuses the blocks of its \
             states: run it without prefix caching, which is the mamba cache mode `none`"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The axes of rotary positions must fill the rotated half of a head.
///
/// # Source
/// `get_rope` and `MRotaryEmbedding` in `vllm/model_executor/layers/rotary_embedding`, vLLM 0.32.
fn sections(config: &Config<'_>) -> Result<(), ImportError> {
    let Some(rope) = config.sections() else { return Ok(()) };
    let kind =
        rope.get("rope_type").or_else(|| rope.get("type")).and_then(Value::as_str).unwrap_or("default");
    let Some(list) = rope.get("mrope_section").and_then(Value::as_array) else { return Ok(()) };
    if !matches!(kind, "default" | "mrope") || list.is_empty() {
        return Ok(());
    }
    let mut sum = 0_u64;
    for value in list {
        sum = sum.saturating_add(whole_value("mrope_section", value)?.unwrap_or(0));
    }
    let Some(heads) = config.whole("num_attention_heads")? else { return Ok(()) };
    let rotated = match rope.get("rope_dim") {
        Some(value) => whole_value("rope_dim", value)?.unwrap_or(0),
        None => rotated(config, rope, head_dim(config, heads)?)?,
    };
    if sum == rotated / 2 {
        return Ok(());
    }
    Err(ImportError::Refused(format!(
        "`mrope_section` adds up to {sum}, where half of the rotated part of a head is {}",
        rotated / 2
    )))
}

/// How much of a head is rotated.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a head times a factor of at most 1, cut down as Python's int does"
)]
fn rotated(config: &Config<'_>, rope: &Map<String, Value>, head: u64) -> Result<u64, ImportError> {
    let factor = match rope.get("partial_rotary_factor").and_then(Value::as_f64) {
        Some(factor) => factor,
        None => config.real("partial_rotary_factor")?.unwrap_or(1.0),
    };
    Ok((head as f64 * factor) as u64)
}
