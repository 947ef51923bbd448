//! Whether specs merge into one, and which field stops them.
//!
//! A merge takes the first spec's class and values. Most classes merge only equal specs; the full-attention
//! family also reconciles a window that only some layers declare, and flags that one layer may set for all.
//!
//! # Source
//! The `merge` class methods of `vllm/v1/kv_cache_interface.py`.

use crate::engine::Rules;
use crate::spec::{
    AttentionKind, AttentionSpec, Field, FieldValue, FullFields, KvCacheSpec, RawSpec, SpecKind,
};

/// What stopped a merge first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeRefusal {
    /// The classes do not merge.
    Kind,
    /// The class merges equal specs only; [`differences`] says which fields differ.
    Unequal,
    /// A field that must be equal is not.
    Field(Field),
    /// One layer declares a window and another a chunk.
    WindowAndChunk,
    /// The class cannot carry this field into a merged spec.
    NotCarried(Field),
}

/// One field in which two specs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDifference {
    /// The field.
    pub field: Field,
    /// What the one declares; `None` is undeclared.
    pub left: Option<FieldValue>,
    /// What the other declares.
    pub right: Option<FieldValue>,
}

/// The fields in which two specs differ, whether or not that stops a merge.
pub fn differences(left: &KvCacheSpec, right: &KvCacheSpec) -> Vec<FieldDifference> {
    declared_differences(&declared(left), &declared(right))
}

/// The fields that a spec declares, in the order of [`Field::ALL`].
pub fn declared(spec: &KvCacheSpec) -> Vec<(Field, FieldValue)> {
    let raw = RawSpec::from(spec);
    Field::ALL.iter().filter_map(|field| Some((*field, raw.get(*field)?))).collect()
}

/// The fields that two lists of [`declared`] fields declare differently.
pub fn declared_differences(
    left: &[(Field, FieldValue)],
    right: &[(Field, FieldValue)],
) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let field = match (left.peek(), right.peek()) {
            (None, None) => return found,
            (Some((field, _)), None) | (None, Some((field, _))) => *field,
            (Some((a, _)), Some((b, _))) => *a.min(b),
        };
        let a = left.next_if(|(known, _)| *known == field).map(|(_, value)| value);
        let b = right.next_if(|(known, _)| *known == field).map(|(_, value)| value);
        if a != b {
            found.push(FieldDifference { field, left: a.cloned(), right: b.cloned() });
        }
    }
}

/// Merges `next` into `merged`, which stands for the specs before it.
///
/// # Errors
/// If they do not merge; `merged` is then as it was.
pub fn merge_into(rules: &Rules, merged: &mut KvCacheSpec, next: &KvCacheSpec) -> Result<(), MergeRefusal> {
    let (KvCacheSpec::Attention(a), KvCacheSpec::Attention(b)) = (&mut *merged, next) else {
        return equal_only(merged, next);
    };
    match a.kind.kind() {
        SpecKind::Full | SpecKind::Sink | SpecKind::Rswa => merge_full(rules, a, b),
        SpecKind::Mla | SpecKind::HiddenState => merge_mla(rules, a, b),
        SpecKind::SlidingMla => merge_sliding_mla(a, b),
        SpecKind::Sliding
        | SpecKind::Chunked
        | SpecKind::Mamba
        | SpecKind::Cross
        | SpecKind::EncoderOnly
        | SpecKind::CircularBuffer => equal_only(merged, next),
    }
}

/// What a merge of `spec` alone gives: the class may reset what it does not carry, or refuse it.
///
/// # Errors
/// If the class cannot carry one of its fields.
pub fn merge_alone(rules: &Rules, spec: &KvCacheSpec) -> Result<KvCacheSpec, MergeRefusal> {
    let KvCacheSpec::Attention(attention) = spec else { return Ok(spec.clone()) };
    let mut merged = attention.clone();
    match &mut merged.kind {
        AttentionKind::Full(full) | AttentionKind::Sink(full, _) | AttentionKind::Rswa(full, _) => {
            if full.sliding_window.is_some() && full.attention_chunk_size.is_some() {
                return Err(MergeRefusal::WindowAndChunk);
            }
            let sink = attention.kind.kind() == SpecKind::Sink;
            if sink && rules.tokens_per_state && attention.tokens_per_state.parts() != (1, 1) {
                return Err(MergeRefusal::NotCarried(Field::TokensPerStateField));
            }
        }
        AttentionKind::Mla(full, mla) | AttentionKind::HiddenState(full, mla) => {
            // The merged spec is made anew from the fields that MLA compares.
            *full = FullFields::default();
            mla.alignment = None;
            if rules.head_size_v_must_match && rules.mla_checks_attention_fields && attention.head_size_v != 0
            {
                return Err(MergeRefusal::NotCarried(Field::HeadSizeV));
            }
            merged.head_size_v = 0;
        }
        AttentionKind::SlidingMla(_, mla) => {
            mla.alignment = None;
            merged.head_size_v = 0;
            merged.kv_quant_mode = Default::default();
        }
        _ => {}
    }
    Ok(KvCacheSpec::Attention(merged))
}

