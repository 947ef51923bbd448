//! What made a plan other than the lock's: what is declared otherwise, or else the field that stands out.

use planner::Rules;
use planner::explain::{Explanation, explain};
use schemars::JsonSchema;
use serde::Serialize;

use crate::lock::Entry;
use crate::lock::declared::{Difference, differences};
use crate::render::explain_text::cause_line;
use crate::render::words::{deed, value};
use crate::scenario::Scenario;

/// One cause.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Cause {
    /// The field of layers or the engine flag; `kind` or `layers` where the layers themselves are others.
    pub(super) what: String,
    /// The layers that it is about; empty for a setting.
    pub(super) layers: Vec<u32>,
    /// What the lock's plan declared, or what other layers of the kind declare.
    pub(super) locked: String,
    /// What is declared now.
    pub(super) now: String,
    /// The change to make.
    pub(super) fix: String,
    /// All of it in a sentence.
    pub(super) text: String,
}

/// What is declared otherwise than in the lock; nothing is wrong with it.
pub(super) fn declared_otherwise(scenario: &Scenario, locked: Option<&Entry>, rules: &Rules) -> Vec<Cause> {
    let Scenario { model, settings, .. } = scenario;
    let declared = locked.map(|locked| differences(locked, model, settings, rules)).unwrap_or_default();
    declared.into_iter().map(Cause::from).collect()
}

impl From<Difference> for Cause {
    fn from(difference: Difference) -> Self {
        let Difference { what, layers, locked, now, fix, text, field: _ } = difference;
        Self { what, layers, locked, now, fix, text }
    }
}

/// The causes, the likeliest first.
pub(super) fn of(scenario: &Scenario, locked: Option<&Entry>, rules: &Rules) -> Vec<Cause> {
    let Scenario { model, settings, .. } = scenario;
    let declared = locked.map(|locked| differences(locked, model, settings, rules)).unwrap_or_default();
    let explanation = explain(model, settings, rules);
    let edit = explanation.cause.as_ref();
    let mut causes = Vec::new();
    for difference in declared {
        // Where the model shows the slip by itself, the other side of it is worth naming.
        let slip = edit.is_some_and(|edit| {
            Some(edit.field) == difference.field
                && edit.layers == difference.layers
                && value(edit.to.as_ref()) == difference.locked
        });
        let mut cause = Cause::from(difference);
        if slip && let Some(text) = cause_line(model, &explanation) {
            cause.text = text;
        }
        if slip { causes.insert(0, cause) } else { causes.push(cause) }
    }
    if causes.is_empty() {
        causes.extend(standing_out(scenario, &explanation));
    }
    causes
}

/// What stands out in the model itself, where nothing is known to have changed.
fn standing_out(scenario: &Scenario, explanation: &Explanation) -> Option<Cause> {
    let edit = explanation.cause.as_ref()?;
    Some(Cause {
        what: edit.field.name().to_owned(),
        layers: edit.layers.clone(),
        locked: value(edit.to.as_ref()),
        now: value(edit.from.as_ref()),
        fix: deed(edit),
        text: cause_line(&scenario.model, explanation)?,
    })
}
