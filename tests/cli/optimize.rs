//! `k3plan optimize`.

use serde_json::Value;

use crate::support::{Folder, json, k3plan, k3plan_in, masked};

fn optimized(model: &str, hardware: &str, more: &[&str]) -> Value {
    let first = ["optimize", "--model", model, "--hardware", hardware, "--calibration", "none", "--json"];
    json(&[&first[..], more].concat())
}

fn rate(result: &Value) -> f64 {
    result["output_tokens_per_s_per_device"].as_f64().unwrap()
}

#[test]
fn a_hybrid_model() {
    let run = k3plan(&[
        "optimize",
        "--model",
        "openai/gpt-oss-120b",
        "--hardware",
        "h200",
        "--concurrency",
        "64",
        "--calibration",
        "none",
    ]);
    insta::assert_snapshot!(masked(&run.whole()));
}

#[test]
fn a_rate_under_an_slo() {
    let run = k3plan(&[
        "optimize",
        "--model",
        "moonshotai/Kimi-K3",
        "--hardware",
        "mi355x",
        "--rate",
        "4/s",
        "--slo",
        "ttft<5s,tpot<60ms",
        "--today-grouping",
        "36143=5",
        "--calibration",
        "none",
    ]);
    insta::assert_snapshot!(masked(&run.whole()));
}

/// The best is never worse than today, keeps the bounds, and what it changes is what it says.
#[test]
fn the_best_is_no_worse_than_today() {
    for (model, hardware) in [
        ("meta-llama/Meta-Llama-3.1-8B", "h100"),
        ("Qwen/Qwen3.5-35B-A3B", "h200"),
        ("openai/gpt-oss-120b", "b200"),
        ("XiaomiMiMo/MiMo-V2-Flash", "h200"),
        ("moonshotai/Kimi-K3", "mi355x"),
    ] {
        let report = optimized(model, hardware, &["--concurrency", "64"]);
        assert_eq!(report["schema"], "k3plan.optimize/1");
        let (today, best) = (&report["today"], &report["best"]);
        assert!(today["groups"].as_u64().unwrap() >= 1, "{model}");
        assert_eq!(best["keeps_bounds"], true, "{model}");
        assert!(rate(best) >= rate(today) * 0.999, "{model}: {best}");
        assert!(best["tpot_ms"].as_f64().unwrap() <= today["tpot_ms"].as_f64().unwrap() * 1.0501, "{model}");
        assert_eq!(best["settings"]["group_size_rule"], today["settings"]["group_size_rule"], "{model}");
        for change in report["changes"].as_array().unwrap() {
            let setting = change["setting"].as_str().unwrap();
            for (name, value) in today["settings"].as_object().unwrap() {
                let changed = change["result"]["settings"][name] != *value;
                assert_eq!(changed, name == setting, "{model}: {change}");
            }
        }
    }
}

#[test]
fn one_group_has_no_size_to_choose() {
    let report = optimized("meta-llama/Meta-Llama-3.1-8B", "h200", &["--concurrency", "32"]);
    let settings: Vec<&str> =
        report["changes"].as_array().unwrap().iter().map(|c| c["setting"].as_str().unwrap()).collect();
    assert!(!settings.contains(&"group_size_rule") && !settings.contains(&"expert_parallel"), "{settings:?}");
    assert_eq!(report["today"]["groups"], 1);
}

