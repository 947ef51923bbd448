//! `k3plan capacity`.

use crate::support::{Folder, json, k3plan, k3plan_in, masked};

const LOAD: [&str; 7] = ["capacity", "--slo", "ttft<2s,tpot<30ms", "--rate", "5/s", "--calibration", "none"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    LOAD.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn devices_for_a_load_by_price() {
    let run = k3plan(&with(&[
        "--model",
        "Qwen/Qwen3-32B",
        "--hardware",
        "h100,h200",
        "--tp",
        "1,2,4",
        "--price",
        "h100=2,h200=3",
    ]));
    insta::assert_snapshot!(masked(&run.whole()));
}

#[test]
fn what_carries_nothing_is_a_line_a_device() {
    let run = k3plan(&with(&["--model", "moonshotai/Kimi-K3", "--hardware", "h100,mi355x", "--tp", "1,2,8"]));
    insta::assert_snapshot!(masked(&run.whole()));
}

#[test]
fn nothing_fits_is_a_no() {
    let run = k3plan(&[
        "capacity",
        "--model",
        "Qwen/Qwen3-32B",
        "--hardware",
        "h200",
        "--slo",
        "tpot<0.1ms",
        "--rate",
        "1/s",
    ]);
    insta::assert_snapshot!(masked(&run.whole()));
    assert_eq!(run.code, Some(1));
}

#[test]
fn more_than_there_are_is_a_no() {
    let few = with(&["--model", "Qwen/Qwen3-8B", "--hardware", "h200", "--tp", "1", "--rate", "1000/s"]);
    let few: Vec<&str> =
        few.iter().enumerate().filter(|(i, _)| !(3..5).contains(i)).map(|(_, word)| *word).collect();
    assert_eq!(k3plan(&few).code, Some(0));
    let mut bounded = few;
    bounded.extend(["--max-devices", "2"]);
    let run = k3plan(&bounded);
    assert_eq!(run.code, Some(1), "{}", run.whole());
    assert!(run.stdout.contains("more than 2"), "{}", run.stdout);
}

/// The keys, and what must hold between the numbers.
#[test]
fn json_of_all_ways() {
    let report = json(&with(&["--model", "Qwen/Qwen3.5-35B-A3B", "--json"]));
    assert_eq!(report["schema"], "k3plan.capacity/1");
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    insta::assert_snapshot!(format!("{keys:?}"));
    let ways = report["ways"].as_array().unwrap();
    let carried: Vec<_> = ways.iter().filter(|way| !way["devices"].is_null()).collect();
    assert!(carried.len() > 20);
    let mut last = 0;
    for way in carried {
        let ranks = way["way"]["tensor_parallel"].as_u64().unwrap();
        let devices = way["devices"].as_u64().unwrap();
        assert_eq!(devices, way["replicas"].as_u64().unwrap() * ranks);
        assert!(way["ttft_ms"].as_f64().unwrap() <= 2000.0 && way["tpot_ms"].as_f64().unwrap() <= 30.0);
        assert!(devices >= last, "the cheapest comes first");
        last = devices;
    }
    assert!(ways.iter().any(|way| way["on_front"] == true));
}

/// Twice the requests never need fewer devices.
#[test]
fn more_requests_need_no_fewer_devices() {
    let devices = |rate: &str| {
        let report = json(&[
            "capacity",
            "--model",
            "openai/gpt-oss-120b",
            "--hardware",
            "h200,mi300x",
            "--slo",
            "ttft<3s,tpot<40ms",
            "--rate",
            rate,
            "--json",
        ]);
        let least = report["ways"].as_array().unwrap().iter().filter_map(|way| way["devices"].as_u64()).min();
        least.unwrap()
    };
    let needed: Vec<u64> = ["1/s", "2/s", "4/s", "64/s", "3840/min"].into_iter().map(devices).collect();
    assert!(needed.is_sorted(), "{needed:?}");
    assert_eq!(needed[3], needed[4]);
}

#[test]
fn wrong_input_says_what_is_missing() {
    let folder = Folder::new("capacity-wrong");
    folder.write("keyless.json", r#"{"architectures":["LlamaForCausalLM"],"hidden_size":64,"vocab_size":9}"#);
    folder.write("empty.yaml", "");
    let model = ["--model", "Qwen/Qwen3-8B"];
    let load = ["--slo", "ttft<2s,tpot<15ms", "--rate", "20/s"];
    let cases: &[(&[&str], &[&str])] = &[
        (&model, &["--slo", "e2e<1s,ttft<2s", "--rate", "20/s"]),
        (&model, &["--slo", "ttft<2s,ttft<1s", "--rate", "20/s"]),
        (&model, &["--slo", "tpot>15ms", "--rate", "20/s"]),
        (&model, &["--slo", "tpot<15ms", "--rate", "fast"]),
        (&model, &["--slo", "tpot<15ms", "--rate=-1/s"]),
        (&model, &[&load[..], &["--hardware", "tpu"]].concat()),
        (&model, &[&load[..], &["--hardware", "cpu"]].concat()),
        (&model, &[&load[..], &["--hardware", "h200", "--price", "h200=free"]].concat()),
        (&model, &[&load[..], &["--hardware", "h200,b200", "--price", "h200=3"]].concat()),
        (&model, &[&load[..], &["--utilization", "2"]].concat()),
        (&model, &[&load[..], &["--precision", "fp3"]].concat()),
        (&model, &[&load[..], &["--kv-cache-dtype", "fp3"]].concat()),
        (&model, &[&load[..], &["--calibration", "absent.yaml"]].concat()),
        (&model, &[&load[..], &["--calibration", "empty.yaml"]].concat()),
        (&["--model", "Qwen/Qwen3-9B"], &load),
        (&["--model", "keyless.json"], &load),
    ];
    let mut all = String::new();
    for (first, second) in cases {
        let arguments: Vec<&str> = ["capacity"].iter().chain(*first).chain(*second).copied().collect();
        let run = k3plan_in(folder.path(), &arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(run.stderr.contains("hint:"), "{arguments:?} says not what to do:\n{}", run.stderr);
        all.push_str(&format!("$ k3plan {}\n{}\n", arguments.join(" "), run.stderr));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_number_of_nothing_is_wrong_input() {
    for flags in [["--tp", "0"], ["--max-num-seqs", "0"], ["--max-devices", "0"], ["--input", "0"]] {
        let run = k3plan(&with(&[&["--model", "Qwen/Qwen3-8B"], &flags[..]].concat()));
        assert_eq!(run.code, Some(2), "{flags:?}: {}", run.whole());
    }
}
