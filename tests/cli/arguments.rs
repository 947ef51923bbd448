//! Flags that several subcommands share: each acts, or is refused with what to write instead.

use crate::support::{Folder, Run, json, k3plan, k3plan_in};

const GEMMA: &str = "tests/data/configs/gemma-3-27b-it.json";
const LLAMA: &str = "tests/data/configs/llama-3.1-8b.json";

/// The flags under a heading of `--help`, each with a value that it takes.
fn flags_under(help: &str, heading: &str) -> Vec<Vec<String>> {
    let mut flags = Vec::new();
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    for line in lines.take_while(|line| line.is_empty() || line.starts_with(' ')) {
        let Some(flag) = line.trim_start().strip_prefix("--") else { continue };
        let mut words = flag.split_whitespace();
        let name = format!("--{}", words.next().unwrap());
        let value = match words.next().filter(|word| word.starts_with('<')) {
            None => None,
            Some("<N>") => Some("2"),
            Some("<TOKENS>") => Some("16"),
            Some("<CONFIG>") => Some("config.json"),
            Some("<DTYPE>") => Some("fp8"),
            Some("<MODE>") => Some("none"),
            Some("<METHOD>") => Some("mtp"),
            Some("<PLATFORM>") => Some("rocm"),
            Some("<JSON>") => Some("{}"),
            Some(other) => {
                assert_eq!(other, "", "{name} takes a value that this test does not know");
                None
            }
        };
        flags.push([Some(name), value.map(str::to_owned)].into_iter().flatten().collect());
    }
    flags
}

fn refused(run: &Run, flag: &str) {
    assert_eq!(run.code, Some(2), "{flag}: {}{}", run.stdout, run.stderr);
    assert_eq!(run.stdout, "", "{flag}");
    assert!(run.stderr.contains(&format!("`{flag}` describes a `--model`")), "{flag}: {}", run.stderr);
    assert!(run.stderr.contains("k3plan import hf CONFIG"), "{flag}: {}", run.stderr);
}

/// Whatever describes a config changes nothing of a scenario, and says so.
#[test]
fn every_flag_of_a_config_is_refused_beside_a_scenario() {
    let commands: [&[&str]; 5] = [
        &["plan", "qwen3-32b"],
        &["explain", "qwen3-32b"],
        &["simulate", "kimi-k3-dspark-rocm-fixed"],
        &["fit", "qwen3-32b", "--kv-cache-memory", "40GiB"],
        &["bench", "device", "qwen3-32b"],
    ];
    for command in commands {
        let words = if command[0] == "bench" { &command[..2] } else { &command[..1] };
        let help = k3plan(&[words, &["--help"]].concat()).stdout;
        let flags = flags_under(&help, "Of a config.json:");
        assert!(flags.len() >= 14, "{command:?}: {flags:?}");
        for flag in &flags {
            let given: Vec<&str> = flag.iter().map(String::as_str).collect();
            refused(&k3plan(&[command, &given].concat()), given[0]);
        }
    }
}

#[test]
fn what_a_person_reads_of_flags_beside_a_scenario() {
    let mut all = String::new();
    for flags in [
        &["plan", "qwen3-32b", "--tp", "4", "--max-model-len", "32k", "--language-model-only"][..],
        &["simulate", "kimi-k3-dspark-rocm-fixed", "--num-speculative-tokens", "3"],
        &["plan", "qwen3-32b", "--set", "tensor-parallel-size=16"],
        &["plan", "--model", LLAMA, "--tp", "2", "--set", "tp=4"],
        &["plan", "kimi-k3-dspark-rocm-fixed", "kimi-k3-dspark-rocm-regressed", "--set", "tp=4"],
        &["fit", "qwen3-32b"],
        &["fit", "qwen3-32b", "--gpu-memory", "1.5G"],
        &["simulate", "--model", LLAMA, "--hardware", "mi355x", "--platform", "cuda-hopper"],
        &[
            "simulate",
            "--model",
            LLAMA,
            "--hardware",
            "mi355x",
            "--config",
            "Qwen/Qwen3-32B",
            "--kv-cache-memory",
            "40G",
        ],
        &["simulate", "kimi-k3-dspark-rocm-fixed", "--hardware", "mi355x", "--step-ms", "4"],
        &["plan", "--model", LLAMA, "--max-model-len", "1.5K"],
    ] {
        all.push_str(&format!("$ k3plan {}\n{}\n", flags.join(" "), k3plan(flags).whole()));
    }
    insta::assert_snapshot!(all);
}

fn planned(args: &[&str]) -> serde_json::Value {
    json(&[&["plan", "--json"], args].concat())["plans"].clone()
}

