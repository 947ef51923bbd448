//! Which fields each kind has, in which engine versions.
//!
//! A field that an engine does not have yet takes no part in equality there: that is how adding one
//! changes a plan.
//!
//! # Source
//! The dataclasses of `vllm/v1/kv_cache_interface.py` in the last patch release of each minor version.

use super::{AttentionKind, Field, KvCacheSpec, SpecKind, TokensPerState};
use crate::engine::EngineVersion;

/// A set of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldSet(u64);

impl FieldSet {
    const fn bit(field: Field) -> u64 {
        1 << (field as u64)
    }

    /// Whether `field` is in the set.
    pub const fn contains(self, field: Field) -> bool {
        self.0 & Self::bit(field) != 0
    }

    /// The set with `field` in it.
    #[must_use]
    pub const fn with(self, field: Field) -> Self {
        Self(self.0 | Self::bit(field))
    }

    /// Whether nothing is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// First and last minor version that has a field; `None` is still there.
type Span = (u16, Option<u16>);

const ALWAYS: Span = (0, None);

struct Known {
    field: Field,
    kinds: fn(SpecKind) -> bool,
    span: Span,
}

const fn is_attention(kind: SpecKind) -> bool {
    !matches!(kind, SpecKind::Mamba)
}

const fn is_mamba(kind: SpecKind) -> bool {
    matches!(kind, SpecKind::Mamba)
}

const fn any(_: SpecKind) -> bool {
    true
}

/// A row a field and kind; the minor versions stand for 0.N.
const KNOWN: &[Known] = &{
    use Field as F;
    const fn row(field: Field, kinds: fn(SpecKind) -> bool, span: Span) -> Known {
        Known { field, kinds, span }
    }
    [
        row(F::BlockSize, any, ALWAYS),
        row(F::DcpSharded, any, (31, None)),
        row(F::BlockStrideAlignment, any, (31, None)),
        row(F::NumKvHeads, is_attention, ALWAYS),
        row(F::HeadSize, is_attention, ALWAYS),
        row(F::DTypeField, is_attention, ALWAYS),
        row(F::KvQuantModeField, is_attention, ALWAYS),
        row(F::PageSizePadded, any, ALWAYS),
        row(F::IndexesKvByBlockStride, is_attention, (0, Some(28))),
        row(F::HeadSizeV, |k| k.is_full_family() || k.is_sliding_family(), (0, Some(27))),
        row(F::HeadSizeV, is_attention, (28, None)),
        row(F::NumHeadSlots, is_attention, (28, None)),
        row(F::StateContentBytes, is_attention, (28, None)),
        row(F::TokensPerStateField, is_attention, (29, None)),
        row(F::MaxTpShards, is_attention, (31, None)),
        row(F::SlidingWindow, |k| k.is_full_family() || k.is_sliding_family(), ALWAYS),
        row(F::AttentionChunkSize, |k| k.is_full_family() || matches!(k, SpecKind::Chunked), ALWAYS),
        row(F::NonCausal, SpecKind::is_full_family, ALWAYS),
        row(F::ExtraRetainedTokens, SpecKind::is_sliding_family, (28, None)),
        row(F::SinkLen, |k| matches!(k, SpecKind::Sink), ALWAYS),
        row(F::RswaWindow, |k| matches!(k, SpecKind::Rswa), (25, None)),
        row(F::CacheDtypeStr, |k| k.is_mla_family() || matches!(k, SpecKind::SlidingMla), ALWAYS),
        row(F::Alignment, |k| k.is_mla_family() || matches!(k, SpecKind::SlidingMla), ALWAYS),
        row(F::ModelVersion, |k| k.is_mla_family() || matches!(k, SpecKind::SlidingMla), ALWAYS),
        row(F::CompressRatio, |k| k.is_mla_family() || matches!(k, SpecKind::SlidingMla), (0, Some(28))),
        row(F::TopkBufferWidth, SpecKind::is_mla_family, (33, None)),
        row(F::CacheRole, SpecKind::is_mla_family, (30, None)),
        row(F::IsIndexGroupLeader, SpecKind::is_mla_family, (30, None)),
        row(F::NonCausalMultiTokenDecode, SpecKind::is_mla_family, (27, None)),
        row(F::StorageBlockSize, SpecKind::is_mla_family, (30, Some(31))),
        row(F::BoundedReplay, |k| matches!(k, SpecKind::SlidingMla), (31, None)),
        row(F::Shapes, is_mamba, ALWAYS),
        row(F::DTypes, is_mamba, ALWAYS),
        row(F::MambaType, is_mamba, ALWAYS),
        row(F::MambaCacheModeField, is_mamba, ALWAYS),
        row(F::NumSpeculativeBlocks, is_mamba, ALWAYS),
        row(F::NumPrefillCheckpointBlocks, is_mamba, (29, None)),
        row(F::PrefillCheckpointAlignment, is_mamba, (30, None)),
        row(F::TpReplicated, is_mamba, (29, None)),
        row(F::NumHeads, is_mamba, (29, None)),
    ]
};

/// The fields that `kind` has in `version`.
pub fn known_fields(kind: SpecKind, version: EngineVersion) -> FieldSet {
    let minor = version.minor();
    KNOWN
        .iter()
        .filter(|k| (k.kinds)(kind) && minor >= k.span.0 && k.span.1.is_none_or(|last| minor <= last))
        .fold(FieldSet::default(), |set, k| set.with(k.field))
}

/// The fields that `kind` has in any version.
pub(super) fn declared_fields(kind: SpecKind) -> FieldSet {
    KNOWN.iter().filter(|k| (k.kinds)(kind)).fold(FieldSet::default(), |set, k| set.with(k.field))
}

/// The engine versions (0.N, first and last) in which `kind` has `field`; `None` if it never had.
pub fn field_span(kind: SpecKind, field: Field) -> Option<(u16, Option<u16>)> {
    let mut spans = KNOWN.iter().filter(|k| k.field == field && (k.kinds)(kind)).map(|k| k.span);
    let first = spans.next()?;
    Some(spans.fold(first, |a, b| (a.0.min(b.0), if b.0 > a.0 { b.1 } else { a.1 })))
}

impl KvCacheSpec {
    /// Puts `field` back to the value that vLLM's dataclass has by default.
    pub(crate) fn reset(&mut self, field: Field) {
        match self {
            Self::Mamba(spec) => match field {
                Field::DcpSharded => spec.dcp_sharded = false,
                Field::NumPrefillCheckpointBlocks => spec.num_prefill_checkpoint_blocks = 0,
                Field::PrefillCheckpointAlignment => spec.prefill_checkpoint_alignment = None,
                Field::TpReplicated => spec.tp_replicated = false,
                Field::NumHeads => spec.num_heads = 1,
                _ => {}
            },
            Self::Attention(spec) => {
                match field {
                    Field::DcpSharded => spec.dcp_sharded = true,
                    Field::BlockStrideAlignment => spec.block_stride_alignment = None,
                    Field::IndexesKvByBlockStride => spec.indexes_kv_by_block_stride = false,
                    Field::HeadSizeV => spec.head_size_v = spec.head_size,
                    Field::NumHeadSlots => spec.num_head_slots = None,
                    Field::StateContentBytes => spec.state_content_bytes = None,
                    Field::TokensPerStateField => spec.tokens_per_state = TokensPerState::default(),
                    Field::MaxTpShards => spec.max_tp_shards = None,
                    _ => {}
                }
                match &mut spec.kind {
                    AttentionKind::Mla(_, mla) | AttentionKind::HiddenState(_, mla) => match field {
                        Field::CompressRatio => mla.compress_ratio = 0,
                        Field::TopkBufferWidth => mla.topk_buffer_width = None,
                        Field::CacheRole => mla.cache_role = Default::default(),
                        Field::IsIndexGroupLeader => mla.is_index_group_leader = false,
                        Field::NonCausalMultiTokenDecode => mla.non_causal_multi_token_decode = false,
                        Field::StorageBlockSize => mla.storage_block_size = None,
                        _ => {}
                    },
                    AttentionKind::SlidingMla(sliding, mla) => match field {
                        Field::CompressRatio => mla.compress_ratio = 0,
                        Field::BoundedReplay => mla.bounded_replay = false,
                        Field::ExtraRetainedTokens => sliding.extra_retained_tokens = 0,
                        _ => {}
                    },
                    AttentionKind::Sliding(sliding) if field == Field::ExtraRetainedTokens => {
                        sliding.extra_retained_tokens = 0;
                    }
                    _ => {}
                }
            }
        }
    }

    /// Drops what `version` does not have, as an engine of that version never saw it; gives what was dropped.
    pub(crate) fn retain_known(&mut self, known: FieldSet) -> FieldSet {
        let unknown = declared_fields(self.kind()).without(known);
        if !unknown.is_empty() {
            for field in Field::ALL.iter().copied().filter(|f| unknown.contains(*f)) {
                self.reset(field);
            }
        }
        unknown
    }
}
