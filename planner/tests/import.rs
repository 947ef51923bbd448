//! Every recorded config comes out as the real vLLM has it: each layer's spec, the block sizes, the plan.

#![expect(clippy::expect_used, reason = "a test ends where its own files are broken")]

#[path = "support/models.rs"]
mod models;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use planner::import::hf_config::{
    ImportError, ImportSettings, Imported, MAX_LAYERS, Platform, import, known_architectures,
};
use planner::import::json;
use serde_json::{Value, json};

fn recorded(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    let file = std::fs::File::open(&path).expect("the recorded models are in the repository");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the file is compressed");
    text.lines().map(|line| json::parse(line).expect("a case a line")).collect()
}

fn hold(name: &str) {
    let mut wrong = Vec::new();
    for case in recorded(name) {
        let id = case.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let found = models::differences(&case);
        if !found.is_empty() {
            wrong.push(format!("{id}\n    {}", found.join("\n    ")));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn models() {
    hold("models.jsonl.gz");
}

/// Defaults of transformers' classes, public configs, mutations of both, targets with drafts.
#[test]
fn models_wide() {
    hold("models-wide.jsonl.gz");
}

/// Architectures that the others lack, further mutations and drafts, 1 to 16 ranks, FP8 KV.
#[test]
fn models_more() {
    hold("models-more.jsonl.gz");
}

/// Drawn anew, with states cached by prefix, and the architectures that the others lack: vLLM 0.32, and 0.33 for what it
/// brought.
#[test]
fn models_fresh() {
    hold("models-fresh.jsonl.gz");
}

/// A further draw: overrides of the config, no sliding windows, hybrids without states, drafts that are whole models.
#[test]
fn models_drawn() {
    hold("models-drawn.jsonl.gz");
}

/// Odd files that vLLM runs: no architectures, dtypes of no model, windows that are false, tokens that see both ways.
#[test]
fn models_accepted() {
    hold("models-accepted.jsonl.gz");
}

/// `is_causal: false` at every architecture, whether it looks at it or not, less AXK1 and Kimi Linear, where ours differ.
#[test]
fn models_that_look_both_ways() {
    hold("models-causal.jsonl.gz");
}

fn settings(tp: u64, platform: Platform) -> ImportSettings {
    ImportSettings { tensor_parallel_size: tp, platform, ..ImportSettings::default() }
}

fn imported(config: &Value, tp: u64, platform: Platform) -> Result<Imported, ImportError> {
    import(config, None, &settings(tp, platform))
}

fn llama() -> Value {
    json!({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
           "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8})
}

/// KV heads are split over ranks, and repeated where there are fewer than ranks.
#[test]
fn kv_heads_by_rank() {
    for (tp, heads) in [(1, 8), (2, 4), (8, 1), (16, 1)] {
        let imported = imported(&llama(), tp, Platform::Cpu).expect("it divides");
        let spec = imported.model.spec_of(0).and_then(|s| s.attention().cloned()).expect("attention");
        assert_eq!(spec.num_kv_heads, heads, "{tp} ranks");
    }
    assert!(matches!(imported(&llama(), 3, Platform::Cpu), Err(ImportError::NotDivisible { .. })));
}

/// `state_content_bytes` of `MLAAttention.get_kv_cache_spec`, vLLM 0.32.
#[test]
fn packed_latents() {
    let deepseek = json!({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
                          "torch_dtype": "bfloat16", "num_hidden_layers": 1});
    let settings =
        ImportSettings { kv_cache_dtype: "fp8_ds_mla".to_owned(), ..settings(8, Platform::CudaHopper) };
    let imported = import(&deepseek, None, &settings).expect("it imports");
    let spec = imported.model.spec_of(0).and_then(|s| s.attention().cloned()).expect("attention");
    assert_eq!(spec.state_content_bytes, Some(656));
}

/// Layers without attention and KV heads by layer: `DeciLMDecoderLayer` of
/// `vllm/model_executor/models/nemotron_nas.py`, vLLM 0.32, which the recording could not build.
#[test]
fn heterogeneous_blocks() {
    let block = |group: Value, no_op: bool| json!({"attention": {"n_heads_in_group": group, "no_op": no_op}});
    let config = json!({"architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas",
        "torch_dtype": "bfloat16", "hidden_size": 8192, "num_hidden_layers": 3, "num_attention_heads": 64,
        "block_configs": [block(json!(8), false), block(Value::Null, true), block(json!(16), false)]});
    let imported = imported(&config, 2, Platform::Cpu).expect("it imports");
    assert_eq!(imported.model.names, ["model.layers.0.self_attn.attn", "model.layers.2.self_attn.attn"]);
    let heads: Vec<u64> =
        (0..2).filter_map(|i| imported.model.spec_of(i)?.attention().map(|a| a.num_kv_heads)).collect();
    assert_eq!(heads, [4, 2]);
}

#[test]
fn unknown_architecture_names_known_ones() {
    let error =
        imported(&json!({"architectures": ["Qwen9ForCausalLM"]}), 1, Platform::Cpu).expect_err("unknown");
    assert!(matches!(&error, ImportError::UnknownArchitecture { similar, .. } if !similar.is_empty()));
    assert!(known_architectures().flat_map(|(_, names)| names).count() > 150);
}

/// What is found in the wild: an error, or layers, and never a panic.
#[test]
fn odd_configs() {
    let mut huge = llama();
    huge["num_hidden_layers"] = json!(u64::MAX);
    assert_eq!(
        imported(&huge, 1, Platform::Cpu),
        Err(ImportError::TooManyLayers { asked: u64::MAX, limit: MAX_LAYERS })
    );
    for (key, value) in [
        ("num_hidden_layers", json!("32")),
        ("hidden_size", json!([4096])),
        ("torch_dtype", json!("float3")),
        ("torch_dtype", json!("torch.float16")),
        ("torch_dtype", json!(["float16"])),
        ("num_hidden_layers", json!(2.0)),
        ("use_cache", Value::Null),
        ("model_type", json!("llamas")),
        ("num_attention_heads", json!(0)),
        ("num_key_value_heads", json!(0)),
        ("num_key_value_heads", json!(-8)),
        ("head_dim", json!(u64::MAX)),
        ("layer_types", json!("sliding_attention")),
        ("architectures", json!("LlamaForCausalLM")),
    ] {
        let mut config = llama();
        config[key] = value.clone();
        let text = value.to_string();
        // A head that leaves 64 bits shows when its page is asked for.
        assert!(imported(&config, 1, Platform::Cpu).is_err() || key == "head_dim", "{key} = {text}");
    }
    assert!(imported(&json!([1]), 1, Platform::Cpu).is_err());
    let nested = format!("{}{}", "{\"a\":".repeat(1000), "1");
    assert!(json::parse(&nested).is_err());
    let mut null = llama();
    null["num_key_value_heads"] = Value::Null;
    assert_eq!(
        imported(&null, 1, Platform::Cpu).ok().and_then(|i| i
            .model
            .spec_of(0)?
            .attention()
            .map(|a| a.num_kv_heads)),
        Some(32)
    );
    let mut vocabulary = llama();
    let words: serde_json::Map<String, Value> = (0..100_000).map(|i| (format!("w{i}"), json!(i))).collect();
    vocabulary["vocab"] = Value::Object(words);
    assert!(imported(&vocabulary, 1, Platform::Cpu).is_ok());
}

/// Parts of vLLM's message that are no rule about the config, and why.
const NO_RULE: &[(&str, &str)] = &[
    ("Failed to find a kernel", KERNEL),
    ("MoE backend supports the deployment", KERNEL),
    ("Marlin FP4 not available", KERNEL),
    ("Cannot copy out of meta tensor", RECORDING),
    ("cannot be called on meta tensors", RECORDING),
    ("module 'triton' has no attribute", RECORDING),
    ("requires the timm library", RECORDING),
    ("Can't load image processor", RECORDING),
    ("Can't load feature extractor", RECORDING),
    ("object has no attribute", KEY),
    ("object of type 'NoneType' has no len()", KEY),
    ("argument after ** must be a mapping, not NoneType", KEY),
    ("requires a vision configuration", KEY),
    ("not exist,please check config", KEY),
    ("unsupported output_gate_type=None", KEY),
    ("Found unknown kwargs", KEY),
    ("Transformers does not recognize this architecture", NEWER),
    ("contains custom code", NEWER),
    ("['Step3p7FlashForCausalLM'] are not supported for now", NEWER),
    ("Unsupported head_dim for fused quant+cache", KERNEL),
    ("require the V2 model runner", KERNEL),
    ("has no setter", KEY),
    ("Field 'time_step_limit' with value", KEY),
];
const KERNEL: &str = "a kernel that a CPU lacks; other platforms have it";
const RECORDING: &str = "the recording has no weights, image processor or Triton";
const KEY: &str = "a key that the model needs and its cache does not; a published config has it";
const NEWER: &str = "runs with --trust-remote-code, another vLLM or a newer transformers";

/// Cases that are a rule of vLLM's, or may be, and are imported: the start of the id, and why.
const NOT_YET: &[(&str, &str)] = &[
    ("draft9-109-", "an EAGLE draft of Llama 4 that is a plain Llama, where the recording ran out of time"),
    ("dm10-13-", "a draft that is a hybrid of its own, whose blocks the target's cache then holds"),
    ("wild10-6-", "an audio tower whose sizes are of its own file"),
    ("draft10-70-", "heads of a MiniMax M3 that transformers runs"),
    ("draft10-98-", "layers with a config of their own beyond the last"),
    ("hostile-o2-ropeb-DeepseekV3", "positions of a type of their own for latents, which need further keys"),
    ("hostile-o2-ropeb-GptOss", "the keys of the positions that gpt-oss always rotates by"),
    ("hostile-o3-quant-fbgemm", "a method that a flag lets through: planned, with a note"),
    ("hostile-o3-quant-online", "a method that no checkpoint has"),
    ("hostile-o1-arch-list-20", "a draft's architecture before the target's own"),
    ("hostile-b1-llama-textcfg", "an empty text config in a model of text alone"),
    ("hostile-b3-smollm3-norope-short", "a list of layers without positions that is too short"),
];

/// What a real vLLM 0.32 refused is refused here too, but for what these lists name.
#[test]
fn what_vllm_refuses() {
    let (mut refused, mut imported) = (0, BTreeMap::<&str, u32>::new());
    let mut unnamed = Vec::new();
    for case in recorded("models-refused.jsonl.gz") {
        let text = |pointer: &str| case.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (id, says) = (text("/id"), text("/expect/detail"));
        if models::imported(&case).is_err() {
            refused += 1;
            continue;
        }
        let by_message = NO_RULE.iter().find(|(part, _)| says.contains(part));
        match by_message.or_else(|| NOT_YET.iter().find(|(start, _)| id.starts_with(start))) {
            Some((_, why)) => *imported.entry(*why).or_default() += 1,
            None => unnamed.push(format!("{id}: {says}")),
        }
    }
    assert!(unnamed.is_empty(), "{} are imported:\n{}", unnamed.len(), unnamed.join("\n"));
    let of = |why: &str| imported.get(why).copied().unwrap_or_default();
    let kinds = [KERNEL, RECORDING, KEY, NEWER].map(of);
    assert_eq!((refused, kinds, imported.len()), (986, [35, 30, 49, 26], 4 + NOT_YET.len()));
}
