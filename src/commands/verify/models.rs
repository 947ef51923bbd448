//! Models: the recorded layers, planned again.

use std::path::Path;

use planner::EngineVersion;

use super::Replayed;
use crate::failure::Failure;
use crate::record::expect::Expect;
use crate::record::model_line::ModelLine;
use crate::record::read;

/// Plans one line again.
pub(super) fn replay(file: &Path, number: usize, line: &str) -> Result<Replayed, Failure> {
    let case: ModelLine = read::parse(file, number, line)?;
    let wrong = |cause: String| {
        Failure::new(format!("failed to verify `{}`, line {number}, case `{}`", file.display(), case.id))
            .caused_by(cause)
    };
    let version: EngineVersion =
        case.oracle.parse().map_err(|error: planner::engine::UnknownVersion| wrong(error.to_string()))?;
    let mut differences = Vec::new();
    if let Some(recorded) = &case.expect.plan {
        let model = case.recorded_model().map_err(wrong)?;
        let settings = case.engine.settings().map_err(wrong)?;
        let rules = version.rules();
        let plan = planner::plan(&model, &settings, &rules);
        let planned = Expect::of_plan(&model, &settings, &rules, plan.as_ref());
        let recorded = recorded.by_index(&model).map_err(wrong)?;
        differences.extend(recorded.differences(&planned).into_iter().map(|d| (version.to_string(), d)));
    }
    Ok(Replayed { id: case.id, differences })
}
