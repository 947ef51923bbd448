//! `k3plan predict` and `k3plan calibrate`: held to public measurements.

use serde_json::Value;

use crate::support::k3plan;

const SERVING: &str = "tests/golden/serving-points.csv";
const AMD: &str = "tests/golden/amd-latency.csv";
const EFFECTS: &str = "scenarios/measured/effects.jsonl";

fn predicted(arguments: &[&str]) -> Value {
    let mut all = vec!["predict"];
    all.extend(arguments);
    all.push("--json");
    let run = k3plan(&all);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn at_most(report: &Value, key: &str, most: f64) {
    let value = report["all"][key].as_f64().unwrap();
    assert!(value <= most, "{key} is {value}, above {most}");
}

#[test]
fn serving_points_without_any_calibration() {
    let report = predicted(&[SERVING, "--calibration", "none"]);
    assert_eq!(report["points"].as_array().unwrap().len(), 746);
    at_most(&report, "tpot_median", 0.20);
    at_most(&report, "ttft_median", 0.30);
}

#[test]
fn serving_points_of_a_model_that_was_left_out() {
    let report = predicted(&[SERVING, "--leave-out", "model"]);
    assert_eq!(report["points"].as_array().unwrap().len(), 746);
    at_most(&report, "tpot_median", 0.10);
    at_most(&report, "tpot_mean", 0.18);
    at_most(&report, "ttft_median", 0.30);
    let inside = report["all"]["tpot_in_90_percent_interval"].as_f64().unwrap();
    assert!((0.87..=0.93).contains(&inside), "{inside}");
}

#[test]
fn serving_points_from_half_of_their_own() {
    let report = predicted(&[SERVING, "--leave-out", "half"]);
    at_most(&report, "tpot_median", 0.04);
    for (pair, summary) in report["pairs"].as_object().unwrap() {
        // Fourteen points whose prompts come back faster than one device can compute them: seven do not tell why.
        let most = if pair.starts_with("nvidia/Llama-3.1-8B") { 0.06 } else { 0.04 };
        let median = summary["tpot_median"].as_f64().unwrap();
        assert!(median <= most, "{pair}: {median}");
    }
    let inside = report["all"]["tpot_in_90_percent_interval"].as_f64().unwrap();
    assert!((0.87..=0.93).contains(&inside), "{inside}");
}

#[test]
fn latencies_on_amd_of_a_model_that_was_left_out() {
    let report = predicted(&[AMD, "tests/golden/amd-steps.jsonl", "--leave-out", "model"]);
    at_most(&report, "tpot_median", 0.15);
}

/// The shipped calibrations are what the command makes of the shipped measurements.
#[test]
fn shipped_calibrations_are_reproduced() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &[&str]); 3] = [
        ("src/predict/public.yaml", &[SERVING]),
        ("src/predict/public-rocm.yaml", &[AMD, "tests/golden/amd-steps.jsonl"]),
        ("src/predict/none.yaml", &[SERVING, "--measure-only"]),
    ];
    for (shipped, arguments) in cases {
        let out = folder.path().join("made.yaml");
        let mut all = vec!["calibrate"];
        all.extend(arguments);
        let path = out.to_str().unwrap();
        all.extend(["-o", path]);
        assert_eq!(k3plan(&all).code, Some(0));
        let numbers = |text: &str| -> Vec<f64> {
            text.split(|c: char| !(c.is_ascii_digit() || c == '.'))
                .filter_map(|part| part.parse().ok())
                .collect()
        };
        let made = std::fs::read_to_string(&out).unwrap();
        let kept = std::fs::read_to_string(shipped).unwrap();
        assert_eq!(made.lines().count(), kept.lines().count());
        for (made, kept) in made.lines().zip(kept.lines()) {
            // What is left over is a small difference: the last of its four digits may be another.
            let least = if made.starts_with("  - [") { 0.2 } else { 1e-3 };
            let (made, kept) = (numbers(made), numbers(kept));
            assert_eq!(made.len(), kept.len());
            for (a, b) in made.iter().zip(&kept) {
                assert!((a - b).abs() <= 2e-3 * b.abs().max(least), "{shipped}: {a} where {b} is shipped");
            }
        }
    }
}

#[test]
fn the_effects_of_groups_are_in_the_docs() {
    let run = k3plan(&["predict", "--effects", EFFECTS, "--calibration", "none"]);
    let docs = std::fs::read_to_string("docs/predict.md").unwrap();
    let table = run.stdout.split("\n\n").next().unwrap();
    assert!(docs.contains(table), "docs/predict.md does not hold what the command prints:\n{table}");
}

