//! Models with rules of their own for single layers: which differ in heads, windows or chunks?
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/{llama4,gemma4,mimo_v2,step3p5,nemotron_nas,laguna,minicpm3,
//! whisper}.py`.

mod deepseek_v4;
mod deepseek_v41;
mod dory;
mod dots3_note;
mod encoder_decoder;
mod gemma4;
mod hrm_text;
mod inkling;
mod mimo_v2;
mod minimax_m3;
mod moondream3;
mod pangu;
mod step3p5;
mod step5;
mod voxtral_realtime;

use serde_json::Value;

pub(super) use deepseek_v4::layer as deepseek_v4_layer;
pub(super) use deepseek_v41::window as deepseek_v41_window;
pub(super) use dots3_note::sparse as dots3_note_sparse;
pub(super) use gemma4::layers as gemma4;
pub(super) use inkling::layer as inkling_layer;
pub(super) use mimo_v2::attention as mimo_v2_attention;
pub(super) use minimax_m3::heads as minimax_m3_heads;
pub(super) use step3p5::attention as step3p5_attention;
pub(super) use step5::heads as step5_heads;

use super::config::Config;
use super::dense::{self, Kv, head_dim, heads, hidden_head, index, window};
use super::error::ImportError;
use super::layer::{Attention, Cache, Layer, Layers};
use super::layer_types::{LayerType, layer_types, need_layer_types};
use super::settings::Context;

/// Which model's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Llama4,
    Gemma4,
    MiMoV2,
    Step3p5,
    DeciLm,
    MuseGlimmer,
    DeepseekV4,
    MiniMaxM3,
    Whisper,
    LoopCoder,
    Exaone,
    Beam,
    CohereAsr,
    Cosmos3Edge,
    DeepseekV41,
    DomynEdge,
    Dory,
    Dots3Note,
    HrmText,
    Inkling,
    Moondream3,
    NemotronParse,
    Pangu,
    Rnj1,
    Step5,
    VoxtralRealtime,
}

pub(super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
    kind: Own,
) -> Result<Layers, ImportError> {
    match kind {
        Own::Llama4 => llama4(config, context, prefix),
        Own::Gemma4 => gemma4::layers(config, context, prefix),
        Own::MiMoV2 => mimo_v2::layers(config, context, prefix),
        Own::Step3p5 => step3p5::layers(config, context, prefix),
        Own::DeciLm => deci_lm(config, context, prefix),
        Own::MuseGlimmer => muse_glimmer(config, context, prefix),
        Own::DeepseekV4 => deepseek_v4::layers(config, context, prefix),
        Own::MiniMaxM3 => minimax_m3::layers(config, context, prefix),
        Own::Whisper => encoder_decoder::whisper(config, context, prefix),
        Own::LoopCoder => loop_coder(config, context, prefix),
        Own::Exaone => exaone_moe(config, context, prefix),
        Own::Beam => beam(config, context, prefix),
        Own::CohereAsr => encoder_decoder::cohere_asr(config, context, prefix),
        Own::Cosmos3Edge => cosmos3_edge(config, context, prefix),
        Own::DeepseekV41 => deepseek_v41::layers(config, context, prefix),
        Own::DomynEdge => domyn_edge(config, context, prefix),
        Own::Dory => dory::layers(config, context, prefix),
        Own::Dots3Note => dots3_note::layers(config, context, prefix),
        Own::HrmText => hrm_text::layers(config, context, prefix),
        Own::Inkling => inkling::layers(config, context, prefix),
        Own::Moondream3 => moondream3::layers(config, context, prefix),
        Own::NemotronParse => encoder_decoder::nemotron_parse(config, context, prefix),
        Own::Pangu => pangu::layers(config, context, prefix),
        Own::Rnj1 => rnj1(config, context, prefix),
        Own::Step5 => step5::layers(config, context, prefix),
        Own::VoxtralRealtime => voxtral_realtime::layers(config, context, prefix),
    }
}

fn plain(kv_heads: u64, head_size: u64, window: Option<u64>) -> Cache {
    Cache::Attention(Attention { kv_heads, head_size, window, ..Attention::default() })
}

