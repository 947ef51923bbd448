//! The fields of an attention layer's spec, shared and by kind.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::SpecKind;
use crate::dtype::DType;

/// The spec of a layer that caches keys and values, or MLA latents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionSpec {
    /// What only this kind declares.
    pub kind: AttentionKind,
    /// Tokens of one block.
    pub block_size: u64,
    /// KV heads of one rank.
    pub num_kv_heads: u64,
    /// Elements of one head's key (of the latent, for MLA).
    pub head_size: u64,
    /// Elements of one head's value; 0 for MLA, which stores one latent and no value.
    pub head_size_v: u64,
    /// Element type.
    pub dtype: DType,
    /// How the cache is quantised.
    pub kv_quant_mode: KvQuantMode,
    /// Bytes that the page is padded to; `None` is no padding.
    pub page_size_padded: Option<u64>,
    /// Whether decode context parallelism shards the positions over ranks.
    pub dcp_sharded: bool,
    /// Distinct shards that this cache splits into over tensor parallel ranks; ranks beyond hold replicas.
    /// `None` is unknown, and counts as not replicated.
    pub max_tp_shards: Option<u64>,
    /// What the stride between physical blocks must be a multiple of.
    pub block_stride_alignment: Option<StrideAlignment>,
    /// Head slots of a page where packing differs from one a KV head.
    pub num_head_slots: Option<u64>,
    /// Bytes of one stored state of one head slot where packed; `None` is dense keys and values.
    pub state_content_bytes: Option<u64>,
    /// Tokens that one stored state covers.
    pub tokens_per_state: TokensPerState,
    /// Whether the backend finds pages by the block stride, so that they can be padded (up to 0.28).
    pub indexes_kv_by_block_stride: bool,
}

/// What only one kind of attention declares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AttentionKind {
    /// Full attention.
    Full(FullFields),
    /// Multi-head latent attention.
    Mla(FullFields, MlaFields),
    /// Sliding window.
    Sliding(SlidingFields),
    /// Sliding window over MLA latents.
    SlidingMla(SlidingFields, SlidingMlaFields),
    /// Local attention in chunks.
    Chunked {
        /// Tokens of a chunk.
        attention_chunk_size: u64,
    },
    /// Cross attention to an encoder's states.
    Cross,
    /// Full attention with sink tokens.
    Sink(FullFields, Option<u64>),
    /// Encoder-only attention, which caches nothing.
    EncoderOnly,
    /// Reference sliding window: prefill stays, only the last generated tokens are kept.
    Rswa(FullFields, u64),
    /// Hidden states kept for extraction.
    HiddenState(FullFields, MlaFields),
    /// One ring a request.
    CircularBuffer,
}

impl AttentionKind {
    /// Which of vLLM's classes this is.
    pub const fn kind(&self) -> SpecKind {
        match self {
            Self::Full(_) => SpecKind::Full,
            Self::Mla(..) => SpecKind::Mla,
            Self::Sliding(_) => SpecKind::Sliding,
            Self::SlidingMla(..) => SpecKind::SlidingMla,
            Self::Chunked { .. } => SpecKind::Chunked,
            Self::Cross => SpecKind::Cross,
            Self::Sink(..) => SpecKind::Sink,
            Self::EncoderOnly => SpecKind::EncoderOnly,
            Self::Rswa(..) => SpecKind::Rswa,
            Self::HiddenState(..) => SpecKind::HiddenState,
            Self::CircularBuffer => SpecKind::CircularBuffer,
        }
    }

    /// The fields of the full-attention family.
    pub const fn full(&self) -> Option<&FullFields> {
        match self {
            Self::Full(full)
            | Self::Mla(full, _)
            | Self::Sink(full, _)
            | Self::Rswa(full, _)
            | Self::HiddenState(full, _) => Some(full),
            Self::Sliding(_)
            | Self::SlidingMla(..)
            | Self::Chunked { .. }
            | Self::Cross
            | Self::EncoderOnly
            | Self::CircularBuffer => None,
        }
    }

    /// The fields of the full-attention family, to change.
    pub const fn full_mut(&mut self) -> Option<&mut FullFields> {
        match self {
            Self::Full(full)
            | Self::Mla(full, _)
            | Self::Sink(full, _)
            | Self::Rswa(full, _)
            | Self::HiddenState(full, _) => Some(full),
            Self::Sliding(_)
            | Self::SlidingMla(..)
            | Self::Chunked { .. }
            | Self::Cross
            | Self::EncoderOnly
            | Self::CircularBuffer => None,
        }
    }

    /// The fields of the MLA family.
    pub const fn mla(&self) -> Option<&MlaFields> {
        match self {
            Self::Mla(_, mla) | Self::HiddenState(_, mla) => Some(mla),
            _ => None,
        }
    }

    /// The fields of the sliding-window family.
    pub const fn sliding(&self) -> Option<&SlidingFields> {
        match self {
            Self::Sliding(sliding) | Self::SlidingMla(sliding, _) => Some(sliding),
            _ => None,
        }
    }

    /// The fields of the sliding-window family, to change.
    pub const fn sliding_mut(&mut self) -> Option<&mut SlidingFields> {
        match self {
            Self::Sliding(sliding) | Self::SlidingMla(sliding, _) => Some(sliding),
            _ => None,
        }
    }
}

