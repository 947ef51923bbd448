//! A model from its own config.json: the flags that say for which engine, and the reading of the file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use planner::import::hf_config::{
    ImportError, ImportSettings, Imported, Platform, Speculative, import, known_architectures,
};
use planner::import::log::{ServerLog, Value as Logged};
use planner::{EngineVersion, MambaCacheMode};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The largest config that is read, bytes.
const CONFIG_LIMIT: u64 = 64 << 20;

/// The engine that a config is imported for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EngineFlags {
    /// The draft model's config.json, or its folder.
    #[arg(long, value_name = "CONFIG")]
    pub(crate) draft: Option<PathBuf>,

    /// Speculative method; without it the draft's architecture tells.
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Draft tokens a step.
    #[arg(long, value_name = "N")]
    pub(crate) num_speculative_tokens: Option<u64>,

    /// Tensor parallel ranks.
    #[arg(long, visible_alias = "tensor-parallel-size", value_name = "N")]
    pub(crate) tp: Option<u64>,

    /// Tokens of the longest request; without it the model's own.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_model_len: Option<u64>,

    /// Tokens of a block; without it the platform's.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) block_size: Option<u64>,

    /// The KV cache's dtype.
    #[arg(long, default_value = "auto", value_name = "DTYPE")]
    pub(crate) kv_cache_dtype: String,

    /// The model's dtype.
    #[arg(long, default_value = "auto", value_name = "DTYPE")]
    pub(crate) dtype: String,

    /// How states are cached: none, align, all; without it `align` where a model has states, as vLLM with
    /// prefix caching.
    #[arg(long, value_name = "MODE")]
    pub(crate) mamba_cache_mode: Option<String>,

    /// Dtype of the states.
    #[arg(long, default_value = "auto", value_name = "DTYPE")]
    pub(crate) mamba_cache_dtype: String,

    /// Dtype of the recurrent states.
    #[arg(long, default_value = "auto", value_name = "DTYPE")]
    pub(crate) mamba_ssm_cache_dtype: String,

    /// How the encoder of images or sound is spread over the ranks: weights (split), data (whole on each).
    #[arg(long, default_value = "weights", value_name = "MODE")]
    pub(crate) mm_encoder_tp_mode: String,

    /// Attend to all instead of a window, in layers whose window is the model's `sliding_window`.
    #[arg(long)]
    pub(crate) disable_sliding_window: bool,

    /// Attributes to set on the model's config once it is read, as JSON.
    #[arg(long, value_name = "JSON")]
    pub(crate) hf_overrides: Option<String>,

    /// Run the language model alone, without its encoders.
    #[arg(long)]
    pub(crate) language_model_only: bool,

    /// Where it runs: cpu, cuda-hopper, cuda-blackwell, cuda-sm120 (RTX, DGX Spark), rocm [default: cuda-hopper].
    #[arg(long, value_name = "PLATFORM")]
    pub(crate) platform: Option<String>,
}

/// A model that was read.
#[derive(Debug)]
pub(crate) struct ModelFile {
    /// The file's or the folder's name.
    pub(crate) name: String,
    pub(crate) imported: Imported,
    pub(crate) settings: ImportSettings,
}

impl EngineFlags {
    /// Reads `model` and imports it.
    ///
    /// # Errors
    /// If a file cannot be read or imported.
    pub(crate) fn read(&self, model: &Path, version: Option<EngineVersion>) -> Result<ModelFile, Failure> {
        let config = read_config(model)?;
        let draft = self.draft.as_deref().map(read_config).transpose()?;
        let failed = || Failure::new(format!("failed to import `{}`", model.display()));
        let platform: Platform = match &self.platform {
            Some(name) => name.parse().map_err(|cause: String| failed().caused_by(cause))?,
            None => Platform::default(),
        };
        let mamba_cache_mode = match self.mamba_cache_mode.as_deref() {
            None | Some("align") => MambaCacheMode::Align,
            Some("none") => MambaCacheMode::None,
            Some("all") => MambaCacheMode::All,
            Some(other) => {
                return Err(failed()
                    .caused_by(format!("`{other}` is no mamba cache mode"))
                    .hint("write none, align or all"));
            }
        };
        let splits_encoder = match self.mm_encoder_tp_mode.as_str() {
            "weights" => true,
            "data" => false,
            other => {
                return Err(failed()
                    .caused_by(format!("`{other}` is no mode of an encoder"))
                    .hint("write weights or data"));
            }
        };
        let hf_overrides = self.overrides()?;
        let own = longest(&config, &hf_overrides, self.disable_sliding_window);
        let settings = ImportSettings {
            tensor_parallel_size: self.tp.unwrap_or(1),
            max_model_len: self.max_model_len.or(own).unwrap_or(8192),
            block_size: self.block_size,
            kv_cache_dtype: self.kv_cache_dtype.clone(),
            dtype: self.dtype.clone(),
            speculative: self.speculative(draft.as_ref()),
            mamba_cache_mode,
            mamba_cache_dtype: self.mamba_cache_dtype.clone(),
            mamba_ssm_cache_dtype: self.mamba_ssm_cache_dtype.clone(),
            splits_encoder,
            language_model_only: self.language_model_only,
            disable_sliding_window: self.disable_sliding_window,
            hf_overrides,
            platform,
            version: version.unwrap_or_default(),
            draft_prefix: String::new(),
        };
        let imported =
            import(&config, draft.as_ref(), &settings).map_err(|error| import_failure(model, &error))?;
        let stem = model.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let folder = std::fs::canonicalize(model).ok().and_then(|path| {
            path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
        });
        let name = match (stem.as_str(), folder) {
            ("config", Some(folder)) => folder,
            ("", Some(folder)) => folder,
            _ => stem,
        };
        Ok(ModelFile { name, imported, settings })
    }

