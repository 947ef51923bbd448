//! Files that people write: what they mean, and what a person reads when one is wrong.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Folder, json, k3plan, k3plan_in};

/// A small scenario that is right; each case below changes one thing.
const RIGHT: &str = "\
title: four layers
engine: {tensor-parallel-size: 8, max-model-len: 4096, kv-cache-memory: 80 GiB}
specs:
  full: {kind: full, block_size: 16, num_kv_heads: 8, head_size: 128, dtype: bfloat16}
model: {layers: 4, spec: full}
";

/// A name, what to look for in [`RIGHT`], and what to put in its place.
const WRONG: &[(&str, &str, &str)] = &[
    ("unknown-setting", "max-model-len", "max-model-lenn"),
    ("unknown-spec-field", "head_size", "head_sise"),
    ("unknown-entry", "model:", "modle:"),
    ("unknown-entry-far", "model:", "quux:"),
    ("unknown-kind", "kind: full", "kind: fool"),
    ("unknown-dtype", "bfloat16", "bfloat61"),
    ("unknown-spec", "spec: full", "spec: ful"),
    ("unknown-version", "engine: {", "engine: {version: 0.99, "),
    ("unknown-grouping", "engine: {", "engine: {grouping: least-paddin, "),
    ("text-for-number", "layers: 4", "layers: four"),
    ("number-for-map", "model: {layers: 4, spec: full}", "model: 4"),
    ("list-for-number", "head_size: 128", "head_size: [128]"),
    ("flag-for-number", "head_size: 128", "head_size: true"),
    ("fraction", "num_kv_heads: 8", "num_kv_heads: 8.5"),
    ("negative-layers", "layers: 4", "layers: -4"),
    ("negative-size", "head_size: 128", "head_size: -128"),
    ("zero-size", "block_size: 16", "block_size: 0"),
    ("no-layers", "layers: 4", "layers: 0"),
    ("too-many-layers", "layers: 4", "layers: 1000000000000"),
    ("too-many-layers-in-a-run", "{layers: 4, spec: full}", "[1000000000000 full]"),
    ("too-many-layers-in-all", "{layers: 4, spec: full}", "[999999 full, 2 full]"),
    ("too-large-size", "head_size: 128", "head_size: 99999999999999999999"),
    ("larger-than-any-number", "head_size: 128", "head_size: 99999999999999999999999999999999999999999999"),
    ("too-large-memory", "80 GiB", "80000000 GiB"),
    ("memory-unit", "80 GiB", "80 Gib"),
    ("memory-negative", "80 GiB", "-80 GiB"),
    ("infinite", "80 GiB", ".inf"),
    ("missing-field", ", dtype: bfloat16", ""),
    ("missing-kind", "kind: full, ", ""),
    ("missing-model", "model: {layers: 4, spec: full}", ""),
    ("empty-model", "{layers: 4, spec: full}", "[]"),
    ("model-without-cache", "spec: full", "spec: none"),
    ("field-of-another-kind", "kind: full", "kind: full, rswa_window: 4"),
    ("given-twice", "title: four layers", "title: a\ntitle: b"),
    ("both-names", "engine: {", "engine: {tp: 4, "),
    ("not-yaml", "spec: full}", "spec: full"),
    ("tabs", "  full:", "\tfull:"),
    ("no-length-to-fit", "max-model-len: 4096", "max-model-len: -1"),
    ("no-such-parent", "title: four layers", "extends: kimi-k33"),
    ("empty-arms", "title: four layers", "arms: {}"),
    ("recursive-anchor", "title: four layers", "title: &a [*a]"),
    ("config-json", "title: four layers", "architectures: [LlamaForCausalLM]"),
];

/// Asserts that the run ended as one with wrong input does, and gives its message.
#[track_caller]
fn refused(folder: &Path, args: &[&str]) -> String {
    let run = k3plan_in(folder, args);
    assert_eq!(run.code, Some(2), "{args:?}: {}", run.whole());
    assert_eq!(run.stdout, "", "{args:?}");
    assert!(
        run.stderr.starts_with("error: ") && !run.stderr.contains("panicked"),
        "{args:?}: {}",
        run.whole()
    );
    assert_eq!(run.stderr.matches("error: ").count(), 1, "{args:?}: {}", run.whole());
    run.stderr
}

