//! From what a file declares to a spec, and back: defaults, required fields, fields of another kind.

use std::sync::Arc;

pub use super::field::RawSpec;
use super::known_fields::declared_fields;
use super::{
    AttentionKind, AttentionSpec, Field, FullFields, KvCacheSpec, MambaSpec, MlaFields, SlidingFields,
    SlidingMlaFields, SpecKind, StateShapes, TokensPerState,
};

/// What is wrong with a declared spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A field that the kind cannot do without.
    #[error("a `{}` spec needs `{field}`", kind.name())]
    Missing {
        /// The kind.
        kind: SpecKind,
        /// The field.
        field: Field,
    },
    /// A field that the kind does not have.
    #[error("a `{}` spec has no field `{field}`", kind.name())]
    NotOfKind {
        /// The kind.
        kind: SpecKind,
        /// The field.
        field: Field,
    },
    /// A size that must be positive.
    #[error("`{field}` must be at least 1")]
    Zero {
        /// The field.
        field: Field,
    },
    /// States and dtypes that do not pair up.
    #[error("`shapes` has {shapes} entries and `dtypes` {dtypes}")]
    StateLengths {
        /// Number of shapes.
        shapes: usize,
        /// Number of dtypes.
        dtypes: usize,
    },
    /// A model version that vLLM refuses.
    #[error("a `sliding_mla` spec takes `model_version` `deepseek_v4` or none, not `{0}`")]
    ModelVersion(String),
}

impl TryFrom<RawSpec> for KvCacheSpec {
    type Error = SpecError;

    fn try_from(raw: RawSpec) -> Result<Self, SpecError> {
        let kind = raw.kind;
        let of_kind = declared_fields(kind);
        if let Some(field) =
            Field::ALL.iter().copied().find(|f| raw.get(*f).is_some() && !of_kind.contains(*f))
        {
            return Err(SpecError::NotOfKind { kind, field });
        }
        let need = |value: Option<u64>, field: Field| match value {
            Some(0) => Err(SpecError::Zero { field }),
            Some(value) => Ok(value),
            None => Err(SpecError::Missing { kind, field }),
        };
        for (field, value) in [
            (Field::PageSizePadded, raw.page_size_padded),
            (Field::MaxTpShards, raw.max_tp_shards),
            (Field::Alignment, raw.alignment),
            (Field::NumHeadSlots, raw.num_head_slots),
            (Field::StateContentBytes, raw.state_content_bytes),
            (Field::CompressRatio, raw.compress_ratio),
        ] {
            if value == Some(0) {
                return Err(SpecError::Zero { field });
            }
        }
        if raw.tokens_per_state.is_some_and(|t| t.parts().0 == 0 || t.parts().1 == 0) {
            return Err(SpecError::Zero { field: Field::TokensPerStateField });
        }
        let block_size = need(raw.block_size, Field::BlockSize)?;
        if kind == SpecKind::Mamba {
            return mamba(raw, block_size);
        }
        let head_size = need(raw.head_size, Field::HeadSize)?;
        let default_head_size_v =
            if kind.is_mla_family() || kind == SpecKind::SlidingMla { 0 } else { head_size };
        let full = FullFields {
            sliding_window: raw.sliding_window,
            attention_chunk_size: raw.attention_chunk_size,
            non_causal: raw.non_causal.unwrap_or(false),
        };
        let mla = MlaFields {
            cache_dtype_str: raw.cache_dtype_str.clone(),
            topk_buffer_width: raw.topk_buffer_width,
            alignment: raw.alignment,
            model_version: raw.model_version.clone(),
            cache_role: raw.cache_role.unwrap_or_default(),
            is_index_group_leader: raw.is_index_group_leader.unwrap_or(false),
            non_causal_multi_token_decode: raw.non_causal_multi_token_decode.unwrap_or(false),
            storage_block_size: raw.storage_block_size,
            compress_ratio: raw.compress_ratio.unwrap_or(0),
        };
        let fields = match kind {
            SpecKind::Full => AttentionKind::Full(full),
            SpecKind::Mla => AttentionKind::Mla(full, mla),
            SpecKind::HiddenState => AttentionKind::HiddenState(full, mla),
            SpecKind::Sink => AttentionKind::Sink(full, raw.sink_len),
            SpecKind::Rswa => AttentionKind::Rswa(full, need(raw.rswa_window, Field::RswaWindow)?),
            SpecKind::Sliding | SpecKind::SlidingMla => {
                let sliding = SlidingFields {
                    sliding_window: need(raw.sliding_window, Field::SlidingWindow)?,
                    extra_retained_tokens: raw.extra_retained_tokens.unwrap_or(0),
                };
                if kind == SpecKind::Sliding {
                    AttentionKind::Sliding(sliding)
                } else {
                    if let Some(version) = raw.model_version.as_deref().filter(|v| *v != "deepseek_v4") {
                        return Err(SpecError::ModelVersion(version.to_owned()));
                    }
                    AttentionKind::SlidingMla(
                        sliding,
                        SlidingMlaFields {
                            cache_dtype_str: raw.cache_dtype_str.clone(),
                            alignment: raw.alignment,
                            model_version: raw.model_version.clone(),
                            bounded_replay: raw.bounded_replay.unwrap_or(false),
                            compress_ratio: raw.compress_ratio.unwrap_or(0),
                        },
                    )
                }
            }
            SpecKind::Chunked => AttentionKind::Chunked {
                attention_chunk_size: need(raw.attention_chunk_size, Field::AttentionChunkSize)?,
            },
            SpecKind::Cross => AttentionKind::Cross,
            SpecKind::EncoderOnly => AttentionKind::EncoderOnly,
            SpecKind::CircularBuffer | SpecKind::Mamba => AttentionKind::CircularBuffer,
        };
        Ok(Self::Attention(AttentionSpec {
            kind: fields,
            block_size,
            num_kv_heads: need(raw.num_kv_heads, Field::NumKvHeads)?,
            head_size,
            head_size_v: raw.head_size_v.unwrap_or(default_head_size_v),
            dtype: raw.dtype.ok_or(SpecError::Missing { kind, field: Field::DTypeField })?,
            kv_quant_mode: raw.kv_quant_mode.unwrap_or_default(),
            page_size_padded: raw.page_size_padded,
            dcp_sharded: raw.dcp_sharded.unwrap_or(true),
            max_tp_shards: raw.max_tp_shards,
            block_stride_alignment: raw.block_stride_alignment,
            num_head_slots: raw.num_head_slots,
            state_content_bytes: raw.state_content_bytes,
            tokens_per_state: raw.tokens_per_state.unwrap_or_default(),
            indexes_kv_by_block_stride: raw.indexes_kv_by_block_stride.unwrap_or(false),
        }))
    }
}