    /// The same, with what a server's log says where a flag does not.
    pub(crate) fn or_logged(&self, log: &ServerLog) -> Self {
        let mut flags = self.clone();
        let text = |name: &str| {
            let found = log.flag(name).or_else(|| log.setting(name))?;
            found.value.text().map(|text| text.trim_start_matches("torch.").to_owned())
        };
        let fill = |given: &mut String, name: &str| {
            if given == "auto"
                && let Some(logged) = text(name)
            {
                *given = logged;
            }
        };
        flags.tp = flags.tp.or(log.count("tensor_parallel_size").map(|found| found.value));
        flags.block_size = flags.block_size.or(log.flag("block_size").and_then(|found| found.value.count()));
        let logged_length = log
            .concurrency
            .first()
            .map(|found| found.value.max_model_len)
            .or(log.count("max_model_len").map(|found| found.value))
            .or(log.max_model_len.as_ref().map(|found| found.value));
        flags.max_model_len = flags.max_model_len.or(logged_length);
        if text("mm_encoder_tp_mode").as_deref() == Some("data") {
            "data".clone_into(&mut flags.mm_encoder_tp_mode);
        }
        let given = |name: &str| log.flag(name).is_some_and(|found| *found.value == Logged::Bool(true));
        flags.language_model_only |= given("language_model_only");
        flags.disable_sliding_window |= given("disable_sliding_window");
        if flags.hf_overrides.is_none() {
            let logged = log.flag("hf_overrides").and_then(|found| found.value.to_json());
            flags.hf_overrides = logged.filter(Value::is_object).map(|value| value.to_string());
        }
        fill(&mut flags.kv_cache_dtype, "kv_cache_dtype");
        fill(&mut flags.dtype, "dtype");
        fill(&mut flags.mamba_cache_dtype, "mamba_cache_dtype");
        fill(&mut flags.mamba_ssm_cache_dtype, "mamba_ssm_cache_dtype");
        let logged_mode = text("mamba_cache_mode").or(log.mamba_cache_mode.as_ref().map(|m| m.value.clone()));
        // Without prefix caching a request keeps one state.
        let cached = log.setting("enable_prefix_caching").or_else(|| log.flag("enable_prefix_caching"));
        let uncached = cached.is_some_and(|found| *found.value == Logged::Bool(false));
        let mode = logged_mode.or(uncached.then(|| "none".to_owned()));
        flags.mamba_cache_mode = flags.mamba_cache_mode.or(mode);
        if let Some(found) = log.speculative() {
            flags.method = flags.method.or(found.value.0);
            flags.num_speculative_tokens = flags.num_speculative_tokens.or(found.value.1);
        }
        if flags.platform.is_none() && log.tokens.first().is_some_and(|found| found.value.device == "CPU") {
            flags.platform = Some(Platform::Cpu.name().to_owned());
        }
        flags
    }

    /// The object of `--hf-overrides`.
    fn overrides(&self) -> Result<Map<String, Value>, Failure> {
        let Some(text) = &self.hf_overrides else { return Ok(Map::new()) };
        let failed = || Failure::new("failed to read `--hf-overrides`");
        match planner::import::json::parse(text) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(_) => Err(failed().caused_by("it is not a JSON object").hint(
                "name attributes of the config, such as '{\"text_config\": {\"sliding_window\": 4096}}'",
            )),
            Err(error) => Err(failed().caused_by(error)),
        }
    }

    fn speculative(&self, draft: Option<&Value>) -> Option<Speculative> {
        let method = match (&self.method, draft) {
            (Some(method), _) => method.clone(),
            (None, Some(draft)) => method_of(draft).to_owned(),
            (None, None) if self.num_speculative_tokens.is_some() => "mtp".to_owned(),
            (None, None) => return None,
        };
        Some(Speculative { method, num_speculative_tokens: self.num_speculative_tokens.unwrap_or(1) })
    }
}