#[test]
fn what_a_person_reads_when_a_file_is_wrong() {
    let own = Folder::new("wrong-files");
    let folder = own.path();
    let mut all = String::new();
    for (name, from, to) in WRONG {
        assert!(RIGHT.contains(from), "{name}");
        let file = format!("{name}.yaml");
        fs::write(folder.join(&file), RIGHT.replacen(from, to, 1)).unwrap();
        all.push_str(&format!("== {name}\n{}\n", refused(folder, &["plan", &file])));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn what_a_person_reads_when_there_is_no_such_scenario() {
    let own = Folder::new("no-such-scenario");
    let folder = own.path();
    fs::create_dir(folder.join("models")).unwrap();
    fs::write(folder.join("empty.yaml"), "").unwrap();
    fs::write(folder.join("comment.yaml"), "# nothing\n").unwrap();
    fs::write(folder.join("empty.jsonl"), "\n").unwrap();
    fs::write(folder.join("list.yaml"), "[1, 2]\n").unwrap();
    fs::write(folder.join("latin-1.yaml"), b"title: caf\xe9\n").unwrap();
    fs::write(folder.join("binary.yaml"), [0_u8; 300]).unwrap();
    fs::write(folder.join("loop.yaml"), "extends: loop.yaml\n").unwrap();
    fs::write(folder.join("right.yaml"), RIGHT).unwrap();
    fs::write(folder.join("other.jsonl"), "{\"a\": 1}\n").unwrap();
    fs::write(folder.join("cut.jsonl"), "{\"id\": \"a\", \"specs\": [], \"layers\": [0").unwrap();
    fs::write(folder.join("bare.jsonl"), "{\"id\": \"a\", \"specs\": [], \"layers\": []}\n").unwrap();
    let mut all = String::new();
    for name in [
        "missing.yaml",
        "kimi-k4",
        "kimi-k3-dspark-rocm-fixd",
        "kimi-k3-dspark#rocm-fixd",
        "right.yaml#arm",
        "models",
        "empty.yaml",
        "comment.yaml",
        "empty.jsonl",
        "list.yaml",
        "latin-1.yaml",
        "binary.yaml",
        "loop.yaml",
        "other.jsonl",
        "cut.jsonl",
        "bare.jsonl",
        "bare.jsonl#b",
    ] {
        all.push_str(&format!("== {name}\n{}\n", refused(folder, &["plan", name])));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn what_a_person_reads_when_an_override_is_wrong() {
    let own = Folder::new("wrong-overrides");
    let folder = own.path();
    fs::write(folder.join("right.yaml"), RIGHT).unwrap();
    let mut all = String::new();
    for set in [
        "max-num-seqs",
        "max-num-secs=4",
        "max-num-seqs=many",
        "specs.fulll.head_size=4",
        "specs.full.head_sise=4",
        "specs.full.head_size=x",
        "draft.max_tp_shards=1",
        "layers[3..9].max_tp_shards=1",
        "layers[3].max_tp_shard=1",
        "layers[x].max_tp_shards=1",
        "a.b.c.d=1",
    ] {
        all.push_str(&format!("== {set}\n{}\n", refused(folder, &["plan", "right.yaml", "--set", set])));
    }
    for args in [["--engine", "0.12"], ["--grouping", "51472"], ["--grouping", "36143"]] {
        let [flag, value] = args;
        let message = refused(folder, &["plan", "right.yaml", flag, value]);
        all.push_str(&format!("== {flag} {value}\n{message}\n"));
    }
    insta::assert_snapshot!(all);
}

/// Anchors that would expand to 9^13 values.
fn laughs() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..13 {
        let items = vec![format!("*a{}", i - 1); 9].join(", ");
        text.push_str(&format!("a{i}: &a{i} [{items}]\n"));
    }
    text + RIGHT
}

/// Inputs made to take memory or the stack: refused within 200 MB of address space.
#[test]
#[cfg(unix)]
fn hostile_files_are_refused_in_little_memory() {
    let own = Folder::new("hostile");
    let folder = own.path();
    let write = |name: &str, text: &[u8]| fs::write(folder.join(name), text).unwrap();
    write("laughs.yaml", laughs().as_bytes());
    write("deep-flow.yaml", ["[".repeat(200_000), "]".repeat(200_000)].concat().as_bytes());
    let deep: String = (0..3000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    write("deep-block.yaml", deep.as_bytes());
    write("long-list.yaml", format!("model: [{}]", "full, ".repeat(500_000)).as_bytes());
    write("long-key.yaml", "k".repeat(3 << 20).as_bytes());
    write("long-value.yaml", format!("title: 1\nkind: {}", "v".repeat(3 << 20)).as_bytes());
    write("deep.json", ["[".repeat(500_000), "]".repeat(500_000)].concat().as_bytes());
    write("deep.jsonl", ["{\"a\":".repeat(500_000), "}".repeat(500_000)].concat().as_bytes());
    for name in ["large.yaml", "large.jsonl", "large.json"] {
        fs::File::create(folder.join(name)).unwrap().set_len(1 << 30).unwrap();
    }
    let layers = "0,".repeat(3_000_000);
    let specs =
        "{\"kind\":\"full\",\"block_size\":16,\"num_kv_heads\":1,\"head_size\":8,\"dtype\":\"bfloat16\"}";
    write("many.jsonl", format!("{{\"id\":\"a\",\"specs\":[{specs}],\"layers\":[{layers}0]}}").as_bytes());
    for name in [
        "laughs.yaml",
        "deep-flow.yaml",
        "deep-block.yaml",
        "long-list.yaml",
        "long-key.yaml",
        "long-value.yaml",
        "deep.json",
        "deep.jsonl",
        "large.yaml",
        "large.jsonl",
        "large.json",
        "many.jsonl",
    ] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 200000; exec \"$0\" plan \"$1\"", env!("CARGO_BIN_EXE_k3plan"), name])
            .current_dir(folder)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.len() < 1500, "{name}: {stderr}");
    }
}

