//! Cutting buckets into groups: layers go to the groups in turn, and short groups are padded.

use super::{Bucket, Group, GroupSpec, SpecTable};
use crate::engine::Rules;
use crate::error::GroupingError;
use crate::merge;
use crate::model::SpecId;

/// A warning that vLLM logs: `Add N padding layers, may waste at most P% KV cache memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaddingWarning {
    /// Layer slots that stay empty.
    pub padding_layers: u64,
    /// Layers of the bucket.
    pub layers: u64,
}

/// Cuts every bucket into `ceil(layers / size)` groups by stride.
///
/// # Source
/// The second half of `_get_kv_cache_groups_uniform_page_size`, and `create_kv_cache_group_specs`.
pub(super) fn cut(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &[SpecId],
    buckets: &[Bucket],
    size: u64,
) -> Result<(Vec<Group>, Vec<PaddingWarning>), GroupingError> {
    let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
    let mut groups = Vec::new();
    let mut warnings = Vec::new();
    for bucket in buckets {
        let count = bucket.layers.len();
        if !count.is_multiple_of(size) {
            let padding = size - count % size;
            warnings.push(PaddingWarning { padding_layers: padding as u64, layers: count as u64 });
        }
        let num_groups = count.div_ceil(size);
        groups.reserve(num_groups);
        // Groups of one spec all have the same merged spec.
        let mut shared = None;
        for i in 0..num_groups {
            let members: Vec<u32> = bucket.layers.iter().copied().skip(i).step_by(num_groups).collect();
            let spec = match shared {
                Some(spec) => spec,
                None => merged(rules, table, layers, bucket, &members)?,
            };
            if bucket.specs.len() == 1 {
                shared = Some(spec);
            }
            groups.push(Group { layers: members, spec: GroupSpec::One(spec) });
        }
    }
    Ok((groups, warnings))
}

/// The merged spec of a group's layers.
fn merged(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &[SpecId],
    bucket: &Bucket,
    members: &[u32],
) -> Result<SpecId, GroupingError> {
    let first = members.first().map_or(bucket.specs[0], |layer| layers[*layer as usize]);
    let refused = |_: merge::MergeRefusal| GroupingError::GroupDoesNotMerge;
    let mut spec = merge::merge_alone(rules, table.spec(first)).map_err(refused)?;
    if bucket.specs.len() > 1 {
        let mut last = first;
        for layer in members {
            let id = layers[*layer as usize];
            if id != last {
                merge::merge_into(rules, &mut spec, table.spec(id)).map_err(refused)?;
                last = id;
            }
        }
    }
    if spec == *table.spec(first) {
        return Ok(first);
    }
    table.add(rules, members.first().copied().unwrap_or(0) as usize, spec)
}
