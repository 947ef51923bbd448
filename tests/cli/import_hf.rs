//! A model's own config.json: what its engine logs, what its checkpoint says beside it, what flags set on it.

use std::fs;

use crate::support::{Folder, json, k3plan, k3plan_in};

/// Three layers that slide and one that does not.
const SLIDING: &str = r#"{"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "torch_dtype": "bfloat16",
    "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
    "sliding_window": 4096, "max_position_embeddings": 65536}"#;

fn lines(model: &str, more: &[&str]) -> Vec<String> {
    let mut arguments = vec!["plan", "--json", "--model", model];
    arguments.extend(more);
    let report = json(&arguments);
    let logged = report["plans"][0]["log_lines"].as_array().cloned().unwrap_or_default();
    logged.iter().filter_map(|line| line.as_str().map(str::to_owned)).collect()
}

/// `_align_hybrid_block_size` in `vllm/platforms/interface.py`, vLLM 0.32, and the shapes and dtypes of Qwen3.5-27B's states:
/// at one rank 48 heads of 128 by 128 in float32 are 3,145,728 bytes and 3 steps of 10,240 channels in bfloat16 61,440. A token
/// of its 4 KV heads of 256 has 4,096 bytes: 3,207,168 are 783 tokens of them, up to 784 in blocks of 16, of 3,211,264 bytes,
/// 0.13% more.
#[test]
fn alignment_is_logged() {
    const MODEL: &str = "tests/data/configs/qwen3.5-27b.json";
    // 0.33 keeps states at the ends of blocks, which are multiples of 64 there.
    let newer = lines(MODEL, &["--engine", "0.33"]);
    assert!(newer[0].starts_with("Setting attention block size to 832 tokens"), "{newer:?}");
    assert_eq!(
        lines(MODEL, &["--engine", "0.32"])[..2],
        [
            "Setting attention block size to 784 tokens to ensure that attention page size is >= mamba page size.",
            "Padding mamba page size by 0.13% to ensure that mamba page size and attention page size are exactly equal."
        ]
    );
}

/// `get_config` in `vllm/transformers_utils/config.py`, vLLM 0.32, reads `hf_quant_config.json` where the config itself says
/// nothing of quantisation; FP8 of the cache halves a block.
#[test]
fn quantisation_beside_the_config() {
    let folder = Folder::new("hf-quant-config");
    let plain = fs::read_to_string("tests/data/configs/llama-3.1-8b.json").unwrap();
    let page = |folder: &Folder| {
        let model = folder.path().display().to_string();
        json(&["plan", "--json", "--model", &model])["plans"][0]["groups"][0]["page_size_bytes"].as_u64()
    };
    folder.write("config.json", &plain);
    let bfloat16 = page(&folder);
    let beside = |kv: &str| {
        format!(
            r#"{{"producer": {{"name": "modelopt"}}, "quantization": {{"quant_algo": "FP8", "kv_cache_quant_algo": {kv}}}}}"#
        )
    };
    folder.write("hf_quant_config.json", &beside("\"FP8\""));
    assert_eq!(page(&folder).map(|bytes| bytes * 2), bfloat16);
    folder.write("hf_quant_config.json", &beside("null"));
    assert_eq!(page(&folder), bfloat16);
    // What the config says comes first.
    folder.write("hf_quant_config.json", &beside("\"FP8\""));
    folder.write(
        "config.json",
        &plain.replacen(
            '{',
            r#"{"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"},"#,
            1,
        ),
    );
    assert_eq!(page(&folder), bfloat16);
    folder.write("hf_quant_config.json", "{");
    folder.write("config.json", &plain);
    assert_eq!(k3plan(&["plan", "--model", &folder.path().display().to_string()]).code, Some(2));
}

fn kinds(folder: &Folder, more: &[&str]) -> Vec<String> {
    let mut arguments = vec!["import", "hf", "config.json", "--platform", "cpu"];
    arguments.extend(more);
    let run = k3plan_in(folder.path(), &arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.stdout
        .lines()
        .filter(|line| line.starts_with("model:") || line.contains("max-model-len"))
        .map(str::to_owned)
        .collect()
}

/// `--disable-sliding-window` in `vllm/config/model.py`, vLLM 0.32: every layer attends to all, and to no more tokens than the
/// window had.
#[test]
fn no_sliding_window() {
    let folder = Folder::new("no-sliding-window");
    folder.write("config.json", SLIDING);
    assert_eq!(kinds(&folder, &[]), ["  max-model-len: 65536", "model: [3 sliding0, full1]"]);
    assert_eq!(kinds(&folder, &["--disable-sliding-window"]), ["  max-model-len: 4096", "model: [4 full0]"]);
    let long = k3plan_in(
        folder.path(),
        &["import", "hf", "config.json", "--disable-sliding-window", "--max-model-len", "8192"],
    );
    assert_eq!(long.code, Some(2));
    assert!(long.stderr.contains("longer than 4096"), "{}", long.stderr);
}

/// `--hf-overrides` in `vllm/config/model.py`, vLLM 0.32: set once the class has made its list of types.
#[test]
fn overrides() {
    let folder = Folder::new("hf-overrides");
    folder.write("config.json", SLIDING);
    let with = |json: &str| kinds(&folder, &["--hf-overrides", json]);
    assert_eq!(with(r#"{"num_hidden_layers": 2}"#)[1], "model: [2 sliding0]");
    assert_eq!(with(r#"{"max_position_embeddings": 1024}"#)[0], "  max-model-len: 1024");
    assert_eq!(with(r#"{"sliding_window": null}"#)[1], "model: [4 full0]");
    for wrong in ["[]", "{", r#"{"num_hidden_layers": "many"}"#] {
        let run = k3plan_in(folder.path(), &["import", "hf", "config.json", "--hf-overrides", wrong]);
        assert_eq!(run.code, Some(2), "{wrong}");
    }
    let fit = k3plan_in(
        folder.path(),
        &["fit", "--model", "config.json", "--disable-sliding-window", "--kv-cache-memory", "1GiB"],
    );
    assert!(fit.stdout.contains("1 group\n"), "{}", fit.stdout);
}

/// A model that only encodes has a plan of no groups, and no scenario.
#[test]
fn a_model_that_looks_both_ways() {
    let folder = Folder::new("both-ways");
    let config = r#"{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16",
        "is_causal": false, "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 8}"#;
    folder.write("config.json", config);
    let plan = k3plan_in(folder.path(), &["plan", "--model", "config.json"]);
    assert!(plan.stdout.contains("0 groups from 0 layers"), "{}", plan.whole());
    let scenario = k3plan_in(folder.path(), &["import", "hf", "config.json"]);
    assert_eq!(scenario.code, Some(2), "{}", scenario.stdout);
}
