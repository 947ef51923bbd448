//! What one layer declares about its cache: vLLM's KV cache spec, kind by kind.
//!
//! Equality is over all fields, as in vLLM's dataclasses: one new field with two values splits a bucket.
//! The hierarchy is vLLM's too: everything but a state cache is an [`AttentionSpec`]; the full-attention
//! family (full, MLA, sink, hidden state, R-SWA) shares [`FullFields`].
//!
//! # Source
//! vLLM `vllm/v1/kv_cache_interface.py`, 0.24.0 to 0.33.0.

mod attention;
mod field;
mod known_fields;
mod mamba;
mod max_blocks;
mod page_size;
mod raw;
mod uniform;

use serde::{Deserialize, Serialize};

pub use attention::{
    AttentionKind, AttentionSpec, FullFields, KvQuantMode, MlaFields, SlidingFields, SlidingMlaFields,
    SparseCacheRole, StrideAlignment, TokensPerState,
};
pub use field::{Field, FieldValue};
pub use known_fields::{FieldSet, field_span, known_fields};
pub use mamba::{MambaSpec, StateShapes};
pub use max_blocks::RequestShape;
pub use page_size::PageError;
pub use raw::{RawSpec, SpecError};
pub use uniform::NotUniform;
pub(crate) use uniform::uniform_with;

/// The kinds of KV cache spec, by the class that vLLM has for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecKind {
    /// `FullAttentionSpec`.
    Full,
    /// `MLAAttentionSpec`.
    Mla,
    /// `SlidingWindowSpec`.
    Sliding,
    /// `SlidingWindowMLASpec`.
    SlidingMla,
    /// `ChunkedLocalAttentionSpec`.
    Chunked,
    /// `MambaSpec`: any recurrent state (KDA, GDN, Mamba 1 and 2, short convolution).
    Mamba,
    /// `CrossAttentionSpec`.
    Cross,
    /// `SinkFullAttentionSpec`.
    Sink,
    /// `EncoderOnlyAttentionSpec`.
    EncoderOnly,
    /// `RSWASpec`.
    Rswa,
    /// `HiddenStateCacheSpec`.
    HiddenState,
    /// `CircularBufferSpec`.
    CircularBuffer,
}

impl SpecKind {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::Full,
        Self::Mla,
        Self::Sliding,
        Self::SlidingMla,
        Self::Chunked,
        Self::Mamba,
        Self::Cross,
        Self::Sink,
        Self::EncoderOnly,
        Self::Rswa,
        Self::HiddenState,
        Self::CircularBuffer,
    ];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Mla => "mla",
            Self::Sliding => "sliding",
            Self::SlidingMla => "sliding_mla",
            Self::Chunked => "chunked",
            Self::Mamba => "mamba",
            Self::Cross => "cross",
            Self::Sink => "sink",
            Self::EncoderOnly => "encoder_only",
            Self::Rswa => "rswa",
            Self::HiddenState => "hidden_state",
            Self::CircularBuffer => "circular_buffer",
        }
    }

    /// vLLM's class name.
    pub const fn class_name(self) -> &'static str {
        match self {
            Self::Full => "FullAttentionSpec",
            Self::Mla => "MLAAttentionSpec",
            Self::Sliding => "SlidingWindowSpec",
            Self::SlidingMla => "SlidingWindowMLASpec",
            Self::Chunked => "ChunkedLocalAttentionSpec",
            Self::Mamba => "MambaSpec",
            Self::Cross => "CrossAttentionSpec",
            Self::Sink => "SinkFullAttentionSpec",
            Self::EncoderOnly => "EncoderOnlyAttentionSpec",
            Self::Rswa => "RSWASpec",
            Self::HiddenState => "HiddenStateCacheSpec",
            Self::CircularBuffer => "CircularBufferSpec",
        }
    }

    /// N of the first version 0.N that has the class; 0 is before the oldest that is known.
    pub const fn since(self) -> u16 {
        match self {
            Self::Rswa => 25,
            Self::CircularBuffer => 29,
            _ => 0,
        }
    }

    /// Whether vLLM's class derives from `FullAttentionSpec`.
    pub const fn is_full_family(self) -> bool {
        matches!(self, Self::Full | Self::Mla | Self::Sink | Self::Rswa | Self::HiddenState)
    }

    /// Whether vLLM's class derives from `MLAAttentionSpec`.
    pub const fn is_mla_family(self) -> bool {
        matches!(self, Self::Mla | Self::HiddenState)
    }

    /// Whether vLLM's class derives from `SlidingWindowSpec`.
    pub const fn is_sliding_family(self) -> bool {
        matches!(self, Self::Sliding | Self::SlidingMla)
    }
}

/// One layer's KV cache spec.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "RawSpec", try_from = "RawSpec")]
pub enum KvCacheSpec {
    /// A cache of keys and values (or latents), a page of slots.
    Attention(AttentionSpec),
    /// A recurrent state, one a block.
    Mamba(MambaSpec),
}

impl KvCacheSpec {
    /// Which of vLLM's classes this is.
    pub const fn kind(&self) -> SpecKind {
        match self {
            Self::Attention(spec) => spec.kind.kind(),
            Self::Mamba(_) => SpecKind::Mamba,
        }
    }

    /// Whether a request keeps a bounded number of its last tokens: a window or a chunk.
    pub const fn has_window(&self) -> bool {
        let kind = self.kind();
        kind.is_sliding_family() || matches!(kind, SpecKind::Chunked)
    }

    /// Tokens of one block.
    pub const fn block_size(&self) -> u64 {
        match self {
            Self::Attention(spec) => spec.block_size,
            Self::Mamba(spec) => spec.block_size,
        }
    }

    /// Whether decode context parallelism shards this cache's positions.
    pub const fn dcp_sharded(&self) -> bool {
        match self {
            Self::Attention(spec) => spec.dcp_sharded,
            Self::Mamba(spec) => spec.dcp_sharded,
        }
    }

    /// The padded page size that the layer declares, bytes.
    pub const fn page_size_padded(&self) -> Option<u64> {
        match self {
            Self::Attention(spec) => spec.page_size_padded,
            Self::Mamba(spec) => spec.page_size_padded,
        }
    }

    /// The same spec with another block size.
    #[must_use]
    pub fn with_block_size(&self, block_size: u64) -> Self {
        let mut spec = self.clone();
        match &mut spec {
            Self::Attention(spec) => spec.block_size = block_size,
            Self::Mamba(spec) => spec.block_size = block_size,
        }
        spec
    }

    /// The same spec with its page padded to `bytes`.
    #[must_use]
    pub fn with_page_size_padded(&self, bytes: u64) -> Self {
        let mut spec = self.clone();
        match &mut spec {
            Self::Attention(spec) => spec.page_size_padded = Some(bytes),
            Self::Mamba(spec) => spec.page_size_padded = Some(bytes),
        }
        spec
    }

    /// The attention spec, if this is one.
    pub const fn attention(&self) -> Option<&AttentionSpec> {
        match self {
            Self::Attention(spec) => Some(spec),
            Self::Mamba(_) => None,
        }
    }
}
