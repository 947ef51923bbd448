//! Architectures that the recording could not build: the figures are worked out from the files that each row names.

#![expect(clippy::expect_used, reason = "a test ends where its own files are broken")]

use planner::RawSpec;
use planner::import::hf_config::{ImportSettings, Platform, import};
use serde_json::{Value, json};

/// Two layers of 16 heads of 64, 4 of them KV heads, and what `own` says.
fn config(architecture: &str, own: &Value) -> Value {
    let mut config = json!({"architectures": [architecture], "torch_dtype": "bfloat16", "hidden_size": 1024,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "num_hidden_layers": 2});
    for (key, value) in own.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// Each layer's spec for one rank of two, on a CPU, whose block is 128 tokens.
fn specs(config: &Value) -> Vec<Value> {
    let settings = ImportSettings {
        tensor_parallel_size: 2,
        max_model_len: 4096,
        platform: Platform::Cpu,
        ..ImportSettings::default()
    };
    let imported = import(config, None, &settings).expect("it imports");
    let of = |i| imported.model.spec_of(i).map(RawSpec::from);
    (0..imported.model.len())
        .filter_map(of)
        .map(|raw| serde_json::to_value(raw).unwrap_or_default())
        .collect()
}

/// Two of the four KV heads.
fn attention(window: Option<u64>, block_size: u64) -> Value {
    let mut spec = json!({"kind": "full", "block_size": block_size, "num_kv_heads": 2, "head_size": 64,
                          "dtype": "bfloat16"});
    if let Some(window) = window {
        spec["kind"] = json!("sliding");
        spec["sliding_window"] = json!(window);
    }
    spec
}

/// `vllm/transformers_utils/configs/beam.py`, `vllm/model_executor/models/{domyn_edge,rnj1}.py`, vLLM 0.33.
#[test]
fn windows() {
    let beam = json!({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 256});
    assert_eq!(specs(&config("BeamForCausalLM", &beam)), [attention(Some(256), 128), attention(None, 128)]);
    // The first number counts the keys before a token.
    let domyn = json!({"window_sizes": [[255, 0], -1]});
    assert_eq!(
        specs(&config("DomynEdgeForCausalLM", &domyn)),
        [attention(Some(256), 128), attention(None, 128)]
    );
    // What is called chunked slides.
    let rnj = json!({"layer_types": ["chunked_attention", "full_attention"], "sliding_window": 128});
    assert_eq!(specs(&config("Rnj1ForCausalLM", &rnj)), [attention(Some(128), 128), attention(None, 128)]);
}

/// `vllm/model_executor/models/alice_ai.py`, vLLM 0.33: 4 of 8 heads of 128 by 128 in float32 are 262,144 bytes, and
/// 3 steps of the 1,536 channels of queries, keys and values in bfloat16 9,216; a token has 512 bytes, so that a block
/// of 5 x 128 tokens is the first that holds 271,360.
#[test]
fn kda_beside_attention() {
    let own = json!({"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 8,
        "linear_num_value_heads": 8, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4});
    let [state, full] = &specs(&config("AliceAIForCausalLM", &own))[..] else {
        unreachable!("the config has two layers")
    };
    assert_eq!(state["shapes"], json!([[3, 1536], [4, 128, 128]]));
    assert_eq!(state["dtypes"], json!(["bfloat16", "float32"]));
    assert_eq!(state["page_size_padded"], 640 * 512);
    assert_eq!(*full, attention(None, 640));
}

/// `vllm/model_executor/models/bailing_moe_linear.py` and `layers/mamba/linear/base.py`, vLLM 0.32: 8 of 16 heads of
/// 64 by 64 in the model's dtype are 65,536 bytes; a latent of 512 and 64 has 1,152, so that a block of 128 tokens
/// holds them.
#[test]
fn linear_attention_beside_latents() {
    let own = json!({"model_type": "bailing_hybrid", "layer_group_size": 2, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64});
    let [state, latent] = &specs(&config("BailingMoeV2_5ForCausalLM", &own))[..] else {
        unreachable!("the config has two layers")
    };
    assert_eq!(state["shapes"], json!([[8, 64, 64]]));
    assert_eq!(state["mamba_type"], "LINEAR");
    assert_eq!(state["page_size_padded"], 128 * 1152);
    assert_eq!(latent["kind"], "mla");
    assert_eq!(latent["head_size"], 576);
}
