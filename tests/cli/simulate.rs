//! `k3plan simulate`.

use crate::support::{Folder, k3plan, k3plan_in};

/// The command whose answer the README and docs/simulator.md hold.
const TABLE: [&str; 5] =
    ["simulate", "kimi-k3-dspark#rocm-fixed", "kimi-k3-dspark#rocm-regressed", "--builders", "rocm,nvidia"];

#[test]
fn the_k3_table_is_what_the_command_says() {
    let run = k3plan(&TABLE);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for file in ["README.md", "docs/simulator.md"] {
        let text =
            std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert!(text.contains(&run.stdout), "{file} does not hold this table:\n{}", run.stdout);
    }
}

#[test]
fn one_run_in_full() {
    insta::assert_snapshot!(
        k3plan(&["simulate", "kimi-k3-dspark-rocm-fixed", "--requests", "20", "--offload", "64"]).whole()
    );
}

#[test]
fn json_is_the_same_each_time() {
    let arguments =
        ["simulate", "kimi-k3-dspark-rocm-fixed", "--requests", "20", "--rate", "2", "--seed", "7", "--json"];
    let run = k3plan(&arguments);
    assert_eq!(run.stdout, k3plan(&arguments).stdout);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["schema"], "k3plan.simulate/1");
    assert_eq!(report["runs"][0]["finished"], 20);
    assert_eq!(report["runs"][0]["groups"].as_array().unwrap().len(), 4);
}

#[test]
fn trace_and_table_of_steps() {
    let folder = Folder::new("simulate-files");
    let run = k3plan_in(
        folder.path(),
        &[
            "simulate",
            "kimi-k3-dspark-rocm-fixed",
            "--requests",
            "4",
            "--trace",
            "t.json",
            "--steps",
            "s.parquet",
            "--json",
        ],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let text = std::fs::read_to_string(folder.path().join("t.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let steps = report["runs"][0]["steps"].as_u64().unwrap();
    let of =
        |track: u64| events.iter().filter(|event| event["ph"] == "X" && event["tid"] == track).count() as u64;
    // The scheduler's track and one a group.
    assert!((0..=4).all(|track| of(track) == steps));
    assert_eq!(events.iter().filter(|event| event["ph"] == "C").count() as u64, steps);
    let table = std::fs::read(folder.path().join("s.parquet")).unwrap();
    assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"));
}

#[test]
fn what_cannot_run_leaves_nothing_behind() {
    let folder = Folder::new("simulate-errors");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("empty.jsonl", "");
    write("cut.jsonl", "{\"timestamp\":0,\"input_length\":9,\"output_length\":5}\n{\"timestamp\":4,\"inp");
    write("zero.jsonl", "{\"timestamp\":0,\"input_length\":0,\"output_length\":5}");
    let cases: [&[&str]; 9] = [
        &["--input", "300000"],
        &["--num-blocks", "0"],
        &["--num-blocks", "20"],
        &["--workload", "empty.jsonl"],
        &["--workload", "cut.jsonl"],
        &["--workload", "zero.jsonl"],
        &["--rate", "-1"],
        &["--accepted", "9,3"],
        &["--watermark", "2"],
    ];
    let mut all = String::new();
    for flags in cases {
        let mut arguments =
            vec!["simulate", "kimi-k3-dspark-rocm-fixed", "--trace", "t.json", "--steps", "s.parquet"];
        arguments.extend_from_slice(flags);
        let run = k3plan_in(folder.path(), &arguments);
        all.push_str(&format!("{}\n{}", flags.join(" "), run.whole()));
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 3, "{} left files behind", flags.join(" "));
    }
    insta::assert_snapshot!(all);
}

/// A device is written to; a file in its place would break it for everyone.
#[test]
fn a_trace_into_a_device_leaves_it_there() {
    let run = k3plan(&["simulate", "kimi-k3-dspark-rocm-fixed", "--requests", "1", "--trace", "/dev/stdout"]);
    assert!(run.stdout.contains("displayTimeUnit"), "{}", run.whole());
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}
