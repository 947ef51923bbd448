//! `k3plan import log`.

use crate::support::{Folder, k3plan};

const LOGS: &str = "tests/data/logs";

fn beside(log: &str, set: &[&str]) -> crate::support::Run {
    let log = format!("{LOGS}/{log}");
    let scenario = format!("{LOGS}/tiny-gemma3.yaml");
    let mut arguments = vec!["import", "log", &log, "--scenario", &scenario];
    for set in set {
        arguments.extend(["--set", set]);
    }
    k3plan(&arguments)
}

#[test]
fn a_real_log_in_colours_agrees_with_the_plan() {
    let run = beside("vllm-0.32-colour.log", &[]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(0));
}

#[test]
fn a_real_log_of_a_fitted_length_agrees_with_the_plan() {
    let run = beside("vllm-0.32-auto-fit.log", &[]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(0));
}

#[test]
fn a_real_log_of_a_refusal_agrees_with_the_plan() {
    let run = beside("vllm-0.32-refused.log", &[]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(0));
}

#[test]
fn another_model_cannot_agree() {
    let run = beside("vllm-0.32-colour.log", &["specs.full.head_size=64", "specs.slide.head_size=64"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(1));
}

#[test]
fn two_lines_a_capacity_and_no_scenario() {
    let run = k3plan(&["import", "log", &format!("{LOGS}/excerpts.log")]);
    insta::assert_snapshot!(run.whole());
    assert!(!run.stdout.contains("secret"));
}

#[test]
fn json() {
    insta::assert_snapshot!(k3plan(&["import", "log", &format!("{LOGS}/excerpts.log"), "--json"]).whole());
}

#[test]
fn nothing_of_vllm_is_wrong_input() {
    let folder = Folder::new("import-log");
    folder.write("other.log", "hello\nworld\n");
    let run = crate::support::k3plan_in(folder.path(), &["import", "log", "other.log"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(2));
}

/// The server's own config in the place of a scenario; the log states the rest, but the batch and the platform.
#[test]
fn a_real_log_agrees_with_the_plan_of_its_config() {
    let log = format!("{LOGS}/vllm-0.32-colour.log");
    let config = "tests/data/configs/tiny-gemma3.json";
    let arguments = ["import", "log", &log, "--model", config, "--platform", "cpu", "--set"];
    let run = k3plan(&[&arguments[..], &["max-num-batched-tokens=2048"]].concat());
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(0));
    // With another number of ranks than the log's it does not.
    let run = k3plan(&[&arguments[..], &["max-num-batched-tokens=2048", "--tp", "2"]].concat());
    assert_eq!(run.code, Some(1), "{}", run.stdout);
}
