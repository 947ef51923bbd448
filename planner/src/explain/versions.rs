//! What each engine version makes of one model, and where that changed.

use super::Numbers;
use crate::engine::{CHANGES, Change, EngineVersion};
use crate::model::Model;
use crate::plan::plan;
use crate::settings::EngineSettings;
use crate::spec::{Field, field_span};

/// One version's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The version.
    pub version: EngineVersion,
    /// Its numbers; `None` where it refuses the model.
    pub numbers: Option<Numbers>,
    /// Layers of each group, in order.
    pub groups: Vec<Vec<u32>>,
    /// Whether groups or numbers differ from the version before.
    pub changed: bool,
    /// Fields that the model declares and that this version is the first to know.
    pub new_fields: Vec<Field>,
}

impl Step {
    /// The rules that this version introduced or dropped.
    pub fn rule_changes(&self) -> impl Iterator<Item = &'static Change> {
        let minor = self.version.minor();
        CHANGES.iter().filter(move |change| change.since == minor || change.until == minor.checked_sub(1))
    }
}

/// The answers of `versions`, in that order.
pub fn steps(
    model: &Model,
    settings: &EngineSettings,
    versions: impl Iterator<Item = EngineVersion>,
) -> Vec<Step> {
    let declared = declared_since(model);
    let mut steps: Vec<Step> = Vec::new();
    for version in versions {
        let planned = plan(model, settings, &version.rules()).ok();
        let numbers = planned.as_ref().map(Numbers::of);
        let groups: Vec<Vec<u32>> = planned
            .as_ref()
            .map(|plan| plan.grouping.groups.iter().map(|group| group.layers.clone()).collect())
            .unwrap_or_default();
        let changed = steps.last().is_some_and(|last| last.groups != groups);
        let new_fields =
            declared.iter().filter(|(_, since)| *since == version.minor()).map(|(field, _)| *field).collect();
        steps.push(Step { version, numbers, groups, changed, new_fields });
    }
    steps
}

/// The fields that the model declares, with the first version that knows each.
fn declared_since(model: &Model) -> Vec<(Field, u16)> {
    let mut found: Vec<(Field, u16)> = Vec::new();
    for spec in &model.specs {
        let raw = crate::spec::RawSpec::from(spec);
        for field in Field::ALL {
            if raw.get(*field).is_some()
                && let Some((since, _)) = field_span(spec.kind(), *field)
                && !found.iter().any(|(known, _)| known == field)
            {
                found.push((*field, since));
            }
        }
    }
    found
}
