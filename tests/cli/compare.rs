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

#[test]
fn a_run_counts_once_in_an_arm() {
    let (a, b) = (files("once-a", &["11.10"]), files("once-b", &["11.43"]));
    let [a, b] = [&a[0], &b[0]];
    let outcome = run(&["--json", a, a, a, "--", b, b, b]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    let document: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(document["verdict"], "not enough data");
    assert_eq!(document["runs"]["a"].as_array().map(Vec::len), Some(1));
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("left out of arm A, named before"), "{warnings}");
    let copy = format!("{a}.copy.json");
    std::fs::copy(a, &copy).unwrap();
    let outcome = run(&[a, &copy, "--", b]);
    assert!(outcome.err.contains("left out of arm A, with the content of another"), "{}", outcome.err);
    let outcome = run(&[a, "--", &copy]);
    assert!(outcome.err.contains("are one run"), "{}", outcome.err);
}

/// A journal of two requests, and the result of the same run.
fn result_and_journal(folder: &Path, name: &str, milliseconds: f64) -> (String, String) {
    let record = |index: usize| {
        let latency = 0.05 + 3.0 * milliseconds / 1e3;
        serde_json::json!({"line": "request", "part": 0, "record": {
            "index": index, "start": 0.0, "queue": 0.0, "lag": 0.0, "connect": null, "ttft": 0.05,
            "latency": latency, "itl": [milliseconds / 1e3, milliseconds / 1e3, milliseconds / 1e3],
            "prompt_tokens": 4, "output_tokens": 4, "counted_by": "usage"}})
    };
    let settings = serde_json::json!({"num_prompts": 2, "max_concurrency": 1, "model": "m", "seed": 0});
    let lines = [
        serde_json::json!({"line": "header", "schema": "k3plan.journal/1", "settings": settings}),
        serde_json::json!({"line": "part", "part": 0, "started_at": 1.7e9 + milliseconds}),
        record(0),
        record(1),
        serde_json::json!({"line": "part_end", "part": 0, "duration": 1.0}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (result, journal) = (folder.join(name), folder.join(format!("{name}.journal")));
    std::fs::write(&journal, text).unwrap();
    let text = serde_json::json!({"completed": 2, "failed": 0, "num_prompts": 2, "model_id": "m", "max_concurrency": 1,
        "output_throughput": 8.0, "median_tpot_ms": milliseconds,
        "k3plan": {"seed": 0, "started_at": 1.7e9 + milliseconds, "interrupted": name.contains("cut")}});
    std::fs::write(&result, text.to_string()).unwrap();
    (result.display().to_string(), journal.display().to_string())
}

#[test]
fn a_result_and_its_journal_are_one_run() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare").join("journals");
    std::fs::create_dir_all(&folder).unwrap();
    let all: Vec<(String, String)> = ["a0.json", "a1.json", "b0.json", "b1-cut.json"]
        .iter()
        .zip([10.0, 10.1, 10.05, 10.2])
        .map(|(name, ms)| result_and_journal(&folder, name, ms))
        .collect();
    let both = [&all[0].0, &all[0].1, &all[1].1, &all[1].0, "--", &all[2].0, &all[2].1, &all[3].0, &all[3].1];
    let alone = [&all[0].0, &all[1].0, "--", &all[2].0, &all[3].0];
    let (both, alone) = (run(&both.map(|name| name as &str)), run(&alone.map(|name| name as &str)));
    assert_eq!((both.code, &both.out), (Some(0), &alone.out), "{}", both.err);
    assert!(both.err.contains("a0.json.journal` (as `"), "{}", both.err);
    assert!(
        alone.err.contains("b1-cut.json`: the run was interrupted: 2 of 2 requests finished"),
        "{}",
        alone.err
    );
}

#[test]
fn a_file_that_is_no_result_is_named_to_be_left_out() {
    let a = files("log-a", &["11.10", "11.2"]);
    let folder = Path::new(&a[0]).parent().unwrap();
    for (name, text) in [("base.log", "INFO 12-02 starting, a, b\nINFO more\n"), ("notes.txt", "hello\n")] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let (log, notes) = (folder.join("base.log"), folder.join("notes.txt"));
    let [log, notes] = [log.to_str().unwrap(), notes.to_str().unwrap()];
    let outcome = run(&[&a[0], log, &a[1], notes, "--", &a[1]]);
    assert_eq!(outcome.code, Some(2));
    for part in ["base.log` is no result of a known tool", "notes.txt", "leave these files out"] {
        assert!(outcome.err.contains(part), "{part}: {}", outcome.err);
    }
    // What a folder brings along is passed over.
    let outcome = run(&[folder.to_str().unwrap(), "--", &a[1]]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
}

#[test]
fn absurd_inputs_are_refused_with_a_reason() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare").join("absurd");
    std::fs::create_dir_all(&folder).unwrap();
    let table = folder.join("t.csv");
    for (text, reason) in [
        ("metric,A_mean,A_sd,n\nmedian_tpot_ms,10,1,18446744073709551615\n", "more than the 10000"),
        ("median_tpot_ms,tpot_p50_s\n10,0.01\n", "a second time"),
    ] {
        std::fs::write(&table, text).unwrap();
        let outcome = run(&[table.to_str().unwrap(), "--", table.to_str().unwrap()]);
        assert_eq!(outcome.code, Some(2));
        assert!(outcome.err.contains(reason), "{}", outcome.err);
    }
    let socket = folder.join("socket");
    let _ = std::fs::remove_file(&socket);
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let outcome = run(&[socket.to_str().unwrap(), "--", socket.to_str().unwrap()]);
    assert!(outcome.code == Some(2) && outcome.err.contains("no regular file"), "{}", outcome.err);
    let (_, journal) = result_and_journal(&folder, "j.json", 10.0);
    let text = std::fs::read_to_string(&journal).unwrap();
    let largest = text.replace("\"output_tokens\":4", "\"output_tokens\":18446744073709551615");
    std::fs::write(&journal, largest).unwrap();
    let outcome = run(&[&journal, "--", &journal]);
    assert!(outcome.code == Some(2) && outcome.err.contains("more tokens than"), "{}", outcome.err);
    std::fs::write(&journal, text.replace("\"ttft\":0.05", "\"ttft\":-0.05")).unwrap();
    assert_eq!(run(&[&journal, "--", &journal]).code, Some(2));
    assert_eq!(run(&["--fail-on", "worse:5%%", &journal, "--", &journal]).code, Some(2));
}

/// What a file says is held in a few times its size, or refused.
#[test]
fn hostile_and_large_files_need_little_memory() {
    let folder = crate::support::Folder::new("compare-memory");
    let within = |name: &str, kilobytes: usize| {
        let output = Command::new("sh")
            .args(["-c", "ulimit -v $0; exec \"$1\" compare \"$2\" -- \"$2\""])
            .args([&kilobytes.to_string(), env!("CARGO_BIN_EXE_k3plan"), name])
            .current_dir(folder.path())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let result = |more: &str| format!("{{\"completed\":3,\"median_tpot_ms\":1.0,{more}}}");
    let repeated = |piece: &str, bytes: usize| piece.repeat(bytes / piece.len());
    const SIZE: usize = 16 << 20;
    for (name, text) in [
        ("lists.json", result(&format!("\"x\":[{}0]", repeated("[0],", SIZE)))),
        ("ttfts.json", result(&format!("\"ttfts\":[{}1]", repeated("1,", SIZE)))),
        ("objects.json", format!("[{}{{}}]", repeated("{\"a\":1},", SIZE))),
        ("runs.json", repeated("{\"median_tpot_ms\":1}\n", SIZE)),
        ("table.csv", format!("median_tpot_ms,b\n{}", repeated("1,1\n", SIZE))),
        ("wide.csv", format!("median_tpot_ms,b\n{}", repeated("1,", SIZE))),
        (
            "header.journal",
            format!(
                "{{\"line\":\"header\",\"schema\":\"k3plan.journal/1\",\"settings\":{{\"a\":[{}0]}}}}\n",
                repeated("[0],", SIZE)
            ),
        ),
    ] {
        folder.write(name, &text);
        let (code, said) = within(name, 500_000);
        assert_eq!(code, Some(2), "{name}: {said}");
        assert!(said.starts_with("error: ") && said.len() < 1500, "{name}: {said}");
    }
    // Many documents are read in one pass.
    let record = "{\"metadata\":{},\"metrics\":{\"time_to_first_token\":{\"value\":5.0,\"unit\":\"ms\"}}}\n";
    folder.write("records.jsonl", &record.repeat(100_000));
    let (code, said) = within("records.jsonl", 100_000);
    assert_eq!(code, Some(0), "{said}");
    // As `vllm bench serve --save-detailed` writes it.
    let gaps = format!("[{}0.0171234567891234]", "0.0123456789012345, ".repeat(255));
    let texts = format!("\"{}\"", "word ".repeat(200));
    let list = |piece: &str| vec![piece; 2000].join(",");
    let detailed = result(&format!(
        "\"ttfts\":[{}],\"itls\":[{}],\"generated_texts\":[{}]",
        list("0.1234567890123456"),
        list(&gaps),
        list(&texts)
    ));
    folder.write("detailed.json", &detailed);
    let (code, said) = within("detailed.json", 100_000);
    assert_eq!(code, Some(0), "{said}");
}