/// Layers with rotary positions attend in chunks, the others to all.
fn llama4(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = dense::grouped(context, heads, config.whole("num_key_value_heads")?.unwrap_or(heads))?;
    let chunk = config.whole("attention_chunk_size")?.filter(|c| *c > 0);
    let without_rope = config.wholes("no_rope_layers")?.filter(|list| !list.is_empty());
    let interval = config.whole("no_rope_layer_interval")?.unwrap_or(4).max(1);
    let model_window = dense::model_window(config)?;
    let mut layers = Layers::default();
    for i in 0..n {
        let rope = match &without_rope {
            Some(list) => {
                *list.get(index(i)).ok_or_else(|| ImportError::ListTooShort {
                    key: "no_rope_layers".to_owned(),
                    length: list.len(),
                    layers: n,
                })? != 0
            }
            None => (i + 1) % interval != 0,
        };
        let cache = match chunk.filter(|_| rope) {
            Some(chunk) => Cache::Attention(Attention {
                kv_heads,
                head_size,
                chunk: Some(chunk),
                ..Attention::default()
            }),
            None => plain(kv_heads, head_size, model_window),
        };
        layers.layers.push(Layer::new(format!("{prefix}layers.{i}.self_attn.attn"), cache));
    }
    Ok(layers)
}

/// Layers without attention, and KV heads that differ by layer.
fn deci_lm(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let blocks = config
        .list("block_configs")?
        .ok_or_else(|| ImportError::Missing { key: "block_configs".to_owned() })?;
    let mut layers = Layers::default();
    for (i, block) in blocks.iter().take(index(n)).enumerate() {
        let attention = block.get("attention");
        let field = |key: &str| attention.and_then(|a| a.get(key));
        if field("no_op").and_then(Value::as_bool) == Some(true)
            || field("replace_with_linear").and_then(Value::as_bool) == Some(true)
        {
            continue;
        }
        let key = "block_configs.attention.n_heads_in_group";
        let group = field("n_heads_in_group").map_or(Ok(None), |v| super::config::whole_value(key, v))?;
        let group = group.filter(|g| *g > 0).ok_or_else(|| ImportError::Missing { key: key.to_owned() })?;
        let kv_heads = context.kv_heads(heads / group)?;
        let layer_window = dense::model_window(config)?;
        layers.layers.push(Layer::new(
            format!("{prefix}layers.{i}.self_attn.attn"),
            plain(kv_heads, head_size, layer_window),
        ));
    }
    Ok(layers)
}

/// Layers with rotary positions slide; without a list every fourth from the last has none.
///
/// # Source
/// `vllm/transformers_utils/configs/muse_glimmer.py`.
fn muse_glimmer(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = context.kv_heads(dense::total_kv_heads(config, Kv::Grouped, heads)?)?;
    let rope = config.wholes("no_rope_layers")?;
    let own = window(config)?;
    let mut layers = Layers::default();
    for i in 0..n {
        let slides = match &rope {
            Some(list) => list.get(index(i)) == Some(&1),
            None => !(n - 1 - i).is_multiple_of(4),
        };
        let cache = plain(kv_heads, head_size, own.filter(|_| slides));
        layers.layers.push(Layer::new(format!("{prefix}layers.{i}.self_attn.attn"), cache));
    }
    Ok(layers)
}

/// The same layers run twice: the second time with a window.
fn loop_coder(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = hidden_head(config, heads)?;
    let kv_heads = context.kv_heads(dense::total_kv_heads(config, Kv::Grouped, heads)?)?;
    let loops = config.whole("loop_num")?.unwrap_or(2);
    let loop_window = config.whole("loop_window_size")?.unwrap_or(64);
    super::config::layers_below_limit(loops.saturating_mul(n))?;
    let mut layers = Layers::default();
    for i in 0..n {
        for turn in 0..loops {
            let number = turn.saturating_mul(n).saturating_add(i);
            layers.layers.push(Layer::new(
                format!("{prefix}layers.{number}.self_attn.attn"),
                plain(kv_heads, head_size, (turn > 0).then_some(loop_window)),
            ));
        }
    }
    Ok(layers)
}

