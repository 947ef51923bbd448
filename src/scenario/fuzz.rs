//! Do the readers of scenarios and of recorded lines stand whatever a file holds?
//!
//! A short run is part of the tests. `K3PLAN_FUZZ=3000000 cargo test --release --bin k3plan fuzz -- --nocapture` is a
//! longer one; `K3PLAN_FUZZ_SEED` starts it elsewhere. An input that panics is left in `fuzz-crash`.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::{Map, Value};

use super::{Scenario, load, recorded, zoo};
use crate::commands::verify;
use crate::record::LineKind;

#[path = "../../planner/fuzz/mutate.rs"]
mod mutate;

use mutate::{Random, mutate, peak_kib};

/// Models of more layers are read, and not planned.
const PLANNED: usize = 64;

/// Layers that a seed keeps at most: every one more is slow to read and says no more.
const LAYERS: usize = 8;

/// Entries that a list or a map of a seed's config keeps at most.
const ENTRIES: usize = 48;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Recorded lines, few layers each: one for every new set of fields of a spec, of a setting, of an answer.
fn recorded_seeds() -> Vec<Vec<u8>> {
    let (mut seeds, mut known) = (Vec::new(), BTreeSet::new());
    for name in ["live", "k3", "plans", "wide", "mutations", "models"] {
        let path = format!("{}/tests/golden/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        if let Ok(file) = std::fs::File::open(path) {
            let _ = flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text);
        }
        for line in text.lines() {
            let Ok(mut case) = serde_json::from_str::<Value>(line) else { continue };
            shrink(&mut case);
            let before = known.len();
            collect_shapes("", &case, &mut known);
            if known.len() > before {
                seeds.push(case.to_string().into_bytes());
            }
        }
    }
    seeds
}

/// Which keys a value holds where, and of which kind its specs are.
fn collect_shapes(path: &str, value: &Value, known: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
            for (key, value) in map {
                // A version is no shape.
                let key = if key.starts_with("0.") { "0." } else { key };
                let path = format!("{path}/{kind}.{key}");
                collect_shapes(&path, value, known);
                known.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_shapes(path, value, known)),
        _ => {}
    }
}

/// The case with few layers, and an answer about these alone.
fn shrink(case: &mut Value) {
    let Some(case) = case.as_object_mut() else { return };
    if case.contains_key("specs") {
        shrink_plan(case);
    } else if let Some(config) = case.get_mut("config") {
        shrink_config(config);
        if let Some(expect) = case.get_mut("expect").and_then(Value::as_object_mut) {
            let names = expect.get_mut("layers").and_then(Value::as_array_mut).map(|layers| {
                layers.truncate(LAYERS);
                layers.iter().filter_map(|layer| layer.get("name").cloned()).collect::<Vec<_>>()
            });
            let plan = expect.get_mut("plan").and_then(|plan| plan.get_mut("groups"));
            if let (Some(names), Some(groups)) = (names, plan.and_then(Value::as_array_mut)) {
                groups.truncate(1);
                if let Some(group) = groups.first_mut().and_then(Value::as_object_mut) {
                    group.insert("layers".to_owned(), Value::Array(names));
                }
            }
        }
    }
}

fn shrink_plan(case: &mut Map<String, Value>) {
    let layers: Vec<u64> = case
        .get("layers")
        .and_then(Value::as_array)
        .map(|layers| layers.iter().filter_map(Value::as_u64).collect())
        .unwrap_or_default();
    // The first layer of each spec, in the model's order.
    let mut kept: Vec<usize> = Vec::new();
    for (at, spec) in layers.iter().enumerate() {
        if kept.len() < LAYERS && kept.iter().all(|other| layers[*other] != *spec) {
            kept.push(at);
        }
    }
    let pick = |value: &Value| match value.as_array() {
        Some(list) if list.len() == layers.len() => {
            Value::Array(kept.iter().filter_map(|at| list.get(*at).cloned()).collect())
        }
        _ => value.clone(),
    };
    for key in ["layers", "names"] {
        if let Some(value) = case.get_mut(key) {
            *value = pick(value);
        }
    }
    if let Some(from) = case.get("draft_from").and_then(Value::as_u64) {
        let from = kept.iter().filter(|at| (**at as u64) < from).count();
        case.insert("draft_from".to_owned(), from.into());
    }
    if let Some(expect) = case.get_mut("expect").and_then(Value::as_object_mut) {
        let last = expect.keys().next_back().cloned();
        expect.retain(|version, _| Some(version) == last.as_ref());
        for answer in expect.values_mut().filter_map(Value::as_object_mut) {
            for list in answer.values_mut().filter_map(Value::as_array_mut) {
                list.truncate(1);
            }
            if answer.contains_key("groups") {
                let all = (0..kept.len()).map(Value::from).collect();
                answer.insert("groups".to_owned(), Value::Array(vec![Value::Array(all)]));
            }
        }
    }
}

