//! `k3plan check`.

use crate::support::{Folder, k3plan, k3plan_in};

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
    assert_eq!(keys, ["num_blocks", "max_concurrency", "fingerprint"]);
}

#[test]
fn limits_hold_whatever_the_lock_says() {
    let folder = folder_with_lock();
    let lock =
        folder.read("groups.lock").replace("version = 1\n", "version = 1\n\n[policy]\nmax_groups = 3\n");
    folder.write("groups.lock", &lock);
    let run = k3plan_in(folder.path(), &["check", "k3.yaml"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("4 groups, and `max_groups` is 3"), "{}", run.stdout);
}

#[test]
fn every_report_has_the_cause() {
    let folder = folder_with_lock();
    regress(&folder);
    for format in ["json", "junit", "sarif", "github"] {
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