fn equal_only(merged: &KvCacheSpec, next: &KvCacheSpec) -> Result<(), MergeRefusal> {
    if merged == next {
        return Ok(());
    }
    Err(if merged.kind() == next.kind() { MergeRefusal::Unequal } else { MergeRefusal::Kind })
}

/// The fields of `AttentionSpec` itself: the first that differs.
fn attention_fields(rules: &Rules, a: &AttentionSpec, b: &AttentionSpec) -> Result<(), MergeRefusal> {
    let AttentionSpec {
        kind: _,
        block_size,
        num_kv_heads,
        head_size,
        head_size_v,
        dtype,
        kv_quant_mode,
        page_size_padded,
        dcp_sharded,
        max_tp_shards,
        block_stride_alignment,
        num_head_slots,
        state_content_bytes,
        tokens_per_state,
        indexes_kv_by_block_stride,
    } = a;
    for (equal, field) in [
        (*block_size == b.block_size, Field::BlockSize),
        (*num_kv_heads == b.num_kv_heads, Field::NumKvHeads),
        (*head_size == b.head_size, Field::HeadSize),
        (!rules.head_size_v_must_match || *head_size_v == b.head_size_v, Field::HeadSizeV),
        (*dtype == b.dtype, Field::DTypeField),
        (*kv_quant_mode == b.kv_quant_mode, Field::KvQuantModeField),
        (*page_size_padded == b.page_size_padded, Field::PageSizePadded),
        (*dcp_sharded == b.dcp_sharded, Field::DcpSharded),
        (*max_tp_shards == b.max_tp_shards, Field::MaxTpShards),
        (*block_stride_alignment == b.block_stride_alignment, Field::BlockStrideAlignment),
        (*num_head_slots == b.num_head_slots, Field::NumHeadSlots),
        (*state_content_bytes == b.state_content_bytes, Field::StateContentBytes),
        (*tokens_per_state == b.tokens_per_state, Field::TokensPerStateField),
        (*indexes_kv_by_block_stride == b.indexes_kv_by_block_stride, Field::IndexesKvByBlockStride),
    ] {
        if !equal {
            return Err(MergeRefusal::Field(field));
        }
    }
    Ok(())
}

/// One value or none: the one that any of the specs declares.
fn only(field: Field, a: Option<u64>, b: Option<u64>) -> Result<Option<u64>, MergeRefusal> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => Err(MergeRefusal::Field(field)),
        (a, b) => Ok(a.or(b)),
    }
}

fn merge_full(rules: &Rules, a: &mut AttentionSpec, b: &AttentionSpec) -> Result<(), MergeRefusal> {
    let kind = b.kind.kind();
    let Some(b_full) = b.kind.full().filter(|_| !kind.is_mla_family()) else {
        return Err(MergeRefusal::Kind);
    };
    if let AttentionKind::Rswa(_, window) = &a.kind {
        match &b.kind {
            AttentionKind::Rswa(_, other) if window == other => {}
            AttentionKind::Rswa(..) => return Err(MergeRefusal::Field(Field::RswaWindow)),
            _ => return Err(MergeRefusal::Kind),
        }
    }
    attention_fields(rules, a, b)?;
    if matches!(a.kind, AttentionKind::Sink(..))
        && rules.tokens_per_state
        && b.tokens_per_state.parts() != (1, 1)
    {
        return Err(MergeRefusal::NotCarried(Field::TokensPerStateField));
    }
    let Some(a_full) = a.kind.full() else { return Err(MergeRefusal::Kind) };
    let merged = FullFields {
        sliding_window: only(Field::SlidingWindow, a_full.sliding_window, b_full.sliding_window)?,
        attention_chunk_size: only(
            Field::AttentionChunkSize,
            a_full.attention_chunk_size,
            b_full.attention_chunk_size,
        )?,
        non_causal: a_full.non_causal || b_full.non_causal,
    };
    if merged.sliding_window.is_some() && merged.attention_chunk_size.is_some() {
        return Err(MergeRefusal::WindowAndChunk);
    }
    if let Some(full) = a.kind.full_mut() {
        *full = merged;
    }
    Ok(())
}

