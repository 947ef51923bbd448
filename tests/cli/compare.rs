//! `k3plan compare`.

use std::path::{Path, PathBuf};
use std::process::Command;

struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(arguments: &[&str]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_k3plan")).arg("compare").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Outcome { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Result files with these medians of TPOT, in a folder of their own.
fn files(name: &str, values: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let write = |(index, value): (usize, &&str)| {
        let path: PathBuf = folder.join(format!("run-{index}.json"));
        let text =
            format!("{{\"completed\": 80, \"output_throughput\": 700.0, \"median_tpot_ms\": {value}}}");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    values.iter().enumerate().map(write).collect()
}

fn compare(name: &str, a: &[&str], b: &[&str], options: &[&str]) -> Outcome {
    let (a, b) = (files(&format!("{name}-a"), a), files(&format!("{name}-b"), b));
    let mut arguments: Vec<&str> = options.to_vec();
    arguments.extend(a.iter().map(String::as_str));
    arguments.push("--");
    arguments.extend(b.iter().map(String::as_str));
    run(&arguments)
}

const FOUR_GROUPS: [&str; 3] = ["11.10", "10.99", "11.18"];
const TWENTY_GROUPS: [&str; 3] = ["11.43", "11.44", "11.54"];

#[test]
fn the_regression_of_pr_59733_fails_the_check() {
    let outcome = compare("pr", &FOUR_GROUPS, &TWENTY_GROUPS, &["--fail-on", "worse:2"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.err);
    assert!(outcome.out.starts_with("median_tpot_ms: worse by 3.4%\n"), "{}", outcome.out);
    let larger = compare("pr-larger", &FOUR_GROUPS, &TWENTY_GROUPS, &["--fail-on", "worse:4"]);
    assert_eq!(larger.code, Some(0));
    let back = compare("pr-back", &TWENTY_GROUPS, &FOUR_GROUPS, &["--fail-on", "worse"]);
    assert_eq!(back.code, Some(0));
    assert!(back.out.starts_with("median_tpot_ms: better by 3.3%\n"), "{}", back.out);
}

#[test]
fn options_may_stand_after_b() {
    let (a, b) = (files("after-a", &FOUR_GROUPS), files("after-b", &TWENTY_GROUPS));
    let mut arguments: Vec<&str> = a.iter().map(String::as_str).collect();
    arguments.push("--");
    arguments.extend(b.iter().map(String::as_str));
    arguments.extend(["--fail-on", "worse", "--json"]);
    let outcome = run(&arguments);
    assert_eq!(outcome.code, Some(1), "{}", outcome.err);
    let document: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(document["schema"], "k3plan.compare/1");
    assert_eq!(document["verdict"], "worse");
}

#[test]
fn one_run_is_not_enough() {
    let outcome = compare("one", &["11.10"], &["11.50"], &["--fail-on", "worse"]);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.out.contains("not enough data"), "{}", outcome.out);
    assert!(outcome.out.contains("seeds an arm"), "{}", outcome.out);
}

#[test]
fn equal_arms_make_no_difference() {
    let outcome = compare("equal", &FOUR_GROUPS, &["11.05", "11.14", "11.02"], &["--markdown"]);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.out.starts_with("### Verdict: no difference\n"), "{}", outcome.out);
}

#[test]
fn a_bad_figure_is_named_with_its_file() {
    for bad in ["NaN", "0.0", "-1"] {
        let outcome = compare("bad", &FOUR_GROUPS, &["11.1", bad, "11.2"], &[]);
        assert_eq!(outcome.code, Some(2));
        assert!(
            outcome.err.contains("run-1.json") && outcome.err.contains("median_tpot_ms"),
            "{}",
            outcome.err
        );
        assert!(outcome.out.is_empty());
    }
}

#[test]
fn junit_is_written_beside() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare.xml");
    let outcome = compare("junit", &FOUR_GROUPS, &TWENTY_GROUPS, &["--junit", path.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0));
    let report = std::fs::read_to_string(path).unwrap();
    assert!(report.contains("failures=\"1\"") && report.contains("worse by 3.4%"), "{report}");
}
