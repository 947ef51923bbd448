//! Voxtral Realtime: a decoder with a window, and an encoder of sound that keeps keys and values, too.
//!
//! The encoder hears several frames a token: a state of its cache is of a fraction of a token.
//!
//! # Source
//! vLLM 0.33: `WhisperCausalAttentionWithBlockPooling.get_kv_cache_spec` in
//! `vllm/model_executor/models/whisper_causal.py`, `vllm/transformers_utils/configs/mistral.py`; up to 0.28 the
//! same file multiplied the heads instead and kept the window in frames.

use serde_json::{Map, Value};

use super::super::config::{self, Config, whole_value};
use super::super::error::ImportError;
use super::super::layer::{Attention, Cache, Layer, Layers};
use super::super::settings::Context;
use crate::size;
use crate::spec::{RawSpec, SpecKind, TokensPerState};

/// The defaults of the text config that `VoxtralRealtimeConfig` of transformers fills in.
const TEXT: &[(&str, u64)] = &[
    ("hidden_size", 3072),
    ("num_hidden_layers", 26),
    ("num_attention_heads", 32),
    ("num_key_value_heads", 8),
    ("head_dim", 128),
    ("sliding_window", 8192),
];

pub(super) fn layers(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let text = |key: &str| -> Result<u64, ImportError> {
        let default = TEXT.iter().find(|(name, _)| *name == key).map_or(0, |(_, value)| *value);
        Ok(if config.is_nested() { config.stated(key)?.unwrap_or(default) } else { default })
    };
    let n = config::layers_below_limit(text("num_hidden_layers")?)?;
    let all = text("num_attention_heads")?;
    context.divide("the attention heads", all)?;
    let decoder = Attention {
        kv_heads: context.kv_heads(text("num_key_value_heads")?)?,
        head_size: text("head_dim")?,
        window: Some(text("sliding_window")?).filter(|window| *window > 0),
        ..Attention::default()
    };
    let mut layers = Layers::default();
    for i in 0..n {
        let name = format!("{prefix}layers.{i}.self_attn.attn");
        layers.layers.push(Layer::new(name, Cache::Attention(decoder)));
    }
    encoder(config, context, &mut layers)?;
    Ok(layers)
}

fn encoder(config: &Config<'_>, context: &Context<'_>, layers: &mut Layers) -> Result<(), ImportError> {
    let empty = Map::new();
    let audio = config.tower("audio_config").unwrap_or(&empty);
    let of = |map: &Map<String, Value>, keys: &[&str], default: u64| -> Result<u64, ImportError> {
        for key in keys {
            if let Some(value) = map.get(*key).filter(|value| !value.is_null()) {
                return Ok(whole_value(&format!("audio_config.{key}"), value)?.unwrap_or(default));
            }
        }
        Ok(default)
    };
    let n = config::layers_below_limit(of(audio, &["encoder_layers", "num_hidden_layers"], 32)?)?;
    let heads = of(audio, &["encoder_attention_heads", "num_attention_heads"], 32)?;
    let head_size = of(audio, &["encoder_head_dim", "head_dim"], 64)?;
    let window = of(audio, &["sliding_window"], 750)?;
    let frames = match audio.get("block_pool_size").or_else(|| audio.get("downsample_factor")) {
        Some(_) => of(audio, &["block_pool_size", "downsample_factor"], 4)?,
        None => config.outer("downsample_factor")?.unwrap_or(4),
    };
    if frames == 0 {
        return Err(ImportError::Refused("`downsample_factor` is 0".to_owned()));
    }
    let kv_heads = context.divide("the encoder's heads", heads)?;
    let mut raw = RawSpec::empty(SpecKind::Sliding);
    raw.head_size = Some(head_size);
    raw.dtype = Some(context.kv.dtype(context.dtype));
    let mode = context.kv.quant_mode();
    raw.kv_quant_mode = (mode != Default::default()).then_some(mode);
    if context.settings.version.rules().tokens_per_state {
        raw.num_kv_heads = Some(kv_heads);
        raw.tokens_per_state = Some(TokensPerState::Fraction([1, frames]));
        raw.sliding_window = Some(size::add("a window", window.div_ceil(frames), 1)?);
    } else {
        raw.num_kv_heads = Some(size::mul("the encoder's heads", kv_heads, frames)?);
        raw.sliding_window = Some(window);
    }
    for i in 0..n {
        let name = format!("whisper_encoder.whisper_encoder.layers.{i}.layers.self_attn.attn");
        layers.layers.push(Layer::new(name, Cache::OwnWithBlock(Box::new(raw.clone()))));
    }
    Ok(())
}