/// What the host does for more groups shows where drafts make it wait, and hides where nothing does.
#[test]
fn groups_cost_time_where_the_device_waits() {
    let groups = |more: &[&str]| {
        let first =
            ["--concurrency", "8", "--today-tp", "8", "--today-grouping", "36143=5", "--grouping", "default"];
        optimized("moonshotai/Kimi-K3", "mi355x", &[&first[..], more].concat())
    };
    let of = |report: &Value, key: &str| {
        let change =
            report["changes"].as_array().unwrap().iter().find(|c| c["setting"] == "group_size_rule").unwrap();
        (report["today"][key].as_f64().unwrap(), change["result"][key].as_f64().unwrap())
    };
    let hidden = groups(&[]);
    assert_eq!(of(&hidden, "group_ms"), (0.0, 0.0));
    let (many, few) = of(&hidden, "groups");
    assert!(many > few, "{many} groups, then {few}");
    let (many, few) = of(&groups(&["--sync"]), "group_ms");
    assert!(many > few && few > 0.0, "{many} ms, then {few} ms");
}

#[test]
fn nothing_that_serves_it_is_a_no() {
    let run = k3plan(&[
        "optimize",
        "--model",
        "moonshotai/Kimi-K3",
        "--hardware",
        "h100",
        "--tp",
        "1,2",
        "--concurrency",
        "8",
    ]);
    insta::assert_snapshot!(masked(&run.whole()));
    assert_eq!(run.code, Some(1));
}

#[test]
fn a_cpu_with_its_figures() {
    let flags = ["--concurrency", "2", "--tp", "1", "--bandwidth", "60e9", "--flops", "2e12"];
    let report = optimized("Qwen/Qwen3-0.6B", "cpu", &[&flags[..], &["--kv-cache-memory", "4GiB"]].concat());
    assert_eq!(report["today"]["settings"]["max_num_seqs"], 128);
    assert_eq!(report["best"]["runs"], true);
}

#[test]
fn wrong_input_says_what_is_missing() {
    let folder = Folder::new("optimize-wrong");
    let cases: &[&[&str]] = &[
        &["--hardware", "h200", "--concurrency", "8", "--slo", "e2e<1s,ttft<2s"],
        &["--hardware", "h200", "--rate", "fast", "--slo", "tpot<15ms"],
        &["--hardware", "tpu", "--concurrency", "8"],
        &["--hardware", "cpu", "--concurrency", "8"],
        &["--hardware", "cpu", "--concurrency", "8", "--bandwidth", "60e9", "--flops", "2e12"],
        &["--hardware", "h200", "--concurrency", "8", "--bandwidth", "0"],
        &["--hardware", "h200", "--concurrency", "8", "--grouping", "36143"],
        &["--hardware", "h200", "--concurrency", "8", "--today-grouping", "biggest"],
        &["--hardware", "h200", "--concurrency", "8", "--kv-cache-memory", "4 gigs"],
        &["--hardware", "h200", "--concurrency", "8", "--utilization", "0"],
        &[
            "--hardware",
            "h200",
            "--concurrency",
            "8",
            "--num-speculative-tokens",
            "3",
            "--acceptance-length",
            "5",
        ],
    ];
    let mut all = String::new();
    for flags in cases {
        let arguments: Vec<&str> =
            ["optimize", "--model", "Qwen/Qwen3-8B"].iter().chain(*flags).copied().collect();
        let run = k3plan_in(folder.path(), &arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}: {}", run.whole());
        assert!(run.stderr.contains("hint:"), "{arguments:?} says not what to do:\n{}", run.stderr);
        all.push_str(&format!("$ k3plan {}\n{}\n", arguments.join(" "), run.stderr));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_load_must_be_given_once() {
    let model = ["optimize", "--model", "Qwen/Qwen3-8B", "--hardware", "h200"];
    for flags in [
        &[][..],
        &["--concurrency", "0"],
        &["--rate", "2/s"],
        &["--rate", "2/s", "--concurrency", "2", "--slo", "tpot<15ms"],
        &["--concurrency", "2", "--tp", "0"],
        &["--concurrency", "2", "--num-speculative-tokens", "3"],
        &["--concurrency", "2", "--max-num-batched-tokens", "0"],
    ] {
        let run = k3plan(&[&model[..], flags].concat());
        assert_eq!(run.code, Some(2), "{flags:?}: {}", run.whole());
    }
}
