//! Buckets: layers of equal specs, and of unequal ones whose merged spec is valid.

use super::{SpecTable, distinct};
use crate::engine::Rules;
use crate::merge;
use crate::model::SpecId;
use crate::spec::KvCacheSpec;

/// Layers that may share groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The distinct specs of its layers, in the order in which they joined.
    pub specs: Vec<SpecId>,
    /// Indices of its layers: those of the first spec, then those of the next.
    pub layers: Vec<u32>,
}

/// Sorts the `kept` layers into buckets.
///
/// # Source
/// The first half of `_get_kv_cache_groups_uniform_page_size`.
pub(super) fn buckets(rules: &Rules, table: &SpecTable, layers: &[SpecId], kept: &[u32]) -> Vec<Bucket> {
    let specs = distinct(kept.iter().map(|layer| (*layer, layers[*layer as usize])), table.len());
    let mut bucket_of: Vec<usize> = vec![0; table.len()];
    let mut merged: Vec<Option<KvCacheSpec>> = Vec::new();
    let mut buckets: Vec<Bucket> = Vec::new();
    for (id, _) in &specs {
        let spec = table.spec(*id);
        let found = rules.bucket_merge.then(|| {
            merged.iter_mut().position(|merged| {
                merged.as_mut().is_some_and(|merged| merge::merge_into(rules, merged, spec).is_ok())
            })
        });
        bucket_of[id.index()] = match found.flatten() {
            Some(bucket) => {
                buckets[bucket].specs.push(*id);
                bucket
            }
            None => {
                buckets.push(Bucket { specs: vec![*id], layers: Vec::new() });
                merged.push(if rules.bucket_merge { merge::merge_alone(rules, spec).ok() } else { None });
                buckets.len() - 1
            }
        };
    }
    for layer in kept {
        buckets[bucket_of[layers[*layer as usize].index()]].layers.push(*layer);
    }
    for bucket in &mut buckets {
        if bucket.specs.len() > 1 {
            // A later spec's layers come after all of an earlier one's.
            let order = |layer: &u32| bucket.specs.iter().position(|id| *id == layers[*layer as usize]);
            bucket.layers.sort_by_key(order);
        }
    }
    buckets
}
