//! The fields of a spec as data, so that a merge can name what stopped it and a person can change one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attention::{KvQuantMode, SparseCacheRole, StrideAlignment, TokensPerState};
use crate::dtype::DType;

/// The value of a field, in a form that can be printed, compared and put into another spec.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// A flag.
    Flag(bool),
    /// A count or a size.
    Int(u64),
    /// A name.
    Text(String),
    /// State shapes.
    Shapes(Vec<Vec<u64>>),
    /// State dtypes.
    DTypes(Vec<DType>),
    /// A block stride alignment or a fraction of tokens a state.
    Alignment(StrideAlignment),
    /// Tokens a state.
    Tokens(TokensPerState),
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(v) => write!(f, "{v}"),
            Self::Int(v) => write!(f, "{v}"),
            Self::Text(v) => f.write_str(v),
            Self::Shapes(v) => write!(f, "{v:?}"),
            Self::DTypes(v) => {
                f.write_str("[")?;
                for (i, d) in v.iter().enumerate() {
                    write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Self::Alignment(StrideAlignment::Bytes(v)) => write!(f, "{v}"),
            Self::Alignment(StrideAlignment::MultipleOf { multiple_of }) => {
                write!(f, "multiple of {multiple_of} tokens")
            }
            Self::Tokens(v) => match v.parts() {
                (n, 1) => write!(f, "{n}"),
                (n, d) => write!(f, "{n}/{d}"),
            },
        }
    }
}

/// A type that a field can have.
pub(super) trait Scalar: Sized {
    /// As a field value.
    fn to_value(&self) -> FieldValue;
    /// From a field value, if it has this type.
    fn from_value(value: FieldValue) -> Option<Self>;
}

impl Scalar for u64 {
    fn to_value(&self) -> FieldValue {
        FieldValue::Int(*self)
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        if let FieldValue::Int(v) = value { Some(v) } else { None }
    }
}

impl Scalar for bool {
    fn to_value(&self) -> FieldValue {
        FieldValue::Flag(*self)
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        if let FieldValue::Flag(v) = value { Some(v) } else { None }
    }
}

impl Scalar for Arc<str> {
    fn to_value(&self) -> FieldValue {
        FieldValue::Text(self.to_string())
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        if let FieldValue::Text(v) = value { Some(v.into()) } else { None }
    }
}

impl Scalar for DType {
    fn to_value(&self) -> FieldValue {
        FieldValue::Text(self.name().to_owned())
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        if let FieldValue::Text(v) = value { v.parse().ok() } else { None }
    }
}

impl Scalar for Vec<Vec<u64>> {
    fn to_value(&self) -> FieldValue {
        FieldValue::Shapes(self.clone())
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        if let FieldValue::Shapes(v) = value { Some(v) } else { None }
    }
}

impl Scalar for Vec<DType> {
    fn to_value(&self) -> FieldValue {
        FieldValue::DTypes(self.clone())
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        if let FieldValue::DTypes(v) = value { Some(v) } else { None }
    }
}

impl Scalar for StrideAlignment {
    fn to_value(&self) -> FieldValue {
        FieldValue::Alignment(*self)
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        match value {
            FieldValue::Alignment(v) => Some(v),
            FieldValue::Int(v) => Some(Self::Bytes(v)),
            _ => None,
        }
    }
}

impl Scalar for TokensPerState {
    fn to_value(&self) -> FieldValue {
        FieldValue::Tokens(*self)
    }
    fn from_value(value: FieldValue) -> Option<Self> {
        match value {
            FieldValue::Tokens(v) => Some(v),
            FieldValue::Int(v) => Some(Self::Whole(v)),
            _ => None,
        }
    }
}