/// Windows by layer, where a list says so.
fn exaone_moe(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = context.kv_heads(dense::total_kv_heads(config, Kv::Grouped, heads)?)?;
    let types = layer_types(config)?.unwrap_or_default();
    let listed = config.list("sliding_windows")?;
    let own = window(config)?;
    let model = dense::model_window(config)?;
    let mut layers = Layers::default();
    for i in 0..n {
        let layer_window = if types.get(index(i)) == Some(&LayerType::Full) {
            model
        } else if let Some(list) = listed {
            list.get(index(i))
                .map_or(Ok(None), |v| super::config::whole_value("sliding_windows", v))?
                .or(model)
        } else {
            own.or(model)
        };
        layers.layers.push(Layer::new(
            format!("{prefix}layers.{i}.self_attn.attn"),
            plain(kv_heads, head_size, layer_window),
        ));
    }
    Ok(layers)
}

/// Windows in every layer, but where a list says otherwise.
///
/// # Source
/// `vllm/transformers_utils/configs/beam.py`, vLLM 0.33.
fn beam(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = context.kv_heads(config.whole("num_key_value_heads")?.unwrap_or(4))?;
    let types = layer_types(config)?;
    let own = config.whole("sliding_window")?.unwrap_or(4096);
    let mut layers = Layers::default();
    for i in 0..n {
        let full = types.as_ref().is_some_and(|types| types.get(index(i)) == Some(&LayerType::Full));
        let cache = plain(kv_heads, head_size, (!full).then_some(own));
        layers.layers.push(Layer::new(format!("{prefix}layers.{i}.self_attn.attn"), cache));
    }
    Ok(layers)
}

/// Attention and the MLP are layers of their own, so that attention has the even numbers.
fn cosmos3_edge(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = context.kv_heads(dense::total_kv_heads(config, Kv::Grouped, heads)?)?;
    let layers = (0..n)
        .map(|i| {
            let name = format!("{prefix}layers.{}.mixer.attn", 2 * i);
            Layer::new(name, plain(kv_heads, head_size, None))
        })
        .collect();
    Ok(Layers { layers, ..Layers::default() })
}

/// A window and a head size by layer; a window counts the keys before the token itself.
///
/// # Source
/// `vllm/model_executor/models/domyn_edge.py`, vLLM 0.33.
fn domyn_edge(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let kv_heads = context.kv_heads(dense::total_kv_heads(config, Kv::Grouped, heads)?)?;
    let windows = config
        .list("window_sizes")?
        .ok_or_else(|| ImportError::Missing { key: "window_sizes".to_owned() })?;
    let own = config.object("per_layer_config");
    let mut layers = Layers::default();
    for i in 0..n {
        let entry = windows.get(index(i)).ok_or_else(|| ImportError::ListTooShort {
            key: "window_sizes".to_owned(),
            length: windows.len(),
            layers: n,
        })?;
        // -1 is no window.
        let first = entry.get(0).or(Some(entry)).and_then(Value::as_u64).filter(|size| *size > 0);
        let head = own
            .and_then(|map| gemma4::own_entry(map, index(i)))
            .map_or(Ok(None), |o| gemma4::own_whole(o, "head_dim"))?;
        let head_size = match head {
            Some(head) => head,
            None => head_dim(config, heads)?,
        };
        let cache = plain(kv_heads, head_size, first.map(|size| size.saturating_add(1)));
        layers.layers.push(Layer::new(format!("{prefix}layers.{i}.attention.attn"), cache));
    }
    Ok(layers)
}

/// Layers that are called chunked slide.
///
/// # Source
/// `vllm/model_executor/models/rnj1.py`.
fn rnj1(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let head_size = head_dim(config, heads)?;
    let kv_heads = context.kv_heads(dense::total_kv_heads(config, Kv::Grouped, heads)?)?;
    let types = need_layer_types(config, n)?;
    let own = config.whole("sliding_window")?;
    let model = dense::model_window(config)?;
    let mut layers = Layers::default();
    for i in 0..n {
        let slides = types.get(index(i)) == Some(&LayerType::Chunked);
        let cache = plain(kv_heads, head_size, own.filter(|_| slides).or(model));
        layers.layers.push(Layer::new(format!("{prefix}layers.{i}.self_attn.attn"), cache));
    }
    Ok(layers)
}
