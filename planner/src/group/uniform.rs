//! Whether all layers fit one group: because their specs merge, or because they need the same slots.

use super::{SpecTable, distinct};
use crate::engine::Rules;
use crate::error::GroupingError;
use crate::merge;
use crate::model::SpecId;
use crate::spec::{KvCacheSpec, NotUniform, SpecKind, uniform_with};

fn distinct_specs(table: &SpecTable, layers: &[SpecId]) -> Vec<(SpecId, u32)> {
    distinct((0..).zip(layers.iter().copied()), table.len())
}

/// The merged spec, if all layers' specs merge into one.
///
/// # Source
/// `is_kv_cache_spec_uniform`, which catches assertions but not the `ValueError` for windows that differ.
pub(super) fn one_spec(
    rules: &Rules,
    table: &mut SpecTable,
    layers: &[SpecId],
) -> Result<Option<SpecId>, GroupingError> {
    let specs = distinct_specs(table, layers);
    let Some((first, _)) = specs.first().copied() else { return Ok(None) };
    refuse_differing_windows(table, &specs)?;
    let Ok(mut merged) = merge::merge_alone(rules, table.spec(first)) else { return Ok(None) };
    for (id, _) in &specs[1..] {
        if merge::merge_into(rules, &mut merged, table.spec(*id)).is_err() {
            return Ok(None);
        }
    }
    if specs.len() == 1 && merged == *table.spec(first) {
        return Ok(Some(first));
    }
    table.add(rules, 0, merged).map(Some)
}

/// Full-attention layers with two windows or two chunks are an error wherever all layers are full attention.
fn refuse_differing_windows(table: &SpecTable, specs: &[(SpecId, u32)]) -> Result<(), GroupingError> {
    let first = specs.first().map(|(id, _)| table.spec(*id).kind());
    if !matches!(first, Some(SpecKind::Full | SpecKind::Sink)) {
        return Ok(());
    }
    let (mut window, mut chunk) = (None, None);
    let mut differ = false;
    for (id, _) in specs {
        let Some(full) = table
            .spec(*id)
            .attention()
            .filter(|spec| !spec.kind.kind().is_mla_family())
            .and_then(|spec| spec.kind.full())
        else {
            return Ok(());
        };
        for (seen, declared) in [(&mut window, full.sliding_window), (&mut chunk, full.attention_chunk_size)]
        {
            match (*seen, declared) {
                (Some(a), Some(b)) if a != b => differ = true,
                (None, Some(b)) => *seen = Some(b),
                _ => {}
            }
        }
    }
    if differ { Err(GroupingError::WindowsDiffer) } else { Ok(()) }
}

/// Whether all layers are of one type at one block size.
pub(super) fn one_type(rules: &Rules, table: &SpecTable, layers: &[SpecId]) -> Result<bool, GroupingError> {
    let specs = distinct_specs(table, layers);
    let Some((first, first_layer)) = specs.first().copied() else { return Ok(false) };
    all_uniform(rules, table, first, first_layer, specs.iter().map(|(id, _)| *id))
}

/// Whether `others` are all of one type with `first`; the engine looks at block sizes and sharding first.
pub(super) fn all_uniform(
    rules: &Rules,
    table: &SpecTable,
    first: SpecId,
    first_layer: u32,
    others: impl Iterator<Item = SpecId> + Clone,
) -> Result<bool, GroupingError> {
    let spec = table.spec(first);
    let same_shape = |other: &KvCacheSpec| {
        spec.block_size() == other.block_size()
            && (!rules.dcp_sharded_is_declared || spec.dcp_sharded() == other.dcp_sharded())
    };
    if !others.clone().all(|id| same_shape(table.spec(id))) {
        return Ok(false);
    }
    for id in others {
        let answer = uniform_with(
            rules,
            (spec, table.page_size_bytes(first)),
            (table.spec(id), table.page_size_bytes(id)),
        );
        match answer {
            Ok(()) => {}
            Err(NotUniform::Differs) => return Ok(false),
            Err(NotUniform::Unregistered) => {
                return Err(GroupingError::Unregistered { layer: first_layer as usize });
            }
        }
    }
    Ok(true)
}
