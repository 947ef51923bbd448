//! What is to be planned: a model's layers, the engine's settings, the hardware, from a file that a person
//! wrote, a shipped one, or a recorded answer of a real vLLM. `docs/scenario-format.md` describes the files.
//!
//! A file is read into a tree that knows its places ([`tree`]), arms and overrides are laid over it, and
//! only then does it become layers and settings ([`written`]). Nothing here plans.

mod args;
mod complaint;
mod engine;
mod fields;
#[cfg(test)]
mod fuzz;
pub(crate) mod grouping;
mod imported;
mod layers;
mod load;
mod overrides;
mod quantity;
mod recorded;
mod spec;
mod tree;
mod written;
pub(crate) mod zoo;

use std::path::PathBuf;

use planner::{EngineSettings, EngineVersion, Model};

pub(crate) use args::{Changes, NamedScenarios, ScenarioArgs, SettingFlags};
pub(crate) use imported::{Device, ModelArgs, batch_note};
pub(crate) use quantity::{parse_count, parse_memory};

/// A scenario as planning reads it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    /// The file's name without its ending, and the arm: `kimi-k3-dspark-rocm-fixed`; or the case's id.
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// Where the figures come from.
    pub(crate) source: Option<String>,
    /// What is assumed because no source says it.
    pub(crate) assumed: Vec<String>,
    /// What a person should know of how it was changed or completed.
    pub(crate) notes: Vec<String>,
    /// The config that it was imported from, by this run.
    pub(crate) imported: Option<ImportedFrom>,
    /// What it runs on.
    pub(crate) hardware: Option<Hardware>,
    /// Which engine decides; `None` is the newest that is known.
    pub(crate) version: Option<EngineVersion>,
    /// The layers.
    pub(crate) model: Model,
    /// What the file calls each spec of `model.specs`; a changed one keeps the name of its origin.
    pub(crate) spec_names: Vec<String>,
    /// What vLLM logs of this model before it plans.
    pub(crate) logged: Vec<String>,
    /// The engine's settings.
    pub(crate) settings: EngineSettings,
    /// Draft tokens a step.
    pub(crate) num_speculative_tokens: Option<u64>,
    /// Requests that run at once at most.
    pub(crate) max_num_seqs: Option<u64>,
}

/// A config that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportedFrom {
    /// The model's config.json, or its folder.
    pub(crate) config: PathBuf,
    /// The draft model's.
    pub(crate) draft: Option<PathBuf>,
    /// The speculative method.
    pub(crate) method: Option<String>,
    /// The importer's platform.
    pub(crate) platform: &'static str,
}

/// What a scenario runs on; planning does not read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hardware {
    /// The device, such as `AMD MI355X`.
    pub(crate) name: String,
    /// How many.
    pub(crate) devices: Option<u64>,
    /// Memory of each, bytes.
    pub(crate) memory_bytes: Option<u64>,
}

impl Scenario {
    /// Writes what a person should know of it, a line each.
    pub(crate) fn write_notes(&self, to: &mut dyn std::io::Write) -> std::io::Result<()> {
        self.notes.iter().try_for_each(|note| writeln!(to, "note: {}: {note}", self.name))
    }

    /// The engine version that decides.
    pub(crate) fn engine(&self) -> EngineVersion {
        self.version.unwrap_or_default()
    }
}
