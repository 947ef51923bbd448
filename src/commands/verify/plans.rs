//! Planning cases: the same layers and settings, planned for each recorded version.

use std::path::Path;

use planner::EngineVersion;

use super::Replayed;
use crate::failure::Failure;
use crate::record::expect::{Difference, Expect};
use crate::record::plan_line::PlanLine;
use crate::record::read;

/// Plans one line again.
pub(super) fn replay(file: &Path, number: usize, line: &str) -> Result<Replayed, Failure> {
    let case: PlanLine = read::parse(file, number, line)?;
    let wrong = |cause: String| {
        Failure::new(format!("failed to verify `{}`, line {number}, case `{}`", file.display(), case.id))
            .caused_by(cause)
    };
    let settings = case.engine.settings().map_err(wrong)?;
    if case.expect.is_empty() {
        return Err(wrong("it records no answer (`expect` is empty)".to_owned()));
    }
    let model = case.model();
    let mut differences = Vec::new();
    for (version, recorded) in &case.expect {
        let engine: EngineVersion =
            version.parse().map_err(|error: planner::engine::UnknownVersion| wrong(error.to_string()))?;
        let rules = engine.rules();
        let mut planned = match &model {
            Ok(model) => {
                let plan = planner::plan(model, &settings, &rules);
                Expect::of_plan(model, &settings, &rules, plan.as_ref())
            }
            Err(cause) if recorded.stage.as_deref() == Some("spec") => {
                // vLLM refuses such a spec too; its exception depends on which check it meets first.
                Expect {
                    error: recorded.error.clone(),
                    detail: Some(cause.clone()),
                    stage: Some("spec".to_owned()),
                    ..Expect::default()
                }
            }
            Err(cause) => return Err(wrong(cause.clone())),
        };
        planned.dropped = case.dropped(engine);
        let found: Vec<Difference> = recorded.differences(&planned);
        differences.extend(found.into_iter().map(|difference| (version.clone(), difference)));
    }
    Ok(Replayed { id: case.id, differences })
}
