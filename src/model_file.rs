//! A model from its own config.json: the flags that say for which engine, and the reading of the file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use planner::import::hf_config::{
    ImportError, ImportSettings, Imported, Platform, Speculative, disable_sliding_window, import,
    known_architectures, override_config,
};
use planner::import::log::{ServerLog, Value as Logged};
use planner::{EngineVersion, MambaCacheMode};
use serde_json::Value;

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

    /// Run the language model alone, without its encoders.
    #[arg(long)]
    pub(crate) language_model_only: bool,

    /// Keys of the config to replace, a JSON object, as the server's --hf-overrides.
    #[arg(long, value_name = "JSON")]
    pub(crate) hf_overrides: Option<String>,

    /// Full attention in place of windows; no request is longer than the window then.
    #[arg(long)]
    pub(crate) disable_sliding_window: bool,

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
        let mut config = read_config(model)?;
        let longest = self.change(model, &mut config)?;
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
        let settings = ImportSettings {
            tensor_parallel_size: self.tp.unwrap_or(1),
            max_model_len: self.length(model, &config, longest)?,
            block_size: self.block_size,
            kv_cache_dtype: self.kv_cache_dtype.clone(),
            dtype: self.dtype.clone(),
            speculative: self.speculative(draft.as_ref()),
            mamba_cache_mode,
            mamba_cache_dtype: self.mamba_cache_dtype.clone(),
            mamba_ssm_cache_dtype: self.mamba_ssm_cache_dtype.clone(),
            splits_encoder,
            language_model_only: self.language_model_only,
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

    /// Changes the config as the flags say; gives the window that no request may pass, tokens.
    fn change(&self, model: &Path, config: &mut Value) -> Result<Option<u64>, Failure> {
        if let Some(text) = &self.hf_overrides {
            let failed = || Failure::new("failed to read `--hf-overrides`");
            let overrides = planner::import::json::parse(text).map_err(|error| failed().caused_by(error))?;
            let overrides = overrides.as_object().ok_or_else(|| {
                failed()
                    .caused_by("it is no JSON object")
                    .hint("write `--hf-overrides '{\"sliding_window\": 1024}'`")
            })?;
            override_config(config, overrides);
        }
        if !self.disable_sliding_window {
            return Ok(None);
        }
        disable_sliding_window(config).map_err(|error| import_failure(model, &error))
    }

    /// The longest request, tokens.
    fn length(&self, model: &Path, config: &Value, longest: Option<u64>) -> Result<u64, Failure> {
        let own = own_length(config);
        let Some(window) = longest else { return Ok(self.max_model_len.or(own).unwrap_or(8192)) };
        let limit = own.map_or(window, |own| own.min(window));
        match self.max_model_len {
            Some(asked) if asked > limit => Err(Failure::new(format!(
                "failed to import `{}`",
                model.display()
            ))
            .caused_by(format!(
                "a request of {asked} tokens is longer than {limit}, the most without a sliding window"
            ))
            .hint(format!("set `--max-model-len {limit}` or less, or leave `--disable-sliding-window` out"))),
            Some(asked) => Ok(asked),
            None => Ok(limit),
        }
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
        flags.language_model_only |=
            log.flag("language_model_only").is_some_and(|found| *found.value == Logged::Bool(true));
        flags.disable_sliding_window |=
            log.flag("disable_sliding_window").is_some_and(|found| *found.value == Logged::Bool(true));
        if flags.hf_overrides.is_none()
            && let Some(found) = log.flag("hf_overrides")
            && matches!(found.value, Logged::Map(_))
        {
            flags.hf_overrides = Some(json_of(found.value).to_string());
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

/// What a log prints as Python, as JSON.
fn json_of(value: &Logged) -> Value {
    match value {
        Logged::None => Value::Null,
        Logged::Bool(flag) => (*flag).into(),
        Logged::Int(number) => (*number).into(),
        Logged::Text(text) => text.as_str().into(),
        Logged::List(list) => list.iter().map(json_of).collect(),
        Logged::Map(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), json_of(value))).collect())
        }
        Logged::Other(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
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
