//! Which sizes does a config's class refuse together?
//!
//! # Source
//! `validate_architecture` and `validate_rope` of transformers' config classes, 5.19, and
//! `vllm/transformers_utils/configs/bailing_moe_v3_vl.py`, vLLM 0.32.

use serde_json::{Map, Value};

use super::super::config::Config;
use super::super::error::ImportError;
use super::super::layer_types::{LayerType, layer_types};

/// Model types whose class wants the hidden size to be a multiple of the attention heads.
///
/// # Source
/// transformers' `configuration_{arcee,aria,cwm,deepseek_v2,gemma2,gemma3,gemma3n,hrm_text,hyperclovax,jais2,llama,minicpm3,
/// vaultgemma}.py`, 5.19.
const WHOLE_HEADS: &[&str] = &[
    "arcee",
    "aria_text",
    "cwm",
    "deepseek_v2",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "hrm_text",
    "hyperclovax",
    "jais2",
    "llama",
    "minicpm3",
    "vaultgemma",
];

/// Refuses what the class of a config does.
pub(super) fn check(config: &Config<'_>) -> Result<(), ImportError> {
    whole_heads(config)?;
    even_heads(config)?;
    match config.text_type() {
        "granitemoehybrid" => granite(config),
        "glm5_next_text" => glm5_next(config),
        "jamba" => jamba(config),
        _ if config.architecture() == "BailingMoeV3VLForConditionalGeneration" => bailing(config),
        _ => Ok(()),
    }
}

fn whole_heads(config: &Config<'_>) -> Result<(), ImportError> {
    if !WHOLE_HEADS.contains(&config.text_type()) {
        return Ok(());
    }
    match (config.whole("hidden_size")?, config.whole("num_attention_heads")?) {
        (Some(hidden), Some(heads)) if heads > 0 && !hidden.is_multiple_of(heads) => {
            Err(ImportError::Refused(format!(
                "the hidden size ({hidden}) is no multiple of the attention heads ({heads}): transformers checks it when \
                 vLLM reads the config"
            )))
        }
        _ => Ok(()),
    }
}

/// Model types whose class makes the size of a head of the hidden size where the file leaves it out.
const MAKES_HEAD: &[&str] = &["llama", "mistral"];

/// A head that is rotated whole has an even size, but for toys of up to 4 elements.
fn even_heads(config: &Config<'_>) -> Result<(), ImportError> {
    let head = match config.whole("head_dim")? {
        Some(head) => head,
        None if MAKES_HEAD.contains(&config.text_type()) => {
            match (config.whole("hidden_size")?, config.whole("num_attention_heads")?) {
                (Some(hidden), Some(heads)) if heads > 0 => hidden / heads,
                _ => return Ok(()),
            }
        }
        None => return Ok(()),
    };
    let rotates = config.rope_parameters().is_some()
        || config.has("rope_theta")
        || MAKES_HEAD.contains(&config.text_type());
    if head <= 4 || head.is_multiple_of(2) || !rotates || config.has("per_layer_config") {
        return Ok(());
    }
    let whole = |set: &Map<String, Value>| {
        set.get("partial_rotary_factor")
            .and_then(Value::as_f64)
            .or_else(|| config.real("partial_rotary_factor").ok().flatten())
            .is_none_or(|factor| factor >= 1.0)
    };
    let rotated = match config.rope_parameters() {
        None => whole(&Map::new()),
        Some(sets) if !sets.is_empty() && sets.values().all(Value::is_object) => {
            sets.values().filter_map(Value::as_object).any(whole)
        }
        Some(set) => whole(set),
    };
    if !rotated {
        return Ok(());
    }
    Err(ImportError::Refused(format!(
        "a head of {head} elements is odd, which rotary positions refuse: transformers checks it when vLLM reads the config"
    )))
}

fn granite(config: &Config<'_>) -> Result<(), ImportError> {
    let (Some(hidden), Some(heads)) = (config.whole("hidden_size")?, config.whole("mamba_n_heads")?) else {
        return Ok(());
    };
    let Some(channels) = config.whole("mamba_expand")?.unwrap_or(2).checked_mul(hidden) else {
        return Ok(());
    };
    // `auto` is what fits.
    let head = config.whole("mamba_d_head").unwrap_or(None);
    let fits = heads > 0
        && channels.is_multiple_of(heads)
        && head.is_none_or(|head| head.checked_mul(heads) == Some(channels));
    if fits {
        return Ok(());
    }
    Err(ImportError::Refused(format!(
        "`mamba_n_heads` ({heads}) and `mamba_d_head` do not make up the {channels} channels of a state: transformers checks \
         it when vLLM reads the config"
    )))
}

/// Periods that a layer's kind comes once in.
fn jamba(config: &Config<'_>) -> Result<(), ImportError> {
    for (kind, period, offset) in [("attn", 8, 4), ("expert", 2, 1)] {
        let of = |name: &str| config.whole(&format!("{kind}_layer_{name}"));
        let (period, offset) = (of("period")?.unwrap_or(period), of("offset")?.unwrap_or(offset));
        if offset >= period {
            return Err(ImportError::Refused(format!(
                "`{kind}_layer_offset` ({offset}) must be below `{kind}_layer_period` ({period}): transformers checks it \
                 when vLLM reads the config"
            )));
        }
    }
    Ok(())
}

fn glm5_next(config: &Config<'_>) -> Result<(), ImportError> {
    let (heads, kv_heads) = (config.whole("num_attention_heads")?, config.whole("num_key_value_heads")?);
    if let (Some(heads), Some(kv_heads)) = (heads, kv_heads)
        && heads != kv_heads
    {
        return Err(ImportError::Refused(format!(
            "`num_key_value_heads` ({kv_heads}) must be `num_attention_heads` ({heads}): the class of this model wants as \
             many"
        )));
    }
    match config.whole("qk_rope_head_dim")? {
        Some(size) if size > 0 => Err(ImportError::Refused(format!(
            "`qk_rope_head_dim` is {size}, where the class wants attention without rotary positions"
        ))),
        _ => Ok(()),
    }
}

/// Attention in the last layer of each group, and in what is left over.
fn bailing(config: &Config<'_>) -> Result<(), ImportError> {
    if !config.is_stated("layer_types") && !config.is_stated("layers_block_type") {
        return Ok(());
    }
    let (Some(types), Some(layers), Some(group)) =
        (layer_types(config)?, config.whole("num_hidden_layers")?, config.whole("layer_group_size")?)
    else {
        return Ok(());
    };
    let last = layers - layers.checked_rem(group).unwrap_or(0);
    let scheduled = |i: u64| i >= last || (i + 1).checked_rem(group) == Some(0);
    let suits = types.len() as u64 == layers
        && (0..).zip(&types).all(|(i, kind)| (*kind == LayerType::Full) == scheduled(i));
    if suits {
        return Ok(());
    }
    Err(ImportError::Refused(
        "`layer_types` does not follow `layer_group_size`, which the class of this model demands".to_owned(),
    ))
}