fn layers(args: &[&str]) -> (Vec<String>, Vec<u64>) {
    let report = json(&[&["zoo", "--json"], args].concat());
    let scenario = &report["scenarios"][0];
    let names = scenario["spec_names"].as_array().unwrap();
    let names = names.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let layers = scenario["layers"].as_array().unwrap();
    (names, layers.iter().map(|layer| layer.as_u64().unwrap()).collect())
}

/// One model, written in each way that the format has.
#[test]
fn ways_to_write_the_same_layers() {
    let own = Folder::new("ways");
    let folder = own.path();
    let specs = "specs:\n  a: {kind: full, block_size: 16, num_kv_heads: 1, head_size: 8, dtype: bfloat16}\n  \
                 b: {kind: full, block_size: 16, num_kv_heads: 1, head_size: 16, dtype: bfloat16}\n";
    let expected = [0, 0, 0, 1, 0, 0, 0, 1, 0, 1];
    for (i, model) in [
        "{layers: 10, pattern: [3 a, 1 b], last: b}",
        "{layers: 10, pattern: [3 a, b], at: {9: b}}",
        "[3 a, b, 3 a, b, a, b]",
        "{layers: [a, a, a, b, a, a, a, b, a, b]}",
        "{layers: 10, spec: a, at: {3: b, 7: b, 9: b}}",
        "{layers: 10, pattern: [b, 3 a], first: [3 a, b, 3 a, b, a, b]}",
        "{letters: aaabaaabab, letter-specs: {a: a, b: b}}",
        "[{spec: a, count: 3}, b, 3 a, b, a, {spec: a, set: {head_size: 16}}]",
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.join(format!("{i}.yaml"));
        fs::write(&file, format!("{specs}model: {model}\n")).unwrap();
        let (_, layers) = layers(&[file.to_str().unwrap()]);
        assert_eq!(layers, expected, "{model}");
    }
}

#[test]
fn layers_without_a_cache_keep_their_numbers() {
    let own = Folder::new("no-cache");
    let folder = own.path();
    let file = folder.join("gaps.yaml");
    fs::write(&file, RIGHT.replace("{layers: 4, spec: full}", "[full, none, full, 2 none, full]")).unwrap();
    let plan = json(&["plan", "--json", file.to_str().unwrap()]);
    let names = &plan["plans"][0]["groups"][0]["layer_names"];
    let expected = ["model.layers.0.attn", "model.layers.2.attn", "model.layers.5.attn"];
    assert_eq!(names.as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect::<Vec<_>>(), expected);
}

