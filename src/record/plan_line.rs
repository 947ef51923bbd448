//! A planning case: distinct specs, a spec a layer, settings, and vLLM's answers by version.

use std::collections::BTreeMap;

use planner::{EngineVersion, KvCacheSpec, Model, RawSpec, SpecId};
use serde::{Deserialize, Serialize};

use super::engine::RecordedEngine;
use super::expect::Expect;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanLine {
    /// The case's name.
    pub(crate) id: String,
    /// The engine settings.
    #[serde(default)]
    pub(crate) engine: RecordedEngine,
    /// Distinct specs.
    pub(crate) specs: Vec<RawSpec>,
    /// A spec a layer.
    pub(crate) layers: Vec<u32>,
    /// A name a layer, where they are not the usual ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) names: Vec<String>,
    /// The first layer of the draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) draft_from: Option<usize>,
    /// The answers.
    #[serde(default)]
    pub(crate) expect: BTreeMap<String, Expect>,
}

impl PlanLine {
    /// The layers.
    ///
    /// # Errors
    /// If a spec is not valid, or a layer has none.
    pub(crate) fn model(&self) -> Result<Model, String> {
        let mut specs = Vec::with_capacity(self.specs.len());
        for (i, raw) in self.specs.iter().enumerate() {
            specs.push(KvCacheSpec::try_from(raw.clone()).map_err(|error| format!("spec {i}: {error}"))?);
        }
        if let Some(bad) = self.layers.iter().find(|id| **id as usize >= specs.len()) {
            return Err(format!("a layer has spec {bad}, and there are {}", specs.len()));
        }
        if !self.names.is_empty() && self.names.len() != self.layers.len() {
            return Err(format!("there are {} names for {} layers", self.names.len(), self.layers.len()));
        }
        Ok(Model {
            specs,
            layers: self.layers.iter().map(|id| SpecId(*id)).collect(),
            names: self.names.clone(),
            draft_from: self.draft_from,
        })
    }

    /// The declared fields that `version` does not have, sorted by name; `None` if it has them all.
    pub(crate) fn dropped(&self, version: EngineVersion) -> Option<Vec<String>> {
        dropped(self.specs.iter(), version)
    }
}

/// The declared fields that `version` does not have.
pub(crate) fn dropped<'a>(
    specs: impl Iterator<Item = &'a RawSpec>,
    version: EngineVersion,
) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for raw in specs {
        let known = planner::spec::known_fields(raw.kind, version);
        for field in planner::Field::ALL {
            if raw.get(*field).is_some() && !known.contains(*field) {
                let name = field.name().to_owned();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    names.sort();
    (!names.is_empty()).then_some(names)
}