/// What the full-attention family declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FullFields {
    /// The window of a layer that computes with one while all of its tokens are kept.
    pub sliding_window: Option<u64>,
    /// The chunk of a layer that computes in chunks while all of its tokens are kept.
    pub attention_chunk_size: Option<u64>,
    /// Whether the layer also attends to later tokens.
    pub non_causal: bool,
}

/// What an MLA layer declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct MlaFields {
    /// The cache dtype as the engine names it, such as `fp8_ds_mla`.
    pub cache_dtype_str: Option<Arc<str>>,
    /// Width of the sparse top-k indices buffer.
    pub topk_buffer_width: Option<u64>,
    /// Bytes that the page is aligned to.
    pub alignment: Option<u64>,
    /// The model whose own cache format this is.
    pub model_version: Option<Arc<str>>,
    /// What a sparse model uses the cache for.
    pub cache_role: SparseCacheRole,
    /// Whether the layer leads a group of shared indices.
    pub is_index_group_leader: bool,
    /// Whether draft queries are flattened into decode rows.
    pub non_causal_multi_token_decode: bool,
    /// Token width of the storage where it differs from the kernel block (0.30 and 0.31).
    pub storage_block_size: Option<u64>,
    /// Tokens that one stored latent covers (up to 0.28); 0 is not declared and counts as 1.
    pub compress_ratio: u64,
}

/// What a sliding-window layer declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SlidingFields {
    /// Tokens of the window.
    pub sliding_window: u64,
    /// Tokens kept below the window for drafts that prefill again.
    pub extra_retained_tokens: u64,
}

/// What a sliding-window MLA layer declares beside its window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SlidingMlaFields {
    /// The cache dtype as the engine names it.
    pub cache_dtype_str: Option<Arc<str>>,
    /// Bytes that the page is aligned to.
    pub alignment: Option<u64>,
    /// The model whose own cache format this is.
    pub model_version: Option<Arc<str>>,
    /// Whether a prefix hit replays a bounded part.
    pub bounded_replay: bool,
    /// Tokens that one stored latent covers (up to 0.28); 0 is not declared and counts as 1.
    pub compress_ratio: u64,
}

/// What a sparse model uses an MLA cache for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SparseCacheRole {
    /// The latents.
    #[default]
    #[serde(alias = "sparse")]
    Sparse,
    /// The indexer's keys.
    #[serde(alias = "indexer")]
    Indexer,
}

/// What the stride between physical blocks must be a multiple of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StrideAlignment {
    /// Bytes.
    Bytes(u64),
    /// Whole kernel blocks, where blocks are split into kernel blocks of up to this many tokens.
    MultipleOf {
        /// Tokens.
        multiple_of: u64,
    },
}

/// Tokens that one stored state covers, as a fraction: below 1 a token has several states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TokensPerState {
    /// A whole number of tokens.
    Whole(u64),
    /// `[numerator, denominator]`.
    Fraction([u64; 2]),
}

impl Default for TokensPerState {
    fn default() -> Self {
        Self::Whole(1)
    }
}

impl TokensPerState {
    /// Numerator and denominator.
    pub const fn parts(self) -> (u64, u64) {
        match self {
            Self::Whole(n) => (n, 1),
            Self::Fraction([n, d]) => (n, d),
        }
    }
}

/// How a KV cache is quantised, by vLLM's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names are vLLM's own")]
pub enum KvQuantMode {
    #[default]
    None,
    Fp8PerTensor,
    Int8PerTokenHead,
    Fp8PerTokenHead,
    Int4PerTokenHead,
    Nvfp4,
    #[serde(rename = "TURBOQUANT_K8V4")]
    TurboquantK8v4,
    #[serde(rename = "TURBOQUANT_4BIT_NC")]
    Turboquant4bitNc,
    #[serde(rename = "TURBOQUANT_K3V4_NC")]
    TurboquantK3v4Nc,
    #[serde(rename = "TURBOQUANT_3BIT_NC")]
    Turboquant3bitNc,
    Nvfp4DsMla,
    #[serde(rename = "ULTRAQUANT_4BIT")]
    Ultraquant4bit,
    #[serde(rename = "OCTAVE_K3V4")]
    OctaveK3v4,
    #[serde(rename = "OCTAVE_K3V3")]
    OctaveK3v3,
    #[serde(rename = "OCTAVE_K3V3_COMPACT")]
    OctaveK3v3Compact,
    Custom,
}

impl KvQuantMode {
    /// N of the first version 0.N that has the mode; 0 is before the oldest that is known.
    ///
    /// # Source
    /// The members of `KVQuantMode` in each version's `kv_cache_interface.py`.
    pub const fn since(self) -> u16 {
        match self {
            Self::None
            | Self::Fp8PerTensor
            | Self::Int8PerTokenHead
            | Self::Fp8PerTokenHead
            | Self::Nvfp4 => 0,
            Self::Int4PerTokenHead => 25,
            Self::TurboquantK8v4
            | Self::Turboquant4bitNc
            | Self::TurboquantK3v4Nc
            | Self::Turboquant3bitNc => 28,
            Self::Nvfp4DsMla => 30,
            Self::Ultraquant4bit => 32,
            Self::OctaveK3v4 | Self::OctaveK3v3 | Self::OctaveK3v3Compact | Self::Custom => 33,
        }
    }

    /// Whether every token of every head has a scale of its own.
    pub const fn is_per_token_head(self) -> bool {
        matches!(self, Self::Int8PerTokenHead | Self::Fp8PerTokenHead | Self::Int4PerTokenHead)
    }
}
