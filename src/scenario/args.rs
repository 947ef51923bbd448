//! The arguments of every subcommand that reads scenarios.

use super::imported::ModelArgs;
use super::overrides::Override;
use super::{Scenario, load};
use crate::failure::Failure;

/// Scenarios, and what to change in them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ScenarioArgs {
    /// Scenario files (YAML), recorded cases (JSONL) or shipped names; `FILE#NAME` takes one arm or case.
    #[arg(required_unless_present = "model", value_name = "FILE")]
    pub(crate) files: Vec<String>,

    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Memory for the KV cache of each worker of `--model`, such as 40GiB.
    #[arg(long, value_name = "SIZE", requires = "model")]
    pub(crate) kv_cache_memory: Option<String>,

    #[command(flatten)]
    pub(crate) changes: Changes,
}

/// What to change in scenarios.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Changes {
    /// Change a setting: an engine flag by its name, `specs.NAME.FIELD`, `draft.FIELD`,
    /// `layers[90..93].FIELD`.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Plan as this version of vLLM does, such as 0.31.
    #[arg(long, value_name = "VERSION")]
    pub(crate) engine: Option<String>,

    /// Choose the group size by another rule: default, 49472 or padding-plus-groups[=X], 51742, 36143=N,
    /// 31275, 58175, old-1.25.
    #[arg(long, value_name = "RULE")]
    pub(crate) grouping: Option<String>,
}

impl ScenarioArgs {
    /// The scenarios, in the order of the arguments.
    ///
    /// # Errors
    /// If one of them cannot be read, or an override does not fit it.
    pub(crate) fn load(&self) -> Result<Vec<Scenario>, Failure> {
        let mut all = Vec::new();
        for file in &self.files {
            all.extend(self.changes.load(file)?);
        }
        all.extend(self.model.load(&self.changes, self.kv_cache_memory.as_deref())?);
        Ok(all)
    }
}

impl Changes {
    /// The scenarios that one name stands for, changed.
    ///
    /// # Errors
    /// As [`ScenarioArgs::load`].
    pub(crate) fn load(&self, file: &str) -> Result<Vec<Scenario>, Failure> {
        load::load(file, &self.overrides()?)
    }

    /// What `--set`, `--engine` and `--grouping` change.
    ///
    /// # Errors
    /// If one of them is no change.
    pub(super) fn overrides(&self) -> Result<Vec<Override>, Failure> {
        let mut overrides =
            self.set.iter().map(|text| Override::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(engine) = &self.engine {
            overrides.push(Override::engine("--engine", "version", engine));
        }
        if let Some(grouping) = &self.grouping {
            overrides.push(Override::engine("--grouping", "grouping", grouping));
        }
        Ok(overrides)
    }
}