#[test]
fn sizes_can_be_written_with_units() {
    for (text, bytes) in [
        ("80 GiB", 80_u64 << 30),
        ("80GiB", 80 << 30),
        ("1.5 MiB", 3 << 19),
        ("6.5e9", 6_500_000_000),
        ("6_500_000_000", 6_500_000_000),
        ("2 GB", 2_000_000_000),
        ("[2 GB]", 2_000_000_000),
    ] {
        let report = json(&["zoo", "--json", "qwen3-32b", "--set", &format!("kv-cache-memory={text}")]);
        let memory = &report["scenarios"][0]["engine"]["available_memory_per_worker"];
        assert_eq!(memory, &serde_json::json!([bytes]), "{text}");
    }
}

#[test]
fn overrides_change_the_file_as_a_person_would() {
    // The regressed arm becomes the fixed one.
    let plan = |args: &[&str]| json(&[&["plan", "--json"], args].concat())["plans"][0].clone();
    let regressed = "kimi-k3-dspark-rocm-regressed";
    assert_eq!(plan(&[regressed])["groups"].as_array().unwrap().len(), 20);
    for set in ["draft.max_tp_shards=1", "layers[93..98].max_tp_shards=1", "specs.mla.max_tp_shards=null"] {
        let fixed = plan(&[regressed, "--set", set]);
        assert_eq!(fixed["groups"].as_array().unwrap().len(), 4, "{set}");
    }
    let alone = plan(&[regressed, "--set", "draft=null"]);
    assert_eq!(alone["group_size"], 24);
    let wide = plan(&[regressed, "--grouping", "36143=29"]);
    // Buckets of 69, 24 and 5 layers: three groups of 23, and one each.
    assert_eq!(wide["groups"].as_array().unwrap().len(), 5);
    assert_eq!(wide["group_size"], 24);
    let old = plan(&[regressed, "--engine", "0.27"]);
    assert_eq!(old["groups"].as_array().unwrap().len(), 4);
}

#[test]
fn recorded_cases_are_scenarios() {
    let own = Folder::new("recorded");
    let folder = own.path();
    let case = |id: &str| {
        format!(
            "{{\"id\":\"{id}\",\"engine\":{{\"tp\":2,\"available_memory\":1073741824}},\"specs\":[{{\"kind\":\"full\",\
             \"block_size\":16,\"num_kv_heads\":1,\"head_size\":64,\"dtype\":\"bfloat16\"}}],\"layers\":[0,0],\
             \"draft_from\":1,\"expect\":{{}}}}"
        )
    };
    let lines = format!("{}\n{}\n", case("one"), case("two"));
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::write(path("cases.jsonl"), &lines).unwrap();
    fs::write(path("cases.json"), &lines).unwrap();
    fs::write(path("list.json"), format!("[{},\n{}]", case("one"), case("two"))).unwrap();
    for file in ["cases.jsonl", "cases.json", "list.json"] {
        let all = json(&["plan", "--json", &path(file)]);
        assert_eq!(all["plans"].as_array().unwrap().len(), 2, "{file}");
        let two = json(&["plan", "--json", &format!("{}#two", path(file))]);
        assert_eq!(two["plans"].as_array().unwrap().len(), 1, "{file}");
        assert_eq!(two["plans"][0]["scenario"], "two");
    }
    let split =
        json(&["plan", "--json", &path("cases.jsonl"), "--set", "draft.max_tp_shards=1", "--set", "tp=4"]);
    assert_eq!(split["plans"][0]["groups"][0]["specs"].as_array().unwrap().len(), 2);
    let alone = json(&["plan", "--json", &path("cases.jsonl"), "--set", "draft=null"]);
    assert_eq!(alone["plans"][0]["groups"][0]["layers"].as_array().unwrap().len(), 1);
    assert_eq!(k3plan(&["plan", &format!("{}#three", path("cases.jsonl"))]).code, Some(2));
}

/// The example of the format's description is a scenario: the regressed case.
#[test]
fn the_documented_example_is_right() {
    let own = Folder::new("documented");
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/scenario-format.md")).unwrap();
    let example = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    own.write("documented.yaml", example);
    let file = own.path().join("documented.yaml");
    let plan = json(&["plan", "--json", file.to_str().unwrap()]);
    assert_eq!(plan["plans"][0]["groups"].as_array().unwrap().len(), 20);
}
