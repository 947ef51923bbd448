//! A model's own config.json as a scenario.

use std::path::PathBuf;
use std::rc::Rc;

use planner::{EngineVersion, RawSpec};

use super::Scenario;
use super::args::Changes;
use super::overrides::Override;
use super::spec::WrittenSpec;
use super::tree::{Place, Source};
use super::written::Written;
use crate::failure::Failure;
use crate::model_file::{EngineFlags, ModelFile};

/// A config, and the engine that it is imported for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ModelArgs {
    /// Plan a model from its config.json, or from the folder that holds it.
    #[arg(long, value_name = "CONFIG")]
    pub(crate) model: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: EngineFlags,
}

impl ModelArgs {
    /// The scenario of the config, changed; `kv_cache_memory` is of each worker, such as `40GiB`.
    ///
    /// # Errors
    /// If the config cannot be imported, or a change does not fit it.
    pub(crate) fn load(
        &self,
        changes: &Changes,
        kv_cache_memory: Option<&str>,
    ) -> Result<Option<Scenario>, Failure> {
        let version = match &changes.engine {
            Some(text) => Some(text.parse().map_err(|error: planner::engine::UnknownVersion| {
                Failure::new("failed to read `--engine`").caused_by(error)
            })?),
            None => None,
        };
        self.load_for(version, changes, kv_cache_memory)
    }

    /// The same, for an engine that is known otherwise.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn load_for(
        &self,
        version: Option<EngineVersion>,
        changes: &Changes,
        kv_cache_memory: Option<&str>,
    ) -> Result<Option<Scenario>, Failure> {
        let Some(path) = &self.model else { return Ok(None) };
        let file = self.flags.read(path, version)?;
        let mut overrides = changes.overrides()?;
        if let Some(memory) = kv_cache_memory {
            overrides.push(Override::engine("--kv-cache-memory", "kv-cache-memory", memory));
        }
        let mut written = written(&path.display().to_string(), file);
        for over in &overrides {
            over.onto_written(&mut written, true)?;
        }
        Ok(Some(written.resolve()?))
    }
}

/// The layers as if a person had written them.
fn written(path: &str, file: ModelFile) -> Written {
    let ModelFile { name, imported, settings } = file;
    let source = Rc::new(Source { name: path.to_owned(), text: String::new() });
    let specs = imported
        .model
        .specs
        .iter()
        .enumerate()
        .map(|(i, spec)| {
            let raw = RawSpec::from(spec);
            WrittenSpec {
                name: format!("{}{i}", raw.kind.name()),
                raw,
                place: Place { source: Rc::clone(&source), line: 0, column: 0 },
                field_places: Vec::new(),
            }
        })
        .collect();
    let mut written = Written {
        title: format!("{name} ({})", imported.architecture),
        name,
        source: Some(format!("{path}, imported for vLLM {}", settings.version)),
        assumed: imported.notes,
        logged: imported.alignment,
        specs,
        layers: imported.model.layers.iter().map(|id| id.0).collect(),
        names: imported.model.names,
        draft_from: imported.model.draft_from,
        ..Written::default()
    };
    written.engine.version = Some(settings.version);
    written.engine.settings.tensor_parallel_size = settings.tensor_parallel_size;
    written.engine.settings.max_model_len = settings.max_model_len;
    if let Some(layout) = imported.layout {
        written.engine.settings.kv_cache_layout = layout;
    }
    written.engine.settings.mamba_cache_mode = settings.mamba_cache_mode;
    written.engine.num_speculative_tokens = settings.speculative.map(|s| s.num_speculative_tokens);
    written
}
