//! What does an engine say about a model's cache before the model is known?

use super::config::Config;
use super::error::ImportError;
use super::kv_dtype::KvDtype;
use super::model_dtype;
use super::platform::{self, Platform};
use crate::dtype::DType;
use crate::engine::EngineVersion;
use crate::settings::MambaCacheMode;

/// Speculative decoding, as vLLM's `--speculative-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speculative {
    /// `mtp`, `eagle`, `eagle3`, `dflash`, `dspark`, `ngram`...
    pub method: String,
    /// Draft tokens a step.
    pub num_speculative_tokens: u64,
}

/// The engine's settings that a config is imported with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSettings {
    /// `--tensor-parallel-size`.
    pub tensor_parallel_size: u64,
    /// `--max-model-len`, tokens.
    pub max_model_len: u64,
    /// `--block-size`, tokens; `None` is the platform's.
    pub block_size: Option<u64>,
    /// `--kv-cache-dtype`.
    pub kv_cache_dtype: String,
    /// `--dtype`; `auto` is the model's own.
    pub dtype: String,
    /// `--speculative-config`.
    pub speculative: Option<Speculative>,
    /// `--mamba-cache-mode`.
    pub mamba_cache_mode: MambaCacheMode,
    /// `--mamba-cache-dtype`.
    pub mamba_cache_dtype: String,
    /// `--mamba-ssm-cache-dtype`.
    pub mamba_ssm_cache_dtype: String,
    /// Whether the encoder of images or sound is split over ranks too, which `--mm-encoder-tp-mode data` and
    /// `--language-model-only` avoid.
    pub splits_encoder: bool,
    /// `--language-model-only`.
    pub language_model_only: bool,
    /// `--disable-sliding-window`: the target's own window is not used.
    pub disable_sliding_window: bool,
    /// `--hf-overrides`: attributes of the target's config that are set once it is read.
    pub hf_overrides: serde_json::Map<String, serde_json::Value>,
    /// Where it runs.
    pub platform: Platform,
    /// Which engine.
    pub version: EngineVersion,
    /// What the draft's layers are prefixed with: empty in a server, `draft` in recorded answers.
    pub draft_prefix: String,
}

impl Default for ImportSettings {
    /// One rank of the default platform, everything automatic.
    fn default() -> Self {
        Self {
            tensor_parallel_size: 1,
            max_model_len: 8192,
            block_size: None,
            kv_cache_dtype: "auto".to_owned(),
            dtype: "auto".to_owned(),
            speculative: None,
            mamba_cache_mode: MambaCacheMode::None,
            mamba_cache_dtype: "auto".to_owned(),
            mamba_ssm_cache_dtype: "auto".to_owned(),
            splits_encoder: true,
            language_model_only: false,
            disable_sliding_window: false,
            hf_overrides: serde_json::Map::new(),
            platform: Platform::default(),
            version: EngineVersion::default(),
            draft_prefix: String::new(),
        }
    }
}

/// The settings with what the model's config adds to them.
#[derive(Debug, Clone)]
pub(super) struct Context<'a> {
    pub(super) settings: &'a ImportSettings,
    /// Tensor parallel ranks.
    pub(super) tp: u64,
    /// Draft tokens a step.
    pub(super) num_speculative_tokens: u64,
    /// The model's dtype.
    pub(super) dtype: DType,
    /// The KV cache's dtype.
    pub(super) kv: KvDtype,
    /// Whether the engine takes the model for one with latents.
    pub(super) engine_mla: bool,
    /// The block size that the platform sets anew for a draft that is a model of its own, tokens.
    pub(super) block_of_draft: Option<u64>,
    pub(super) notes: Vec<String>,
}

impl<'a> Context<'a> {
    pub(super) fn new(config: &Config<'_>, settings: &'a ImportSettings) -> Result<Self, ImportError> {
        if settings.tensor_parallel_size == 0 {
            return Err(ImportError::Refused("the tensor parallel size is 0".to_owned()));
        }
        let mut notes = Vec::new();
        let dtype = model_dtype::resolve(&settings.dtype, config, &mut notes)?;
        let kv = KvDtype::resolve(&settings.kv_cache_dtype, config, settings.platform)?;
        Ok(Self {
            settings,
            tp: settings.tensor_parallel_size,
            num_speculative_tokens: settings.speculative.as_ref().map_or(0, |s| s.num_speculative_tokens),
            dtype,
            kv,
            engine_mla: platform::engine_mla(config),
            block_of_draft: None,
            notes,
        })
    }

    /// `total / tp`.
    ///
    /// # Errors
    /// If it leaves a remainder.
    pub(super) fn divide(&self, what: &'static str, total: u64) -> Result<u64, ImportError> {
        if total.is_multiple_of(self.tp) {
            Ok(total / self.tp)
        } else {
            Err(ImportError::NotDivisible { what, size: total, tensor_parallel_size: self.tp })
        }
    }

    /// KV heads of one rank: split, or replicated where there are fewer than ranks.
    ///
    /// # Errors
    /// If neither divides the other.
    pub(super) fn kv_heads(&self, total: u64) -> Result<u64, ImportError> {
        let fits = total > 0
            && if total >= self.tp { total.is_multiple_of(self.tp) } else { self.tp.is_multiple_of(total) };
        if fits {
            Ok((total / self.tp).max(1))
        } else {
            Err(ImportError::NotDivisible {
                what: "a KV head count",
                size: total,
                tensor_parallel_size: self.tp,
            })
        }
    }
}
