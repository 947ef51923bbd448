//! What do a layer's attention or state weigh, compute and keep?
//!
//! Sizes are those of vLLM 0.32's model files, named in each function.

use super::keys::Keys;
use super::pattern::Mixer;
use super::{Kept, LayerShape, ShapeError, kernels};

/// Adds a layer's mixer.
pub(super) fn add(
    keys: &Keys<'_>,
    hidden: f64,
    mixer: Mixer,
    layer: &mut LayerShape,
) -> Result<(), ShapeError> {
    match mixer {
        Mixer::None => return Ok(()),
        Mixer::Gdn => gdn(keys, hidden, layer)?,
        Mixer::Kda => kda(keys, hidden, layer)?,
        Mixer::Mamba => mamba(keys, hidden, layer)?,
        Mixer::ShortConv => {
            // models/lfm2.py: in_proj to three, a convolution, out_proj.
            layer.split += 4.0 * hidden * hidden;
            layer.kept.state_bytes = 2.0 * hidden * keys.number(&["conv_L_cache"])?;
            layer.kept.split_at_most = f64::MAX;
            layer.kernels += kernels("short_conv");
        }
        Mixer::Full | Mixer::Sliding | Mixer::Chunked | Mixer::Grouped(_) => {
            if keys.get("kv_lora_rank").is_some() {
                mla(keys, hidden, layer)?;
            } else if keys.get("o_lora_rank").is_some() {
                compressed(keys, hidden, layer)?;
            } else {
                attention(keys, hidden, mixer, layer)?;
            }
            layer.kept.reads_at_most = reads_at_most(keys, mixer)?.or(layer.kept.reads_at_most);
        }
    }
    layer.all_reduces += 1.0;
    Ok(())
}

fn reads_at_most(keys: &Keys<'_>, mixer: Mixer) -> Result<Option<f64>, ShapeError> {
    match mixer {
        Mixer::Sliding => keys.optional(&["sliding_window", "sliding_window_size"]),
        Mixer::Chunked => keys.optional(&["attention_chunk_size"]),
        _ => Ok(None),
    }
}

/// models/llama.py and what is built like it: q, k, v, o.
fn attention(keys: &Keys<'_>, hidden: f64, mixer: Mixer, layer: &mut LayerShape) -> Result<(), ShapeError> {
    let sliding = mixer == Mixer::Sliding;
    let global = mixer == Mixer::Full;
    let own = |swa: &'static str, plain: &[&'static str]| -> Vec<&'static str> {
        let mut list = if sliding { vec![swa] } else { Vec::new() };
        list.extend(plain);
        list
    };
    let heads = keys.number(&own("swa_num_attention_heads", &["num_attention_heads", "n_head"]))?;
    let kv_heads = match mixer {
        Mixer::Grouped(group) => heads / f64::from(u32::try_from(group).unwrap_or(u32::MAX)),
        _ => {
            let mut names = own("swa_num_key_value_heads", &["num_key_value_heads"]);
            if global && keys.get("num_global_key_value_heads").is_some() {
                names.insert(0, "num_global_key_value_heads");
            }
            keys.optional(&names)?.unwrap_or(heads)
        }
    };
    let mut names = own("swa_head_dim", &["head_dim", "attention_head_dim"]);
    if global && keys.get("global_head_dim").is_some() {
        names.insert(0, "global_head_dim");
    }
    let dim = keys.optional(&names)?.unwrap_or((hidden / heads).floor());
    let v_dim = keys.optional(&own("swa_v_head_dim", &["v_head_dim"]))?.unwrap_or(dim);
    let gate = if keys.flag("attn_output_gate") { 2.0 } else { 1.0 };
    layer.split += hidden * (gate * heads * dim + kv_heads * (dim + v_dim) + heads * v_dim);
    layer.pair_flops = 2.0 * heads * (dim + v_dim);
    layer.kept = Kept { elements: kv_heads * (dim + v_dim), split_at_most: kv_heads, ..Kept::default() };
    layer.kernels += kernels("attention");
    let per_layer = keys.string("qk_norm_type") == "per_layer";
    if keys.flag("use_qk_norm")
        || keys.model_type.starts_with("qwen3")
        || keys.model_type.starts_with("gemma")
    {
        layer.kernels += kernels("qk_norm");
    }
    if per_layer {
        // models/minimax_m2.py: the norm runs over all heads, so ranks add their squares up.
        layer.all_reduces += 1.0;
    }
    if let Some(sparse) = keys.object("sparse_attention_config") {
        let (size, blocks) = (sparse.count(&["sparse_block_size"])?, sparse.count(&["sparse_topk_blocks"])?);
        if size * blocks > 0.0 {
            layer.kept.reads_at_most = Some(size * blocks);
            layer.kept.indexed = sparse.count(&["sparse_index_dim"])?;
            layer.kernels += kernels("indexer");
        }
    }
    Ok(())
}

