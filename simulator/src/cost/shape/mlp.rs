//! What do a layer's MLP or experts weigh?

use super::keys::Keys;
use super::pattern::Mlp;
use super::{Experts, LayerShape, ShapeError, kernels};

/// Adds a layer's MLP.
pub(super) fn add(keys: &Keys<'_>, hidden: f64, mlp: Mlp, layer: &mut LayerShape) -> Result<(), ShapeError> {
    match mlp {
        Mlp::None => return Ok(()),
        Mlp::Width(width) => dense(keys, hidden, width, layer),
        Mlp::Dense => dense(keys, hidden, dense_width(keys)?, layer),
        Mlp::Experts => experts(keys, hidden, layer)?,
        Mlp::DenseAndExperts => {
            dense(keys, hidden, dense_width(keys)?, layer);
            experts(keys, hidden, layer)?;
        }
    }
    layer.all_reduces += 1.0;
    Ok(())
}

fn dense_width(keys: &Keys<'_>) -> Result<f64, ShapeError> {
    keys.number(&[
        "dense_intermediate_size",
        "intermediate_size_mlp",
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "block_ff_dim",
    ])
}

/// Matrices of an MLP: gate, up and down, or up and down.
fn matrices(keys: &Keys<'_>) -> f64 {
    let activation = ["mlp_hidden_act", "hidden_act", "hidden_activation", "activation_function"]
        .iter()
        .map(|key| keys.string(key))
        .find(|name| !name.is_empty())
        .unwrap_or("silu");
    // GPT-2's plain MLP is told by its `n_inner`.
    let plain = activation == "gelu" && keys.get("n_inner").is_some();
    let gated = !plain && !matches!(activation, "relu2" | "relu" | "gelu_new" | "gelu_fast");
    if gated { 3.0 } else { 2.0 }
}

fn dense(keys: &Keys<'_>, hidden: f64, width: f64, layer: &mut LayerShape) {
    layer.split += matrices(keys) * hidden * width;
    layer.kernels += kernels("mlp");
}

fn experts(keys: &Keys<'_>, hidden: f64, layer: &mut LayerShape) -> Result<(), ShapeError> {
    let count = keys.number(&["n_routed_experts", "num_experts", "num_local_experts"])?;
    let top_k = keys.number(&[
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_top_k",
    ])?;
    let width = keys.number(&["moe_intermediate_size", "expert_intermediate_size", "intermediate_size"])?;
    let matrices = matrices(keys);
    let latent = keys.optional(&["moe_latent_size", "routed_expert_hidden_size"])?;
    layer.experts = Some(Experts {
        count,
        top_k: top_k.min(count),
        weights: matrices * latent.unwrap_or(hidden) * width,
        width,
    });
    layer.kernels += kernels("moe");
    layer.whole += hidden * count;
    if let Some(latent) = latent {
        layer.whole += 2.0 * hidden * latent;
        layer.kernels += kernels("latent_experts");
    }
    let each = keys.count(&["n_shared_experts", "num_shared_experts"])?;
    let shared = match keys.count(&[
        "moe_shared_expert_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
    ])? {
        own if own > 0.0 => own,
        _ => each * width,
    };
    if shared > 0.0 {
        layer.split += matrices * hidden * shared;
        layer.kernels += kernels("shared_experts");
    }
    Ok(())
}