/// What importing reads is imported for, however it is said.
#[test]
fn a_setting_of_a_model_is_its_flag() {
    let linear = "tests/data/configs/kimi-linear-48b-a3b-instruct.json";
    for (model, set, flag) in [
        (LLAMA, "tp=4", &["--tp", "4"][..]),
        (LLAMA, "engine.tensor_parallel_size=4", &["--tp", "4"]),
        (LLAMA, "max-model-len=32k", &["--max-model-len", "32000"]),
        (LLAMA, "max-model-len=auto", &["--max-model-len", "-1"]),
        (linear, "mamba-cache-mode=none", &["--mamba-cache-mode", "none"]),
        (linear, "version=0.27", &["--engine", "0.27"]),
        (linear, "tp=2", &["--tp", "2"]),
    ] {
        // So little that a length of its own does not fit.
        let common = ["--model", model, "--kv-cache-memory", "1G"];
        let by_set = planned(&[&common[..], &["--set", set]].concat());
        assert_eq!(by_set, planned(&[&common[..], flag].concat()), "{set}");
        assert_ne!(by_set, planned(&common), "{set} changes nothing");
    }
}

/// vLLM's spelling of a setting is the setting, of a config and of a scenario.
#[test]
fn flags_of_vllm_are_settings() {
    for model in [&["gemma-3-27b"][..], &["--model", GEMMA, "--kv-cache-memory", "40GiB"]] {
        for (flag, set) in [
            (&["--max-num-batched-tokens", "2k"][..], "max-num-batched-tokens=2000"),
            (&["--pipeline-parallel-size", "2"], "pp=2"),
            (&["--decode-context-parallel-size", "2"], "dcp=2"),
            (&["--disable-hybrid-kv-cache-manager"], "disable-hybrid-kv-cache-manager=true"),
        ] {
            let by_flag = planned(&[model, flag].concat());
            assert_eq!(by_flag, planned(&[model, &["--set", set]].concat()), "{set}");
            assert_ne!(by_flag, planned(model), "{set} changes nothing");
        }
    }
    let memory = planned(&["gemma-3-27b", "--kv-cache-memory-bytes", "40G"]);
    assert_eq!(memory, planned(&["gemma-3-27b", "--set", "kv-cache-memory=40GiB"]));
    assert_eq!(planned(&["gemma-3-27b", "--max-num-seqs", "8"]), planned(&["gemma-3-27b"]));
}

/// An imported file holds what its flags said, and plans as the config does.
#[test]
fn an_import_keeps_its_flags() {
    let own = Folder::new("import-flags");
    let flags = [
        "--tp",
        "2",
        "--pipeline-parallel-size",
        "2",
        "--max-num-batched-tokens",
        "4k",
        "--kv-cache-memory-bytes",
        "40G",
        "--max-num-seqs",
        "32",
        "--max-model-len",
        "auto",
    ];
    let file = own.path().join("g.yaml");
    let file = file.to_str().unwrap();
    assert_eq!(k3plan(&[&["import", "hf", LLAMA, "-o", file], &flags[..]].concat()).code, Some(0));
    let (mut read, mut direct) = (planned(&[file]), planned(&[&["--model", LLAMA], &flags[..]].concat()));
    for plan in [&mut read, &mut direct] {
        plan[0].as_object_mut().unwrap().remove("scenario");
        for group in plan[0]["groups"].as_array_mut().unwrap() {
            group.as_object_mut().unwrap().remove("layer_names");
        }
    }
    assert_eq!(read, direct);
    assert!(own.read("g.yaml").contains("  max-num-seqs: 32\n"));
}

/// An override takes the place of a setting by any of its names.
#[test]
fn an_override_replaces_every_spelling() {
    let own = Folder::new("spellings");
    let rest = "specs:\n  a: {kind: full, block_size: 16, num_kv_heads: 1, head_size: 8, dtype: bfloat16, max_tp_shards: 1}\n\
                model: {layers: 4, spec: a}\n";
    for (long, short, value) in [
        ("tensor-parallel-size", "tp", "4"),
        ("decode-context-parallel-size", "dcp", "4"),
        ("prefill-context-parallel-size", "pcp", "4"),
        ("pipeline-parallel-size", "pp", "4"),
        ("kv-cache-memory", "kv-cache-memory-bytes", "2GiB"),
        ("kv-cache-layout", "VLLM_KV_CACHE_LAYOUT", "LHBNC"),
        ("max-concurrent-batches", "async-scheduling", "1"),
    ] {
        for (written, set) in [(long, short), (short, long), (long, long), (short, short)] {
            let other = match written {
                "kv-cache-memory" | "kv-cache-memory-bytes" => "1GiB",
                "kv-cache-layout" | "VLLM_KV_CACHE_LAYOUT" => "LBNHC",
                "async-scheduling" => "true",
                _ => "1",
            };
            let value = if set == "async-scheduling" { "false" } else { value };
            own.write("a.yaml", &format!("engine: {{{written}: {other}}}\n{rest}"));
            let run = k3plan_in(own.path(), &["zoo", "a.yaml", "--set", &format!("{set}={value}")]);
            assert_eq!(run.code, Some(0), "{written} {set}: {}", run.stderr);
            own.write("b.yaml", &format!("extends: a.yaml\nengine: {{{set}: {value}}}\n"));
            let extended = k3plan_in(own.path(), &["zoo", "b.yaml"]);
            assert_eq!(extended.code, Some(0), "{written} {set}: {}", extended.stderr);
        }
    }
}

