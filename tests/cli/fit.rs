//! `k3plan fit`.

use crate::support::k3plan;

const K3: &str = "kimi-k3-dspark-rocm-fixed";

#[test]
fn a_device() {
    insta::assert_snapshot!(k3plan(&["fit", K3, "--gpu-memory", "288GB", "--weights", "190GiB"]).whole());
}

#[test]
fn a_length_that_does_not_fit_is_a_no() {
    let run = k3plan(&["fit", K3, "--gpu-memory", "80GiB", "--weights", "68GiB"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(1));
}

#[test]
fn json_of_a_cache() {
    insta::assert_snapshot!(k3plan(&["fit", K3, "--kv-cache-memory", "40GiB", "--json"]).whole());
}

#[test]
fn weights_larger_than_the_device() {
    let run = k3plan(&["fit", K3, "--gpu-memory", "80GiB", "--weights", "120GiB"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(2));
}

#[test]
fn an_unknown_unit() {
    let run = k3plan(&["fit", K3, "--gpu-memory", "80gigs", "--weights", "1GiB"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(2));
}

/// The shares add up, and the longest context is the one that vLLM's own auto-fit finds.
#[test]
fn it_adds_up_and_agrees_with_auto_fit() {
    for memory in ["3GiB", "7.77GiB", "40GiB"] {
        let fit = k3plan(&["fit", K3, "--kv-cache-memory", memory, "--json"]);
        let fit: serde_json::Value = serde_json::from_str(&fit.stdout).unwrap();
        let sum: u64 = fit["shares_bytes"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(sum, fit["kv_cache_memory_bytes"].as_u64().unwrap());
        let set = format!("kv-cache-memory={memory}");
        let plan = k3plan(&[
            "plan",
            K3,
            "--json",
            "--set",
            &set,
            "--set",
            "max-model-len=auto",
            "--set",
            "derived-max-model-len=100000000",
        ]);
        let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
        assert_eq!(plan["plans"][0]["pool"]["max_model_len"], fit["longest_context"], "{memory}");
        // And with vLLM's capacity error, one token further.
        let one_more = format!("max-model-len={}", fit["longest_context"].as_u64().unwrap() + 1);
        let plan = k3plan(&["plan", K3, "--json", "--set", &set, "--set", &one_more]);
        let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
        assert_eq!(plan["plans"][0]["error"]["estimated_max_model_len"], fit["longest_context"]);
    }
}

/// A model is fitted from its own config, without a scenario.
#[test]
fn a_config() {
    let config = "tests/data/configs/llama-3.1-70b.json";
    insta::assert_snapshot!(
        k3plan(&["fit", "--model", config, "--gpu-memory", "80GiB", "--weights", "16.5GiB", "--tp", "8"])
            .whole()
    );
}

/// With its prediction head, and with states beside the keys and values.
#[test]
fn a_config_with_a_draft() {
    let config = "tests/data/configs/qwen3.5-27b.json";
    let run = k3plan(&[
        "fit",
        "--model",
        config,
        "--method",
        "mtp",
        "--num-speculative-tokens",
        "3",
        "--gpu-memory",
        "80GiB",
        "--weights",
        "51.8GiB",
        "--overhead",
        "2GiB",
        "--max-model-len",
        "131072",
    ]);
    insta::assert_snapshot!(run.whole());
}

/// The same model from its config and from the scenario that says the same.
#[test]
fn a_config_and_its_scenario_agree() {
    let memory = ["--kv-cache-memory", "109.86GiB", "--json"];
    let of = |arguments: &[&str]| {
        let run = k3plan(&[&["fit"], arguments, &memory].concat());
        let mut fit: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        fit.as_object_mut().unwrap().remove("scenario");
        fit
    };
    let config = of(&[
        "--model",
        "tests/data/configs/gemma-3-27b-it.json",
        "--platform",
        "rocm",
        "--max-model-len",
        "4096",
        "--set",
        "max-num-batched-tokens=8192",
    ]);
    assert_eq!(config, of(&["gemma-3-27b"]));
}

#[test]
fn nothing_to_fit() {
    let run = k3plan(&["fit", "--kv-cache-memory", "1GiB"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(2));
}
