//! `k3plan devices` and `k3plan bench device`: their wording without what differs between machines and runs, and
//! their JSON against its schema.

use serde_json::Value;

use crate::support::{Folder, conforms, json, k3plan, k3plan_in};

/// Small enough for a second, with all kernels of a step.
const SMALL: [&str; 6] = ["--requests", "2", "--context", "600", "--runs", "2"];

fn bench(arguments: &[&str]) -> Vec<String> {
    let all = [&["bench", "device"], arguments, &["--device", "cpu"]].concat();
    all.into_iter().map(str::to_owned).collect()
}

fn run(arguments: &[&str]) -> crate::support::Run {
    let all = bench(arguments);
    k3plan(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Measured figures as `#`, one space between columns, the machine's own lines as what they are.
fn wording(text: &str) -> String {
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().collect();
        let line = match words.first() {
            Some(_) if number == 0 && line.ends_with("units)") => "<device>".to_owned(),
            Some(&"clock") => "<conditions>".to_owned(),
            _ => figures(&words),
        };
        out.push_str(&" ".repeat(indent.min(2)));
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn figures(words: &[&str]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut after_figure = false;
    for (place, word) in words.iter().enumerate() {
        let bare = word.trim_matches(|c| ",()".contains(c));
        let unit = |w: Option<&&str>| {
            w.is_some_and(|w| ["ns", "us", "ms"].contains(&w.trim_matches(|c| ",()".contains(c))))
        };
        let heading = words.get(place + 1) == Some(&"interval");
        let number = !heading && bare.trim_end_matches('%').parse::<f64>().is_ok();
        if after_figure && unit(Some(word)) {
            out.push(word.replace("ns", "T").replace("us", "T").replace("ms", "T"));
            after_figure = false;
        } else if number && (bare.contains('.') || bare.ends_with('%') || unit(words.get(place + 1))) {
            out.push(word.replace(bare, "#"));
            after_figure = true;
        } else {
            out.push((*word).to_owned());
            after_figure = false;
        }
    }
    out.join(" ")
}

#[test]
fn the_k3_arms_of_4_and_20_groups() {
    let run = run(&[&["kimi-k3-dspark"], &SMALL[..]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let arms = run.stdout.matches(" groups, ").count();
    assert_eq!((arms, run.stdout.matches(": 20 groups, ").count()), (5, 1), "{}", run.stdout);
    insta::assert_snapshot!(wording(&run.stdout));
}

#[test]
fn steps_of_a_simulated_workload() {
    let flags = "--simulate=--requests 6 --concurrency 3 --input 400..900 --output 40";
    let arm = "kimi-k3-dspark-rocm-fixed";
    let run = run(&[arm, flags, "--steps", "4", "--runs", "2", "--memory", "2"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    insta::assert_snapshot!(wording(&run.stdout));
}

#[test]
fn the_json_is_that_of_the_schema() {
    let schema = json(&["schema", "bench-device"]);
    insta::assert_snapshot!(serde_json::to_string_pretty(&schema).unwrap());
    let folder = Folder::new("bench-device");
    let simulated = ["--simulate=--requests 2 --input 300 --output 8", "--steps", "2", "--runs", "1"];
    for arguments in [&SMALL[..], &simulated[..]] {
        let mut all = bench(&[&["qwen3-next", "--json", "--output", "out.json"], arguments].concat());
        all.extend(["--set".to_owned(), "kv-cache-memory=10GiB".to_owned()]);
        let run = k3plan_in(folder.path(), &all.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(folder.read("out.json"), run.stdout);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(conforms(&report, &schema), Ok(()));
        assert_eq!(report["schema"], "k3plan.bench-device/2");
        for step in report["arms"][0]["steps"].as_array().unwrap() {
            assert_eq!(step["groups"], report["arms"][0]["groups"]);
            let kernels = step["kernels"].as_array().unwrap();
            for sum in ["bytes", "launches"] {
                let of = |value: &Value| value[sum].as_u64().unwrap();
                assert_eq!(kernels.iter().map(of).sum::<u64>(), of(step), "{sum}");
            }
            let predicted: f64 = kernels.iter().map(|k| k["predicted_us"].as_f64().unwrap()).sum();
            assert!((predicted / step["predicted_us"].as_f64().unwrap() - 1.0).abs() < 1e-9);
            assert!(step["measured_us"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn what_is_asked_wrongly_is_said() {
    let mut all = String::new();
    for arguments in [
        &["kimi-k3", "--simulate=--inputs 3"][..],
        &["kimi-k3", "--simulate", "--requests", "3"],
        &[
            "kimi-k3",
            "--memory",
            "1",
            "--requests",
            "1",
            "--context",
            "1",
            "--runs",
            "1",
            "--at-least",
            "0.5",
        ],
    ] {
        let run = run(arguments);
        assert_eq!(run.code, Some(2), "{}", run.stdout);
        all.push_str(&run.stderr);
    }
    insta::assert_snapshot!(all);
}

#[test]
fn devices_in_words() {
    let run = k3plan(&["devices"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    // A GPU may be there or not; the CPU always is.
    let mut seen = String::new();
    for line in run.stdout.lines() {
        let line = match line.split_once(": ") {
            Some((gpu @ ("cuda" | "hip"), state)) => {
                let missing =
                    ["not usable, failed to load any of lib", "not usable, failed to find a device: `"];
                assert!(state == "usable" || missing.iter().any(|m| state.starts_with(m)), "{line}");
                format!("{gpu}: <usable, or why not>")
            }
            Some((name, _)) if name.starts_with("  ") && !name.starts_with("  needs") => {
                "  <device>".to_owned()
            }
            _ => line.to_owned(),
        };
        seen.push_str(&line);
        seen.push('\n');
    }
    // As many devices as there are GPUs.
    let gpu_devices = seen.replace("why not>\n  <device>\n", "why not>\n");
    insta::assert_snapshot!(gpu_devices);
}

#[test]
fn devices_as_json() {
    let report = json(&["devices", "--json"]);
    assert_eq!(conforms(&report, &json(&["schema", "devices"])), Ok(()));
    assert_eq!(report["schema"], "k3plan.devices/1");
    let backends: Vec<&str> =
        report["backends"].as_array().unwrap().iter().map(|b| b["backend"].as_str().unwrap()).collect();
    assert_eq!(backends, ["cpu", "cuda", "hip", "dummy"]);
    assert_eq!(report["backends"][0]["usable"], true);
    assert!(report["backends"][0]["devices"][0]["units"].as_u64().unwrap() > 0);
}
