//! The engine settings that planning reads, by the names of vLLM's own flags.

use serde::{Deserialize, Serialize};

use crate::engine::Rules;
use crate::size;

/// How tokens of state layers are cached (`--mamba-cache-mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MambaCacheMode {
    /// One state a request.
    #[default]
    None,
    /// States at block boundaries, the last two kept.
    Align,
    /// States at every block.
    All,
}

/// Physical order of the cache's axes: layers, blocks, heads, slots, content (`VLLM_KV_CACHE_LAYOUT`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names are the order of the axes")]
pub enum Layout {
    Lbhnc,
    #[default]
    Lbnhc,
    Lhbnc,
    Blhnc,
    Blnhc,
    Bhlnc,
}

impl Layout {
    /// Whether the block axis is outermost.
    pub const fn is_block_outermost(self) -> bool {
        matches!(self, Self::Blhnc | Self::Blnhc | Self::Bhlnc)
    }

    /// Whether the layer axis is outermost.
    pub const fn is_layer_compact(self) -> bool {
        matches!(self, Self::Lbhnc | Self::Lbnhc | Self::Lhbnc)
    }

    /// Whether layers and blocks are the two outermost axes, so that a page is one run of bytes.
    pub const fn is_block_compact(self) -> bool {
        matches!(self, Self::Lbhnc | Self::Lbnhc | Self::Blhnc | Self::Blnhc)
    }

    /// The name as vLLM writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lbhnc => "LBHNC",
            Self::Lbnhc => "LBNHC",
            Self::Lhbnc => "LHBNC",
            Self::Blhnc => "BLHNC",
            Self::Blnhc => "BLNHC",
            Self::Bhlnc => "BHLNC",
        }
    }
}

/// How the number of layers of a group is chosen from the bucket sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupSizeRule {
    /// The smallest bucket, or the largest if it is below `numerator / denominator` times the smallest.
    /// vLLM uses 3/2; before its pull request 36684 it used 5/4.
    MinOrMax {
        /// Of the threshold.
        numerator: u64,
        /// Of the threshold.
        denominator: u64,
    },
    /// The size with the least `padding + padding_per_group x groups`, ties to fewer groups
    /// (vLLM pull request 49472; its default is 1).
    PaddingPlusGroups {
        /// Padding layers that one group less is worth, in thousandths.
        padding_per_group_milli: u64,
    },
    /// As the default, with buckets of one layer left out of the smallest (vLLM pull request 51742).
    SkipSingleLayers,
    /// A size that the user sets (vLLM pull request 36143).
    Fixed(u64),
    /// The largest size of at least 3 with padding of at most 10%, else the size with the least padding
    /// (vLLM pull request 31275).
    LeastPadding,
    /// The largest divisor of the full-attention buckets that is not above the default's size
    /// (vLLM pull request 58175).
    DivideFullAttention,
}

/// The engine settings that planning reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// `--tensor-parallel-size`.
    pub tensor_parallel_size: u64,
    /// `--decode-context-parallel-size`.
    pub decode_context_parallel_size: u64,
    /// `--prefill-context-parallel-size`.
    pub prefill_context_parallel_size: u64,
    /// `--pipeline-parallel-size`.
    pub pipeline_parallel_size: u64,
    /// Layers of each pipeline stage; empty is an even cut.
    pub pipeline_stage_layers: Vec<u64>,
    /// `--disable-hybrid-kv-cache-manager`.
    pub disable_hybrid_kv_cache_manager: bool,
    /// `--mamba-cache-mode`.
    pub mamba_cache_mode: MambaCacheMode,
    /// The resolved cache layout.
    pub kv_cache_layout: Layout,
    /// `--max-model-len`, tokens; with [`Self::auto_fit_max_model_len`], the model's own length.
    pub max_model_len: u64,
    /// `--max-model-len -1`: the longest length that fits.
    pub auto_fit_max_model_len: bool,
    /// `--max-num-batched-tokens`.
    pub max_num_batched_tokens: u64,
    /// Batches that can be in flight at once: 1, 2 with async scheduling, one more a pipeline stage.
    pub max_concurrent_batches: u64,
    /// Tokens of an encoder's longest input.
    pub max_num_encoder_input_tokens: u64,
    /// Prompt tokens past the computed ones that a drafter reads.
    pub num_prefill_lookahead_tokens: u64,
    /// `--num-gpu-blocks-override`.
    pub num_gpu_blocks_override: Option<u64>,
    /// Memory for the KV cache of each worker, bytes: one entry for all stages, or one a stage.
    pub available_memory_bytes: Vec<u64>,
    /// A rule for the group size in place of the engine's own.
    pub group_size_rule: Option<GroupSizeRule>,
}

impl Default for EngineSettings {
    /// One rank, no memory known, vLLM's default batch.
    fn default() -> Self {
        Self {
            tensor_parallel_size: 1,
            decode_context_parallel_size: 1,
            prefill_context_parallel_size: 1,
            pipeline_parallel_size: 1,
            pipeline_stage_layers: Vec::new(),
            disable_hybrid_kv_cache_manager: false,
            mamba_cache_mode: MambaCacheMode::None,
            kv_cache_layout: Layout::Lbnhc,
            max_model_len: 131_072,
            auto_fit_max_model_len: false,
            max_num_batched_tokens: 8192,
            max_concurrent_batches: 1,
            max_num_encoder_input_tokens: 1500,
            num_prefill_lookahead_tokens: 0,
            num_gpu_blocks_override: None,
            available_memory_bytes: Vec::new(),
            group_size_rule: None,
        }
    }
}

impl EngineSettings {
    /// Tokens that can be scheduled and not yet settled; saturates.
    ///
    /// # Source
    /// `VllmConfig.max_in_flight_tokens`, vLLM 0.33.
    pub fn max_in_flight_tokens(&self, rules: &Rules) -> u64 {
        let batches = if rules.in_flight_tokens { self.max_concurrent_batches } else { 1 };
        size::mul("tokens in flight", self.max_num_batched_tokens, batches).unwrap_or(u64::MAX / 2)
    }
}
