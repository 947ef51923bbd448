//! Which changes of a field would merge what stands apart, and what each gives.

use std::borrow::Cow;
use std::collections::HashSet;

use petgraph::visit::EdgeRef;

use super::graph::{Compatibility, Node, Relation, merges, obstacles};
use super::{Numbers, Outcome};
use crate::engine::Rules;
use crate::model::{Model, SpecId};
use crate::plan::plan;
use crate::settings::EngineSettings;
use crate::spec::{Field, FieldValue, KvCacheSpec, RawSpec, SpecKind};

/// Plans that are made at most to find changes.
const PLANS_MAX: usize = 96;

/// Changes that are kept.
const CHANGES_MAX: usize = 12;

/// One field set to one value in some layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The layers that are changed.
    pub layers: Vec<u32>,
    /// The field.
    pub field: Field,
    /// What they declare; `None` is undeclared.
    pub from: Option<FieldValue>,
    /// What they would declare.
    pub to: Option<FieldValue>,
    /// Layers that declare `to` already, the other side of the difference.
    pub like: Vec<u32>,
}

/// A set of edits, and what the model comes to with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The edits; one where one is enough.
    pub edits: Vec<Edit>,
    /// The numbers as declared; `None` where vLLM refuses the model.
    pub before: Option<Numbers>,
    /// The numbers with the edits.
    pub after: Numbers,
    /// Whether no layer of the kind keeps the old value of the first field.
    pub complete: bool,
}

impl Change {
    /// Layers that are changed.
    pub fn layers(&self) -> usize {
        self.edits.iter().map(|edit| edit.layers.len()).max().unwrap_or(0)
    }

    /// Whether it changes the model's own shape, which is fixed once it is trained.
    pub fn is_of_own_shape(&self) -> bool {
        self.edits.iter().any(|edit| is_own_shape(edit.field))
    }

    /// The concurrency before and after, where the change lowers it.
    pub fn concurrency_lost(&self) -> Option<(f64, f64)> {
        let (before, after) = (self.before?.max_concurrency?, self.after.max_concurrency?);
        (after < before).then_some((before, after))
    }

    /// Groups less than before; 0 where there were none before.
    pub fn groups_saved(&self) -> u64 {
        self.before.map_or(0, |before| before.groups.saturating_sub(self.after.groups))
    }
}

/// The model with the edits made; `None` if a value does not fit its field.
pub fn apply(model: &Model, edits: &[Edit]) -> Option<Model> {
    let mut changed = model.clone();
    for edit in edits {
        let mut new_of: Vec<Option<SpecId>> = vec![None; changed.specs.len()];
        for layer in &edit.layers {
            let id = *changed.layers.get(*layer as usize)?;
            let new = match new_of.get(id.index()).copied().flatten() {
                Some(new) => new,
                None => {
                    let new = edited(&mut changed, id, edit)?;
                    *new_of.get_mut(id.index())? = Some(new);
                    new
                }
            };
            changed.layers[*layer as usize] = new;
        }
    }
    Some(changed)
}

/// The entry of `id` with the edit made, an equal one where there is one.
fn edited(model: &mut Model, id: SpecId, edit: &Edit) -> Option<SpecId> {
    let mut raw = RawSpec::from(model.specs.get(id.index())?);
    if !raw.set(edit.field, edit.to.clone()) {
        return None;
    }
    let spec = KvCacheSpec::try_from(raw).ok()?;
    let known = model.specs.iter().position(|known| *known == spec);
    let new = known.unwrap_or_else(|| {
        model.specs.push(spec);
        model.specs.len() - 1
    });
    u32::try_from(new).ok().map(SpecId)
}

/// What makes two edits the same: field, new value, layers.
type EditKey = (Field, Option<FieldValue>, Vec<u32>);

/// A change that may help, before it is planned.
struct Candidate {
    edits: Vec<Edit>,
    /// Whether no layer of the kind keeps the old value.
    complete: bool,
}

impl Candidate {
    fn layers(&self) -> usize {
        self.edits.iter().map(|edit| edit.layers.len()).max().unwrap_or(0)
    }
}

/// How surprising a difference in a field is: what one layer's code declares and another's forgot comes
/// first, what a model's architecture makes different on purpose comes last.
const fn surprise(field: Field) -> u8 {
    match field {
        Field::MaxTpShards
        | Field::DcpSharded
        | Field::TpReplicated
        | Field::BlockStrideAlignment
        | Field::IndexesKvByBlockStride
        | Field::NonCausal
        | Field::NonCausalMultiTokenDecode
        | Field::CacheDtypeStr
        | Field::KvQuantModeField
        | Field::TopkBufferWidth
        | Field::PageSizePadded
        | Field::NumSpeculativeBlocks
        | Field::NumPrefillCheckpointBlocks
        | Field::PrefillCheckpointAlignment
        | Field::MambaType
        | Field::MambaCacheModeField
        | Field::ExtraRetainedTokens
        | Field::StateContentBytes
        | Field::NumHeadSlots
        | Field::ModelVersion
        | Field::Alignment => 0,
        Field::DTypeField | Field::DTypes | Field::BlockSize | Field::HeadSizeV => 1,
        _ => 2,
    }
}