fn merge_mla(rules: &Rules, a: &mut AttentionSpec, b: &AttentionSpec) -> Result<(), MergeRefusal> {
    let (Some(a_mla), Some(b_mla)) = (a.kind.mla(), b.kind.mla()) else {
        return Err(MergeRefusal::Kind);
    };
    for (equal, field) in [
        (a_mla.cache_dtype_str == b_mla.cache_dtype_str, Field::CacheDtypeStr),
        (a_mla.topk_buffer_width == b_mla.topk_buffer_width, Field::TopkBufferWidth),
        (a_mla.compress_ratio.max(1) == b_mla.compress_ratio.max(1), Field::CompressRatio),
        (a.tokens_per_state == b.tokens_per_state, Field::TokensPerStateField),
        (a_mla.model_version == b_mla.model_version, Field::ModelVersion),
        (a_mla.cache_role == b_mla.cache_role, Field::CacheRole),
        (a_mla.is_index_group_leader == b_mla.is_index_group_leader, Field::IsIndexGroupLeader),
        (a_mla.storage_block_size == b_mla.storage_block_size, Field::StorageBlockSize),
        (a.block_stride_alignment == b.block_stride_alignment, Field::BlockStrideAlignment),
        (a.indexes_kv_by_block_stride == b.indexes_kv_by_block_stride, Field::IndexesKvByBlockStride),
        (
            !rules.mla_decode_rows_must_match
                || a_mla.non_causal_multi_token_decode == b_mla.non_causal_multi_token_decode,
            Field::NonCausalMultiTokenDecode,
        ),
    ] {
        if !equal {
            return Err(MergeRefusal::Field(field));
        }
    }
    if rules.mla_checks_attention_fields {
        attention_fields(rules, a, b)?;
        if rules.head_size_v_must_match && b.head_size_v != 0 {
            return Err(MergeRefusal::NotCarried(Field::HeadSizeV));
        }
    }
    let rows = b_mla.non_causal_multi_token_decode;
    if let AttentionKind::Mla(_, mla) | AttentionKind::HiddenState(_, mla) = &mut a.kind {
        mla.non_causal_multi_token_decode |= rows;
    }
    Ok(())
}

fn merge_sliding_mla(a: &AttentionSpec, b: &AttentionSpec) -> Result<(), MergeRefusal> {
    let (AttentionKind::SlidingMla(a_window, a_mla), AttentionKind::SlidingMla(b_window, b_mla)) =
        (&a.kind, &b.kind)
    else {
        return Err(MergeRefusal::Kind);
    };
    for (equal, field) in [
        (a.dcp_sharded == b.dcp_sharded, Field::DcpSharded),
        (a.max_tp_shards == b.max_tp_shards, Field::MaxTpShards),
        (a_mla.cache_dtype_str == b_mla.cache_dtype_str, Field::CacheDtypeStr),
        (a_mla.compress_ratio.max(1) == b_mla.compress_ratio.max(1), Field::CompressRatio),
        (a.tokens_per_state == b.tokens_per_state, Field::TokensPerStateField),
        (a_mla.model_version == b_mla.model_version, Field::ModelVersion),
        (a_window.sliding_window == b_window.sliding_window, Field::SlidingWindow),
        (a_window.extra_retained_tokens == b_window.extra_retained_tokens, Field::ExtraRetainedTokens),
        (a_mla.bounded_replay == b_mla.bounded_replay, Field::BoundedReplay),
        (a.block_stride_alignment == b.block_stride_alignment, Field::BlockStrideAlignment),
        (a.indexes_kv_by_block_stride == b.indexes_kv_by_block_stride, Field::IndexesKvByBlockStride),
    ] {
        if !equal {
            return Err(MergeRefusal::Field(field));
        }
    }
    Ok(())
}
