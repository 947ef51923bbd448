//! A model from its own config.json: the flags that say for which engine, and the reading of the file.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use planner::import::hf_config::{
    ImportError, ImportSettings, Imported, Platform, Speculative, import, known_architectures,
};
use planner::import::log::{ServerLog, Value as Logged};
use planner::{EngineVersion, MambaCacheMode};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::input_file;
use crate::scenario::parse_count;

/// The largest config that is read, bytes.
const CONFIG_LIMIT: u64 = 64 << 20;

/// `--max-model-len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MaxModelLen {
    /// So many.
    Tokens(u64),
    /// As many as fit, up to the model's own length.
    Fitted,
}

impl fmt::Display for MaxModelLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(tokens) => tokens.fmt(f),
            Self::Fitted => f.write_str("auto"),
        }
    }
}

/// A length as vLLM's flag takes it.
///
/// # Source
/// `human_readable_int_or_auto` in `vllm/utils/argparse_utils.py`, vLLM 0.33.
fn parse_length(text: &str) -> Result<MaxModelLen, String> {
    match text.trim() {
        "-1" => Ok(MaxModelLen::Fitted),
        auto if auto.eq_ignore_ascii_case("auto") => Ok(MaxModelLen::Fitted),
        text => parse_count(text).map(MaxModelLen::Tokens),
    }
}

/// A flag of a config that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// Its name, with dashes.
    pub(crate) flag: &'static str,
    /// Its value; a switch has none.
    value: Option<String>,
    /// What `--set` takes that says the same of a scenario.
    pub(crate) setting: Option<String>,
}

impl Given {
    /// As it was written.
    pub(crate) fn words(&self) -> String {
        match &self.value {
            Some(value) => format!("{} {value}", self.flag),
            None => self.flag.to_owned(),
        }
    }
}

/// Over the flags that describe a config, in `--help`.
const HEADING: &str = "Of a config.json";

/// The engine that a config is imported for.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EngineFlags {
    /// The draft model's config.json, or its folder.
    #[arg(long, help_heading = HEADING, value_name = "CONFIG")]
    pub(crate) draft: Option<PathBuf>,

    /// Speculative method; without it the draft's architecture tells.
    #[arg(long, help_heading = HEADING, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Draft tokens a step.
    #[arg(long, help_heading = HEADING, value_name = "N")]
    pub(crate) num_speculative_tokens: Option<u64>,

    /// Tensor parallel ranks.
    #[arg(long, help_heading = HEADING, visible_alias = "tensor-parallel-size", value_name = "N")]
    pub(crate) tp: Option<u64>,

    /// Tokens of the longest request, such as 32768 or 32k, or `auto` for what fits; without it the model's own.
    #[arg(long, help_heading = HEADING, value_name = "TOKENS", value_parser = parse_length, allow_hyphen_values = true)]
    pub(crate) max_model_len: Option<MaxModelLen>,

    /// Tokens of a block; without it the platform's.
    #[arg(long, help_heading = HEADING, value_name = "TOKENS")]
    pub(crate) block_size: Option<u64>,

    /// The KV cache's dtype [default: auto].
    #[arg(long, help_heading = HEADING, value_name = "DTYPE")]
    pub(crate) kv_cache_dtype: Option<String>,

    /// The model's dtype [default: auto].
    #[arg(long, help_heading = HEADING, value_name = "DTYPE")]
    pub(crate) dtype: Option<String>,

    /// How states are cached: none, align, all; without it `align` where a model has states, as vLLM with
    /// prefix caching.
    #[arg(long, help_heading = HEADING, value_name = "MODE")]
    pub(crate) mamba_cache_mode: Option<String>,

    /// Dtype of the states [default: auto].
    #[arg(long, help_heading = HEADING, value_name = "DTYPE")]
    pub(crate) mamba_cache_dtype: Option<String>,

    /// Dtype of the recurrent states [default: auto].
    #[arg(long, help_heading = HEADING, value_name = "DTYPE")]
    pub(crate) mamba_ssm_cache_dtype: Option<String>,

    /// How the encoder of images or sound is spread over the ranks: weights (split), data (whole on each)
    /// [default: weights].
    #[arg(long, help_heading = HEADING, value_name = "MODE")]
    pub(crate) mm_encoder_tp_mode: Option<String>,

    /// Attend to all instead of a window, in layers whose window is the model's `sliding_window`.
    #[arg(long, help_heading = HEADING)]
    pub(crate) disable_sliding_window: bool,

    /// Attributes to set on the model's config once it is read, as JSON.
    #[arg(long, help_heading = HEADING, value_name = "JSON")]
    pub(crate) hf_overrides: Option<String>,

    /// Run the language model alone, without its encoders.
    #[arg(long, help_heading = HEADING)]
    pub(crate) language_model_only: bool,

    /// Where it runs: cpu, cuda-hopper, cuda-blackwell, cuda-sm120 (RTX, DGX Spark), rocm [default: cuda-hopper].
    #[arg(long, help_heading = HEADING, value_name = "PLATFORM")]
    pub(crate) platform: Option<String>,
}

