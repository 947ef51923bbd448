//! A model's own config.json as a scenario.

use std::path::PathBuf;
use std::rc::Rc;

use planner::spec::AttentionKind;
use planner::{BatchDefaults, BatchDevice, EngineSettings, EngineVersion, KvCacheSpec, Model, RawSpec};

use super::args::{Changes, SettingFlags};
use super::overrides::{Override, Routed};
use super::spec::WrittenSpec;
use super::tree::{Place, Source};
use super::written::Written;
use super::{ImportedFrom, Scenario};
use crate::failure::Failure;
use crate::model_file::{EngineFlags, Given, ModelFile};

/// A config, and the engine that it is imported for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ModelArgs {
    /// Plan a model from its config.json, or from the folder that holds it.
    #[arg(long, value_name = "CONFIG")]
    pub(crate) model: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: EngineFlags,
}

/// The device that a model is imported for, where another flag than `--platform` says it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Device<'a> {
    /// The importer's platform, and the flag that says it, such as `--hardware h200`.
    pub(crate) platform: Option<(&'static str, &'a str)>,
    /// Memory of one device, bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// Its name, where it is known.
    pub(crate) name: &'a str,
}

impl ModelArgs {
    /// Flags of a config change nothing where there is none.
    ///
    /// # Errors
    /// If there are some; `scenario` is what is planned in the config's place.
    pub(crate) fn refuse_alone(&self, scenario: Option<&str>) -> Result<(), Failure> {
        let given = self.flags.given();
        if self.model.is_some() || given.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = given.iter().map(|given| format!("`{}`", given.flag)).collect();
        let describe = if given.len() == 1 { "describes" } else { "describe" };
        let mut failure =
            Failure::new(format!("{} {describe} a `--model`, and none is given", names.join(", ")));
        if let Some(scenario) = scenario {
            failure = failure.caused_by(format!(
                "`{scenario}` says what its layers are, and such a flag changes none of them"
            ));
        }
        for Given { setting, .. } in &given {
            if let Some(setting) = setting {
                failure = failure.hint(format!("a scenario's own is changed by `--set {setting}`"));
            }
        }
        let flags: Vec<String> = given.iter().map(Given::words).collect();
        let flags = flags.join(" ");
        Err(failure
            .hint(format!("import the model for it: `k3plan import hf CONFIG {flags} -o scenario.yaml`"))
            .hint(format!("or name its config in the scenario's place: `--model CONFIG {flags}`")))
    }

    /// The scenario of the config, changed; `kv_cache_memory` is of each worker, such as `40GiB`.
    ///
    /// # Errors
    /// If the config cannot be imported, or a change does not fit it.
    pub(crate) fn load(
        &self,
        changes: &Changes,
        settings: &SettingFlags,
        device: &Device<'_>,
    ) -> Result<Option<Scenario>, Failure> {
        let mut overrides = changes.overrides()?;
        overrides.extend(settings.overrides()?);
        self.load_changed(changes.version()?, &overrides, device)
    }

    /// The same, for an engine that is known otherwise.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn load_for(
        &self,
        version: Option<EngineVersion>,
        changes: &Changes,
    ) -> Result<Option<Scenario>, Failure> {
        self.load_changed(version, &changes.overrides()?, &Device::default())
    }

    /// The scenario of the config with overrides; what importing reads of them is imported for.
    pub(super) fn load_changed(
        &self,
        version: Option<EngineVersion>,
        overrides: &[Override],
        device: &Device<'_>,
    ) -> Result<Option<Scenario>, Failure> {
        let Some(path) = &self.model else { return Ok(None) };
        let mut flags = self.flags.clone();
        let mut version = version;
        let mut left = Vec::new();
        for over in overrides {
            match over.routed()? {
                Some(Routed::Version(named)) => version = Some(named),
                Some(Routed::TensorParallel(tp)) => {
                    agreed(&mut flags.tp, self.flags.tp, tp, "--tp", over)?;
                }
                Some(Routed::MaxModelLen(length)) => {
                    agreed(
                        &mut flags.max_model_len,
                        self.flags.max_model_len,
                        length,
                        "--max-model-len",
                        over,
                    )?;
                }
                Some(Routed::SpeculativeTokens(tokens)) => {
                    let given = self.flags.num_speculative_tokens;
                    agreed(
                        &mut flags.num_speculative_tokens,
                        given,
                        tokens,
                        "--num-speculative-tokens",
                        over,
                    )?;
                }
                Some(Routed::MambaCacheMode(mode)) => {
                    let given = self.flags.mamba_cache_mode.clone();
                    agreed(&mut flags.mamba_cache_mode, given, mode, "--mamba-cache-mode", over)?;
                }
                None => left.push(over),
            }
        }
        if let Some((platform, said)) = device.platform {
            match &flags.platform {
                Some(given) if given != platform => {
                    return Err(Failure::new(format!("`--platform {given}` contradicts `{said}`"))
                        .caused_by(format!("that device is of platform {platform}"))
                        .hint(format!("leave `--platform` away, or write `--platform {platform}`")));
                }
                _ => flags.platform = Some(platform.to_owned()),
            }
        }
        let file = flags.read(path, version)?;
        let from = ImportedFrom {
            config: path.clone(),
            draft: flags.draft.clone(),
            method: file.settings.speculative.as_ref().map(|speculative| speculative.method.clone()),
            platform: file.settings.platform.name(),
        };
        let mut written = written(&path.display().to_string(), file);
        let before = written.engine.settings.max_num_batched_tokens;
        // A length of zero stands for one that no override names.
        written.engine.settings.max_num_batched_tokens = 0;
        for over in left {
            over.onto_written(&mut written, true)?;
        }
        batch(&mut written, before, from.platform, device);
        let mut scenario = written.resolve()?;
        scenario.imported = Some(from);
        if let Some(note) = scenario.assumed.iter().find(|note| note.starts_with(BATCH)).cloned()
            && scenario.model.specs.iter().any(is_sized_by_the_batch)
        {
            scenario.notes.push(note);
        }
        Ok(Some(scenario))
    }
}