fn mamba(raw: RawSpec, block_size: u64) -> Result<KvCacheSpec, SpecError> {
    let missing = |field| SpecError::Missing { kind: SpecKind::Mamba, field };
    let shapes = raw.shapes.ok_or_else(|| missing(Field::Shapes))?;
    let dtypes = raw.dtypes.ok_or_else(|| missing(Field::DTypes))?;
    if shapes.len() != dtypes.len() {
        return Err(SpecError::StateLengths { shapes: shapes.len(), dtypes: dtypes.len() });
    }
    if shapes.is_empty() || shapes.iter().flatten().any(|n| *n == 0) {
        return Err(SpecError::Zero { field: Field::Shapes });
    }
    Ok(KvCacheSpec::Mamba(MambaSpec {
        block_size,
        state: Arc::new(StateShapes { shapes, dtypes }),
        page_size_padded: raw.page_size_padded,
        mamba_type: raw.mamba_type,
        mamba_cache_mode: raw.mamba_cache_mode,
        num_speculative_blocks: raw.num_speculative_blocks.unwrap_or(0),
        num_prefill_checkpoint_blocks: raw.num_prefill_checkpoint_blocks.unwrap_or(0),
        prefill_checkpoint_alignment: raw.prefill_checkpoint_alignment,
        tp_replicated: raw.tp_replicated.unwrap_or(false),
        dcp_sharded: raw.dcp_sharded.unwrap_or(false),
        num_heads: raw.num_heads.unwrap_or(1),
    }))
}

/// `Some` where a flag is not at its default.
fn unless(flag: bool, default: bool) -> Option<bool> {
    (flag != default).then_some(flag)
}

fn positive(n: u64) -> Option<u64> {
    (n != 0).then_some(n)
}

