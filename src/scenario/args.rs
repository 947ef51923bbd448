//! The arguments of every subcommand that reads scenarios.

use super::imported::{Device, ModelArgs};
use super::overrides::Override;
use super::quantity::parse_count;
use super::{Scenario, load};
use crate::failure::Failure;

/// Scenarios, what to change in them, and vLLM's own flags that do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ScenarioArgs {
    #[command(flatten)]
    named: NamedScenarios,

    /// As `--set max-num-seqs=N`.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    max_num_seqs: Option<u64>,
}

impl ScenarioArgs {
    /// The scenarios, in the order of the arguments.
    ///
    /// # Errors
    /// If one of them cannot be read, or an override does not fit it.
    pub(crate) fn load(&self) -> Result<Vec<Scenario>, Failure> {
        let mut overrides = self.named.overrides()?;
        if let Some(seqs) = self.max_num_seqs {
            overrides.push(Override::flag("--max-num-seqs", "max-num-seqs", &seqs.to_string())?);
        }
        self.named.load_changed(&overrides, &Device::default())
    }
}

/// Scenarios, and what to change in them, for a subcommand that has a `--max-num-seqs` of its own.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NamedScenarios {
    /// Scenario files (YAML), recorded cases (JSONL) or shipped names; `FILE#NAME` takes one arm or case.
    #[arg(required_unless_present = "model", value_name = "FILE")]
    files: Vec<String>,

    #[command(flatten)]
    model: ModelArgs,

    /// Memory for the KV cache of each worker, such as 40GiB: as `--set kv-cache-memory=SIZE`.
    #[arg(long, visible_alias = "kv-cache-memory-bytes", value_name = "SIZE")]
    kv_cache_memory: Option<String>,

    #[command(flatten)]
    settings: SettingFlags,

    #[command(flatten)]
    changes: Changes,
}

impl NamedScenarios {
    /// The scenarios, in the order of the arguments; what `device` decides of an imported model is taken from it.
    ///
    /// # Errors
    /// As [`ScenarioArgs::load`].
    pub(crate) fn load_on(&self, device: &Device<'_>) -> Result<Vec<Scenario>, Failure> {
        self.load_changed(&self.overrides()?, device)
    }

    fn overrides(&self) -> Result<Vec<Override>, Failure> {
        let mut overrides = self.changes.overrides()?;
        overrides.extend(self.settings.overrides()?);
        if let Some(memory) = &self.kv_cache_memory {
            overrides.push(Override::engine("--kv-cache-memory", "kv-cache-memory", memory));
        }
        Ok(overrides)
    }

    fn load_changed(&self, overrides: &[Override], device: &Device<'_>) -> Result<Vec<Scenario>, Failure> {
        self.model.refuse_alone(self.files.first().map(String::as_str))?;
        let mut all = Vec::new();
        for file in &self.files {
            all.extend(load::load(file, overrides)?);
        }
        all.extend(self.model.load_changed(self.changes.version()?, overrides, device)?);
        Ok(all)
    }
}

/// vLLM's flags that are settings of any scenario, in place of `--set`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SettingFlags {
    /// As `--set max-num-batched-tokens=TOKENS`.
    #[arg(long, value_name = "TOKENS", value_parser = parse_count)]
    max_num_batched_tokens: Option<u64>,

    /// As `--set pipeline-parallel-size=N`.
    #[arg(long, visible_alias = "pp", value_name = "N", value_parser = parse_count)]
    pipeline_parallel_size: Option<u64>,

    /// As `--set decode-context-parallel-size=N`.
    #[arg(long, visible_alias = "dcp", value_name = "N", value_parser = parse_count)]
    decode_context_parallel_size: Option<u64>,

    /// As `--set disable-hybrid-kv-cache-manager=true`.
    #[arg(long)]
    disable_hybrid_kv_cache_manager: bool,
}

impl SettingFlags {
    /// The settings that were given, by name, as a scenario holds them.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        let Self {
            max_num_batched_tokens,
            pipeline_parallel_size,
            decode_context_parallel_size,
            disable_hybrid_kv_cache_manager,
        } = self;
        let counts = [
            ("max-num-batched-tokens", max_num_batched_tokens),
            ("pipeline-parallel-size", pipeline_parallel_size),
            ("decode-context-parallel-size", decode_context_parallel_size),
        ];
        let mut given: Vec<_> = counts
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?.to_string())))
            .collect();
        if *disable_hybrid_kv_cache_manager {
            given.push(("disable-hybrid-kv-cache-manager", "true".to_owned()));
        }
        given
    }

    /// The same as changes.
    pub(super) fn overrides(&self) -> Result<Vec<Override>, Failure> {
        self.given().iter().map(|(name, value)| Override::flag(&format!("--{name}"), name, value)).collect()
    }
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

impl Changes {
    /// The scenarios that one name stands for, changed.
    ///
    /// # Errors
    /// As [`ScenarioArgs::load`].
    pub(crate) fn load(&self, file: &str) -> Result<Vec<Scenario>, Failure> {
        self.load_with(file, &SettingFlags::default())
    }

    /// The same, changed by vLLM's own flags too.
    ///
    /// # Errors
    /// As [`ScenarioArgs::load`].
    pub(crate) fn load_with(&self, file: &str, settings: &SettingFlags) -> Result<Vec<Scenario>, Failure> {
        let mut overrides = self.overrides()?;
        overrides.extend(settings.overrides()?);
        load::load(file, &overrides)
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

    /// The version of `--engine`.
    pub(super) fn version(&self) -> Result<Option<planner::EngineVersion>, Failure> {
        self.engine
            .as_ref()
            .map(|text| {
                text.parse().map_err(|error: planner::engine::UnknownVersion| {
                    Failure::new("failed to read `--engine`").caused_by(error)
                })
            })
            .transpose()
    }
}
