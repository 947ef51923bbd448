//! What one block costs: the bytes of the widest group, and the groups as each pipeline stage sees them.

use std::borrow::Cow;

use crate::engine::{Rules, TupleGroups};
use crate::error::CapacityError;
use crate::group::{Decision, Group, GroupSpec, Grouping};
use crate::model::SpecId;
use crate::settings::{EngineSettings, Layout};
use crate::size;
use crate::spec::PageError;

/// A group as one pipeline stage has it: the layers that the stage runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageGroup<'a> {
    /// Layers of the group on this stage.
    pub layers: Cow<'a, [u32]>,
    /// The spec of the group; of the whole group's layers where the stage has none of them.
    pub spec: Cow<'a, GroupSpec>,
}

impl StageGroup<'_> {
    /// The specs that a worker allocates for: one a layer of the stage.
    fn layer_specs(&self) -> Vec<SpecId> {
        match &*self.spec {
            GroupSpec::One(id) => vec![*id; self.layers.len()],
            GroupSpec::UniformType(_) if self.layers.is_empty() => Vec::new(),
            GroupSpec::UniformType(ids) => ids.clone(),
        }
    }

    /// The specs that the group stands for.
    pub fn specs(&self) -> &[SpecId] {
        self.spec.specs()
    }
}

/// Number of layers of each pipeline stage.
pub fn stage_layers(settings: &EngineSettings, layers: usize) -> Vec<usize> {
    let asked = settings.pipeline_parallel_size.max(1);
    if settings.pipeline_stage_layers.len() as u64 == asked && asked > 1 {
        return settings.pipeline_stage_layers.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect();
    }
    // Of more stages than layers one is empty, which is refused however many there are.
    let stages = usize::try_from(asked.min((layers as u64).saturating_add(1))).unwrap_or(1);
    let cut = |i: usize| u128::from(layers as u64) * i as u128 / stages as u128;
    (0..stages).map(|i| usize::try_from(cut(i + 1) - cut(i)).unwrap_or(0)).collect()
}

/// The groups of each stage, whose layers are consecutive.
///
/// # Source
/// `_project_kv_cache_groups_to_worker`.
pub fn stages<'a>(settings: &EngineSettings, grouping: &'a Grouping) -> Vec<Vec<StageGroup<'a>>> {
    let counts = stage_layers(settings, grouping.layers.len());
    if counts.len() == 1 {
        return vec![grouping.groups.iter().map(whole).collect()];
    }
    let mut from = 0_u32;
    counts
        .iter()
        .map(|count| {
            let to = from.saturating_add(u32::try_from(*count).unwrap_or(u32::MAX));
            let stage = grouping.groups.iter().map(|group| project(group, from, to)).collect();
            from = to;
            stage
        })
        .collect()
}

fn whole(group: &Group) -> StageGroup<'_> {
    StageGroup { layers: Cow::Borrowed(&group.layers), spec: Cow::Borrowed(&group.spec) }
}

fn project(group: &Group, from: u32, to: u32) -> StageGroup<'_> {
    let mine = |layer: &u32| (from..to).contains(layer);
    let layers: Vec<u32> = group.layers.iter().copied().filter(|layer| mine(layer)).collect();
    let spec = match &group.spec {
        GroupSpec::UniformType(ids) if !layers.is_empty() => Cow::Owned(GroupSpec::UniformType(
            group.layers.iter().zip(ids).filter(|(layer, _)| mine(layer)).map(|(_, id)| *id).collect(),
        )),
        spec => Cow::Borrowed(spec),
    };
    StageGroup { layers: Cow::Owned(layers), spec }
}

