//! Which mixer and which MLP does each layer have?

use serde_json::Value;

use super::ShapeError;
use super::keys::Keys;

/// What mixes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mixer {
    None,
    Full,
    Sliding,
    Chunked,
    Gdn,
    Kda,
    Mamba,
    ShortConv,
    /// Full attention with `n` query heads a KV head.
    Grouped(u64),
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mlp {
    None,
    Dense,
    /// A dense MLP of a width of its own.
    Width(f64),
    Experts,
    /// Both, added.
    DenseAndExperts,
}

const KNOWN: &str = "full_attention, sliding_attention, chunked_attention, linear_attention, mamba, conv";

/// The layers, in order.
pub(super) fn layers(keys: &Keys<'_>) -> Result<Vec<(Mixer, Mlp)>, ShapeError> {
    if let Some(pattern) = keys.get("hybrid_override_pattern").and_then(Value::as_str) {
        return pattern.chars().enumerate().map(|(layer, kind)| letter(layer, kind)).collect();
    }
    if let Some(kinds) = keys.list("layers_block_type").filter(|_| keys.get("num_hidden_layers").is_none()) {
        return kinds.iter().enumerate().map(|(layer, kind)| block(layer, kind)).collect();
    }
    let count = keys.num_layers()?;
    if let Some(blocks) = keys.list("block_configs") {
        return nas(keys, blocks, count);
    }
    (0..count).map(|layer| Ok((mixer(keys, layer)?, mlp(keys, layer)?))).collect()
}

/// Nemotron-H: one letter a layer, each a mixer or an MLP.
fn letter(layer: usize, kind: char) -> Result<(Mixer, Mlp), ShapeError> {
    match kind {
        'M' => Ok((Mixer::Mamba, Mlp::None)),
        '*' => Ok((Mixer::Full, Mlp::None)),
        '-' => Ok((Mixer::None, Mlp::Dense)),
        'E' => Ok((Mixer::None, Mlp::Experts)),
        _ => Err(ShapeError::Kind { layer, kind: kind.to_string(), known: "M, *, -, E" }),
    }
}

/// Nemotron-H's letters as words.
fn block(layer: usize, kind: &Value) -> Result<(Mixer, Mlp), ShapeError> {
    match kind.as_str() {
        Some("mamba") => Ok((Mixer::Mamba, Mlp::None)),
        Some("attention") => Ok((Mixer::Full, Mlp::None)),
        Some("mlp") => Ok((Mixer::None, Mlp::Dense)),
        Some("moe") => Ok((Mixer::None, Mlp::Experts)),
        _ => Err(ShapeError::Kind {
            layer,
            kind: kind.to_string().chars().take(40).collect(),
            known: "mamba, attention, mlp, moe",
        }),
    }
}

/// Nemotron-NAS: a block each, heads and widths of their own.
fn nas(keys: &Keys<'_>, blocks: &[Value], count: usize) -> Result<Vec<(Mixer, Mlp)>, ShapeError> {
    let hidden = keys.number(&["hidden_size"])?;
    let off = |part: Option<&Value>, key: &str| {
        part.and_then(|p| p.get(key)).and_then(Value::as_bool).unwrap_or(false)
    };
    Ok(blocks
        .iter()
        .take(count)
        .map(|block| {
            let (attention, ffn) = (block.get("attention"), block.get("ffn"));
            let heads = attention.and_then(|a| a.get("n_heads_in_group")).and_then(Value::as_u64);
            let mixer = match heads {
                Some(heads) if heads > 0 && !off(attention, "no_op") => Mixer::Grouped(heads),
                _ => Mixer::None,
            };
            let factor = ffn.and_then(|f| f.get("ffn_mult")).and_then(Value::as_f64);
            let mlp = match factor {
                // `_ffn_mult_to_intermediate_size`, vllm/model_executor/models/nemotron_nas.py.
                Some(factor) if !off(ffn, "no_op") => {
                    Mlp::Width(((2.0 * factor * hidden / 3.0) / 256.0).ceil() * 256.0)
                }
                _ => Mlp::None,
            };
            (mixer, mlp)
        })
        .collect())
}