/// A model that was read.
#[derive(Debug)]
pub(crate) struct ModelFile {
    /// The file's or the folder's name.
    pub(crate) name: String,
    pub(crate) imported: Imported,
    pub(crate) settings: ImportSettings,
    /// Whether its length is the most that may fit, and not one that was named.
    pub(crate) fits_length: bool,
}

impl EngineFlags {
    /// Every flag that was given.
    pub(crate) fn given(&self) -> Vec<Given> {
        // Whoever adds a flag is led here by the compiler.
        let Self {
            draft,
            method,
            num_speculative_tokens,
            tp,
            max_model_len,
            block_size,
            kv_cache_dtype,
            dtype,
            mamba_cache_mode,
            mamba_cache_dtype,
            mamba_ssm_cache_dtype,
            mm_encoder_tp_mode,
            disable_sliding_window,
            hf_overrides,
            language_model_only,
            platform,
        } = self;
        let shown = |value: Option<String>, flag: &'static str, setting: Option<&str>| {
            value.map(|value| Given {
                flag,
                setting: setting.map(|name| format!("{name}={value}")),
                value: Some(value),
            })
        };
        let switch = |on: bool, flag: &'static str| on.then_some(Given { flag, value: None, setting: None });
        let count = |value: &Option<u64>| value.map(|value| value.to_string());
        let all = [
            shown(draft.as_ref().map(|path| path.display().to_string()), "--draft", None),
            shown(method.clone(), "--method", None),
            shown(count(num_speculative_tokens), "--num-speculative-tokens", Some("num-speculative-tokens")),
            shown(count(tp), "--tp", None),
            shown(max_model_len.map(|length| length.to_string()), "--max-model-len", Some("max-model-len")),
            shown(count(block_size), "--block-size", Some("specs.NAME.block_size")),
            shown(kv_cache_dtype.clone(), "--kv-cache-dtype", None),
            shown(dtype.clone(), "--dtype", Some("specs.NAME.dtype")),
            shown(mamba_cache_mode.clone(), "--mamba-cache-mode", Some("mamba-cache-mode")),
            shown(mamba_cache_dtype.clone(), "--mamba-cache-dtype", None),
            shown(mamba_ssm_cache_dtype.clone(), "--mamba-ssm-cache-dtype", None),
            shown(mm_encoder_tp_mode.clone(), "--mm-encoder-tp-mode", None),
            switch(*disable_sliding_window, "--disable-sliding-window"),
            shown(hf_overrides.clone(), "--hf-overrides", None),
            switch(*language_model_only, "--language-model-only"),
            shown(platform.clone(), "--platform", None),
        ];
        all.into_iter().flatten().collect()
    }

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
        let splits_encoder = match self.mm_encoder_tp_mode.as_deref() {
            None | Some("weights") => true,
            Some("data") => false,
            Some(other) => {
                return Err(failed()
                    .caused_by(format!("`{other}` is no mode of an encoder"))
                    .hint("write weights or data"));
            }
        };
        let hf_overrides = self.overrides()?;
        let own = longest(&config, &hf_overrides, self.disable_sliding_window);
        let max_model_len = match (self.max_model_len, own) {
            (Some(MaxModelLen::Tokens(tokens)), _) => tokens,
            (_, Some(own)) => own,
            (None, None) => 8192,
            (Some(MaxModelLen::Fitted), None) => {
                return Err(failed()
                    .caused_by(
                        "`--max-model-len` is to be fitted, and the config states no length of its own",
                    )
                    .hint("write a length, such as `--max-model-len 32k`"));
            }
        };
        if let Some(most) = own.filter(|most| self.disable_sliding_window && *most < max_model_len) {
            return Err(failed()
                .caused_by(format!(
                    "a request of {max_model_len} tokens is longer than {most}, the most without a sliding window"
                ))
                .hint(format!(
                    "set `--max-model-len {most}` or less, or leave `--disable-sliding-window` out"
                )));
        }
        let auto = |dtype: &Option<String>| dtype.clone().unwrap_or_else(|| "auto".to_owned());
        let settings = ImportSettings {
            tensor_parallel_size: self.tp.unwrap_or(1),
            max_model_len,
            block_size: self.block_size,
            kv_cache_dtype: auto(&self.kv_cache_dtype),
            dtype: auto(&self.dtype),
            speculative: self.speculative(draft.as_ref()),
            mamba_cache_mode,
            mamba_cache_dtype: auto(&self.mamba_cache_dtype),
            mamba_ssm_cache_dtype: auto(&self.mamba_ssm_cache_dtype),
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
        let fits_length = self.max_model_len == Some(MaxModelLen::Fitted);
        Ok(ModelFile { name, imported, settings, fits_length })
    }

    /// The same, with what a server's log says where a flag does not.
    pub(crate) fn or_logged(&self, log: &ServerLog) -> Self {
        let mut flags = self.clone();
        let text = |name: &str| {
            let found = log.flag(name).or_else(|| log.setting(name))?;
            found.value.text().map(|text| text.trim_start_matches("torch.").to_owned())
        };
        let fill = |given: &mut Option<String>, name: &str| {
            if given.as_deref().is_none_or(|given| given == "auto")
                && let Some(logged) = text(name)
            {
                *given = Some(logged);
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
        flags.max_model_len = flags.max_model_len.or(logged_length.map(MaxModelLen::Tokens));
        if text("mm_encoder_tp_mode").as_deref() == Some("data") {
            flags.mm_encoder_tp_mode = Some("data".to_owned());
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

/// Where a config of several parts keeps its language model's.
const TEXT_CONFIGS: [&str; 3] = ["text_config", "llm_config", "language_config"];

/// The longest length that the config states with what is set on it; without its window not more than that.
///
/// # Source
/// `_get_and_verify_max_len` in `vllm/config/model.py`, vLLM 0.32.
fn longest(config: &Value, overrides: &Map<String, Value>, disable_sliding_window: bool) -> Option<u64> {
    // A config may hold a vocabulary: it is copied only to be changed.
    let mut config = Cow::Borrowed(config);
    if !overrides.is_empty() {
        set(config.to_mut(), overrides);
    }
    let own = own_length(&config);
    if !disable_sliding_window {
        return own;
    }
    let window = TEXT_CONFIGS
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
    TEXT_CONFIGS.iter().find_map(|key| config.get(*key).and_then(of)).or_else(|| of(config))
}

/// The config of a file, or of the folder that it lies in.
///
/// # Errors
/// If it cannot be read, is too large, or is no JSON.
pub(crate) fn read_config(path: &Path) -> Result<Value, Failure> {
    let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let failed = || Failure::new(format!("failed to read `{}`", path.display()));
    let file = input_file::open(&path).map_err(|error| failed().caused_by(error))?;
    let mut bytes = Vec::new();
    file.take(CONFIG_LIMIT + 1).read_to_end(&mut bytes).map_err(|error| failed().caused_by(error))?;
    if bytes.len() as u64 > CONFIG_LIMIT && !planner::import::encoding::is_gguf(&bytes) {
        return Err(failed().caused_by(format!("it is larger than {} MiB", CONFIG_LIMIT >> 20)));
    }
    let text = planner::import::encoding::text(bytes).map_err(|error| {
        failed()
            .caused_by(error)
            .hint("give the config.json of the model that its weights are of, or the folder that holds it")
    })?;
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
        Ok(found) if found.is_file() => {
            input_file::text(&beside, CONFIG_LIMIT).map_err(|error| failed().caused_by(error))?
        }
        _ => return Ok(()),
    };
    let found = planner::import::json::parse(&text).map_err(|error| {
        failed()
            .caused_by(error)
            .hint("vLLM reads this file beside config.json: fetch it anew, or take it out of the folder")
    })?;
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
