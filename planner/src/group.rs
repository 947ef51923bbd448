//! From layers to KV cache groups, in the order in which vLLM decides.
//!
//! Each step that can answer is a file: [`hybrid_off`], [`uniform`] (one spec, then one type), [`tuples`]
//! (up to 0.28), [`packed`] (block-outermost layouts, since 0.29), [`page_size`] (unify, or fall back), and
//! then [`bucket`], [`group_size`] and [`stride`] for what is left: layers of one page size.
//!
//! # Source
//! `get_kv_cache_groups` in vLLM's `v1/core/kv_cache_utils.py` (since 0.33 `kv_cache_planning.py`).

pub mod bucket;
pub mod group_size;
mod hidden_states;
mod hybrid_off;
mod packed;
mod page_size;
mod state_slots;
mod stride;
mod table;
mod tuples;
mod uniform;

use crate::engine::{Rules, TupleGroups};
use crate::error::GroupingError;
use crate::model::{Model, SpecId};
use crate::settings::EngineSettings;
use crate::spec::{KvCacheSpec, SpecKind};

pub use bucket::Bucket;
pub use stride::PaddingWarning;
pub use table::SpecTable;

/// Which of vLLM's steps made the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// No layer has a KV cache.
    AttentionFree,
    /// All specs merge: one group.
    UniformSpec,
    /// All layers need the same slots at one block size: one group of mixed specs.
    UniformType,
    /// Tuples of MLA and sliding-window MLA layers (up to 0.28).
    Tuples,
    /// States in the slots of MLA layers that have an indexer (0.30 and 0.31).
    StateSlots,
    /// Layers of different page sizes packed into one block.
    Packed,
    /// Buckets of one page size, cut into groups of one size.
    UniformPageSize,
    /// Pages cannot be unified: windows are given full allocation, one group of mixed specs.
    FullAllocation,
}

/// What one group's layers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupSpec {
    /// One spec for all layers.
    One(SpecId),
    /// vLLM's `UniformTypeKVCacheSpecs`: a spec a layer, pages added up.
    UniformType(Vec<SpecId>),
}

impl GroupSpec {
    /// The specs that the group stands for: one, or one a layer.
    pub fn specs(&self) -> &[SpecId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::UniformType(ids) => ids,
        }
    }
}

/// One KV cache group: layers that share a block table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Indices of its layers, in vLLM's order.
    pub layers: Vec<u32>,
    /// What they share, in [`Grouping::specs`].
    pub spec: GroupSpec,
}

impl Group {
    /// The spec of the group's first layer.
    pub fn first_spec(&self) -> SpecId {
        self.spec.specs().first().copied().unwrap_or(SpecId(0))
    }

    /// A group of mixed specs: `members` with the spec that `layers` has for each.
    fn mixed(layers: &[SpecId], members: Vec<u32>) -> Self {
        let specs = members.iter().map(|layer| layers[*layer as usize]).collect();
        Self { layers: members, spec: GroupSpec::UniformType(specs) }
    }
}

/// The groups of a model, and how they came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping {
    /// The step that answered.
    pub decision: Decision,
    /// Whether the hybrid manager being off promoted windows to full attention.
    pub promoted: bool,
    /// Every spec that the groups and buckets refer to.
    pub specs: SpecTable,
    /// The spec of each layer as grouping saw it, after promotion and page-size unification.
    pub layers: Vec<SpecId>,
    /// The groups, in vLLM's order.
    pub groups: Vec<Group>,
    /// The buckets that the groups were cut from, where there were any.
    pub buckets: Vec<Bucket>,
    /// The warnings that vLLM logs.
    pub warnings: Vec<PaddingWarning>,
}

impl Grouping {
    /// Layers of the largest group.
    pub fn group_size(&self) -> u64 {
        self.groups.iter().map(|group| group.layers.len() as u64).max().unwrap_or(0)
    }

    /// Layer slots that no layer fills; `None` where groups of mixed specs have no such slots.
    pub fn padding_layers(&self) -> Option<u64> {
        let mixed = self.groups.iter().any(|group| matches!(group.spec, GroupSpec::UniformType(_)));
        if self.groups.is_empty() || mixed {
            return None;
        }
        let size = self.group_size();
        Some(self.groups.iter().map(|group| size - group.layers.len() as u64).sum())
    }

