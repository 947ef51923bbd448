//! The whole explanation for machines.

use planner::explain::{Change, Edit, Numbers, Outcome, Relation};
use planner::{FieldValue, RawSpec};
use schemars::JsonSchema;
use serde::Serialize;

use super::step_cost::StepCost;
use crate::render::explain_text::{Explained, cause_line};
use crate::render::json::PlanJson;
use planner::merge::FieldDifference;

/// `k3plan explain --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExplainReport {
    /// Always `k3plan.explain/1`.
    pub(super) schema: &'static str,
    /// One a scenario.
    pub(super) explanations: Vec<ExplainJson>,
}

/// One scenario's explanation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExplainJson {
    scenario: String,
    engine: String,
    /// The cause in a line.
    summary: Option<String>,
    cause: Option<EditJson>,
    changes: Vec<ChangeJson>,
    /// Single fields that set layers apart from others of their kind.
    differences: Vec<EditJson>,
    specs: Vec<NodeJson>,
    edges: Vec<EdgeJson>,
    group_sizes: Vec<SizeJson>,
    /// Rules of the group size that give fewer groups, the fewest first.
    fewer_groups_by: Vec<RuleJson>,
    versions: Vec<VersionJson>,
    plan: PlanJson,
    /// With `--hardware`.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_cost: Option<StepCost>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EditJson {
    field: &'static str,
    #[schemars(with = "serde_json::Value")]
    from: Option<FieldValue>,
    layers: Vec<u32>,
    layer_names: Vec<String>,
    #[schemars(with = "serde_json::Value")]
    to: Option<FieldValue>,
    /// Layers that declare `to` already.
    like_layers: Vec<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ChangeJson {
    edits: Vec<EditJson>,
    /// Whether a field of it is the model's own shape, fixed once it is trained.
    own_shape: bool,
    before: Option<NumbersJson>,
    after: NumbersJson,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NumbersJson {
    groups: u64,
    group_size: u64,
    padding_layers: Option<u64>,
    bytes_per_block: Option<u64>,
    num_blocks: Option<u64>,
    blocks_per_max_len_request: Option<u64>,
    max_concurrency: Option<f64>,
    kv_cache_size_tokens: Option<u64>,
    kv_tp_replicas: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NodeJson {
    #[schemars(with = "serde_json::Value")]
    spec: RawSpec,
    layers: Vec<u32>,
    draft_layers: usize,
    bucket: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EdgeJson {
    a: usize,
    b: usize,
    /// `merge`, `forbidden` or `other_kind`.
    relation: &'static str,
    fields: Vec<DifferenceJson>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DifferenceJson {
    field: &'static str,
    #[schemars(with = "serde_json::Value")]
    a: Option<FieldValue>,
    #[schemars(with = "serde_json::Value")]
    b: Option<FieldValue>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SizeJson {
    size: u64,
    chosen: bool,
    numbers: NumbersJson,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RuleJson {
    /// Its name for `--grouping`.
    grouping: &'static str,
    numbers: NumbersJson,
}

#[derive(Debug, Serialize, JsonSchema)]
struct VersionJson {
    version: String,
    groups: Option<u64>,
    changed: bool,
    new_fields: Vec<&'static str>,
    rules: Vec<&'static str>,
}

fn numbers(numbers: &Numbers) -> NumbersJson {
    let Numbers {
        groups,
        group_size,
        padding_layers,
        bytes_per_block,
        num_blocks,
        blocks_per_request,
        max_concurrency,
        kv_cache_size_tokens,
        kv_tp_replicas,
    } = *numbers;
    NumbersJson {
        groups,
        group_size,
        padding_layers,
        bytes_per_block,
        num_blocks,
        blocks_per_max_len_request: blocks_per_request,
        max_concurrency,
        kv_cache_size_tokens,
        kv_tp_replicas,
    }
}

fn difference(difference: &FieldDifference) -> DifferenceJson {
    DifferenceJson { field: difference.field.name(), a: difference.left.clone(), b: difference.right.clone() }
}

/// The explanation of one scenario.
pub(super) fn report(explained: &Explained<'_>, step_cost: Option<StepCost>) -> ExplainJson {
    let Explained { name, model, settings, rules, explanation, fewer } = explained;
    let edit = |edit: &Edit| EditJson {
        field: edit.field.name(),
        from: edit.from.clone(),
        layers: edit.layers.clone(),
        layer_names: edit.layers.iter().map(|layer| model.name_of(*layer as usize).into_owned()).collect(),
        to: edit.to.clone(),
        like_layers: edit.like.clone(),
    };
    let change = |change: &Change| ChangeJson {
        edits: change.edits.iter().map(edit).collect(),
        own_shape: change.is_of_own_shape(),
        before: change.before.as_ref().map(numbers),
        after: numbers(&change.after),
    };
    let graph = &explanation.compatibility.graph;
    let plan = match &explanation.outcome {
        Outcome::Planned(plan) => Ok(plan.as_ref()),
        Outcome::Refused(error) => Err(error),
    };
    ExplainJson {
        scenario: (*name).to_owned(),
        engine: rules.version.to_string(),
        summary: cause_line(model, explanation),
        cause: explanation.cause.as_ref().map(edit),
        changes: explanation.changes.iter().map(change).collect(),
        differences: explanation.twins.iter().map(edit).collect(),
        specs: graph
            .node_weights()
            .map(|node| NodeJson {
                spec: RawSpec::from(&node.spec),
                layers: node.layers.clone(),
                draft_layers: node.draft_layers,
                bucket: node.bucket,
            })
            .collect(),
        edges: graph
            .edge_indices()
            .filter_map(|edge| {
                let (a, b) = graph.edge_endpoints(edge)?;
                let (relation, fields) = match graph.edge_weight(edge)? {
                    Relation::Merge => ("merge", Vec::new()),
                    Relation::OtherKind => ("other_kind", Vec::new()),
                    Relation::Forbidden(fields) => ("forbidden", fields.iter().map(difference).collect()),
                };
                Some(EdgeJson { a: a.index(), b: b.index(), relation, fields })
            })
            .collect(),
        group_sizes: explanation
            .sizes
            .iter()
            .map(|row| SizeJson { size: row.size, chosen: row.chosen, numbers: numbers(&row.numbers) })
            .collect(),
        fewer_groups_by: fewer
            .iter()
            .map(|(grouping, of)| RuleJson { grouping, numbers: numbers(of) })
            .collect(),
        versions: explanation
            .versions
            .iter()
            .map(|step| VersionJson {
                version: step.version.to_string(),
                groups: step.numbers.map(|numbers| numbers.groups),
                changed: step.changed,
                new_fields: step.new_fields.iter().map(|field| field.name()).collect(),
                rules: step.rule_changes().map(|change| change.what).collect(),
            })
            .collect(),
        plan: PlanJson::of(name, model, settings, rules, plan),
        step_cost,
    }
}
