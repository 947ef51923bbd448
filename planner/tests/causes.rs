//! The true cause of a split is named: real models with one field changed in some layers.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::io::Read;

use planner::engine::EngineVersion;
use planner::explain::{Numbers, apply, explain};
use planner::{EngineSettings, Field, KvCacheSpec, Model, RawSpec, SpecId};
use serde_json::Value;

fn golden(name: &str) -> Vec<Value> {
    let path = format!("{}/../tests/golden/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(&line.replace("Infinity", "null")).unwrap()).collect()
}

fn spec(value: &Value) -> KvCacheSpec {
    let mut raw: RawSpec = serde_json::from_value(value.clone()).unwrap();
    raw.name = None;
    raw.page_size_bytes = None;
    raw.mamba_type = None;
    KvCacheSpec::try_from(raw).unwrap()
}

/// The recorded layers of each model, by the name that the cases use.
fn models() -> BTreeMap<String, Vec<KvCacheSpec>> {
    golden("models")
        .iter()
        .filter_map(|model| {
            let layers = model["expect"]["layers"].as_array()?;
            let id = model["id"].as_str()?;
            let name = id.rsplit("--").next()?.to_owned();
            Some((name, layers.iter().map(spec).collect()))
        })
        .collect()
}

fn model_of(specs: &[KvCacheSpec]) -> Model {
    let mut model = Model::default();
    for spec in specs {
        model.push(spec.clone());
    }
    model
}

fn settings(engine: &Value) -> EngineSettings {
    EngineSettings {
        tensor_parallel_size: engine["tp"].as_u64().unwrap(),
        max_model_len: engine["max_model_len"].as_u64().unwrap(),
        max_num_batched_tokens: engine["max_num_batched_tokens"].as_u64().unwrap(),
        available_memory_bytes: vec![engine["available_memory"].as_u64().unwrap()],
        ..EngineSettings::default()
    }
}

struct Case {
    id: String,
    field: Field,
    model: Model,
    settings: EngineSettings,
    /// The layers whose field was changed.
    changed: Vec<u32>,
    own: Vec<KvCacheSpec>,
}

fn cases(file: &str) -> Vec<Case> {
    let models = models();
    golden(file)
        .iter()
        .map(|case| {
            let id = case["id"].as_str().unwrap().to_owned();
            let (name, change) = id.rsplit_once('+').unwrap();
            let field = change.split('-').nth(1).unwrap();
            let specs: Vec<KvCacheSpec> = case["specs"].as_array().unwrap().iter().map(spec).collect();
            let layers: Vec<SpecId> = case["layers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| SpecId(u32::try_from(id.as_u64().unwrap()).unwrap()))
                .collect();
            let own = models[name].clone();
            let changed: Vec<u32> = (0_u32..)
                .zip(&layers)
                .filter(|(i, id)| own.get(*i as usize) != Some(&specs[id.index()]))
                .map(|(i, _)| i)
                .collect();
            Case {
                field: Field::from_name(field).unwrap(),
                settings: settings(&case["engine"]),
                model: Model { specs, layers, ..Model::default() },
                changed,
                own,
                id,
            }
        })
        .collect()
}

/// The case with the change taken back: extra layers stay, with the field as the model's last layer has it.
fn groups_without_the_change(case: &Case, version: EngineVersion) -> Option<u64> {
    let plan = planner::plan(&model_of(&case.own), &case.settings, &version.rules()).ok()?;
    Some(plan.grouping.groups.len() as u64)
}

fn misses(file: &str, version: EngineVersion) -> (usize, Vec<String>) {
    let mut asked = 0;
    let mut missed = Vec::new();
    for case in cases(file) {
        let rules = version.rules();
        let explanation = explain(&case.model, &case.settings, &rules);
        let (Some(numbers), Some(own)) =
            (explanation.outcome.numbers(), groups_without_the_change(&case, version))
        else {
            continue;
        };
        // More layers with specs that the model has anyway are no changed field.
        let changes_a_field = case
            .changed
            .iter()
            .any(|layer| !case.own.contains(&case.model.specs[case.model.layers[*layer as usize].index()]));
        if numbers.groups <= own || !changes_a_field {
            continue;
        }
        asked += 1;
        let named = explanation.cause.as_ref();
        let right = named.is_some_and(|edit| {
            edit.field == case.field && (edit.layers == case.changed || edit.like == case.changed)
        });
        if !right {
            missed.push(format!(
                "{}: {} groups, {own} without; changed {:?}; named {:?}",
                case.id,
                numbers.groups,
                case.changed,
                named.map(|edit| (edit.field, &edit.layers, &edit.from, &edit.to))
            ));
        }
    }
    (asked, missed)
}

#[test]
fn the_changed_field_and_layers_come_first() {
    for file in ["mutations", "mutations-all-versions"] {
        for version in [EngineVersion::LATEST, EngineVersion::from_minor(31).unwrap()] {
            let (asked, missed) = misses(file, version);
            assert!(asked > 40, "{file} {version}: only {asked} cases have more groups");
            assert!(
                missed.is_empty(),
                "{file} {version}: {} of {asked} missed:\n{}",
                missed.len(),
                missed.join("\n")
            );
        }
    }
}

/// Making the proposed change and planning again gives the promised numbers.
#[test]
fn proposed_changes_are_true() {
    for case in cases("mutations") {
        let rules = EngineVersion::LATEST.rules();
        for change in explain(&case.model, &case.settings, &rules).changes {
            let changed = apply(&case.model, &change.edits).unwrap();
            let plan = planner::plan(&changed, &case.settings, &rules).unwrap();
            assert_eq!(Numbers::of(&plan), change.after, "{}", case.id);
        }
    }
}
