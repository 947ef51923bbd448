//! The compatibility graph: distinct specs are nodes, an edge says that two merge or which fields forbid it.

use petgraph::graph::{NodeIndex, UnGraph};

use super::Outcome;
use crate::engine::Rules;
use crate::merge::{self, FieldDifference};
use crate::model::Model;
use crate::spec::{Field, FieldValue, KvCacheSpec, RawSpec, known_fields};

/// Above this many specs only neighbours of few differences get an edge.
const EDGES_MAX: usize = 4096;

/// One distinct spec, as this engine version sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it declares, without fields that the version does not have.
    pub declared: Vec<(Field, FieldValue)>,
    /// The same as a spec.
    pub spec: KvCacheSpec,
    /// The layers that declare it.
    pub layers: Vec<u32>,
    /// How many of them belong to a draft.
    pub draft_layers: usize,
    /// Its bucket, where there are buckets.
    pub bucket: Option<usize>,
}

/// What stands between two specs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relation {
    /// They merge, or share a group anyway.
    Merge,
    /// They do not, because of these fields.
    Forbidden(Vec<FieldDifference>),
    /// They are of classes that never merge.
    OtherKind,
}

/// The graph over all distinct specs.
#[derive(Debug, Clone)]
pub struct Compatibility {
    /// Nodes and edges.
    pub graph: UnGraph<Node, Relation>,
}

impl Node {
    /// What it declares for `field`.
    pub fn value(&self, field: Field) -> Option<&FieldValue> {
        self.declared.iter().find(|(known, _)| *known == field).map(|(_, value)| value)
    }
}

impl Compatibility {
    /// The nodes in the order of their first layers.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.graph.node_weights()
    }
}

/// The graph of a model's specs as the engine of `rules` sees them.
pub fn compatibility(model: &Model, rules: &Rules, outcome: &Outcome) -> Compatibility {
    let mut graph: UnGraph<Node, Relation> = UnGraph::new_undirected();
    let mut seen: Vec<Option<NodeIndex>> = vec![None; model.specs.len()];
    for (layer, id) in (0_u32..).zip(&model.layers) {
        let Some(declared) = model.specs.get(id.index()) else { continue };
        let node = match seen.get(id.index()).copied().flatten() {
            Some(node) => node,
            None => {
                let mut spec = declared.clone();
                spec.retain_known(known_fields(spec.kind(), rules.version));
                let known = graph.node_indices().find(|node| graph[*node].spec == spec);
                let node = known.unwrap_or_else(|| {
                    let declared = merge::declared(&spec);
                    graph.add_node(Node { declared, spec, layers: Vec::new(), draft_layers: 0, bucket: None })
                });
                seen[id.index()] = Some(node);
                node
            }
        };
        graph[node].layers.push(layer);
        if model.is_draft(layer as usize) {
            graph[node].draft_layers += 1;
        }
    }
    if let Outcome::Planned(plan) = outcome {
        let mut bucket_of = vec![None; model.len()];
        for (bucket, of) in plan.grouping.buckets.iter().enumerate() {
            for layer in &of.layers {
                bucket_of[*layer as usize] = Some(bucket);
            }
        }
        for node in graph.node_indices() {
            graph[node].bucket = graph[node]
                .layers
                .first()
                .and_then(|layer| bucket_of.get(*layer as usize).copied().flatten());
        }
    }
    let nodes: Vec<NodeIndex> = graph.node_indices().collect();
    let every = nodes.len() * nodes.len().saturating_sub(1) / 2 <= EDGES_MAX;
    for (i, a) in nodes.iter().enumerate() {
        for b in &nodes[i + 1..] {
            let relation = relation(rules, &graph[*a], &graph[*b]);
            let near = matches!(&relation, Relation::Forbidden(fields) if fields.len() == 1);
            if every || near {
                graph.add_edge(*a, *b, relation);
            }
        }
    }
    Compatibility { graph }
}

fn relation(rules: &Rules, a: &Node, b: &Node) -> Relation {
    if a.bucket.is_some() && a.bucket == b.bucket {
        return Relation::Merge;
    }
    if a.spec.kind() != b.spec.kind() {
        let both_full = a.spec.kind().is_full_family() && b.spec.kind().is_full_family();
        if !both_full || merges(rules, &a.spec, &b.spec).is_err() {
            return Relation::OtherKind;
        }
        return Relation::Merge;
    }
    if merges(rules, &a.spec, &b.spec).is_ok() && rules.bucket_merge {
        return Relation::Merge;
    }
    Relation::Forbidden(obstacles(rules, a, b))
}

/// Whether two declared specs merge as they are.
pub(super) fn merges(rules: &Rules, a: &KvCacheSpec, b: &KvCacheSpec) -> Result<(), merge::MergeRefusal> {
    let mut merged = merge::merge_alone(rules, a)?;
    merge::merge_into(rules, &mut merged, b)
}

/// The differing fields without those that a merge reconciles by itself.
pub(super) fn obstacles(rules: &Rules, a: &Node, b: &Node) -> Vec<FieldDifference> {
    let differences = merge::declared_differences(&a.declared, &b.declared);
    if !rules.bucket_merge || differences.len() < 2 {
        return differences;
    }
    let forbidding: Vec<FieldDifference> = differences
        .iter()
        .filter(|difference| {
            // Alone, this field would forbid it.
            let mut raw = RawSpec::from(&a.spec);
            raw.set(difference.field, difference.right.clone());
            KvCacheSpec::try_from(raw).map_or(true, |other| merges(rules, &a.spec, &other).is_err())
        })
        .cloned()
        .collect();
    if forbidding.is_empty() { differences } else { forbidding }
}
