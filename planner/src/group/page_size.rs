//! One page size for all layers: larger blocks where the page divides the largest, padding elsewhere.

use super::{SpecTable, distinct};
use crate::engine::Rules;
use crate::error::GroupingError;
use crate::model::SpecId;
use crate::size;
use crate::spec::{AttentionSpec, KvCacheSpec};

/// Brings the pages of the `kept` layers to the largest one.
///
/// # Errors
/// If a layer's page can neither grow to it nor be padded.
///
/// # Source
/// `unify_kv_cache_spec_page_size`.
pub(super) fn unify(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &mut [SpecId],
    kept: &[u32],
) -> Result<(), GroupingError> {
    let specs = distinct(kept.iter().map(|layer| (*layer, layers[*layer as usize])), table.len());
    let largest = specs.iter().map(|(id, _)| table.page_size_bytes(*id)).max().unwrap_or(0);
    if specs.iter().all(|(id, _)| table.page_size_bytes(*id) == largest) {
        return Ok(());
    }
    let mut map: Vec<Option<SpecId>> = vec![None; table.len()];
    for (id, layer) in specs {
        let layer = layer as usize;
        let page = table.page_size_bytes(id);
        let spec = table.spec(id);
        let changed = if page == largest {
            map[id.index()] = Some(id);
            continue;
        } else if rules.state_pages_pad && matches!(spec, KvCacheSpec::Mamba(_)) {
            spec.with_page_size_padded(largest)
        } else if page != 0 && largest.is_multiple_of(page) {
            spec.with_block_size(size::mul("block size", spec.block_size(), largest / page)?)
        } else if spec.attention().is_some_and(|spec| may_pad(rules, spec)) {
            spec.with_page_size_padded(largest)
        } else {
            return Err(GroupingError::PageNotUnifiable {
                layer,
                page_size_bytes: page,
                max_page_size_bytes: largest,
            });
        };
        let new = table.add(rules, layer, changed)?;
        if table.page_size_bytes(new) != largest {
            // A padded page that does not grow with its block, or one whose own alignment sets the padding.
            return Err(GroupingError::PageDoesNotScale { layer, max_page_size_bytes: largest });
        }
        map[id.index()] = Some(new);
    }
    for layer in kept {
        if let Some(new) = map.get(layers[*layer as usize].index()).copied().flatten() {
            layers[*layer as usize] = new;
        }
    }
    Ok(())
}

fn may_pad(rules: &Rules, spec: &AttentionSpec) -> bool {
    if rules.attention_pages_pad {
        !spec.kind.kind().is_mla_family()
    } else {
        spec.indexes_kv_by_block_stride
    }
}