/// Of the cases whose inputs are complete three quarters are within 30%, and all have the right direction.
#[test]
fn measured_effects_of_groups() {
    let report = predicted(&["--effects", EFFECTS, "--calibration", "none"]);
    let complete: Vec<&Value> =
        report["cases"].as_array().unwrap().iter().filter(|case| case["missing"].is_null()).collect();
    let verdicts: Vec<&str> = complete.iter().map(|case| case["verdict"].as_str().unwrap()).collect();
    assert!(!verdicts.contains(&"wrong direction"), "{verdicts:?}");
    let hits = verdicts.iter().filter(|verdict| **verdict == "hit").count();
    assert!(hits * 4 >= complete.len() * 3, "{verdicts:?}");
    for case in complete {
        let own = case["id"].as_str().unwrap();
        let from = case["host"]["from"].as_array().unwrap();
        assert!(from.iter().all(|id| id != own), "`{own}` is predicted from itself");
    }
}

/// A case's own measurement never changes its prediction.
#[test]
fn a_case_is_predicted_from_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("effects.jsonl");
    let of = |text: &str| {
        std::fs::write(&path, text).unwrap();
        predicted(&["--effects", path.to_str().unwrap(), "--calibration", "none"])["cases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|case| (case["id"].as_str().unwrap().to_owned(), case["predicted"].as_f64()))
            .collect::<Vec<_>>()
    };
    let text = std::fs::read_to_string(EFFECTS).unwrap();
    let before = of(&text);
    assert!(text.contains(r#""throughput_pct":102"#));
    let after = of(&text.replace(r#""throughput_pct":102"#, r#""throughput_pct":300"#));
    for ((id, a), (_, b)) in before.into_iter().zip(after) {
        if id == "vllm-51742" || id == "vllm-59733" {
            assert_eq!(a, b, "{id}");
        } else if id == "vllm-51913" {
            assert_ne!(a, b, "{id}");
        }
    }
}

#[test]
fn effects_that_cannot_be_read_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("effects.jsonl");
    let line = |more: &str| {
        format!(
            r#"{{"id":"a","what":"","source":"","step":"decode","before":{{"mamba2":2}},"after":{{}},"measured":{{}}{more}}}"#
        )
    };
    for (more, wanted) in [
        (r#","rate":-1"#, "`rate` must be above 0"),
        (r#","hardware":"abacus""#, "abacus"),
        (r#","operations":{"mamba2":{"step":1}}"#, "prompts"),
        (r#","load":{"concurrency":0,"input_len":1,"output_len":1,"drafts":0,"accepted":1}"#, "concurrency"),
    ] {
        std::fs::write(&path, line(more)).unwrap();
        let run = k3plan(&["predict", "--effects", path.to_str().unwrap()]);
        assert_eq!(run.code, Some(2), "{more}: {}", run.stdout);
        assert!(run.stderr.contains(":1") && run.stderr.contains(wanted), "{more}: {}", run.stderr);
    }
    std::fs::write(&path, line("").replace("mamba2", "abacus")).unwrap();
    let run = k3plan(&["predict", "--effects", path.to_str().unwrap()]);
    assert!(run.stderr.contains("no metadata builder is called `abacus`"), "{}", run.stderr);
}

/// The case that k3plan was made for, from its first arm alone.
#[test]
fn kimi_k3_from_four_groups_to_twenty() {
    let run = k3plan(&[
        "simulate",
        "kimi-k3-dspark-rocm-fixed",
        "kimi-k3-dspark-rocm-regressed",
        "--hardware",
        "mi355x",
        "--calibration",
        "none",
        "--measured-tpot",
        "11.09ms",
        "--json",
    ]);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let tpot = |arm: usize| report["runs"][arm]["times"]["tpot"]["mean_ms"].as_f64().unwrap();
    assert!((tpot(0) - 11.09).abs() < 0.02, "{}", tpot(0));
    let effect = tpot(1) - tpot(0);
    assert!((effect - 0.38).abs() <= 0.3 * 0.38, "{effect}");
    let bounds = &report["runs"][1]["times"]["tpot_interval_ms"];
    assert!(bounds[0].as_f64().unwrap() <= 11.47 && 11.47 <= bounds[1].as_f64().unwrap(), "{bounds}");
}

/// ITL of a real server on a CPU: one start of each model predicts the other, and what a group costs.
#[test]
fn the_slope_of_groups_on_a_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string("tests/golden/cpu-points.jsonl").unwrap();
    let peaks = ["--bandwidth", "1e10", "--flops", "1e11"];
    for (seen, held) in [(1, 2), (2, 1)] {
        let half = |start: u64| -> Vec<Value> {
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.filter(|line| line["start"].as_u64() == Some(start)).collect()
        };
        let write = |start: u64| {
            let path = folder.path().join(format!("{start}.jsonl"));
            let lines: Vec<String> = half(start).iter().map(Value::to_string).collect();
            std::fs::write(&path, lines.join("\n")).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let fitted = folder.path().join("cpu.yaml");
        let fitted = fitted.to_str().unwrap();
        let mut fit = vec!["calibrate"];
        let points = write(seen);
        fit.extend([points.as_str(), "-o", fitted]);
        fit.extend(peaks);
        assert_eq!(k3plan(&fit).code, Some(0));
        let others = write(held);
        let mut arguments = vec![others.as_str(), "--calibration", fitted];
        arguments.extend(peaks);
        at_most(&predicted(&arguments), "tpot_median", 0.07);
        // Milliseconds a group, over the other start's points, concurrency by concurrency.
        let (mut along, mut squares) = (0.0, 0.0);
        for concurrency in [1, 2, 4, 8, 16] {
            let points: Vec<(f64, f64)> = half(held)
                .iter()
                .filter(|line| line["concurrency"].as_u64() == Some(concurrency))
                .map(|line| (line["groups"].as_f64().unwrap(), line["median_itl_ms"].as_f64().unwrap()))
                .collect();
            let count = f64::from(u32::try_from(points.len()).unwrap());
            let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
            let (groups, itl) = (mean(|point| point.0), mean(|point| point.1));
            along += points.iter().map(|(x, y)| (x - groups) * (y - itl)).sum::<f64>();
            squares += points.iter().map(|(x, _)| (x - groups).powi(2)).sum::<f64>();
        }
        let slope_us = along / squares * 1e3;
        let file = std::fs::read_to_string(fitted).unwrap();
        let line = file.lines().find(|line| line.contains("build_us")).unwrap();
        let bound = |key: &str| -> f64 {
            let rest = line.split(key).nth(1).unwrap();
            rest.split([',', '}']).next().unwrap().trim().parse().unwrap()
        };
        // hardware.json starts a CPU's builders at 60 us.
        let (low, high) = (60.0 * bound("low:"), 60.0 * bound("high:"));
        assert!((low..=high).contains(&slope_us), "{slope_us} us a group, {low} to {high} fitted");
    }
}

const HEAD: &str = "id,backend_version,model_path,system,precision,isl,osl,gemm_quant_mode,moe_quant_mode,\
                    batch_size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms";

/// Every public config on every device answers, with times that are none too short and none too long.
#[test]
fn every_public_config_has_times_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    let systems = ["h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "mi300x", "mi325x", "mi355x"];
    let ways = [("bfloat16", 16, 1), ("fp8", 8, 8), ("fp8_block", 1, 1), ("nvfp4", 4, 16), ("int4_wo", 2, 1)];
    let mut lines = vec![HEAD.to_owned()];
    for (index, config) in std::fs::read_to_string("scenarios/configs.jsonl").unwrap().lines().enumerate() {
        let name = serde_json::from_str::<Value>(config).unwrap()["name"].as_str().unwrap().to_owned();
        for (other, system) in systems.into_iter().enumerate() {
            let (mode, ranks, experts) = ways[(index + other) % ways.len()];
            for (input, output) in [(1, 128), (1024, 1), (131_072, 4096)] {
                for requests in [1, 1024] {
                    lines.push(format!(
                        "{name}|{system}|{mode}|{input}|{requests},0.20.0,{name},{system},,{input},{output},{mode},{mode},\
                         {requests},{ranks},1,1,1,{experts},100,10"
                    ));
                }
            }
        }
    }
    std::fs::write(&file, lines.join("\n")).unwrap();
    let report = predicted(&[file.to_str().unwrap()]);
    let points = report["points"].as_array().unwrap();
    assert_eq!(points.len(), lines.len() - 1);
    for pair in points.chunks(2) {
        let times = |point: &Value| {
            (point["predicted_tpot_ms"].as_f64().unwrap(), point["predicted_ttft_ms"].as_f64().unwrap())
        };
        let (one, many) = (times(&pair[0]), times(&pair[1]));
        let id = &pair[1]["id"];
        // The smallest of them is 0.6 B weights.
        assert!(one.0 > 0.5 && one.1 > 5.0, "{id}: {one:?}");
        assert!(many.0 >= one.0 && many.1 >= one.1, "{id}: {one:?} and {many:?}");
        assert!(many.0 < 60_000.0, "{id}: {many:?}");
    }
}

/// Names of formats, devices and models as such tables write them; a device that is not known is an error that says so.
#[test]
fn tables_of_other_hands() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.csv");
    let row = |model: &str, system: &str, gemm: &str, moe: &str, stages: u32| {
        format!("x,,{model},{system},,1024,1024,{gemm},{moe},8,8,{stages},1,8,1,100,10")
    };
    let predict = |rows: &[String]| {
        std::fs::write(&file, format!("{HEAD}\n{}\n", rows.join("\n"))).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let r1 = "nvidia/DeepSeek-R1-0528-NVFP4-v2";
    let report = predicted(&[&predict(&[
        row(r1, "gb200", "nvfp4", "nvfp4", 1),
        row("openai/gpt-oss-120b", "H100-SXM", "bfloat16", "w4a16_mxfp4", 1),
        row("meta-llama/Llama-3.3-70B-Instruct", "AMD Instinct MI300X", "fp8_static", "", 1),
        row("meta-llama/Llama-3.3-70B-Instruct", "mi300x", "fp8_static", "fp8_static", 1),
        row("meta-llama/Llama-3.3-70B-Instruct", "mi300x", "bfloat16", "", 1),
        row("meta-llama/Llama-3.3-70B-Instruct", "mi300x", "bfloat16", "", 4),
    ])]);
    let tpot = |index: usize| report["points"][index]["predicted_tpot_ms"].as_f64().unwrap();
    assert!((tpot(2) - tpot(3)).abs() < 1e-9, "a dense model's format is that of its matrices");
    assert!(tpot(4) > tpot(3), "{} and {}", tpot(4), tpot(3));
    assert!(tpot(5) <= tpot(4), "{} and {}", tpot(5), tpot(4));
    let run = k3plan(&["predict", &predict(&[row(r1, "l40s", "fp8", "fp8", 1)])]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("column `system`") && run.stderr.contains("no hardware is called `l40s`"));
    let run = k3plan(&["predict", &predict(&[row(r1, "b200", "fp3", "fp3", 1)])]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("column `moe_quant_mode`"), "{}", run.stderr);
}

/// A file of one half does for the other what `--leave-out half` does, and holds where its points lie.
#[test]
fn a_file_carries_what_the_factors_leave_over() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(SERVING).unwrap();
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    let pair = |line: &&str| line.contains("Llama-3.1-70B,b200");
    let own: Vec<&str> = lines.filter(pair).collect();
    let write = |name: &str, odd: usize| {
        let half: Vec<&str> = own.iter().copied().skip(odd).step_by(2).collect();
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{head}\n{}\n", half.join("\n"))).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (seen, held) = (write("seen.csv", 0), write("held.csv", 1));
    let file = folder.path().join("own.yaml");
    let file = file.to_str().unwrap();
    assert_eq!(k3plan(&["calibrate", &seen, "-o", file]).code, Some(0));
    let with = predicted(&[&held, "--calibration", file]);
    at_most(&with, "tpot_median", 0.04);
    at_most(&with, "ttft_median", 0.10);
    let made = std::fs::read_to_string(file).unwrap();
    let factors = made.split("# Where the factors alone are off").next().unwrap();
    let alone = folder.path().join("alone.yaml");
    std::fs::write(&alone, factors).unwrap();
    let without = predicted(&[&held, "--calibration", alone.to_str().unwrap()]);
    let ttft = |report: &Value| report["all"]["ttft_median"].as_f64().unwrap();
    assert!(ttft(&with) < ttft(&without), "{} and {}", ttft(&with), ttft(&without));
    let broken = made.replacen("points:\n  - [", "points:\n  - [-", 2);
    std::fs::write(&alone, broken).unwrap();
    let run = k3plan(&["predict", &held, "--calibration", alone.to_str().unwrap()]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("out of range"), "{}", run.stderr);
}

#[test]
fn too_few_points() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("few.csv");
    let text = std::fs::read_to_string(SERVING).unwrap();
    let few: Vec<&str> = text.lines().take(3).collect();
    std::fs::write(&file, few.join("\n")).unwrap();
    let run = k3plan(&["calibrate", file.to_str().unwrap()]);
    assert_eq!(run.code, Some(2));
    insta::assert_snapshot!(run.stderr);
}

#[test]
fn a_device_without_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("points.jsonl");
    let line = r#"{"model": "Qwen/Qwen3-0.6B", "hardware": "cpu", "concurrency": 1, "input_len": 128, "output_len": 64, "tpot_ms": 20}"#;
    std::fs::write(&file, line).unwrap();
    let run = k3plan(&["predict", file.to_str().unwrap()]);
    assert_eq!(run.code, Some(2));
    insta::assert_snapshot!(run.stderr);
}

#[test]
fn wrong_points_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("points.csv");
    let text = std::fs::read_to_string(SERVING).unwrap().replacen(",1024,1024,nvfp4", ",many,1024,nvfp4", 1);
    std::fs::write(&file, text).unwrap();
    let run = k3plan(&["predict", file.to_str().unwrap()]);
    assert_eq!(run.code, Some(2));
    let stderr = run.stderr.replace(folder.path().to_str().unwrap(), "");
    insta::assert_snapshot!(stderr);
}