/// Bytes of one block in a worker's pool.
///
/// # Errors
/// On overflow, or if the stage has no layer.
///
/// # Source
/// `_pool_bytes_per_block`.
pub fn bytes_per_block(
    rules: &Rules,
    layout: Layout,
    grouping: &Grouping,
    groups: &[StageGroup<'_>],
) -> Result<u64, CapacityError> {
    let page = |id: &SpecId| grouping.specs.page_size_bytes(*id);
    let sum_pages = |ids: &[SpecId]| ids.iter().try_fold(0, |sum, id| size::add("block", sum, page(id)));
    if !rules.blocks_from_groups {
        return bytes_per_block_by_layers(rules, grouping, groups);
    }
    let mut widest = 0;
    let mut alignment = 1;
    for group in groups {
        let (bytes, align) = match &*group.spec {
            GroupSpec::One(id) => {
                let count = group.layers.len() as u64;
                let align = stride_alignment(rules, grouping, *id)?;
                let page = if rules.stride_alignment_always && !layout.is_block_outermost() {
                    size::round_up("block", page(id), align)?
                } else {
                    page(id)
                };
                (size::mul("block", page, count)?, if count > 0 { align } else { 1 })
            }
            GroupSpec::UniformType(_) => {
                let ids = group.layer_specs();
                let mut align = 1;
                let mut strides = 0;
                for id in &ids {
                    let own = stride_alignment(rules, grouping, *id)?;
                    align = size::lcm("block stride alignment", align, own)?;
                    strides = size::add("block", strides, size::round_up("block", page(id), own)?)?;
                }
                let aligned = rules.stride_alignment_always && !layout.is_block_outermost();
                (if aligned { strides } else { sum_pages(&ids)? }, align)
            }
        };
        widest = bytes.max(widest);
        alignment = size::lcm("block stride alignment", alignment, align)?;
    }
    if widest == 0 {
        return Err(CapacityError::EmptyStage);
    }
    if rules.stride_alignment_always && !layout.is_block_outermost() {
        return Ok(widest);
    }
    Ok(size::round_up("block", widest, alignment)?)
}

fn stride_alignment(rules: &Rules, grouping: &Grouping, id: SpecId) -> Result<u64, CapacityError> {
    grouping.specs.spec(id).block_stride_alignment_bytes(rules).map_err(|error| match error {
        PageError::Size(error) => CapacityError::Size(error),
        PageError::PaddedBelowPage { .. } => CapacityError::LayersUnassigned,
    })
}

/// Up to 0.28: one pool a layer slot, or one slot a page size for tuples.
fn bytes_per_block_by_layers(
    rules: &Rules,
    grouping: &Grouping,
    groups: &[StageGroup<'_>],
) -> Result<u64, CapacityError> {
    let page = |id: &SpecId| grouping.specs.page_size_bytes(*id);
    let sum = |ids: &[SpecId]| ids.iter().try_fold(0, |sum, id| size::add("block", sum, page(id)));
    let mixed = groups.iter().all(|group| matches!(*group.spec, GroupSpec::UniformType(_)));
    if let [group] = groups
        && mixed
    {
        return Ok(sum(group.specs())?);
    }
    if mixed {
        if rules.tuple_groups == TupleGroups::OwnPages {
            let mut widest = 0;
            for group in groups {
                widest = sum(&group.layer_specs())?.max(widest);
            }
            return if widest == 0 { Err(CapacityError::EmptyStage) } else { Ok(widest) };
        }
        let mut slots: Vec<(u64, u64)> = Vec::new();
        for group in groups {
            for (page, count) in layers_by_page_size(grouping, &group.layer_specs()) {
                bump(&mut slots, page, |n| n.max(count));
            }
        }
        return slots.iter().try_fold(0, |total, (page, count)| {
            Ok(size::add("block", total, size::mul("block", *page, *count)?)?)
        });
    }
    let size = groups.iter().map(|group| group.layers.len() as u64).max().unwrap_or(0);
    let first = groups.first().map_or(0, |group| group.specs().first().map_or(0, page));
    if size == 0 {
        return Err(CapacityError::EmptyStage);
    }
    Ok(size::mul("block", first, size)?)
}

/// Page sizes in bytes, in the order in which they appear, and how many of `ids` have each.
pub(crate) fn layers_by_page_size(grouping: &Grouping, ids: &[SpecId]) -> Vec<(u64, u64)> {
    let mut counts = Vec::new();
    for id in ids {
        bump(&mut counts, grouping.specs.page_size_bytes(*id), |n| n + 1);
    }
    counts
}

fn bump(counts: &mut Vec<(u64, u64)>, page: u64, next: impl Fn(u64) -> u64) {
    match counts.iter_mut().find(|(known, _)| *known == page) {
        Some((_, count)) => *count = next(*count),
        None => counts.push((page, next(0))),
    }
}

/// Whether `layout` can hold the pages of these groups.
///
/// # Errors
/// If pages of different sizes, or padded ones, have no place in it.
///
/// # Source
/// `validate_kv_cache_layout` and `compute_layout_strides`, vLLM 0.29 to 0.33.
pub fn check_layout(
    rules: &Rules,
    layout: Layout,
    grouping: &Grouping,
    groups: &[StageGroup<'_>],
) -> Result<(), CapacityError> {
    if !rules.packed_groups || grouping.decision == Decision::StateSlots {
        return Ok(());
    }
    let mut pages = None;
    let mut mixed = false;
    for group in groups.iter().filter(|group| !group.layers.is_empty()) {
        for id in group.specs() {
            let page = grouping.specs.page_size_bytes(*id);
            mixed |= pages.replace(page).is_some_and(|known| known != page);
        }
    }
    if mixed && (!layout.is_block_compact() || (groups.len() > 1 && layout.is_layer_compact())) {
        return Err(CapacityError::LayoutCannotMixPages { layout: layout.name() });
    }
    if !layout.is_block_compact() {
        for group in groups {
            for id in group.specs() {
                let spec = grouping.specs.spec(*id);
                let heads =
                    spec.attention().map_or(1, |spec| spec.num_head_slots.unwrap_or(spec.num_kv_heads));
                let padded = spec.page_size_padded().is_some() && heads != 1;
                let strided = rules.stride_alignment_always
                    && !layout.is_block_outermost()
                    && !grouping
                        .specs
                        .page_size_bytes(*id)
                        .is_multiple_of(stride_alignment(rules, grouping, *id)?);
                if padded || strided {
                    return Err(CapacityError::LayoutCannotPad { layout: layout.name() });
                }
            }
        }
    }
    Ok(())
}
