//! What each engine version makes of one model, and where that changed.

use super::{Edit, Numbers, apply};
use crate::engine::{CHANGES, Change, EngineVersion, Rules};
use crate::error::GroupingError;
use crate::model::Model;
use crate::plan::{Plan, plan};
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

/// What a version brought without which its plan would be another one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Responsible {
    /// Fields that it is the first to know.
    pub fields: Vec<Field>,
    /// Rules that it introduced or dropped.
    pub rules: Vec<&'static Change>,
}

/// Takes back, one by one, what the version of `step` brought, and gives what makes a difference: `differs` is asked
/// of each plan without one. Nothing, if no single field or rule does.
pub fn responsible(
    model: &Model,
    settings: &EngineSettings,
    step: &Step,
    differs: impl Fn(Result<&Plan, &GroupingError>) -> bool,
) -> Responsible {
    let rules = step.version.rules();
    let fields = step.new_fields.iter().copied().filter(|field| {
        let edits: Vec<Edit> = (0..)
            .zip(&model.layers)
            .filter_map(|(layer, id)| {
                let from = crate::spec::RawSpec::from(model.specs.get(id.index())?).get(*field)?;
                Some(Edit {
                    layers: vec![layer],
                    field: *field,
                    from: Some(from),
                    to: None,
                    like: Vec::new(),
                })
            })
            .collect();
        apply(model, &merged(edits)).is_some_and(|changed| differs(plan(&changed, settings, &rules).as_ref()))
    });
    Responsible {
        fields: fields.collect(),
        rules: step
            .rule_changes()
            .filter(|change| {
                let rules = Rules::but(step.version, change.rule);
                differs(plan(model, settings, &rules).as_ref())
            })
            .collect(),
    }
}

/// One edit for all layers of one value.
fn merged(edits: Vec<Edit>) -> Vec<Edit> {
    let mut all: Vec<Edit> = Vec::new();
    for edit in edits {
        match all.iter_mut().find(|known| known.from == edit.from) {
            Some(known) => known.layers.extend(edit.layers),
            None => all.push(edit),
        }
    }
    all
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
