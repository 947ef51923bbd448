//! Recorded answers of the real vLLM, replayed: none differs.

use crate::support::k3plan;

#[test]
fn recorded_answers_do_not_differ() {
    for (name, cases) in [
        ("k3", 6),
        ("plans", 500),
        ("mutations", 200),
        ("models", 57),
        ("plans-all-versions", 300),
        ("mutations-all-versions", 200),
        ("wide", 800),
        ("live", 17),
    ] {
        let run = k3plan(&["verify", &format!("tests/golden/{name}.jsonl.gz")]);
        assert_eq!(run.stdout, format!("{cases} cases, 0 differ\n"), "{name}");
        assert_eq!(run.code, Some(0));
    }
}

/// The check can fail: one digit changed in one answer is found, with case, version and field.
#[test]
fn a_changed_digit_is_found() {
    let folder = crate::support::Folder::new("changed-digit");
    let line = &crate::support::golden_lines("k3")[1];
    assert!(line.contains("\"num_blocks\":19418"));
    folder.write("k3.jsonl", &line.replace("\"num_blocks\":19418", "\"num_blocks\":19417"));
    let run = crate::support::k3plan_in(folder.path(), &["verify", "k3.jsonl"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("k3-dspark-rocm-regressed 0.33.0 num_blocks"), "{}", run.stdout);
    assert!(run.stdout.ends_with("1 cases, 1 differ\n"), "{}", run.stdout);
}

/// A server's own dump is planned by the rules of the version that wrote it, and may be asked for another.
#[test]
fn a_recorded_server_is_a_scenario_of_its_version() {
    for (name, groups) in [("llama", 1), ("gemma-5to1", 6), ("conv-state", 3), ("conv-align", 4)] {
        let case = format!("tests/golden/live.jsonl.gz#{name}");
        let run = k3plan(&["plan", "--json", &case]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let plan: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(plan["plans"][0]["engine"], "0.32");
        assert_eq!(plan["plans"][0]["groups"].as_array().unwrap().len(), groups, "{name}");
        let run = k3plan(&["plan", "--json", "--engine", "0.33", &case]);
        assert!(run.stdout.contains("\"engine\": \"0.33\""), "{}", run.stderr);
        assert_eq!(k3plan(&["explain", &case]).code, Some(0));
    }
}