impl From<&KvCacheSpec> for RawSpec {
    /// Declares every field that is not at its default.
    fn from(spec: &KvCacheSpec) -> Self {
        let mut raw = Self::empty(spec.kind());
        let spec = match spec {
            KvCacheSpec::Mamba(spec) => {
                raw.block_size = Some(spec.block_size);
                raw.shapes = Some(spec.state.shapes.clone());
                raw.dtypes = Some(spec.state.dtypes.clone());
                raw.page_size_padded = spec.page_size_padded;
                raw.mamba_type.clone_from(&spec.mamba_type);
                raw.mamba_cache_mode.clone_from(&spec.mamba_cache_mode);
                raw.num_speculative_blocks = positive(spec.num_speculative_blocks);
                raw.num_prefill_checkpoint_blocks = positive(spec.num_prefill_checkpoint_blocks);
                raw.prefill_checkpoint_alignment = spec.prefill_checkpoint_alignment;
                raw.tp_replicated = unless(spec.tp_replicated, false);
                raw.dcp_sharded = unless(spec.dcp_sharded, false);
                raw.num_heads = (spec.num_heads != 1).then_some(spec.num_heads);
                return raw;
            }
            KvCacheSpec::Attention(spec) => spec,
        };
        let kind = spec.kind.kind();
        raw.block_size = Some(spec.block_size);
        raw.num_kv_heads = Some(spec.num_kv_heads);
        raw.head_size = Some(spec.head_size);
        let default_head_size_v =
            if kind.is_mla_family() || kind == SpecKind::SlidingMla { 0 } else { spec.head_size };
        raw.head_size_v = (spec.head_size_v != default_head_size_v).then_some(spec.head_size_v);
        raw.dtype = Some(spec.dtype);
        raw.kv_quant_mode = (spec.kv_quant_mode != Default::default()).then_some(spec.kv_quant_mode);
        raw.page_size_padded = spec.page_size_padded;
        raw.dcp_sharded = unless(spec.dcp_sharded, true);
        raw.max_tp_shards = spec.max_tp_shards;
        raw.block_stride_alignment = spec.block_stride_alignment;
        raw.num_head_slots = spec.num_head_slots;
        raw.state_content_bytes = spec.state_content_bytes;
        raw.tokens_per_state =
            (spec.tokens_per_state != TokensPerState::default()).then_some(spec.tokens_per_state);
        raw.indexes_kv_by_block_stride = unless(spec.indexes_kv_by_block_stride, false);
        if let Some(full) = spec.kind.full() {
            raw.sliding_window = full.sliding_window;
            raw.attention_chunk_size = full.attention_chunk_size;
            raw.non_causal = unless(full.non_causal, false);
        }
        match &spec.kind {
            AttentionKind::Mla(_, mla) | AttentionKind::HiddenState(_, mla) => {
                raw.cache_dtype_str.clone_from(&mla.cache_dtype_str);
                raw.topk_buffer_width = mla.topk_buffer_width;
                raw.alignment = mla.alignment;
                raw.model_version.clone_from(&mla.model_version);
                raw.cache_role = (mla.cache_role != Default::default()).then_some(mla.cache_role);
                raw.is_index_group_leader = unless(mla.is_index_group_leader, false);
                raw.non_causal_multi_token_decode = unless(mla.non_causal_multi_token_decode, false);
                raw.storage_block_size = mla.storage_block_size;
                raw.compress_ratio = positive(mla.compress_ratio);
            }
            AttentionKind::Sliding(sliding) => sliding_fields(&mut raw, sliding),
            AttentionKind::SlidingMla(sliding, mla) => {
                sliding_fields(&mut raw, sliding);
                raw.cache_dtype_str.clone_from(&mla.cache_dtype_str);
                raw.alignment = mla.alignment;
                raw.model_version.clone_from(&mla.model_version);
                raw.bounded_replay = unless(mla.bounded_replay, false);
                raw.compress_ratio = positive(mla.compress_ratio);
            }
            AttentionKind::Chunked { attention_chunk_size } => {
                raw.attention_chunk_size = Some(*attention_chunk_size);
            }
            AttentionKind::Sink(_, sink_len) => raw.sink_len = *sink_len,
            AttentionKind::Rswa(_, window) => raw.rswa_window = Some(*window),
            AttentionKind::Full(_)
            | AttentionKind::Cross
            | AttentionKind::EncoderOnly
            | AttentionKind::CircularBuffer => {}
        }
        raw
    }
}

fn sliding_fields(raw: &mut RawSpec, sliding: &SlidingFields) {
    raw.sliding_window = Some(sliding.sliding_window);
    raw.extra_retained_tokens = positive(sliding.extra_retained_tokens);
}

impl From<KvCacheSpec> for RawSpec {
    fn from(spec: KvCacheSpec) -> Self {
        Self::from(&spec)
    }
}
