//! `k3plan diff`.

use crate::support::{Folder, golden_lines, k3plan, k3plan_in};

#[test]
fn two_arms() {
    insta::assert_snapshot!(
        k3plan(&["diff", "kimi-k3-dspark-rocm-fixed", "kimi-k3-dspark-rocm-regressed"]).whole()
    );
}

#[test]
fn the_same_plan() {
    let run = k3plan(&["diff", "kimi-k3-dspark-rocm-fixed", "kimi-k3-dspark-nvidia-after"]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
}

#[test]
fn the_version_that_changed_the_k3_case() {
    let run = k3plan(&["diff", "kimi-k3-dspark-rocm-regressed", "--engines", "0.24..0.33"]);
    insta::assert_snapshot!(run.whole());
    assert!(run.stdout.contains("vLLM 0.31: the groups changed. It is the first to know `max_tp_shards`"));
}

#[test]
fn a_range_that_is_none() {
    insta::assert_snapshot!(k3plan(&["diff", "kimi-k3", "--engines", "0.33..0.24"]).whole());
}

/// Whether two versions' recorded answers differ, the files say themselves; `diff` and `check` say the same.
#[test]
fn never_equal_what_differs_and_never_different_what_is_equal() {
    let folder = Folder::new("diff-versions");
    let lines = golden_lines("plans");
    let mut asked = (0, 0);
    for line in lines.iter().step_by(7) {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        folder.write("case.jsonl", line);
        for (from, to) in [("0.24", "0.27"), ("0.27", "0.31"), ("0.31", "0.33")] {
            let answer = |version: &str| {
                let expect = case["expect"].as_object().unwrap();
                let (_, answer) = expect.iter().find(|(key, _)| key.starts_with(version)).unwrap();
                let mut answer = answer.clone();
                let answer_map = answer.as_object_mut().unwrap();
                // A version without replicas, or that drops fields, has no other plan for it.
                for key in ["dropped", "kv_tp_replicas"] {
                    answer_map.remove(key);
                }
                answer
            };
            let same = answer(from) == answer(to);
            let replicas = case["expect"].as_object().unwrap().iter().any(|(key, answer)| {
                key.starts_with(to) && from == "0.27" && answer.get("kv_tp_replicas").is_some()
            });
            let _ = std::fs::remove_file(folder.path().join("a.lock"));
            let lock = ["check", "case.jsonl", "--baseline", "a.lock", "--engine", from, "--update"];
            assert_eq!(k3plan_in(folder.path(), &lock).code, Some(0));
            // The lock is by version: the same numbers are asked for under the other one.
            let text = folder.read("a.lock").replace(&format!("\"{from}\""), &format!("\"{to}\""));
            folder.write("a.lock", &text);
            let check =
                k3plan_in(folder.path(), &["check", "case.jsonl", "--baseline", "a.lock", "--engine", to]);
            if same && !replicas {
                asked.0 += 1;
                assert_eq!(check.code, Some(0), "{} {from} {to}: {}", case["id"], check.stdout);
            } else if !same {
                asked.1 += 1;
                assert_eq!(check.code, Some(1), "{} {from} {to}: {}", case["id"], check.stdout);
            }
        }
    }
    assert!(asked.0 > 10 && asked.1 > 10, "{asked:?}");
}
