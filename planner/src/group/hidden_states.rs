//! Layers that keep hidden states for extraction: apart from the buckets, one group each.

use super::{Group, GroupSpec, SpecTable, is_hidden_state};
use crate::engine::Rules;
use crate::error::GroupingError;
use crate::model::SpecId;
use crate::size;
use crate::spec::KvCacheSpec;

/// The hidden-state layers, and the others.
pub(super) fn split(table: &SpecTable, layers: &[SpecId]) -> (Vec<u32>, Vec<u32>) {
    (0..u32::try_from(layers.len()).unwrap_or(u32::MAX))
        .partition(|layer| is_hidden_state(table.spec(layers[*layer as usize])))
}

/// Adds the hidden-state layers' groups, their pages aligned to the common page.
pub(super) fn append(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &mut [SpecId],
    hidden: &[u32],
    groups: &mut Vec<Group>,
) -> Result<(), GroupingError> {
    if hidden.is_empty() {
        return Ok(());
    }
    let mut per_token = Vec::new();
    for layer in hidden {
        let spec = table.spec(layers[*layer as usize]);
        let bytes = spec.attention().map_or(Ok(1), |spec| {
            size::product("hidden state", &[spec.num_kv_heads, spec.head_size, spec.dtype.size_bytes()])
        })?;
        per_token.push(bytes);
    }
    let mut common_page = groups.first().map_or(1, |group| table.page_size_bytes(group.first_spec()));
    let largest = per_token.iter().copied().max().unwrap_or(1);
    if rules.hidden_states_scale && largest > common_page {
        let scale = largest.div_ceil(common_page.max(1));
        common_page = size::mul("page", common_page, scale)?;
        for group in groups.iter_mut() {
            let spec = table.spec(group.first_spec());
            let mut scaled = spec.with_block_size(size::mul("block size", spec.block_size(), scale)?);
            if let Some(padded) = spec.page_size_padded() {
                scaled = scaled.with_page_size_padded(size::mul("page", padded, scale)?);
            }
            let layer = group.layers.first().copied().unwrap_or(0) as usize;
            group.spec = GroupSpec::One(table.add(rules, layer, scaled)?);
        }
    }
    let common_block =
        groups.iter().fold(0, |gcd, group| size::gcd(gcd, table.spec(group.first_spec()).block_size()));
    for (layer, bytes) in hidden.iter().zip(per_token) {
        let fits = (common_page / bytes.max(1)).max(1);
        let block_size =
            if rules.hidden_states_divide { largest_divisor_at_most(common_block, fits) } else { fits };
        let spec: &KvCacheSpec = table.spec(layers[*layer as usize]);
        let aligned = spec.with_block_size(block_size).with_page_size_padded(common_page);
        let id = table.add(rules, *layer as usize, aligned)?;
        layers[*layer as usize] = id;
        groups.push(Group { layers: vec![*layer], spec: GroupSpec::One(id) });
    }
    Ok(())
}

/// The largest divisor of `value` that is at most `limit`; 1 if there is none.
fn largest_divisor_at_most(value: u64, limit: u64) -> u64 {
    // Divisors come in pairs, so that the search ends at the root.
    let mut best = 1;
    let mut small = 1;
    while small <= value / small.max(1) {
        if value.is_multiple_of(small) {
            for divisor in [small, value / small] {
                if divisor <= limit && divisor > best {
                    best = divisor;
                }
            }
        }
        small += 1;
    }
    best
}
