//! Recorded answers of a real vLLM as scenarios: the same lines that `k3plan verify` replays.

use std::path::Path;
use std::rc::Rc;

use planner::{EngineVersion, RawSpec};

use super::engine::Engine;
use super::layers::LIMIT;
use super::spec::WrittenSpec;
use super::tree::{Place, Source};
use super::written::Written;
use crate::failure::Failure;
use crate::record::model_line::ModelLine;
use crate::record::plan_line::PlanLine;
use crate::record::{LineKind, engine::RecordedEngine, read};

/// Reads one line.
///
/// # Errors
/// If the line is of another form, records no layers, or a schedule.
pub(super) fn line(file: &Path, number: usize, line: &str) -> Result<Written, Failure> {
    let failed = |cause: String| {
        Failure::new(format!("failed to read `{}`, line {number}", file.display())).caused_by(cause)
    };
    let kind = LineKind::of(line).map_err(|error| read::json_failure(file, number, line, &error))?;
    match kind {
        Some(LineKind::Plan) => {
            let case: PlanLine = read::parse(file, number, line)?;
            plan_line(file, case).map_err(failed)
        }
        Some(LineKind::Model) => {
            let case: ModelLine = read::parse(file, number, line)?;
            model_line(file, &case).map_err(failed)
        }
        Some(LineKind::Schedule) => Err(failed("the line records a schedule, and no layers".to_owned())),
        None => Err(failed("the line has neither `specs` and `layers` nor `config`".to_owned())
            .hint("a recorded case is one JSON object a line; a scenario by hand is a `.yaml` file")),
    }
}

/// The name of the case at `line`, if it has one.
pub(super) fn id(line: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Id {
        id: String,
    }
    serde_json::from_str::<Id>(&read::python_json(line)).ok().map(|case| case.id)
}

fn written_specs(file: &Path, raws: impl IntoIterator<Item = (String, RawSpec)>) -> Vec<WrittenSpec> {
    let source = Rc::new(Source { name: file.display().to_string(), text: String::new() });
    raws.into_iter()
        .map(|(name, raw)| WrittenSpec {
            name,
            raw,
            place: Place { source: Rc::clone(&source), line: 0, column: 0 },
            field_places: Vec::new(),
        })
        .collect()
}

fn engine(recorded: &RecordedEngine, version: Option<EngineVersion>) -> Result<Engine, String> {
    let tokens = recorded
        .speculative
        .as_ref()
        .and_then(|speculative| speculative.get("num_speculative_tokens"))
        .and_then(serde_json::Value::as_u64);
    Ok(Engine {
        version,
        settings: recorded.settings()?,
        max_num_seqs: recorded.max_num_seqs,
        num_speculative_tokens: tokens,
    })
}

fn not_too_many(layers: usize) -> Result<(), String> {
    match layers {
        0 => Err("the case has no layers".to_owned()),
        n if n as u64 > LIMIT => Err(format!("there are {n} layers, and can be at most {LIMIT}")),
        _ => Ok(()),
    }
}

fn plan_line(file: &Path, case: PlanLine) -> Result<Written, String> {
    not_too_many(case.layers.len())?;
    // Checks what the line says of its own layers; the model is made again after overrides.
    case.model()?;
    if case.draft_from.is_some_and(|from| from > case.layers.len()) {
        return Err("`draft_from` lies past the last layer".to_owned());
    }
    // A line with the answer of one version is that server's own: it is planned by that version's rules.
    let mut versions = case.expect.keys();
    let version = match (versions.next(), versions.next()) {
        (Some(only), None) => only.parse().ok(),
        _ => None,
    };
    let specs = written_specs(file, case.specs.into_iter().enumerate().map(|(i, raw)| (i.to_string(), raw)));
    Ok(Written {
        title: case.id.clone(),
        name: case.id,
        source: Some(format!("recorded, {}", file.display())),
        engine: engine(&case.engine, version)?,
        specs,
        layers: case.layers,
        names: case.names,
        draft_from: case.draft_from,
        ..Written::default()
    })
}

fn model_line(file: &Path, case: &ModelLine) -> Result<Written, String> {
    let id = &case.id;
    let model = case.recorded_model().map_err(|cause| match &case.expect.error {
        Some(error) => format!("case `{id}`: vLLM could not build the model ({error}), so {cause}"),
        None => format!("case `{id}`: {cause}"),
    })?;
    not_too_many(model.layers.len())?;
    let raws = model.specs.iter().enumerate().map(|(i, spec)| (i.to_string(), RawSpec::from(spec)));
    Ok(Written {
        title: case.id.clone(),
        name: case.id.clone(),
        source: Some(format!("recorded with {}, {}", case.oracle, file.display())),
        engine: engine(&case.engine, case.oracle.parse().ok())?,
        specs: written_specs(file, raws),
        layers: model.layers.iter().map(|layer| layer.0).collect(),
        names: model.names,
        draft_from: model.draft_from,
        ..Written::default()
    })
}
