//! Decoders of sound and pages: their own attention, and one over the encoder's output.
//!
//! # Source
//! vLLM 0.32: `vllm/model_executor/models/{whisper,cohere_asr,nemotron_parse}.py`; 0.33:
//! `nemotron_parse3_5.py`.

use serde_json::{Map, Value};

use super::super::config::{self, Config, whole_value};
use super::super::error::ImportError;
use super::super::layer::{Attention, Cache, Layer, Layers};
use super::super::settings::Context;

/// What a decoder is made of.
struct Decoder {
    layers: u64,
    heads: u64,
    kv_heads: u64,
    hidden: u64,
}

impl Decoder {
    /// Both attentions of each layer; `name` is what layer `i` is called.
    fn build(
        &self,
        context: &Context<'_>,
        name: impl Fn(u64) -> String,
        cross: Option<&str>,
        own: &str,
    ) -> Result<Layers, ImportError> {
        let n = config::layers_below_limit(self.layers)?;
        context.divide("the attention heads", self.heads)?;
        let kv_heads = context.kv_heads(self.kv_heads)?;
        let head_size = self.hidden / self.heads.max(1);
        let attention = Attention { kv_heads, head_size, ..Attention::default() };
        let mut layers = Layers::default();
        for i in 0..n {
            let name = name(i);
            layers.layers.push(Layer::new(format!("{name}.{own}.attn"), Cache::Attention(attention)));
            if let Some(cross) = cross {
                layers.layers.push(Layer::new(format!("{name}.{cross}.attn"), Cache::Cross(attention)));
            }
        }
        Ok(layers)
    }
}

fn first(config: &Config<'_>, keys: [&str; 2]) -> Result<u64, ImportError> {
    match config.whole(keys[0])? {
        Some(value) => Ok(value),
        None => config.need(keys[1]),
    }
}

pub(super) fn whisper(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let heads = first(config, ["decoder_attention_heads", "num_attention_heads"])?;
    let decoder = Decoder {
        layers: first(config, ["decoder_layers", "num_hidden_layers"])?,
        heads,
        kv_heads: heads,
        hidden: first(config, ["d_model", "hidden_size"])?,
    };
    let name = |i| format!("{prefix}.decoder.layers.{i}.layers");
    decoder.build(context, name, Some("encoder_attn"), "self_attn")
}

fn need_of(map: &Map<String, Value>, path: &str, key: &str) -> Result<u64, ImportError> {
    let full = format!("{path}.{key}");
    map.get(key)
        .map_or(Ok(None), |value| whole_value(&full, value))?
        .ok_or(ImportError::Missing { key: full })
}

pub(super) fn cohere_asr(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    const PATH: &str = "transf_decoder.config_dict";
    let map = config
        .object("transf_decoder")
        .and_then(|map| map.get("config_dict"))
        .and_then(Value::as_object)
        .ok_or_else(|| ImportError::Missing { key: PATH.to_owned() })?;
    let heads = need_of(map, PATH, "num_attention_heads")?;
    let decoder = Decoder {
        layers: need_of(map, PATH, "num_layers")?,
        heads,
        kv_heads: heads,
        hidden: need_of(map, PATH, "hidden_size")?,
    };
    let name = |i| format!("{prefix}decoder.layers.{i}.layers");
    decoder.build(context, name, Some("second_sub_layer"), "first_sub_layer")
}

/// Nemotron Parse attends to the encoder; its 3.5 has the image in front of the text, and KV heads of its own number.
pub(super) fn nemotron_parse(
    config: &Config<'_>,
    context: &Context<'_>,
    prefix: &str,
) -> Result<Layers, ImportError> {
    let map = config.tower("decoder").ok_or_else(|| ImportError::Missing { key: "decoder".to_owned() })?;
    let heads = need_of(map, "decoder", "decoder_attention_heads")?;
    let prefixed = config.architecture() == "RadioMBartPrefixForCausalLM";
    let flag = |key: &str, default: bool| map.get(key).and_then(Value::as_bool).unwrap_or(default);
    if prefixed && (!flag("causal_vision_prefix", false) || flag("add_cross_attention", true)) {
        return Err(ImportError::Refused(
            "Nemotron Parse 3.5 wants `decoder.causal_vision_prefix` and no `decoder.add_cross_attention`"
                .to_owned(),
        ));
    }
    let grouped = map
        .get("self_attention_kv_heads")
        .map_or(Ok(None), |value| whole_value("decoder.self_attention_kv_heads", value))?;
    let decoder = Decoder {
        layers: need_of(map, "decoder", "decoder_layers")?,
        heads,
        kv_heads: grouped.filter(|_| prefixed).unwrap_or(heads),
        hidden: need_of(map, "decoder", "d_model")?,
    };
    let name = |i| format!("{prefix}.decoder.layers.{i}");
    decoder.build(context, name, (!prefixed).then_some("encoder_attn"), "self_attn")
}
