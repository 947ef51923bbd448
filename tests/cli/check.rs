//! `k3plan check`.

use crate::support::{Folder, conforms, golden_lines, k3plan, k3plan_in};

/// Two folders' worth of the same scenario name: the fixed arm is locked, the regressed one is checked.
fn folder_with_lock() -> Folder {
    let folder = Folder::new(&format!("check-{:?}", std::thread::current().id()).replace(['(', ')'], ""));
    folder.write("k3.yaml", "extends: kimi-k3-dspark-rocm-fixed\ntitle: Our K3\n");
    let run = k3plan_in(folder.path(), &["check", "k3.yaml", "--update"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    folder
}

fn regress(folder: &Folder) {
    folder.write("k3.yaml", "extends: kimi-k3-dspark-rocm-regressed\ntitle: Our K3\n");
}

#[test]
fn the_lock_reads_like_code() {
    insta::assert_snapshot!(folder_with_lock().read("groups.lock"));
}

#[test]
fn the_k3_regression_is_caught() {
    let folder = folder_with_lock();
    assert_eq!(k3plan_in(folder.path(), &["check", "k3.yaml"]).code, Some(0));
    regress(&folder);
    let run = k3plan_in(folder.path(), &["check", "k3.yaml"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(1));
    let words = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["`max_tp_shards` is unset in draft layers 93-97", "set `max_tp_shards` to 1"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn a_worse_number_is_not_written_by_update_alone() {
    let folder = folder_with_lock();
    let before = folder.read("groups.lock");
    regress(&folder);
    assert_eq!(k3plan_in(folder.path(), &["check", "k3.yaml", "--update"]).code, Some(1));
    assert_eq!(folder.read("groups.lock"), before);
    assert_eq!(k3plan_in(folder.path(), &["check", "k3.yaml", "--update", "--accept-worse"]).code, Some(0));
    assert_ne!(folder.read("groups.lock"), before);
}

#[test]
fn a_better_number_wants_an_update_that_rewrites_only_what_changed() {
    let folder = folder_with_lock();
    let marked = folder.read("groups.lock").replace("[plans", "# our own remark\n[plans");
    folder.write("groups.lock", &marked);
    // More memory, and nothing else.
    let more = "extends: kimi-k3-dspark-rocm-fixed\ntitle: Our K3\nengine: {kv-cache-memory: 90 GiB}\n";
    folder.write("k3.yaml", more);
    let run = k3plan_in(folder.path(), &["check", "k3.yaml"]);
    assert_eq!(run.code, Some(1), "{}", run.stdout);
    assert!(run.stdout.contains("better"));
    assert_eq!(folder.read("groups.lock"), marked);
    assert_eq!(k3plan_in(folder.path(), &["check", "k3.yaml", "--update"]).code, Some(0));
    let changed: Vec<(String, String)> = marked
        .lines()
        .zip(folder.read("groups.lock").lines())
        .filter(|(old, new)| old != new)
        .map(|(old, new)| (old.to_owned(), new.to_owned()))
        .collect();
    let keys: Vec<&str> = changed.iter().map(|(old, _)| old.split(' ').next().unwrap()).collect();
    assert_eq!(keys, ["num_blocks", "max_concurrency", "fingerprint", "settings"]);
}

#[test]
fn limits_hold_whatever_the_lock_says() {
    let folder = folder_with_lock();
    let lock =
        folder.read("groups.lock").replace("version = 2\n", "version = 2\n\n[policy]\nmax_groups = 3\n");
    folder.write("groups.lock", &lock);
    let run = k3plan_in(folder.path(), &["check", "k3.yaml"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("4 groups, and `max_groups` is 3"), "{}", run.stdout);
}

#[test]
fn every_report_has_the_cause() {
    let folder = folder_with_lock();
    regress(&folder);
    for format in ["json", "junit", "sarif", "github", "markdown"] {
        let run = k3plan_in(folder.path(), &["check", "k3.yaml", "--format", format]);
        assert_eq!(run.code, Some(1));
        assert!(run.stdout.contains("max_tp_shards"), "{format}: {}", run.stdout);
        if format != "junit" {
            continue;
        }
        assert!(run.stdout.contains("failures=\"1\""), "{}", run.stdout);
    }
    let json: serde_json::Value =
        serde_json::from_str(&k3plan_in(folder.path(), &["check", "k3.yaml", "--json"]).stdout).unwrap();
    assert_eq!(json["schema"], "k3plan.check/1");
    let sarif = k3plan_in(folder.path(), &["check", "k3.yaml", "--format", "sarif"]).stdout;
    let sarif: serde_json::Value = serde_json::from_str(&sarif).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["level"], "error");
}

#[test]
fn broken_locks_are_refused_and_left_alone() {
    let folder = folder_with_lock();
    for (text, words) in [
        ("version = 1\n[plans", "unclosed table"),
        ("version = 0\n", "version 0"),
        ("version = 9\n", "version 9"),
        ("groups = 4\n", "no version"),
        ("version = 1\n[plans.\"k3\".\"0.33\"]\ngroops = 4\n", "groops"),
    ] {
        folder.write("groups.lock", text);
        for arguments in [&["check", "k3.yaml"][..], &["check", "k3.yaml", "--update"]] {
            let run = k3plan_in(folder.path(), arguments);
            assert_eq!(run.code, Some(2), "{text}: {}{}", run.stdout, run.stderr);
            assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
            assert_eq!(folder.read("groups.lock"), text);
        }
    }
}

#[test]
fn a_scenario_that_is_gone_is_named() {
    let folder = folder_with_lock();
    std::fs::remove_file(folder.path().join("k3.yaml")).unwrap();
    let run = k3plan_in(folder.path(), &["check"]);
    assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("`k3`") || run.stderr.contains("`k3.yaml`"), "{}", run.stderr);
}

#[test]
fn a_missing_lock_is_named() {
    let folder = Folder::new("check-missing");
    let run = k3plan_in(folder.path(), &["check", "kimi-k3"]);
    insta::assert_snapshot!(run.whole());
}

#[test]
fn another_run_that_updates_keeps_this_one_out() {
    let folder = folder_with_lock();
    let before = folder.read("groups.lock");
    let held = std::fs::File::create(folder.path().join("groups.lock.new")).unwrap();
    held.lock().unwrap();
    let run = k3plan_in(folder.path(), &["check", "kimi-k3", "--update"]);
    assert_eq!(run.code, Some(2), "{}", run.stdout);
    assert!(run.stderr.contains("another run is updating it"), "{}", run.stderr);
    assert_eq!(folder.read("groups.lock"), before);
}

#[test]
fn a_full_disk_leaves_the_old_lock() {
    let folder = folder_with_lock();
    let before = folder.read("groups.lock");
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    std::os::unix::fs::symlink(full, folder.path().join("groups.lock.new")).unwrap();
    let run = k3plan_in(folder.path(), &["check", "kimi-k3", "--update"]);
    assert_eq!(run.code, Some(2), "{}", run.stdout);
    assert_eq!(folder.read("groups.lock"), before);
}

#[test]
fn the_shipped_scenarios_are_as_in_their_lock() {
    let run = k3plan(&["check", "--baseline", "scenarios/groups.lock"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}

const WINDOWS: &str = "\
title: Windows
engine: {max-model-len: 4096, kv-cache-memory: 4 GiB}
specs:
  w: {kind: sliding, block_size: 16, num_kv_heads: 4, head_size: 64, dtype: bfloat16, sliding_window: 128}
  f: {kind: full, block_size: 16, num_kv_heads: 4, head_size: 64, dtype: bfloat16}
model: [w, f, w, f, w, f, w, f]
";

/// Two files of one stem, each in a folder of its own.
fn two_of_a_stem(name: &str) -> Folder {
    let folder = Folder::new(name);
    for (of, length) in [("a", "4096"), ("b", "8192")] {
        std::fs::create_dir_all(folder.path().join(of)).unwrap();
        folder.write(&format!("{of}/m.yaml"), &WINDOWS.replace("4096", length));
    }
    let run = k3plan_in(folder.path(), &["check", "a/m.yaml", "b/m.yaml", "--update"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    folder
}

#[test]
fn the_lock_says_where_each_scenario_is() {
    let folder = two_of_a_stem("check-places");
    for part in ["[plans.\"a/m.yaml\".", "[plans.\"b/m.yaml\"."] {
        assert!(folder.read("groups.lock").contains(part), "{part}");
    }
    for arguments in [&["check"][..], &["check", "a/m.yaml", "b/m.yaml"], &["check", "./b/m.yaml"]] {
        assert_eq!(k3plan_in(folder.path(), arguments).code, Some(0), "{arguments:?}");
    }
    // From another folder, too.
    let below = folder.path().join("a");
    assert_eq!(k3plan_in(&below, &["check", "--baseline", "../groups.lock"]).code, Some(0));
    // Only what is gone is pruned.
    std::fs::remove_file(folder.path().join("b/m.yaml")).unwrap();
    assert_eq!(k3plan_in(folder.path(), &["check"]).code, Some(2));
    assert_eq!(k3plan_in(folder.path(), &["check", "--update", "--prune"]).code, Some(0));
    let lock = folder.read("groups.lock");
    assert!(lock.contains("a/m.yaml") && !lock.contains("b/m.yaml"), "{lock}");
    // A lock of nothing is no pass.
    std::fs::remove_file(folder.path().join("a/m.yaml")).unwrap();
    assert_eq!(k3plan_in(folder.path(), &["check", "--update", "--prune"]).code, Some(2));
    assert_eq!(folder.read("groups.lock"), lock);
    folder.write("groups.lock", "version = 2\n");
    assert_eq!(k3plan_in(folder.path(), &["check"]).code, Some(2));
}

#[test]
fn arms_and_cases_have_keys_of_their_own() {
    let folder = Folder::new("check-arms");
    folder.write("m.yaml", &format!("{WINDOWS}arms: {{one: , two: {{engine: {{max-model-len: 64}}}}}}\n"));
    folder.write("c.jsonl", &golden_lines("plans")[..3].join("\n"));
    let run = k3plan_in(folder.path(), &["check", "m.yaml", "c.jsonl", "--update"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    assert!(folder.read("groups.lock").contains("\"m.yaml#two\""), "{}", folder.read("groups.lock"));
    let run = k3plan_in(folder.path(), &["check"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    assert!(run.stdout.contains("5 scenarios checked"), "{}", run.stdout);
}

#[test]
fn a_lock_of_version_1_is_read_and_learns_the_places() {
    let folder = two_of_a_stem("check-version-1");
    let old = folder.read("groups.lock");
    let (_, entry) = old.split_once("[plans.\"a/m.yaml\"").unwrap();
    let (entry, _) = entry.split_once("settings").unwrap();
    folder.write("groups.lock", &format!("version = 1\n\n[plans.m{entry}"));
    let run = k3plan_in(folder.path(), &["check"]);
    assert!(run.code == Some(2) && run.stderr.contains("version 1"), "{}", run.whole());
    assert_eq!(k3plan_in(folder.path(), &["check", "--update", "--prune"]).code, Some(2));
    assert!(folder.read("groups.lock").contains("[plans.m."));
    assert_eq!(k3plan_in(folder.path(), &["check", "a/m.yaml"]).code, Some(0));
    assert_eq!(k3plan_in(folder.path(), &["check", "a/m.yaml", "--update"]).code, Some(0));
    let lock = folder.read("groups.lock");
    assert!(
        lock.contains("version = 2") && lock.contains("a/m.yaml") && !lock.contains("plans.m."),
        "{lock}"
    );
}

#[test]
fn what_was_edited_is_the_cause() {
    let folder = two_of_a_stem("check-causes");
    let edited = WINDOWS.replace("sliding_window: 128", "sliding_window: 512").replace("w, f]", "w, w]");
    folder.write("a/m.yaml", &edited);
    folder.write("b/m.yaml", WINDOWS);
    let run = k3plan_in(folder.path(), &["check", "--json"]);
    assert_eq!(run.code, Some(1), "{}", run.whole());
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let first = &report["checked"][0]["causes"][0];
    assert_eq!((&first["what"], &first["locked"]), (&"sliding_window".into(), &"128".into()));
    assert_eq!(first["layers"], serde_json::json!([0, 2, 4, 6]));
    assert_eq!(report["checked"][0]["causes"][1]["layers"], serde_json::json!([7]));
    assert_eq!(report["checked"][1]["causes"][0]["what"], "max-model-len");
    assert_eq!(conforms(&report, &crate::support::json(&["schema", "check"])), Ok(()));
}

#[test]
fn one_broken_file_hides_no_other() {
    let folder = two_of_a_stem("check-broken");
    folder.write("a/m.yaml", "broken: [");
    for (format, part) in [
        ("json", "\"errors\": ["),
        ("junit", "<error "),
        ("sarif", "unreadable"),
        ("github", "::error file=a/m.yaml"),
        ("markdown", "- error, a/m.yaml"),
        ("text", "1 scenario checked"),
    ] {
        let run = k3plan_in(folder.path(), &["check", "--format", format]);
        assert!(run.code == Some(2) && run.stdout.contains(part), "{format}: {}", run.whole());
    }
    folder.write("groups.lock", "garbage");
    let run = k3plan_in(folder.path(), &["check", "--format", "junit", "--output", "r.xml"]);
    assert!(run.code == Some(2) && folder.read("r.xml").contains("<error "), "{}", run.whole());
}

/// What vLLM refuses is a "no" for each command, and so is too little memory; what cannot be read is wrong input.
#[test]
fn one_state_has_one_exit_code() {
    let folder = Folder::new("check-codes");
    let states = [
        (
            WINDOWS.replace("head_size: 64", "head_size: 99999999999").replace("size: 16", "size: 999999999"),
            1,
        ),
        (WINDOWS.replace("4 GiB", "64 KiB"), 1),
        ("broken: [".to_owned(), 2),
    ];
    for (text, code) in states {
        folder.write("s.yaml", &text);
        folder.write("groups.lock", "version = 2\n");
        for command in [
            &["plan", "s.yaml"][..],
            &["explain", "s.yaml"],
            &["fit", "s.yaml", "--kv-cache-memory", "64KiB"],
            &["check", "s.yaml"],
            &["simulate", "s.yaml"],
        ] {
            let run = k3plan_in(folder.path(), command);
            assert_eq!(run.code, Some(code), "{command:?}: {}", run.whole());
        }
    }
}
