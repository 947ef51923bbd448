//! `k3plan plan` and `k3plan schema`.

use crate::support::k3plan;

#[test]
fn the_k3_case_in_all_arms() {
    insta::assert_snapshot!(k3plan(&["plan", "kimi-k3-dspark"]).whole());
}

#[test]
fn one_arm_in_full() {
    insta::assert_snapshot!(k3plan(&["plan", "kimi-k3-dspark-rocm-regressed"]).whole());
}

#[test]
fn another_engine_and_another_group_size() {
    insta::assert_snapshot!(
        k3plan(&["plan", "kimi-k3-dspark-rocm-regressed", "--engine", "0.27", "--grouping", "36143=10"])
            .whole()
    );
}

#[test]
fn too_little_memory_is_a_no() {
    let run = k3plan(&["plan", "kimi-k3", "--set", "kv-cache-memory=1 GiB"]);
    insta::assert_snapshot!(run.whole());
    assert_eq!(run.code, Some(1));
}

/// What `--json` prints is what the schema describes: the same keys.
#[test]
fn json_is_as_the_schema_says() {
    let schema: serde_json::Value = serde_json::from_str(&k3plan(&["schema"]).stdout).unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&k3plan(&["plan", "kimi-k3-dspark", "--json"]).stdout).unwrap();
    assert_eq!(report["schema"], "k3plan.plan/1");
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let definitions = &schema["$defs"];
    let plan = &report["plans"][1];
    assert_eq!(keys(plan), keys(&definitions["PlanJson"]["properties"]));
    assert_eq!(keys(&plan["groups"][0]), keys(&definitions["GroupJson"]["properties"]));
    assert_eq!(keys(&plan["pool"]), keys(&definitions["PoolJson"]["properties"]));
    assert_eq!(plan["groups"].as_array().unwrap().len(), 20);
}

/// What the commands print holds exactly the keys of their schemas.
#[test]
fn other_reports_are_as_their_schemas_say() {
    let arms = ["kimi-k3-dspark-rocm-fixed", "kimi-k3-dspark-rocm-regressed"];
    for (schema, arguments) in [
        ("explain", vec!["explain", arms[1], "--json"]),
        ("diff", vec!["diff", arms[0], arms[1], "--json"]),
        ("diff-engines", vec!["diff", arms[1], "--engines", "0.29..0.32", "--json"]),
        ("fit", vec!["fit", arms[1], "--kv-cache-memory", "40GiB", "--json"]),
        ("check", vec!["check", "--baseline", "scenarios/groups.lock", "--json"]),
    ] {
        let (report, schema) = (crate::support::json(&arguments), crate::support::json(&["schema", schema]));
        assert_eq!(crate::support::conforms(&report, &schema), Ok(()), "{arguments:?}");
    }
}

/// A version that only counts what none had counted before changes nothing that a plan promises.
#[test]
fn a_version_that_promises_the_same_is_no_change() {
    let run = k3plan(&["diff", "gpt-oss-120b", "--engines", "0.30..0.33"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
}