    /// vLLM's class of a group's spec.
    pub fn class_name(&self, group: &Group) -> &'static str {
        match &group.spec {
            GroupSpec::One(id) => self.specs.spec(*id).kind().class_name(),
            GroupSpec::UniformType(_) => "UniformTypeKVCacheSpecs",
        }
    }

    /// Tokens of a group's block.
    pub fn block_size(&self, group: &Group) -> u64 {
        self.specs.spec(group.first_spec()).block_size()
    }

    /// Bytes of a group's page: of one layer, or of all layers of a group of mixed specs.
    ///
    /// # Errors
    /// If the sum does not fit 64 bits.
    pub fn page_size_bytes(&self, group: &Group) -> Result<u64, crate::size::SizeError> {
        group
            .spec
            .specs()
            .iter()
            .try_fold(0, |sum, id| crate::size::add("page", sum, self.specs.page_size_bytes(*id)))
    }
}

/// Groups the layers of `model`.
///
/// # Errors
/// If vLLM refuses the model, or if a size does not fit 64 bits.
pub fn group(model: &Model, settings: &EngineSettings, rules: &Rules) -> Result<Grouping, GroupingError> {
    let (mut table, mut layers) = table::load(model, rules)?;
    let mut promoted = false;
    if settings.disable_hybrid_kv_cache_manager {
        promoted = hybrid_off::promote_all(rules, &mut table, &mut layers)?;
    }
    let step = |decision, table, layers, groups| Grouping {
        decision,
        promoted,
        specs: table,
        layers,
        groups,
        buckets: Vec::new(),
        warnings: Vec::new(),
    };
    if layers.is_empty() {
        return Ok(step(Decision::AttentionFree, table, layers, Vec::new()));
    }
    if let Some(merged) = uniform::one_spec(rules, &mut table, &layers)? {
        let groups = vec![Group { layers: all(&layers), spec: GroupSpec::One(merged) }];
        return Ok(step(Decision::UniformSpec, table, layers, groups));
    }
    if uniform::one_type(rules, &table, &layers)? {
        let groups = vec![Group { layers: all(&layers), spec: GroupSpec::UniformType(layers.clone()) }];
        return Ok(step(Decision::UniformType, table, layers, groups));
    }
    if rules.tuple_groups != TupleGroups::None
        && let Some(groups) = tuples::groups(rules, &mut table, &mut layers)?
    {
        return Ok(step(Decision::Tuples, table, layers, groups));
    }
    if rules.state_slot_groups
        && let Some(groups) = state_slots::groups(rules, settings, &mut table, &mut layers)?
    {
        return Ok(step(Decision::StateSlots, table, layers, groups));
    }
    let (hidden, kept) = hidden_states::split(&table, &layers);
    if rules.packed_groups
        && let Some(mut groups) = packed::groups(rules, settings, &table, &layers, &kept)?
    {
        groups.extend(
            hidden
                .iter()
                .map(|layer| Group { layers: vec![*layer], spec: GroupSpec::One(layers[*layer as usize]) }),
        );
        return Ok(step(Decision::Packed, table, layers, groups));
    }
    let original = layers.clone();
    if let Err(error) = page_size::unify(rules, &mut table, &mut layers, &kept) {
        let PageNotUnifiable { .. } = error else { return Err(error) };
        layers = original;
        if rules.full_allocation_fallback
            && let Some(promoted_layers) = hybrid_off::full_allocation(rules, &mut table, &layers)?
        {
            let groups = vec![Group {
                layers: all(&promoted_layers),
                spec: GroupSpec::UniformType(promoted_layers.clone()),
            }];
            return Ok(step(Decision::FullAllocation, table, promoted_layers, groups));
        }
        return Err(error);
    }
    let buckets = bucket::buckets(rules, &table, &layers, &kept);
    let rule = settings.group_size_rule.unwrap_or(rules.group_size);
    let size = group_size::choose(rule, &buckets, &table);
    let (mut groups, warnings) = stride::cut(rules, &mut table, &layers, &buckets, size)?;
    hidden_states::append(rules, &mut table, &mut layers, &hidden, &mut groups)?;
    Ok(Grouping {
        decision: Decision::UniformPageSize,
        promoted,
        specs: table,
        layers,
        groups,
        buckets,
        warnings,
    })
}

use GroupingError::PageNotUnifiable;

/// Every layer, by index.
fn all(layers: &[SpecId]) -> Vec<u32> {
    (0..u32::try_from(layers.len()).unwrap_or(u32::MAX)).collect()
}

/// The distinct specs of `layers`, in the order of their first layers, with that layer.
fn distinct(layers: impl IntoIterator<Item = (u32, SpecId)>, specs: usize) -> Vec<(SpecId, u32)> {
    let mut seen = vec![false; specs];
    let mut found = Vec::new();
    for (layer, id) in layers {
        if let Some(seen) = seen.get_mut(id.index())
            && !*seen
        {
            *seen = true;
            found.push((id, layer));
        }
    }
    found
}

/// Whether a spec is of vLLM's hidden-state class, which never shares a bucket.
fn is_hidden_state(spec: &KvCacheSpec) -> bool {
    spec.kind() == SpecKind::HiddenState
}
