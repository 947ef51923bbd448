//! Windows and chunks promoted to full attention: because the hybrid manager is off, or as a fallback.

use super::uniform;
use super::{SpecTable, distinct, is_hidden_state};
use crate::engine::Rules;
use crate::error::GroupingError;
use crate::model::SpecId;
use crate::size;
use crate::spec::{
    AttentionKind, AttentionSpec, FullFields, KvCacheSpec, MlaFields, SpecKind, TokensPerState,
};

/// Promotes every window and chunk, as `--disable-hybrid-kv-cache-manager` asks; says whether any was.
///
/// # Errors
/// If the layers do not become one type.
///
/// # Source
/// `unify_hybrid_kv_cache_specs`.
pub(super) fn promote_all(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &mut [SpecId],
) -> Result<bool, GroupingError> {
    if layers.is_empty() {
        return Ok(false);
    }
    let replicated = |spec: &KvCacheSpec| spec.attention().is_some_and(|spec| !spec.dcp_sharded);
    let mut parts: Vec<Vec<usize>> = Vec::new();
    if rules.promote_by_dcp_sharding {
        let first = replicated(table.spec(layers[0]));
        let (a, b) = (0..layers.len()).partition(|i| replicated(table.spec(layers[*i])) == first);
        parts.extend([a, b]);
    } else {
        parts.push((0..layers.len()).collect());
    }
    let mut any = false;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let specs: Vec<SpecId> = part.iter().map(|i| layers[*i]).collect();
        let promoted = promote(rules, table, &specs)?;
        any |= promoted != specs;
        for (i, id) in part.iter().zip(promoted) {
            layers[*i] = id;
        }
    }
    Ok(any)
}

/// Full allocation for MLA next to plain sliding windows whose pages do not unify.
///
/// # Source
/// `_try_get_full_allocation_fallback_groups`.
pub(super) fn full_allocation(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &[SpecId],
) -> Result<Option<Vec<SpecId>>, GroupingError> {
    let kinds = |wanted: fn(SpecKind) -> bool| layers.iter().any(|id| wanted(table.spec(*id).kind()));
    let barred = layers.iter().any(|id| is_hidden_state(table.spec(*id)))
        || kinds(|kind| matches!(kind, SpecKind::SlidingMla | SpecKind::Chunked));
    if barred || !kinds(SpecKind::is_mla_family) || !kinds(SpecKind::is_sliding_family) {
        return Ok(None);
    }
    let promoted = match promote(rules, table, layers) {
        Ok(promoted) => promoted,
        Err(GroupingError::PromotionFailed | GroupingError::WindowsDiffer) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(uniform::one_type(rules, table, &promoted)?.then_some(promoted))
}

fn is_one_type(rules: &Rules, table: &mut SpecTable, layers: &[SpecId]) -> Result<bool, GroupingError> {
    Ok(uniform::one_spec(rules, table, layers)?.is_some() || uniform::one_type(rules, table, layers)?)
}

fn promote(rules: &Rules, table: &mut SpecTable, layers: &[SpecId]) -> Result<Vec<SpecId>, GroupingError> {
    if is_one_type(rules, table, layers)? {
        return Ok(layers.to_vec());
    }
    let specs = distinct((0..).zip(layers.iter().copied()), table.len());
    let kind_of = |id: &SpecId, table: &SpecTable| table.spec(*id).kind();
    let full: Vec<SpecId> =
        specs.iter().map(|(id, _)| *id).filter(|id| kind_of(id, table).is_full_family()).collect();
    let local = specs.iter().any(|(id, _)| {
        let kind = kind_of(id, table);
        kind.is_sliding_family() || kind == SpecKind::Chunked
    });
    let mut map: Vec<Option<SpecId>> = vec![None; table.len()];
    let has_sliding_mla = specs.iter().any(|(id, _)| kind_of(id, table) == SpecKind::SlidingMla);
    if !rules.promote_to_full_block_size && has_sliding_mla && full.is_empty() {
        return Err(GroupingError::TuplesIncomplete);
    }
    if !full.is_empty() && local {
        let block_size = common_block_size(rules, table, &full, has_sliding_mla);
        for (id, layer) in &specs {
            let KvCacheSpec::Attention(spec) = table.spec(*id) else { continue };
            if rules.promotion_fails_for_sliding_mla && spec.kind.kind() == SpecKind::SlidingMla {
                return Err(GroupingError::PromotionLosesField { layer: *layer as usize });
            }
            if let Some(promoted) = promoted(rules, spec, block_size)? {
                map[id.index()] =
                    Some(table.add(rules, *layer as usize, KvCacheSpec::Attention(promoted))?);
            }
        }
    }
    let promoted: Vec<SpecId> =
        layers.iter().map(|id| map.get(id.index()).copied().flatten().unwrap_or(*id)).collect();
    if is_one_type(rules, table, &promoted)? { Ok(promoted) } else { Err(GroupingError::PromotionFailed) }
}

/// The block size that promoted layers take, if they take one.
fn common_block_size(rules: &Rules, table: &SpecTable, full: &[SpecId], sliding_mla: bool) -> Option<u64> {
    let first = table.spec(*full.first()?).block_size();
    if rules.promote_to_full_block_size {
        full.iter().all(|id| table.spec(*id).block_size() == first).then_some(first)
    } else {
        // Only layers of the tuple format took it, and only sliding-window MLA has it.
        sliding_mla.then_some(first)
    }
}

/// The full-attention spec of a window or chunk; `None` if it is neither.
fn promoted(
    rules: &Rules,
    spec: &AttentionSpec,
    full_block_size: Option<u64>,
) -> Result<Option<AttentionSpec>, GroupingError> {
    let kind = match &spec.kind {
        AttentionKind::SlidingMla(window, mla) => AttentionKind::Mla(
            FullFields {
                sliding_window: rules.promote_keeps_fields.then_some(window.sliding_window),
                ..FullFields::default()
            },
            MlaFields {
                cache_dtype_str: mla.cache_dtype_str.clone(),
                alignment: mla.alignment,
                model_version: mla.model_version.clone(),
                compress_ratio: mla.compress_ratio,
                ..MlaFields::default()
            },
        ),
        AttentionKind::Sliding(window) => AttentionKind::Full(FullFields {
            sliding_window: Some(window.sliding_window),
            ..FullFields::default()
        }),
        AttentionKind::Chunked { attention_chunk_size } => AttentionKind::Full(FullFields {
            attention_chunk_size: Some(*attention_chunk_size),
            ..FullFields::default()
        }),
        _ => return Ok(None),
    };
    let takes_full_block = rules.promote_to_full_block_size || matches!(kind, AttentionKind::Mla(..));
    let block_size = full_block_size.filter(|_| takes_full_block).unwrap_or(spec.block_size);
    let mut promoted = spec.clone();
    promoted.block_size = block_size;
    promoted.page_size_padded = match spec.page_size_padded {
        None => None,
        Some(padded) if !rules.promote_to_full_block_size => Some(padded),
        Some(padded) => {
            let unpadded = KvCacheSpec::Attention(spec.clone()).unpadded_page_size_bytes(rules)?;
            let scaled = size::mul("page", unpadded, block_size)? / spec.block_size;
            Some(padded.max(scaled))
        }
    };
    if !rules.promote_keeps_fields {
        promoted.indexes_kv_by_block_stride = false;
        promoted.tokens_per_state = TokensPerState::default();
        if !matches!(spec.kind, AttentionKind::Sliding(_)) {
            promoted.kv_quant_mode = Default::default();
        }
    }
    promoted.kind = kind;
    Ok(Some(promoted))
}