/// The method that a draft's architecture is made for.
///
/// # Source
/// `SpeculativeConfig.__post_init__` of vLLM 0.32.
fn method_of(draft: &Value) -> &'static str {
    let name = draft.pointer("/architectures/0").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    for (part, method) in [
        ("dspark", "dspark"),
        ("dflash", "dflash"),
        ("eagle3", "eagle3"),
        ("peagle", "eagle3"),
        ("eagle", "eagle"),
        ("mtp", "mtp"),
    ] {
        if name.contains(part) {
            return method;
        }
    }
    "draft_model"
}

/// The longest length that the config states with what is set on it; without its window not more than that.
///
/// # Source
/// `_get_and_verify_max_len` in `vllm/config/model.py`, vLLM 0.32.
fn longest(config: &Value, overrides: &Map<String, Value>, disable_sliding_window: bool) -> Option<u64> {
    let mut config = config.clone();
    set(&mut config, overrides);
    let own = own_length(&config);
    if !disable_sliding_window {
        return own;
    }
    let window = ["text_config", "llm_config", "language_config"]
        .iter()
        .find_map(|key| config.get(*key))
        .unwrap_or(&config)
        .get("sliding_window")
        .and_then(Value::as_u64)
        .filter(|window| *window > 0);
    window.map_or(own, |window| Some(own.map_or(window, |own| own.min(window))))
}

/// Sets `overrides` on an object, those of nested objects below them.
fn set(config: &mut Value, overrides: &Map<String, Value>) {
    let Some(object) = config.as_object_mut() else { return };
    for (key, value) in overrides {
        match (object.get_mut(key), value) {
            (Some(inner @ Value::Object(_)), Value::Object(below)) => set(inner, below),
            _ => {
                object.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The longest length that the config states.
fn own_length(config: &Value) -> Option<u64> {
    let of = |value: &Value| {
        ["max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"]
            .iter()
            .find_map(|key| value.get(*key).and_then(Value::as_u64))
            .filter(|length| *length > 0)
    };
    ["text_config", "llm_config", "language_config"]
        .iter()
        .find_map(|key| config.get(*key).and_then(of))
        .or_else(|| of(config))
}

/// The config of a file, or of the folder that it lies in.
///
/// # Errors
/// If it cannot be read, is too large, or is no JSON.
pub(crate) fn read_config(path: &Path) -> Result<Value, Failure> {
    let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let failed = || Failure::new(format!("failed to read `{}`", path.display()));
    let file = File::open(&path).map_err(|error| failed().caused_by(error))?;
    let mut bytes = Vec::new();
    file.take(CONFIG_LIMIT + 1).read_to_end(&mut bytes).map_err(|error| failed().caused_by(error))?;
    if bytes.len() as u64 > CONFIG_LIMIT {
        return Err(failed().caused_by(format!("it is larger than {} MiB", CONFIG_LIMIT >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|error| failed().caused_by(error))?;
    let mut config = planner::import::json::parse(&text).map_err(|error| {
        failed().caused_by(error).hint("give a Hugging Face config.json, or a folder that holds one")
    })?;
    add_quantization(&path, &mut config)?;
    Ok(config)
}

/// What a checkpoint says of its quantisation in a file beside the config, as ModelOpt wrote it up to 0.29.
///
/// # Source
/// `get_config` in `vllm/transformers_utils/config.py`, vLLM 0.32, which reads it where the config has none.
fn add_quantization(path: &Path, config: &mut Value) -> Result<(), Failure> {
    if path.file_name().is_none_or(|name| name != "config.json") {
        return Ok(());
    }
    let beside = path.with_file_name("hf_quant_config.json");
    let states = config.get("quantization_config").is_some_and(|own| !own.is_null());
    let Some(config) = config.as_object_mut().filter(|_| !states) else { return Ok(()) };
    let failed = || Failure::new(format!("failed to read `{}`", beside.display()));
    let text = match std::fs::metadata(&beside) {
        Ok(found) if found.len() > CONFIG_LIMIT => {
            return Err(failed().caused_by(format!("it is larger than {} MiB", CONFIG_LIMIT >> 20)));
        }
        Ok(found) if found.is_file() => {
            std::fs::read_to_string(&beside).map_err(|error| failed().caused_by(error))?
        }
        _ => return Ok(()),
    };
    let found = planner::import::json::parse(&text).map_err(|error| failed().caused_by(error))?;
    config.insert("quantization_config".to_owned(), found);
    Ok(())
}

/// What a person reads where a config cannot be imported.
pub(crate) fn import_failure(path: &Path, error: &ImportError) -> Failure {
    let mut failure = Failure::new(format!("failed to import `{}`", path.display())).caused_by(error);
    for hint in error.hints() {
        failure = failure.hint(hint);
    }
    if matches!(error, ImportError::UnknownArchitecture { .. }) {
        for (group, names) in known_architectures() {
            let names: Vec<&str> = names.collect();
            failure = failure.hint(format!("known with {group}: {}", names.join(", ")));
        }
    }
    failure
}