/// Takes a flag's value from an override, where the flag itself says nothing else.
fn agreed<T: PartialEq + std::fmt::Display>(
    flag: &mut Option<T>,
    given: Option<T>,
    value: T,
    name: &str,
    over: &Override,
) -> Result<(), Failure> {
    match given {
        Some(given) if given != value => {
            let own = over.words();
            Err(Failure::new(format!("`{name} {given}` and `{own}` contradict each other"))
                .hint("write one of them"))
        }
        _ => {
            *flag = Some(value);
            Ok(())
        }
    }
}

/// How the note of an assumed batch begins.
const BATCH: &str = "max-num-batched-tokens";

/// vLLM keeps as much of these as a step can add.
fn is_sized_by_the_batch(spec: &KvCacheSpec) -> bool {
    spec.attention().is_some_and(|attention| {
        matches!(
            attention.kind,
            AttentionKind::Sliding(_) | AttentionKind::SlidingMla(..) | AttentionKind::Chunked { .. }
        )
    })
}

/// What is assumed where neither a flag nor a device says how many tokens a step takes.
fn assumed_batch(tokens: u64, version: EngineVersion) -> String {
    let of = |gib: u64| {
        let device = BatchDevice::Gpu { memory_bytes: gib << 30, name: "" };
        BatchDefaults::of(version, device).max_num_batched_tokens
    };
    format!(
        "{BATCH} is taken as {tokens}: nothing names it, and vLLM {version}'s server chooses it by the device's memory, {} \
         on 24 GiB, {} on 80 GiB, {} on 180 GiB",
        of(24),
        of(80),
        of(180)
    )
}

/// The same for an imported model, where its layers' memory depends on it.
pub(crate) fn batch_note(model: &Model, version: EngineVersion) -> Option<String> {
    let tokens = EngineSettings::default().max_num_batched_tokens;
    model.specs.iter().any(is_sized_by_the_batch).then(|| assumed_batch(tokens, version))
}

/// The batch that vLLM's server takes by default, where no setting names it.
fn batch(written: &mut Written, usual: u64, platform: &str, device: &Device<'_>) {
    let version = written.engine.version.unwrap_or_default();
    let engine = &mut written.engine;
    let settings = &mut engine.settings;
    let world_size = settings.tensor_parallel_size.saturating_mul(settings.pipeline_parallel_size);
    let known = match (platform, device.memory_bytes) {
        ("cpu", _) => Some(BatchDevice::Cpu { world_size }),
        (_, Some(memory_bytes)) => Some(BatchDevice::Gpu { memory_bytes, name: device.name }),
        _ => None,
    };
    let named = settings.max_num_batched_tokens > 0;
    let Some(known) = known else {
        if !named {
            settings.max_num_batched_tokens = usual;
            written.assumed.push(assumed_batch(usual, version));
        }
        return;
    };
    let of = BatchDefaults::of(version, known).limited(engine.max_num_seqs, settings.max_model_len);
    if !named {
        settings.max_num_batched_tokens = of.max_num_batched_tokens;
        written.assumed.push(format!(
            "{BATCH} is {}, as vLLM {version}'s server takes it on this device",
            of.max_num_batched_tokens
        ));
    }
    // A server takes no more requests than its step has tokens.
    engine.max_num_seqs = engine.max_num_seqs.or(Some(of.max_num_seqs.min(settings.max_num_batched_tokens)));
}

/// The layers as if a person had written them.
fn written(path: &str, file: ModelFile) -> Written {
    let ModelFile { name, imported, settings, fits_length } = file;
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
    written.engine.settings.auto_fit_max_model_len = fits_length;
    if let Some(layout) = imported.layout {
        written.engine.settings.kv_cache_layout = layout;
    }
    written.engine.settings.mamba_cache_mode = settings.mamba_cache_mode;
    written.engine.num_speculative_tokens = settings.speculative.map(|s| s.num_speculative_tokens);
    written
}
