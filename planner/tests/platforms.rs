//! What a platform decides: the default block, and the blocks that its backends take.
//!
//! The recordings are of a CPU; these figures are from vLLM's source, which each row names.

#![expect(clippy::expect_used, reason = "a test ends where its own files are broken")]

use planner::import::hf_config::{ImportSettings, Imported, Platform, import};
use planner::{MambaCacheMode, RawSpec};
use serde_json::{Value, json};

fn llama() -> Value {
    json!({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
           "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8})
}

fn gemma() -> Value {
    json!({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "torch_dtype": "bfloat16",
           "num_hidden_layers": 6})
}

fn deepseek(version: &str) -> Value {
    let (name, kind) = match version {
        "3" => ("DeepseekV3ForCausalLM", "deepseek_v3"),
        "3.2" => ("DeepseekV32ForCausalLM", "deepseek_v32"),
        _ => ("DeepseekV4ForCausalLM", "deepseek_v4"),
    };
    let mut config = json!({"architectures": [name], "model_type": kind, "torch_dtype": "bfloat16",
        "num_hidden_layers": 2, "qk_nope_head_dim": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64});
    match version {
        "3" => {}
        "3.2" => config["index_topk"] = json!(2048),
        _ => {
            config["num_attention_heads"] = json!(64);
            config["head_dim"] = json!(512);
            config["sliding_window"] = json!(128);
            config["compress_ratios"] = json!([0, 4, 128]);
        }
    }
    config
}

fn with(config: &Value, platform: Platform, kv_cache_dtype: &str, block_size: Option<u64>) -> Imported {
    let settings = ImportSettings {
        tensor_parallel_size: 1,
        platform,
        kv_cache_dtype: kv_cache_dtype.to_owned(),
        block_size,
        ..ImportSettings::default()
    };
    import(config, None, &settings).expect("it imports")
}

use Platform::{Cpu, CudaBlackwell as Blackwell, CudaHopper as Hopper, Rocm};

/// `cache_config.block_size` without `--block-size`.
#[test]
fn default_blocks() {
    let mut wide = deepseek("3");
    wide["qk_nope_head_dim"] = json!(256);
    for (config, platform, kv_cache_dtype, block, source) in [
        (llama(), Cpu, "auto", 128, "check_and_update_config of platforms/cpu.py"),
        (
            llama(),
            Hopper,
            "auto",
            16,
            "DEFAULT_BLOCK_SIZE of config/cache.py; FLASH_ATTN takes multiples of 16",
        ),
        (llama(), Blackwell, "auto", 16, "FLASHINFER takes 16, 32, 64, ..."),
        (llama(), Rocm, "auto", 16, "ROCM_ATTN takes multiples of 16"),
        (deepseek("3"), Cpu, "auto", 16, "CPU_MLA, which platforms/cpu.py forces"),
        (deepseek("3"), Hopper, "auto", 16, "FLASH_ATTN_MLA is first in platforms/cuda.py; multiples of 16"),
        (deepseek("3"), Hopper, "fp8", 64, "FLASH_ATTN_MLA has no fp8, so FLASHMLA: 64"),
        (deepseek("3"), Blackwell, "auto", 32, "FLASHINFER_MLA takes 32 and 64"),
        (wide, Blackwell, "auto", 128, "FLASHINFER_MLA wants keys of 64, 128 or 192, so CUTLASS_MLA: 128"),
        (deepseek("3"), Rocm, "auto", 16, "TRITON_MLA without AITER; multiples of 16"),
        (deepseek("3.2"), Hopper, "auto", 64, "the indexer's kernels take 64"),
        (deepseek("3.2"), Hopper, "fp8_ds_mla", 64, "FLASHMLA_SPARSE takes 64"),
        (deepseek("3.2"), Blackwell, "auto", 64, "FLASHINFER_MLA_SPARSE, and the indexer: 64"),
        (deepseek("3.2"), Rocm, "auto", 16, "ROCM_AITER_MLA_SPARSE takes any"),
        (deepseek("4"), Hopper, "auto", 256, "models/deepseek_v4/sparse_mla.py takes 256"),
        (deepseek("4"), Blackwell, "auto", 256, "models/deepseek_v4/sparse_mla.py takes 256"),
    ] {
        let imported = with(&config, platform, kv_cache_dtype, None);
        assert_eq!(imported.block_size, block, "{platform:?} {kv_cache_dtype}: {source}");
    }
}

/// Windows take the largest block of their backend within the engine's: `_largest_kernel_block_within` of
/// `layers/attention/attention.py`, vLLM 0.32.
#[test]
fn blocks_of_windows() {
    for (platform, asked, window, source) in [
        (Cpu, 128, 128, "CPU_ATTN takes multiples of 32"),
        (Cpu, 48, 32, "CPU_ATTN takes multiples of 32"),
        (Hopper, 48, 48, "FLASH_ATTN takes multiples of 16"),
        (Blackwell, 48, 32, "FLASHINFER takes 16, 32, 64, ..."),
        (Rocm, 48, 48, "ROCM_ATTN takes multiples of 16"),
    ] {
        let imported = with(&gemma(), platform, "auto", Some(asked));
        let blocks: Vec<u64> = (0..imported.model.len())
            .filter_map(|i| imported.model.spec_of(i))
            .filter(|spec| spec.kind().name() == "sliding")
            .map(planner::KvCacheSpec::block_size)
            .collect();
        assert!(!blocks.is_empty());
        assert!(blocks.iter().all(|block| *block == window), "{platform:?}: {blocks:?}, {source}");
    }
}

/// Sparse latents of FP8 are packed, and DeepSeek V4 packs the pages of its caches side by side:
/// `_canonicalize_sparse_mla_kv_cache_dtype` of `layers/attention/mla_attention.py`, `supported_kv_cache_layouts` of
/// `v1/attention/backends/mla/indexer.py`, vLLM 0.32.
#[test]
fn packed_pages() {
    for (platform, asked, kept) in [
        (Hopper, "fp8", "fp8_ds_mla"),
        (Hopper, "auto", "auto"),
        (Blackwell, "fp8", "fp8"),
        (Platform::CudaSm120, "auto", "fp8_ds_mla"),
    ] {
        let imported = with(&deepseek("3.2"), platform, asked, None);
        assert_eq!(imported.kv_cache_dtype, kept, "{platform:?} {asked}");
        assert_eq!(imported.layout, None);
    }
    assert_eq!(with(&deepseek("4"), Hopper, "auto", None).layout, Some(planner::Layout::Blhnc));
}

/// Gated delta nets whose prefill `FlashInfer` runs keep a state at the ends of blocks, which are multiples of 64 tokens:
/// `_align_hybrid_block_size` of platforms/interface.py and `get_kv_cache_spec` of
/// `model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py`, vLLM 0.33.
#[test]
fn states_at_the_ends_of_blocks() {
    let config: Value = json!({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "torch_dtype": "bfloat16",
        "num_hidden_layers": 4, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4});
    let imported = |version: &str, platform, mode| {
        let settings = ImportSettings {
            platform,
            version: version.parse().expect("a version"),
            mamba_cache_mode: mode,
            ..ImportSettings::default()
        };
        let imported = import(&config, None, &settings).expect("it imports");
        let state = RawSpec::from(imported.model.spec_of(0).expect("a layer").clone());
        (imported.block_size, state.num_prefill_checkpoint_blocks, state.prefill_checkpoint_alignment)
    };
    // 1,085,440 bytes of state beside 2,048 of a token: 530 tokens, in blocks of 16 or of 64.
    for (version, platform, mode, expected) in [
        ("0.32", Hopper, MambaCacheMode::Align, (544, None, None)),
        ("0.33", Rocm, MambaCacheMode::Align, (544, None, None)),
        ("0.33", Hopper, MambaCacheMode::None, (544, None, None)),
        ("0.33", Hopper, MambaCacheMode::Align, (576, Some(1), Some(576))),
        ("0.33", Blackwell, MambaCacheMode::Align, (576, Some(1), Some(576))),
    ] {
        assert_eq!(imported(version, platform, mode), expected, "{version} {platform:?} {mode:?}");
    }
}