/// The default batch is the device's, by vLLM's table of that version.
#[test]
fn the_batch_of_a_device() {
    let blocks = |more: &[&str]| {
        let run = k3plan(&[&["fit", "--model", GEMMA, "--weights", "1GiB", "--json"], more].concat());
        let fit: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        fit["lengths"].clone()
    };
    for (memory, engine, tokens) in [
        ("69GiB", "0.33", "2048"),
        ("70GiB", "0.33", "8192"),
        ("160GiB", "0.33", "16384"),
        ("160GiB", "0.28", "16384"),
        ("160GiB", "0.27", "8192"),
    ] {
        let device = ["--gpu-memory", memory, "--engine", engine];
        let named = blocks(&[&device[..], &["--max-num-batched-tokens", tokens]].concat());
        assert!(named.is_array());
        assert_eq!(blocks(&device), named, "{memory} {engine}");
    }
    let a100 = blocks(&["--hardware", "a100"]);
    assert_eq!(a100, blocks(&["--hardware", "a100", "--set", "max-num-batched-tokens=2048"]));
    // Without a device the value is named as an assumption.
    let run = k3plan(&["plan", "--model", GEMMA]);
    assert!(run.stderr.contains("max-num-batched-tokens is taken as 8192"), "{}", run.stderr);
    let run = k3plan(&["plan", "--model", GEMMA, "--max-num-batched-tokens", "8192"]);
    assert_eq!(run.stderr, "");
}

/// A device gives its memory, and the config its weights.
#[test]
fn a_named_device_is_fitted() {
    let run = k3plan(&["fit", "--model", LLAMA, "--hardware", "h100"]);
    insta::assert_snapshot!(run.whole());
    let shares = |more: &[&str]| {
        let run = k3plan(&[&["fit", "--model", LLAMA, "--json"], more].concat());
        serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap()
    };
    let named = shares(&["--hardware", "h100", "--tp", "2"]);
    let weights = named["shares_bytes"]["weights"].to_string();
    assert_eq!(
        named,
        shares(&["--gpu-memory", "85520809984", "--weights", &weights, "--tp", "2"]),
        "{weights}"
    );
}

/// Platform and config of a simulation follow the device and the model.
#[test]
fn a_simulation_follows_its_device_and_its_model() {
    let simulated = |more: &[&str]| {
        let common = ["simulate", "--model", LLAMA, "--requests", "2", "--kv-cache-memory", "40G", "--json"];
        let run = k3plan(&[&common[..], more].concat());
        assert_eq!(run.code, Some(0), "{more:?}: {}", run.stderr);
        serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap()["runs"][0].clone()
    };
    let named = simulated(&["--hardware", "mi355x"]);
    assert_eq!(named["platform"], "ROCm");
    assert!(named["step_times"].is_null());
    assert_eq!(named, simulated(&["--hardware", "mi355x", "--platform", "rocm"]));
    assert_eq!(named, simulated(&["--hardware", "mi355x", "--config", LLAMA]));
    let assumed = simulated(&[]);
    assert!(assumed["step_times"].as_str().unwrap().contains("Kimi-K3"));
    let given = simulated(&["--step-ms", "5", "--group-us", "0", "--prefill-token-us", "1"]);
    assert!(given["step_times"].as_str().unwrap().contains("as the flags say"));
}

/// Drafts of a model are drafts of its simulation.
#[test]
fn drafts_of_a_model_are_simulated() {
    let config = "tests/data/configs/qwen3.5-27b.json";
    let model =
        ["simulate", "--model", config, "--requests", "2", "--kv-cache-memory", "40G", "--method", "mtp"];
    let drafts = ["--num-speculative-tokens", "3"];
    let run = |more: &[&str]| k3plan(&[&model[..], &drafts[..], more].concat());
    let alone = run(&[]);
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    assert_eq!(alone.stdout, run(&["--drafts", "3", "--draft-method", "mtp"]).stdout);
    assert_eq!(run(&["--drafts", "2"]).code, Some(2));
    assert_eq!(run(&["--draft-method", "eagle"]).code, Some(2));
}