/// A config of few layers, without what planning does not read.
fn shrink_config(config: &mut Value) {
    match config {
        Value::Object(map) => {
            for key in ["id2label", "label2id", "vision_config", "audio_config", "quantization_config"] {
                map.remove(key);
            }
            for key in ["num_hidden_layers", "n_layer", "num_layers"] {
                if let Some(value) = map.get_mut(key).filter(|value| value.is_u64()) {
                    *value = LAYERS.into();
                }
            }
            while map.len() > ENTRIES {
                let Some(last) = map.keys().next_back().cloned() else { break };
                map.remove(&last);
            }
            map.values_mut().for_each(shrink_config);
        }
        Value::Array(list) => {
            list.truncate(LAYERS);
            list.iter_mut().for_each(shrink_config);
        }
        _ => {}
    }
}

fn plan(scenario: &Scenario) {
    if scenario.model.layers.len() <= PLANNED {
        let _ = planner::plan(&scenario.model, &scenario.settings, &scenario.engine().rules());
    }
}

/// A file's text by each way that a file is read: a line of recorded cases, a case to verify, a scenario.
fn feed(text: &str) {
    let file = Path::new("fuzz.jsonl");
    if let Ok(written) = recorded::line(file, 1, text)
        && let Ok(scenario) = written.resolve()
    {
        plan(&scenario);
    }
    // A schedule takes as long as its requests say.
    if !matches!(LineKind::of(text), Ok(Some(LineKind::Schedule))) {
        let _ = verify::replay(file, 1, text);
    }
    // A scenario may extend another file, and standard input is one.
    if !text.contains("extends") {
        load::of_text("fuzz", text.to_owned()).unwrap_or_default().iter().for_each(plan);
    }
}

/// Found by fuzzing: as many stages as a number holds.
#[test]
fn more_stages_than_layers() {
    let seeds = recorded_seeds();
    let texts = seeds.iter().map(|seed| String::from_utf8_lossy(seed));
    let changed = texts.filter(|text| text.contains("\"pp\":1,"));
    let changed: Vec<_> =
        changed.map(|text| text.replace("\"pp\":1,", "\"pp\":18446744073709551615,")).collect();
    assert!(!changed.is_empty());
    for text in changed {
        feed(&text);
    }
}

/// What is changed is a case that the readers take: else the fuzzer would try their first check alone.
#[test]
fn seeds_are_cases_that_are_read() {
    let seeds = recorded_seeds();
    let read = seeds.iter().filter(|seed| {
        let text = String::from_utf8_lossy(seed);
        recorded::line(Path::new("fuzz.jsonl"), 1, &text).is_ok_and(|written| written.resolve().is_ok())
    });
    let read = read.count();
    assert!(read >= 30 && read * 10 >= seeds.len() * 9, "{read} of {} seeds are read", seeds.len());
}

#[test]
fn readers_stand_whatever_a_file_holds() {
    let count = number("K3PLAN_FUZZ", 300);
    let mut random = Random(number("K3PLAN_FUZZ_SEED", 1).max(1));
    let mut seeds = recorded_seeds();
    seeds.extend(zoo::names().filter_map(zoo::source).map(|source| source.text.as_bytes().to_vec()));
    assert!(seeds.len() > 20);
    for round in 0..count {
        let (seed, other) = (random.below(seeds.len()), random.below(seeds.len()));
        let bytes = mutate(&seeds[seed], &seeds[other], &mut random);
        let text = String::from_utf8_lossy(&bytes);
        if catch_unwind(AssertUnwindSafe(|| feed(&text))).is_err() {
            let _ = std::fs::write("fuzz-crash", text.as_bytes());
            panic!("input {round} panics; it is in fuzz-crash");
        }
    }
    let peak = peak_kib().unwrap_or(0);
    assert!(peak < 500 << 10, "{peak} KiB");
    println!("{count} inputs from {} seeds, no panic; at most {peak} KiB", seeds.len());
}