fn mixer(keys: &Keys<'_>, layer: usize) -> Result<Mixer, ShapeError> {
    if let Some(linear) = keys.object("linear_attn_config") {
        let number = Value::from(layer + 1);
        return Ok(if linear.list("kda_layers").is_some_and(|l| l.contains(&number)) {
            Mixer::Kda
        } else {
            Mixer::Full
        });
    }
    if let Some(kinds) = keys.list("layer_types") {
        let kind = kinds.get(layer).and_then(Value::as_str).unwrap_or("full_attention");
        return match kind {
            "full_attention" | "attention" | "global_attention" | "sparse_attention" => Ok(Mixer::Full),
            "sliding_attention" => Ok(Mixer::Sliding),
            "chunked_attention" => Ok(Mixer::Chunked),
            "linear_attention" => {
                Ok(if keys.get("linear_num_value_heads").is_some() { Mixer::Gdn } else { Mixer::Kda })
            }
            "mamba" | "mamba2" => Ok(Mixer::Mamba),
            "conv" => Ok(Mixer::ShortConv),
            _ if kind.contains("attention") => Ok(Mixer::Full),
            _ => Err(ShapeError::Kind { layer, kind: kind.chars().take(40).collect(), known: KNOWN }),
        };
    }
    if let Some(pattern) = keys.list("hybrid_layer_pattern") {
        return Ok(if pattern.get(layer).and_then(Value::as_u64) == Some(1) {
            Mixer::Sliding
        } else {
            Mixer::Full
        });
    }
    let every = |key: &str| keys.get(key).and_then(Value::as_u64).filter(|&n| n > 0);
    let next = layer as u64 + 1;
    if keys.get("linear_num_value_heads").is_some() {
        let interval = every("full_attention_interval").unwrap_or(4);
        return Ok(if next.is_multiple_of(interval) { Mixer::Full } else { Mixer::Gdn });
    }
    if let Some(pattern) = every("sliding_window_pattern") {
        return Ok(if next.is_multiple_of(pattern) { Mixer::Full } else { Mixer::Sliding });
    }
    let window =
        keys.get("sliding_window").is_some() && keys.get("use_sliding_window") != Some(&Value::Bool(false));
    Ok(if window { Mixer::Sliding } else { Mixer::Full })
}

fn mlp(keys: &Keys<'_>, layer: usize) -> Result<Mlp, ShapeError> {
    if keys.count(&["n_routed_experts", "num_experts", "num_local_experts"])? < 2.0 {
        return Ok(Mlp::Dense);
    }
    if keys.get("enable_moe_block").is_some() {
        return Ok(if keys.flag("enable_moe_block") { Mlp::DenseAndExperts } else { Mlp::Dense });
    }
    if let Some(kinds) = keys.list("mlp_layer_types") {
        return Ok(if kinds.get(layer).and_then(Value::as_str) == Some("dense") {
            Mlp::Dense
        } else {
            Mlp::Experts
        });
    }
    if let Some(freq) = keys.list("moe_layer_freq") {
        return Ok(if freq.get(layer).and_then(Value::as_u64) == Some(0) {
            Mlp::Dense
        } else {
            Mlp::Experts
        });
    }
    if keys.list("mlp_only_layers").is_some_and(|dense| dense.contains(&Value::from(layer))) {
        return Ok(Mlp::Dense);
    }
    let index = layer as u64;
    if index < keys.get("first_k_dense_replace").and_then(Value::as_u64).unwrap_or(0) {
        return Ok(Mlp::Dense);
    }
    let step = ["decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"]
        .iter()
        .find_map(|key| keys.get(key).and_then(Value::as_u64))
        .filter(|&step| step > 1);
    Ok(match step {
        Some(step) if !(index + 1).is_multiple_of(step) => Mlp::Dense,
        _ => Mlp::Experts,
    })
}
