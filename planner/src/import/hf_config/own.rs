//! Models with rules of their own for single layers: which differ in heads, windows or chunks?
//!
//! # Source
//! vLLM 0.32's `vllm/model_executor/models/{llama4,gemma4,mimo_v2,step3p5,nemotron_nas,laguna,minicpm3,
//! whisper}.py`.

mod deepseek_v4;
mod minimax_m3;

use serde_json::Value;

pub(super) use deepseek_v4::layer as deepseek_v4_layer;

use super::config::Config;
use super::dense::{self, Kv, head_dim, heads, hidden_head, index, layer_name, window};
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
}

pub(super) fn layers(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
    kind: Own,
) -> Result<Layers, ImportError> {
    match kind {
        Own::Llama4 => llama4(config, context, prefix),
        Own::Gemma4 => gemma4(config, context, prefix),
        Own::MiMoV2 => mimo_v2(config, context, prefix),
        Own::Step3p5 => step3p5(config, context, prefix),
        Own::DeciLm => deci_lm(config, context, prefix),
        Own::MuseGlimmer => muse_glimmer(config, context, prefix),
        Own::DeepseekV4 => deepseek_v4::layers(config, context, prefix),
        Own::MiniMaxM3 => minimax_m3::layers(config, context, prefix),
        Own::Whisper => whisper(config, context, prefix),
        Own::LoopCoder => loop_coder(config, context, prefix),
        Own::Exaone => exaone_moe(config, context, prefix),
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
    let kv_heads = context.kv_heads(config.whole("num_key_value_heads")?.unwrap_or(heads))?;
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

/// Full layers have larger and fewer heads than sliding ones.
///
/// # Source
/// `Gemma4TextConfig.__post_init__` of transformers: `per_layer_config`.
fn gemma4(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let heads = heads(config, context)?;
    let mut types = need_layer_types(config, n)?;
    types.truncate(index(n));
    if let Some(last) = types.last_mut() {
        *last = LayerType::Full;
    }
    let head_size = head_dim(config, heads)?;
    let kv = config.whole("num_key_value_heads")?.unwrap_or(heads);
    let global_head = config.whole("global_head_dim")?.unwrap_or(512);
    let same_kv = config.has("attention_k_eq_v") && !config.flag("attention_k_eq_v")?;
    let global_kv = config.whole("num_global_key_value_heads")?.filter(|_| !same_kv).unwrap_or(kv);
    let per_layer = config.object("per_layer_config");
    let mut own_window = window(config)?;
    if config.text("use_bidirectional_attention").ok().flatten().as_deref() == Some("all") {
        own_window = own_window.map(|w| w / 2 + 1);
    }
    let model_window = dense::model_window(config)?;
    let naming = dense::LLAMA;
    let shared = dense::kv_sharing(config, prefix, naming, n)?;
    let mut layers = Layers::default();
    for (i, kind) in types.iter().enumerate() {
        let name = layer_name(prefix, naming.name, i as u64);
        if let Some(target) = shared.get(i).and_then(Clone::clone) {
            layers.layers.push(Layer::new(name, Cache::Shared(target)));
            continue;
        }
        let full = *kind == LayerType::Full;
        let (mut total, mut size) =
            if full && per_layer.is_none() { (global_kv, global_head) } else { (kv, head_size) };
        if let Some(own) = per_layer.and_then(|map| own_entry(map, i)) {
            size = own_whole(own, "head_dim")?.unwrap_or(size);
            total = own_whole(own, "num_key_value_heads")?.unwrap_or(total);
        }
        let kv_heads = context.kv_heads(total)?;
        let layer_window = if *kind == LayerType::Sliding { own_window } else { model_window };
        layers.layers.push(Layer::new(name, plain(kv_heads, size, layer_window)));
    }
    Ok(layers)
}

/// The entry of layer `i`; keys may be padded with zeros.
fn own_entry(map: &serde_json::Map<String, Value>, i: usize) -> Option<&Value> {
    map.get(&i.to_string()).or_else(|| (2..=6).find_map(|width| map.get(&format!("{i:0width$}"))))
}

fn own_whole(object: &Value, key: &str) -> Result<Option<u64>, ImportError> {
    object.get(key).map_or(Ok(None), |value| super::config::whole_value(key, value))
}

/// Sliding layers have heads of their own, and values are narrower than keys.
fn mimo_v2(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let mut layers = Layers::default();
    let pattern = config.wholes("hybrid_layer_pattern")?;
    let types = if pattern.is_none() { Some(need_layer_types(config, n)?) } else { None };
    for i in 0..n {
        let slides = match (&pattern, &types) {
            (Some(pattern), _) => {
                *pattern.get(index(i)).ok_or_else(|| ImportError::ListTooShort {
                    key: "hybrid_layer_pattern".to_owned(),
                    length: pattern.len(),
                    layers: n,
                })? == 1
            }
            (None, Some(types)) => types.get(index(i)) == Some(&LayerType::Sliding),
            (None, None) => false,
        };
        layers.layers.push(Layer::new(
            format!("{prefix}layers.{i}.self_attn.attn"),
            mimo_v2_attention(config, context, slides)?,
        ));
    }
    Ok(layers)
}

/// One attention of MiMo V2.
pub(super) fn mimo_v2_attention(
    config: &Config<'_>,
    context: &Context<'_>,
    slides: bool,
) -> Result<Cache, ImportError> {
    let key = |name: &str| if slides { format!("swa_{name}") } else { name.to_owned() };
    let heads = match config.whole(&key("num_attention_heads"))? {
        Some(heads) => heads,
        None => config.need("num_attention_heads")?,
    };
    context.divide("the attention heads", heads)?;
    let total =
        config.whole(&key("num_key_value_heads"))?.or(config.whole("num_key_value_heads")?).unwrap_or(heads);
    let head_size = match config.whole(&key("head_dim"))? {
        Some(head) => head,
        None => config.need("head_dim")?,
    };
    let window =
        if slides { config.whole("sliding_window_size")?.or(config.whole("sliding_window")?) } else { None };
    Ok(Cache::Attention(Attention {
        kv_heads: context.kv_heads(total)?,
        head_size,
        head_size_v: config.whole(&key("v_head_dim"))?,
        window,
        chunk: None,
        // Narrower values take kernels of their own, whose blocks are multiples of 16 on every platform.
        kernel_block: Some(16),
    }))
}

/// Layers of one type have other heads.
fn step3p5(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = config.num_layers()?;
    let mut layers = Layers::default();
    for i in 0..n {
        layers.layers.push(Layer::new(
            format!("{prefix}layers.{i}.self_attn.attn"),
            step3p5_attention(config, context, i)?,
        ));
    }
    Ok(layers)
}

/// The attention of layer `i` of Step 3.5.
pub(super) fn step3p5_attention(
    config: &Config<'_>,
    context: &Context<'_>,
    i: u64,
) -> Result<Cache, ImportError> {
    let names = config.texts("layer_types")?.unwrap_or_default();
    let name = names.get(index(i)).copied();
    let slides = if names.is_empty() { i.is_multiple_of(2) } else { name == Some("sliding_attention") };
    let other = config.object("attention_other_setting");
    let mut heads = config.need("num_attention_heads")?;
    let mut groups =
        config.whole("num_attention_groups")?.or(config.whole("num_key_value_heads")?).unwrap_or(heads);
    let mut head = config.whole("head_dim")?;
    if let Some(other) =
        other.filter(|o| name.is_some() && o.get("attention_type").and_then(Value::as_str) == name)
    {
        let read = |key: &str| other.get(key).map_or(Ok(None), |v| super::config::whole_value(key, v));
        heads = read("num_attention_heads")?.filter(|h| *h > 0).unwrap_or(heads);
        groups = read("num_attention_groups")?.filter(|h| *h > 0).unwrap_or(groups);
        head = read("head_dim")?.filter(|h| *h > 0).or(head);
    } else if other.is_none() && slides {
        heads = config.whole("num_sliding_attention_heads")?.unwrap_or(heads);
    }
    context.divide("the attention heads", heads)?;
    let head_size = match head.filter(|h| *h > 0) {
        Some(head) => head,
        None => hidden_head(config, heads)?,
    };
    let layer_window = if slides { window(config)? } else { None };
    Ok(plain(context.kv_heads(groups)?, head_size, layer_window))
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

/// A decoder's own attention, and one over the encoder's output.
fn whisper(config: &Config<'_>, context: &Context<'_>, prefix: &str) -> Result<Layers, ImportError> {
    let n = super::config::layers_below_limit(match config.whole("decoder_layers")? {
        Some(n) => n,
        None => config.num_layers()?,
    })?;
    let heads = match config.whole("decoder_attention_heads")? {
        Some(heads) => heads,
        None => config.need("num_attention_heads")?,
    };
    let kv_heads = context.divide("the attention heads", heads)?;
    let hidden = match config.whole("d_model")? {
        Some(size) => size,
        None => config.need("hidden_size")?,
    };
    let attention = Attention { kv_heads, head_size: hidden / heads.max(1), ..Attention::default() };
    let mut layers = Layers::default();
    for i in 0..n {
        let name = format!("{prefix}.decoder.layers.{i}.layers");
        layers.layers.push(Layer::new(format!("{name}.self_attn.attn"), Cache::Attention(attention)));
        layers.layers.push(Layer::new(format!("{name}.encoder_attn.attn"), Cache::Cross(attention)));
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
