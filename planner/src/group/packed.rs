//! Block-outermost layouts: layers of different page sizes side by side in one block.
//!
//! # Source
//! `_get_packed_kv_cache_groups`, vLLM 0.29 to 0.33. Buckets are found a spec at a time instead of a layer
//! at a time, which gives the same buckets, since a bucket's first spec alone decides who may join.

use super::uniform::all_uniform;
use super::{Group, SpecTable, distinct};
use crate::engine::Rules;
use crate::error::GroupingError;
use crate::model::SpecId;
use crate::settings::EngineSettings;
use crate::size;
use crate::spec::SpecKind;

struct PackedBucket {
    first: SpecId,
    first_layer: u32,
    layers: Vec<u32>,
    /// Layers by page size, in the order in which the sizes appear.
    pages: Vec<(u64, Vec<u32>)>,
}

impl PackedBucket {
    /// Whether every page size has as many layers as any other.
    fn balanced(&self) -> bool {
        let each = self.pages.first().map(|(_, layers)| layers.len());
        self.pages.iter().all(|(_, layers)| Some(layers.len()) == each)
    }

    fn max_layers_per_page_size(&self) -> usize {
        self.pages.iter().map(|(_, layers)| layers.len()).max().unwrap_or(0)
    }

    /// Page bytes of the largest of `groups` groups.
    fn widest_group_bytes(&self, groups: usize) -> Result<u64, GroupingError> {
        self.pages.iter().try_fold(0, |sum, (page, layers)| {
            let pages = layers.len().div_ceil(groups.max(1)) as u64;
            Ok(size::add("block", sum, size::mul("block", pages, *page)?)?)
        })
    }
}

/// The groups, or `None` where the layout is not block-outermost or all pages are equal.
pub(super) fn groups(
    rules: &Rules,
    settings: &EngineSettings,
    table: &SpecTable,
    layers: &[SpecId],
    kept: &[u32],
) -> Result<Option<Vec<Group>>, GroupingError> {
    if !settings.kv_cache_layout.is_block_outermost() {
        return Ok(None);
    }
    let first = kept.first().map(|layer| table.page_size_bytes(layers[*layer as usize]));
    if kept.iter().all(|layer| Some(table.page_size_bytes(layers[*layer as usize])) == first) {
        return Ok(None);
    }
    let buckets = buckets(rules, table, layers, kept)?;
    let floor = buckets
        .iter()
        .filter(|bucket| bucket.balanced() && bucket.pages.len() > 1)
        .map(PackedBucket::max_layers_per_page_size)
        .max();
    let repeats_per_group = floor.map(|floor| {
        let repeats: Vec<usize> = buckets
            .iter()
            .filter(|bucket| bucket.balanced())
            .map(PackedBucket::max_layers_per_page_size)
            .collect();
        approximate_gcd(&repeats, floor)
    });
    let num_groups_for = |bucket: &PackedBucket| match repeats_per_group {
        Some(repeats) if bucket.balanced() => bucket.max_layers_per_page_size().div_ceil(repeats.max(1)),
        _ => 1,
    };
    let is_state = |bucket: &PackedBucket| match table.spec(bucket.first).kind() {
        SpecKind::Mamba => true,
        SpecKind::CircularBuffer => rules.packed_windows_split,
        kind => rules.packed_windows_split && repeats_per_group.is_none() && kind.is_sliding_family(),
    };
    let mut anchor_bytes = 0;
    for bucket in &buckets {
        let groups = if is_state(bucket) { bucket.layers.len() } else { num_groups_for(bucket) };
        anchor_bytes = bucket.widest_group_bytes(groups)?.max(anchor_bytes);
    }
    let mut groups = Vec::new();
    for bucket in &buckets {
        let mut num_groups = num_groups_for(bucket);
        if anchor_bytes > 0 && is_state(bucket) {
            let page = table.page_size_bytes(bucket.first).max(1);
            let states = usize::try_from((anchor_bytes / page).max(1)).unwrap_or(usize::MAX);
            num_groups = num_groups.max(bucket.layers.len().div_ceil(states));
        }
        if num_groups == 1 {
            groups.push(Group::mixed(layers, bucket.layers.clone()));
            continue;
        }
        // Only whole repeats are dealt out, so that an uneven bucket loses layers here, as it does in vLLM.
        let repeats = bucket.pages.iter().map(|(_, layers)| layers.len()).min().unwrap_or(0);
        for i in 0..num_groups {
            let members: Vec<u32> = (i..repeats)
                .step_by(num_groups)
                .flat_map(|repeat| bucket.pages.iter().map(move |(_, layers)| layers[repeat]))
                .collect();
            if members.is_empty() {
                return Err(GroupingError::PackedGroupEmpty);
            }
            groups.push(Group::mixed(layers, members));
        }
    }
    Ok(Some(groups))
}

fn buckets(
    rules: &Rules,
    table: &SpecTable,
    layers: &[SpecId],
    kept: &[u32],
) -> Result<Vec<PackedBucket>, GroupingError> {
    let specs = distinct(kept.iter().map(|layer| (*layer, layers[*layer as usize])), table.len());
    let mut buckets: Vec<PackedBucket> = Vec::new();
    let mut bucket_of: Vec<usize> = vec![0; table.len()];
    for (id, layer) in specs {
        let mut found = None;
        for (i, bucket) in buckets.iter().enumerate() {
            let pair = [bucket.first, id].into_iter();
            if all_uniform(rules, table, bucket.first, bucket.first_layer, pair)? {
                found = Some(i);
                break;
            }
        }
        bucket_of[id.index()] = found.unwrap_or_else(|| {
            buckets.push(PackedBucket {
                first: id,
                first_layer: layer,
                layers: Vec::new(),
                pages: Vec::new(),
            });
            buckets.len() - 1
        });
    }
    for layer in kept {
        buckets[bucket_of[layers[*layer as usize].index()]].layers.push(*layer);
    }
    for bucket in &mut buckets {
        all_uniform(rules, table, bucket.first, bucket.first_layer, std::iter::once(bucket.first))?;
        bucket.pages = by_page_size(table, layers, &bucket.layers);
    }
    Ok(buckets)
}

/// Layers by page size, in the order in which the sizes appear.
pub(super) fn by_page_size(table: &SpecTable, layers: &[SpecId], members: &[u32]) -> Vec<(u64, Vec<u32>)> {
    let mut pages: Vec<(u64, Vec<u32>)> = Vec::new();
    for layer in members {
        let page = table.page_size_bytes(layers[*layer as usize]);
        match pages.iter_mut().find(|(known, _)| *known == page) {
            Some((_, layers)) => layers.push(*layer),
            None => pages.push((page, vec![*layer])),
        }
    }
    pages
}

/// The chunk size from `lower_bound` up that pads `values` least; ties go to the larger one.
pub(super) fn approximate_gcd(values: &[usize], lower_bound: usize) -> usize {
    let smallest = lower_bound.max(1);
    let largest = values.iter().copied().max().unwrap_or(1);
    if smallest > largest {
        return smallest;
    }
    (smallest..=largest)
        .rev()
        .min_by_key(|chunk| values.iter().map(|n| (chunk - n % chunk) % chunk).sum::<usize>())
        .unwrap_or(smallest)
}