/// models/deepseek_v2.py: latent attention; decode multiplies by `W_UK` and `W_UV` in place of expanding KV.
fn mla(keys: &Keys<'_>, hidden: f64, layer: &mut LayerShape) -> Result<(), ShapeError> {
    let heads = keys.number(&["num_attention_heads"])?;
    let (nope, rope) = (keys.number(&["qk_nope_head_dim"])?, keys.number(&["qk_rope_head_dim"])?);
    let (value, latent) = (keys.number(&["v_head_dim"])?, keys.number(&["kv_lora_rank"])?);
    match keys.optional(&["q_lora_rank"])? {
        Some(rank) => {
            layer.whole += hidden * rank;
            layer.split += rank * heads * (nope + rope);
        }
        None => layer.split += hidden * heads * (nope + rope),
    }
    layer.whole += hidden * (latent + rope);
    layer.split += latent * heads * (nope + value) + heads * value * hidden;
    if keys.flag("mla_use_output_gate") {
        layer.split += hidden * heads * value;
    }
    layer.pair_flops = 2.0 * heads * (nope + rope + value);
    layer.kept = Kept { elements: latent + rope, split_at_most: 1.0, ..Kept::default() };
    layer.kernels += kernels("mla");
    if let Some(top_k) = keys.optional(&["index_topk"])? {
        let (dim, index_heads) = (keys.count(&["index_head_dim"])?, keys.count(&["index_n_heads"])?);
        let rank = keys.optional(&["q_lora_rank"])?.unwrap_or(hidden);
        layer.whole += rank * dim * index_heads + hidden * (dim + index_heads);
        layer.kept.reads_at_most = Some(top_k);
        layer.kept.indexed = dim;
        layer.kernels += kernels("indexer");
    }
    Ok(())
}

/// models/deepseek_v4.py: one KV head, outputs projected by groups.
fn compressed(keys: &Keys<'_>, hidden: f64, layer: &mut LayerShape) -> Result<(), ShapeError> {
    let (heads, dim) = (keys.number(&["num_attention_heads"])?, keys.number(&["head_dim"])?);
    let (q_rank, o_rank) = (keys.number(&["q_lora_rank"])?, keys.number(&["o_lora_rank"])?);
    let groups = keys.optional(&["o_groups"])?.unwrap_or(1.0);
    layer.whole += hidden * (q_rank + dim);
    layer.split += q_rank * heads * dim + heads * dim * o_rank + groups * o_rank * hidden;
    layer.pair_flops = 4.0 * heads * dim;
    layer.kept = Kept { elements: dim, split_at_most: 1.0, ..Kept::default() };
    layer.kernels += kernels("mla");
    if let Some(top_k) = keys.optional(&["index_topk"])? {
        let window = keys.count(&["sliding_window"])?;
        layer.kept.reads_at_most = Some(top_k + window);
        layer.kept.indexed = keys.count(&["index_head_dim"])? / 4.0;
        layer.kernels += kernels("indexer");
    }
    Ok(())
}

/// models/qwen3_next.py: gated delta net.
fn gdn(keys: &Keys<'_>, hidden: f64, layer: &mut LayerShape) -> Result<(), ShapeError> {
    let (k_heads, v_heads) =
        (keys.number(&["linear_num_key_heads"])?, keys.number(&["linear_num_value_heads"])?);
    let (k_dim, v_dim) = (keys.number(&["linear_key_head_dim"])?, keys.number(&["linear_value_head_dim"])?);
    layer.split +=
        hidden * (2.0 * k_heads * k_dim + 2.0 * v_heads * v_dim + 2.0 * v_heads) + v_heads * v_dim * hidden;
    let conv = keys.count(&["linear_conv_kernel_dim"])? * (2.0 * k_heads * k_dim + v_heads * v_dim) * 2.0;
    layer.kept = Kept {
        state_bytes: v_heads * v_dim * k_dim * 4.0 + conv,
        split_at_most: f64::MAX,
        ..Kept::default()
    };
    layer.kernels += kernels("gdn");
    Ok(())
}

/// models/kimi_linear.py: Kimi delta attention.
fn kda(keys: &Keys<'_>, hidden: f64, layer: &mut LayerShape) -> Result<(), ShapeError> {
    let linear = keys.object("linear_attn_config");
    let own = linear.as_ref().unwrap_or(keys);
    let (heads, dim) = (own.number(&["num_heads", "num_attention_heads"])?, own.number(&["head_dim"])?);
    let inner = heads * dim;
    let gate = if own.flag("use_full_rank_gate") { hidden * inner } else { (hidden + inner) * dim };
    layer.split += hidden * 3.0 * inner + (hidden + inner) * dim + gate + hidden * heads + inner * hidden;
    let conv = own.count(&["short_conv_kernel_size"])? * 3.0 * inner * 2.0;
    layer.kept =
        Kept { state_bytes: heads * dim * dim * 4.0 + conv, split_at_most: f64::MAX, ..Kept::default() };
    layer.kernels += kernels("kda");
    Ok(())
}

/// layers/mamba/mamba_mixer2.py.
fn mamba(keys: &Keys<'_>, hidden: f64, layer: &mut LayerShape) -> Result<(), ShapeError> {
    let heads = keys.number(&["mamba_num_heads", "mamba_n_heads", "num_heads"])?;
    let dim = keys.number(&["mamba_head_dim", "mamba_d_head", "head_dim"])?;
    let state = keys.number(&["ssm_state_size", "mamba_d_state", "state_size"])?;
    let groups = keys.optional(&["n_groups", "mamba_n_groups"])?.unwrap_or(1.0);
    let inner = heads * dim;
    layer.split += hidden * (2.0 * inner + 2.0 * groups * state + heads) + inner * hidden;
    let conv = keys.count(&["conv_kernel", "mamba_d_conv"])? * (inner + 2.0 * groups * state) * 2.0;
    layer.kept = Kept { state_bytes: inner * state * 4.0 + conv, split_at_most: f64::MAX, ..Kept::default() };
    layer.kernels += kernels("mamba");
    Ok(())
}