macro_rules! named_scalar {
    ($type:ty, $($variant:ident => $name:literal),+ $(,)?) => {
        impl $type {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name as vLLM writes it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
        impl Scalar for $type {
            fn to_value(&self) -> FieldValue {
                FieldValue::Text(self.name().to_owned())
            }
            fn from_value(value: FieldValue) -> Option<Self> {
                let FieldValue::Text(name) = value else { return None };
                match name.as_str() { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

named_scalar!(SparseCacheRole, Sparse => "SPARSE", Indexer => "INDEXER");
named_scalar!(
    KvQuantMode,
    None => "NONE", Fp8PerTensor => "FP8_PER_TENSOR", Int8PerTokenHead => "INT8_PER_TOKEN_HEAD",
    Fp8PerTokenHead => "FP8_PER_TOKEN_HEAD", Int4PerTokenHead => "INT4_PER_TOKEN_HEAD", Nvfp4 => "NVFP4",
    TurboquantK8v4 => "TURBOQUANT_K8V4", Turboquant4bitNc => "TURBOQUANT_4BIT_NC",
    TurboquantK3v4Nc => "TURBOQUANT_K3V4_NC", Turboquant3bitNc => "TURBOQUANT_3BIT_NC",
    Nvfp4DsMla => "NVFP4_DS_MLA", Ultraquant4bit => "ULTRAQUANT_4BIT", OctaveK3v4 => "OCTAVE_K3V4",
    OctaveK3v3 => "OCTAVE_K3V3", OctaveK3v3Compact => "OCTAVE_K3V3_COMPACT", Custom => "CUSTOM",
);

macro_rules! fields {
    ($($variant:ident $name:ident $type:ty, $doc:literal;)+) => {
        /// A field of a KV cache spec, by vLLM's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Field {
            $(#[doc = $doc] $variant),+
        }

        impl Field {
            /// Every field.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// vLLM's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name)),+ }
            }

            /// The field of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(Self::$variant),)+ _ => None }
            }
        }

        /// A spec as it is written in files: the kind, and each field that it declares.
        ///
        /// `name` and `page_size_bytes` annotate a layer; they are no part of its spec.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct RawSpec {
            /// The layer's name, where the spec stands for one layer.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// Which of vLLM's classes.
            pub kind: super::SpecKind,
            $(
                #[doc = $doc]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )+
            /// The page size that was recorded beside the spec, bytes.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub page_size_bytes: Option<u64>,
        }

        impl RawSpec {
            /// A spec of that kind that declares nothing.
            pub const fn empty(kind: super::SpecKind) -> Self {
                Self { name: None, kind, $($name: None,)+ page_size_bytes: None }
            }

            /// What the spec declares for `field`.
            pub fn get(&self, field: Field) -> Option<FieldValue> {
                match field { $(Field::$variant => self.$name.as_ref().map(Scalar::to_value)),+ }
            }

            /// Declares `field`, or takes the declaration back; false if the value has another type.
            pub fn set(&mut self, field: Field, value: Option<FieldValue>) -> bool {
                match field {
                    $(Field::$variant => match value {
                        None => { self.$name = None; true }
                        Some(value) => match Scalar::from_value(value) {
                            Some(value) => { self.$name = Some(value); true }
                            None => false,
                        },
                    }),+
                }
            }
        }
    };
}

fields! {
    BlockSize block_size u64, "Tokens of one block.";
    NumKvHeads num_kv_heads u64, "KV heads of one rank.";
    HeadSize head_size u64, "Elements of a head's key.";
    HeadSizeV head_size_v u64, "Elements of a head's value.";
    DTypeField dtype DType, "Element type.";
    KvQuantModeField kv_quant_mode KvQuantMode, "How the cache is quantised.";
    PageSizePadded page_size_padded u64, "Bytes that the page is padded to.";
    DcpSharded dcp_sharded bool, "Whether decode context parallelism shards it.";
    MaxTpShards max_tp_shards u64, "Distinct shards over tensor parallel ranks.";
    BlockStrideAlignment block_stride_alignment StrideAlignment, "What the block stride is a multiple of.";
    NumHeadSlots num_head_slots u64, "Head slots of a packed page.";
    StateContentBytes state_content_bytes u64, "Bytes of one packed state of a head slot.";
    TokensPerStateField tokens_per_state TokensPerState, "Tokens that one stored state covers.";
    IndexesKvByBlockStride indexes_kv_by_block_stride bool, "Whether pages are found by the block stride.";
    SlidingWindow sliding_window u64, "Tokens of the window.";
    AttentionChunkSize attention_chunk_size u64, "Tokens of a chunk.";
    NonCausal non_causal bool, "Whether the layer also attends to later tokens.";
    ExtraRetainedTokens extra_retained_tokens u64, "Tokens kept below the window.";
    SinkLen sink_len u64, "Sink tokens.";
    RswaWindow rswa_window u64, "Generated tokens that reference sliding window attention keeps.";
    CacheDtypeStr cache_dtype_str Arc<str>, "The cache dtype as the engine names it.";
    TopkBufferWidth topk_buffer_width u64, "Width of the sparse top-k indices buffer.";
    Alignment alignment u64, "Bytes that the page is aligned to.";
    ModelVersion model_version Arc<str>, "The model whose own cache format it is.";
    CacheRole cache_role SparseCacheRole, "What a sparse model uses the cache for.";
    IsIndexGroupLeader is_index_group_leader bool, "Whether the layer leads a group of shared indices.";
    NonCausalMultiTokenDecode non_causal_multi_token_decode bool, "Whether draft queries become decode rows.";
    StorageBlockSize storage_block_size u64, "Token width of the storage.";
    CompressRatio compress_ratio u64, "Tokens that one stored latent covers (up to 0.28).";
    BoundedReplay bounded_replay bool, "Whether a prefix hit replays a bounded part.";
    Shapes shapes Vec<Vec<u64>>, "State shapes.";
    DTypes dtypes Vec<DType>, "State dtypes.";
    MambaType mamba_type Arc<str>, "The state's attention backend.";
    MambaCacheModeField mamba_cache_mode Arc<str>, "The state mode that the layer declares.";
    NumSpeculativeBlocks num_speculative_blocks u64, "State blocks for draft tokens.";
    NumPrefillCheckpointBlocks num_prefill_checkpoint_blocks u64, "State blocks for prefill checkpoints.";
    PrefillCheckpointAlignment prefill_checkpoint_alignment u64, "Tokens that a checkpoint is a multiple of.";
    TpReplicated tp_replicated bool, "Whether every rank holds the whole state.";
    NumHeads num_heads u64, "Head slots of a state's page.";
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
