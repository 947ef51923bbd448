//! What flags and files beside it make of a `--model`.

use crate::support::{Folder, json, k3plan, k3plan_in};

const TINY: &str = "tests/data/configs/tiny-gemma3.json";

#[test]
fn without_windows_every_layer_is_full_and_a_request_fits_one() {
    let plan = json(&["plan", "--json", "--model", TINY, "--disable-sliding-window"])["plans"][0].clone();
    assert_eq!(plan["groups"].as_array().unwrap().len(), 1);
    assert_eq!(plan["groups"][0]["specs"][0]["kind"], "full");
    // The window's 512 tokens in blocks of 16.
    assert_eq!(plan["groups"][0]["blocks_per_max_len_request"], 32);
    let run = k3plan(&["plan", "--model", TINY, "--disable-sliding-window", "--max-model-len", "513"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("longer than 512"), "{}", run.stderr);
}

#[test]
fn overrides_of_the_config_are_planned() {
    let overrides = r#"{"sliding_window": 96, "num_key_value_heads": 1}"#;
    let plan = json(&["plan", "--json", "--model", TINY, "--hf-overrides", overrides])["plans"][0].clone();
    let specs = |key: &str| -> Vec<serde_json::Value> {
        plan["groups"].as_array().unwrap().iter().map(|group| group["specs"][0][key].clone()).collect()
    };
    assert!(specs("num_kv_heads").iter().all(|heads| *heads == 1));
    assert_eq!(specs("sliding_window").iter().filter(|window| **window == 96).count(), 6);
    for wrong in ["[1]", "{", "sliding_window=96"] {
        let run = k3plan(&["plan", "--model", TINY, "--hf-overrides", wrong]);
        assert_eq!(run.code, Some(2), "{wrong}");
        assert!(run.stderr.contains("failed to read `--hf-overrides`"), "{}", run.stderr);
    }
}

/// `ModelOpt` up to 0.29 wrote the cache's dtype beside the config, which vLLM reads where the config has none.
#[test]
fn a_quantisation_beside_the_config_counts() {
    let folder = Folder::new("flags-quant-config");
    let config = std::fs::read_to_string(TINY).unwrap();
    folder.write("config.json", &config);
    let dtype = || {
        let run = k3plan_in(folder.path(), &["plan", "--json", "--model", "config.json"]);
        let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        report["plans"][0]["groups"][0]["specs"][0]["dtype"].clone()
    };
    assert_eq!(dtype(), "bfloat16");
    folder.write(
        "hf_quant_config.json",
        r#"{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}"#,
    );
    assert_eq!(dtype(), "uint8");
    folder.write("hf_quant_config.json", "{");
    let run = k3plan_in(folder.path(), &["plan", "--model", "config.json"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("hf_quant_config.json"), "{}", run.stderr);
}