/// Whether a field is the model's own shape, in its weights once it is trained; any other follows from the layer's class in
/// vLLM or from a flag.
pub const fn is_own_shape(field: Field) -> bool {
    matches!(
        field,
        Field::NumKvHeads
            | Field::HeadSize
            | Field::HeadSizeV
            | Field::SlidingWindow
            | Field::AttentionChunkSize
            | Field::SinkLen
            | Field::RswaWindow
            | Field::TokensPerStateField
            | Field::CompressRatio
            | Field::CacheRole
            | Field::IsIndexGroupLeader
            | Field::Shapes
            | Field::NumHeads
    )
}

/// The changes that help, the likeliest cause first.
pub(super) fn propose(
    model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
    outcome: &Outcome,
    compatibility: &Compatibility,
) -> Vec<Change> {
    let before = outcome.numbers();
    if before.is_some_and(|before| before.groups <= 1) {
        return Vec::new();
    }
    let buckets = match outcome {
        Outcome::Planned(plan) => plan.grouping.buckets.len(),
        Outcome::Refused(_) => 0,
    };
    let nodes: Vec<&Node> = compatibility.nodes().collect();
    let mut candidates = pairs(rules, compatibility);
    candidates.extend(everywhere(&nodes));
    // Few fields, then a surprising field, then few layers.
    candidates.sort_by_key(|candidate| {
        let surprising = candidate.edits.iter().map(|edit| surprise(edit.field)).max().unwrap_or(0);
        (candidate.edits.len(), surprising, candidate.layers())
    });
    let mut seen: HashSet<Vec<EditKey>> = HashSet::new();
    let mut changes: Vec<Change> = Vec::new();
    let mut plans = 0;
    for candidate in candidates {
        let key =
            candidate.edits.iter().map(|edit| (edit.field, edit.to.clone(), edit.layers.clone())).collect();
        if !seen.insert(key) {
            continue;
        }
        if plans == PLANS_MAX {
            break;
        }
        plans += 1;
        let Some(changed) = apply(model, &candidate.edits) else { continue };
        let Ok(planned) = plan(&changed, settings, rules) else { continue };
        let after = Numbers::of(&planned);
        // A split that costs no group is still why two buckets stand apart.
        let joins = planned.grouping.buckets.len() < buckets && candidate.edits.len() == 1;
        let helps = match before {
            None => true,
            Some(before) => {
                after.groups < before.groups
                    || (after.groups == before.groups && (joins || saves_memory(&before, &after)))
            }
        };
        if helps {
            changes.push(Change { edits: candidate.edits, before, after, complete: candidate.complete });
        }
    }
    rank(&mut changes);
    changes.truncate(CHANGES_MAX);
    changes
}

/// Single fields that set layers apart from others of their kind, the likeliest slip first.
pub(super) fn twins(rules: &Rules, compatibility: &Compatibility) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for candidate in pairs(rules, compatibility) {
        if let [edit] = candidate.edits.as_slice() {
            let rarer = edit.layers.len() < edit.like.len()
                || (edit.layers.len() == edit.like.len() && edit.layers > edit.like);
            if rarer {
                edits.push(edit.clone());
            }
        }
    }
    edits.sort_by_key(|edit| (surprise(edit.field), edit.layers.len()));
    edits
}

/// The difference that looks most like a slip: a forgotten declaration before a difference by design, and
/// among those the one that costs most.
pub(super) fn cause<'a>(changes: &'a [Change], twins: &'a [Edit]) -> Option<&'a Edit> {
    let first = changes.first().and_then(|change| change.edits.first());
    let forgotten = |edit: &&Edit| surprise(edit.field) == 0;
    let splits = changes.first().is_some_and(|change| change.edits.len() == 1 && change.groups_saved() > 0);
    first
        .filter(|edit| forgotten(edit) || (splits && surprise(edit.field) <= 1))
        .or_else(|| twins.iter().find(forgotten))
        .or(first)
        .or_else(|| twins.first())
}

/// Whether as many groups hold more.
fn saves_memory(before: &Numbers, after: &Numbers) -> bool {
    match (before.max_concurrency, after.max_concurrency) {
        (Some(before), Some(after)) => after > before,
        _ => after.bytes_per_block < before.bytes_per_block,
    }
}

