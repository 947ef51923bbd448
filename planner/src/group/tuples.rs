//! Sliding-window MLA next to MLA, up to 0.28: groups of whole tuples of layers with different page sizes.
//!
//! # Source
//! `group_and_unify_kv_cache_specs` and `_get_kv_cache_groups_uniform_groups`, vLLM 0.24 to 0.28.

use super::packed::{approximate_gcd, by_page_size};
use super::uniform::all_uniform;
use super::{Group, SpecTable};
use crate::engine::{Rules, TupleGroups};
use crate::error::GroupingError;
use crate::model::SpecId;
use crate::spec::{KvCacheSpec, SpecKind};

/// The groups, or `None` where no layer is sliding-window MLA (or, later, where all pages are equal).
pub(super) fn groups(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &mut [SpecId],
) -> Result<Option<Vec<Group>>, GroupingError> {
    let kind = |id: &SpecId, table: &SpecTable| table.spec(*id).kind();
    if !layers.iter().any(|id| kind(id, table) == SpecKind::SlidingMla) {
        return Ok(None);
    }
    if rules.tuples_of_mixed_pages {
        let first = layers.first().map(|id| table.page_size_bytes(*id));
        if layers.iter().all(|id| Some(table.page_size_bytes(*id)) == first) {
            return Ok(None);
        }
    }
    let mut mla: Vec<u32> = Vec::new();
    let mut windows: Vec<((u64, u64), Vec<u32>)> = Vec::new();
    for (layer, id) in (0..).zip(layers.iter()) {
        let spec = table.spec(*id);
        let window = spec.attention().filter(|s| s.kind.kind() == SpecKind::SlidingMla);
        if let Some(window) = window.and_then(|s| s.kind.sliding()) {
            let key = (spec.block_size(), window.sliding_window);
            match windows.iter_mut().find(|(known, _)| *known == key) {
                Some((_, members)) => members.push(layer),
                None => windows.push((key, vec![layer])),
            }
        } else if spec.kind().is_mla_family() {
            mla.push(layer);
        }
    }
    if mla.is_empty() {
        return Err(GroupingError::TuplesIncomplete);
    }
    for members in std::iter::once(&mla).chain(windows.iter().map(|(_, members)| members)) {
        let first = members[0];
        let ids = members.iter().map(|layer| layers[*layer as usize]);
        if !all_uniform(rules, table, layers[first as usize], first, ids)? {
            return Err(GroupingError::TuplesIncomplete);
        }
    }
    let tuples = |members: &[u32], table: &SpecTable, layers: &[SpecId]| {
        by_page_size(table, layers, members).iter().map(|(_, n)| n.len()).max().unwrap_or(0)
    };
    let own: Vec<usize> = std::iter::once(&mla)
        .chain(windows.iter().map(|(_, members)| members))
        .map(|members| tuples(members, table, layers))
        .collect();
    let tuples_per_group = approximate_gcd(&own, own[0]);
    let mla_pages: Vec<u64> = by_page_size(table, layers, &mla).iter().map(|(page, _)| *page).collect();
    let mut groups = vec![Group::mixed(layers, mla)];
    for (_, members) in windows {
        if rules.tuple_groups == TupleGroups::PaddedPages {
            pad_to(rules, table, layers, &members, &mla_pages)?;
        }
        let pages = by_page_size(table, layers, &members);
        let each = pages.first().map_or(0, |(_, n)| n.len());
        if pages.iter().any(|(_, n)| n.len() != each) {
            return Err(GroupingError::TuplesUneven);
        }
        let num_groups = each.div_ceil(tuples_per_group.max(1));
        for i in 0..num_groups {
            let group: Vec<u32> = (i..each)
                .step_by(num_groups)
                .flat_map(|tuple| pages.iter().map(move |(_, n)| n[tuple]))
                .collect();
            groups.push(Group::mixed(layers, group));
        }
    }
    Ok(Some(groups))
}

/// Pads each page to the nearest of the latents' page sizes that is not smaller.
fn pad_to(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &mut [SpecId],
    members: &[u32],
    pages: &[u64],
) -> Result<(), GroupingError> {
    for layer in members {
        let id = layers[*layer as usize];
        let page = table.page_size_bytes(id);
        let candidate = pages.iter().copied().filter(|p| *p >= page).min();
        let candidate = candidate.ok_or(GroupingError::TuplesUneven)?;
        if page < candidate {
            let mut padded = table.spec(id).clone();
            if let KvCacheSpec::Attention(spec) = &mut padded {
                // The padding is set after the format aligned itself.
                if let crate::spec::AttentionKind::SlidingMla(_, mla) = &mut spec.kind {
                    mla.alignment = None;
                }
                spec.page_size_padded = Some(candidate);
            }
            layers[*layer as usize] = table.add(rules, *layer as usize, padded)?;
        }
    }
    Ok(())
}
