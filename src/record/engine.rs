//! The engine settings of a recorded case.

use planner::{EngineSettings, Layout, MambaCacheMode};
use serde::{Deserialize, Serialize};

/// The settings as recorded, by the short names of the recording scripts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RecordedEngine {
    /// Tensor parallel size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tp: Option<u64>,
    /// Decode context parallel size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dcp: Option<u64>,
    /// Prefill context parallel size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pcp: Option<u64>,
    /// Pipeline parallel size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pp: Option<u64>,
    /// Layers of each stage, where they are not cut evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pp_layers: Option<Vec<u64>>,
    /// Memory for the KV cache, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_memory: Option<u64>,
    /// The same a worker, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) available_memory_per_worker: Option<Vec<u64>>,
    /// The longest request, tokens; -1 fits it to the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_model_len: Option<i64>,
    /// The model's own length where `max_model_len` is -1, tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) derived_max_model_len: Option<u64>,
    /// Tokens of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_num_batched_tokens: Option<u64>,
    /// Batches in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_concurrent_batches: Option<u64>,
    /// Requests of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_num_seqs: Option<u64>,
    /// Tokens of a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_size: Option<u64>,
    /// How states are cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mamba_cache_mode: Option<MambaCacheMode>,
    /// Whether the hybrid manager is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disable_hybrid: Option<bool>,
    /// The cache layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) layout: Option<Layout>,
    /// Blocks, whatever the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) num_gpu_blocks_override: Option<u64>,
    /// Tokens of an encoder's longest input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_encoder_tokens: Option<u64>,
    /// Prompt tokens past the computed ones that a drafter reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) num_prefill_lookahead_tokens: Option<u64>,
    /// Dtype of the states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mamba_cache_dtype: Option<String>,
    /// Dtype of the recurrent states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mamba_ssm_cache_dtype: Option<String>,
    /// Whether the language model runs alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) language_model_only: Option<bool>,
    /// Whether the model's own window is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disable_sliding_window: Option<bool>,
    /// What is set on the model's config once it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hf_overrides: Option<serde_json::Map<String, serde_json::Value>>,
    /// Whether the encoder is whole on each rank (`data`) or split (`weights`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mm_encoder_tp_mode: Option<String>,
    /// The KV cache's dtype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kv_cache_dtype: Option<String>,
    /// The model's dtype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dtype: Option<String>,
    /// Where it ran, as `k3plan plan --platform` names it; recorded answers without it are a CPU's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<String>,
    /// vLLM's speculative config, without the draft's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) speculative: Option<serde_json::Map<String, serde_json::Value>>,
}

impl RecordedEngine {
    /// The settings that planning reads.
    ///
    /// # Errors
    /// If `max_model_len` is no length.
    pub(crate) fn settings(&self) -> Result<EngineSettings, String> {
        let default = EngineSettings::default();
        let (max_model_len, auto_fit_max_model_len) = match (self.max_model_len, self.derived_max_model_len) {
            (None, _) => (default.max_model_len, false),
            (Some(-1), Some(derived)) => (derived, true),
            (Some(-1), None) => {
                return Err("`max_model_len` is -1, and `derived_max_model_len` is missing".to_owned());
            }
            (Some(length), _) => match u64::try_from(length) {
                Ok(length) if length > 0 => (length, false),
                _ => return Err(format!("`max_model_len` is {length}; write a length, or -1")),
            },
        };
        for (name, size) in [
            ("tp", self.tp),
            ("dcp", self.dcp),
            ("pcp", self.pcp),
            ("pp", self.pp),
            ("block_size", self.block_size),
        ] {
            if size == Some(0) {
                return Err(format!("`{name}` must be at least 1"));
            }
        }
        Ok(EngineSettings {
            tensor_parallel_size: self.tp.unwrap_or(1),
            decode_context_parallel_size: self.dcp.unwrap_or(1),
            prefill_context_parallel_size: self.pcp.unwrap_or(1),
            pipeline_parallel_size: self.pp.unwrap_or(1),
            pipeline_stage_layers: self.pp_layers.clone().unwrap_or_default(),
            disable_hybrid_kv_cache_manager: self.disable_hybrid.unwrap_or(false),
            mamba_cache_mode: self.mamba_cache_mode.unwrap_or_default(),
            kv_cache_layout: self.layout.unwrap_or_default(),
            max_model_len,
            auto_fit_max_model_len,
            max_num_batched_tokens: self.max_num_batched_tokens.unwrap_or(default.max_num_batched_tokens),
            max_concurrent_batches: self.max_concurrent_batches.unwrap_or(1),
            max_num_encoder_input_tokens: self
                .max_encoder_tokens
                .unwrap_or(default.max_num_encoder_input_tokens),
            num_prefill_lookahead_tokens: self.num_prefill_lookahead_tokens.unwrap_or(0),
            num_gpu_blocks_override: self.num_gpu_blocks_override,
            available_memory_bytes: match (&self.available_memory_per_worker, self.available_memory) {
                (Some(each), _) => each.clone(),
                (None, Some(all)) => vec![all],
                (None, None) => Vec::new(),
            },
            group_size_rule: None,
        })
    }
}