/// Cheap and surprising first, then by gain, then by what has to be touched.
fn rank(changes: &mut Vec<Change>) {
    let key = |change: &Change| {
        let surprising = change.edits.iter().map(|edit| surprise(edit.field)).max().unwrap_or(0);
        (change.edits.len(), surprising, change.after.groups, !change.complete, change.layers())
    };
    changes.sort_by_key(key);
    // The same fields between the same layers, seen from the other side, say nothing new.
    let mut kept: Vec<Change> = Vec::new();
    for change in changes.drain(..) {
        let mirrored = kept.iter().any(|other| {
            other.after == change.after
                && other.edits.len() == change.edits.len()
                && other
                    .edits
                    .iter()
                    .zip(&change.edits)
                    .all(|(a, b)| a.field == b.field && a.from == b.to && a.to == b.from)
        });
        if !mirrored {
            kept.push(change);
        }
    }
    *changes = kept;
}

/// For each two specs of one kind: the fields that keep them apart, set in the rarer one.
fn pairs(rules: &Rules, compatibility: &Compatibility) -> Vec<Candidate> {
    let graph = &compatibility.graph;
    let nodes: Vec<&Node> = compatibility.nodes().collect();
    let nodes = nodes.as_slice();
    let mut found = Vec::new();
    for edge in graph.edge_references() {
        let (a, b) = (&graph[edge.source()], &graph[edge.target()]);
        let differences = match edge.weight() {
            Relation::OtherKind => continue,
            Relation::Forbidden(fields) => Cow::Borrowed(fields),
            Relation::Merge => {
                // Within a bucket a difference can still cost: one layer's padding is every layer's page.
                let reconciled = rules.bucket_merge && merges(rules, &a.spec, &b.spec).is_ok();
                if reconciled || a.spec.kind() != b.spec.kind() {
                    continue;
                }
                let differences = obstacles(rules, a, b);
                if differences.len() > 1 {
                    continue;
                }
                Cow::Owned(differences)
            }
        };
        if !differences.is_empty() && differences.len() <= 6 {
            for (from, to, flip) in [(a, b, false), (b, a, true)] {
                let edits: Vec<Edit> = differences
                    .iter()
                    .map(|difference| {
                        let (left, right) = (difference.left.clone(), difference.right.clone());
                        let (old, new) = if flip { (right, left) } else { (left, right) };
                        Edit {
                            layers: from.layers.clone(),
                            field: difference.field,
                            from: old,
                            to: new,
                            like: to.layers.clone(),
                        }
                    })
                    .collect();
                let complete = is_complete(nodes, &edits);
                found.push(Candidate { edits, complete });
            }
        }
    }
    found
}

/// Whether the first edit leaves no layer of its kind with the old value.
fn is_complete(nodes: &[&Node], edits: &[Edit]) -> bool {
    let Some(edit) = edits.first() else { return false };
    let changed = nodes.iter().find(|node| node.layers == edit.layers);
    let Some(kind) = changed.map(|node| node.spec.kind()) else { return false };
    nodes
        .iter()
        .filter(|node| node.spec.kind() == kind && node.layers != edit.layers)
        .all(|node| node.value(edit.field) != edit.from.as_ref())
}

/// For each field with several values in one kind: one value set wherever another is declared.
fn everywhere(nodes: &[&Node]) -> Vec<Candidate> {
    let mut found = Vec::new();
    for kind in SpecKind::ALL {
        let of_kind: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].spec.kind() == *kind).collect();
        if of_kind.len() < 3 {
            continue;
        }
        let mut fields: Vec<Field> =
            of_kind.iter().flat_map(|i| nodes[*i].declared.iter().map(|(field, _)| *field)).collect();
        fields.sort_unstable();
        fields.dedup();
        for field in &fields {
            let mut values: Vec<(Option<FieldValue>, Vec<u32>)> = Vec::new();
            for i in &of_kind {
                let value = nodes[*i].value(*field).cloned();
                match values.iter_mut().find(|(known, _)| *known == value) {
                    Some((_, layers)) => layers.extend(&nodes[*i].layers),
                    None => values.push((value, nodes[*i].layers.clone())),
                }
            }
            if values.len() < 2 || values.len() > 4 {
                continue;
            }
            for (_, layers) in &mut values {
                layers.sort_unstable();
            }
            for (from, layers) in &values {
                for (to, like) in &values {
                    if from != to {
                        let edit = Edit {
                            layers: layers.clone(),
                            field: *field,
                            from: from.clone(),
                            to: to.clone(),
                            like: like.clone(),
                        };
                        found.push(Candidate { edits: vec![edit], complete: true });
                    }
                }
            }
        }
    }
    found
}
