//! Why the groups are as they are, and what single change of a field would give fewer.
//!
//! Nothing here plans by rules of its own: a proposed change is made to the model's declared specs, and
//! the planner is asked again.

mod changes;
mod graph;
mod sizes;
mod versions;

use crate::engine::Rules;
use crate::error::GroupingError;
use crate::model::Model;
use crate::plan::{Plan, plan};
use crate::settings::EngineSettings;

pub use changes::{Change, Edit, apply, is_own_shape};
pub use graph::{Compatibility, Node, Relation, compatibility};
pub use sizes::{GroupSizeRow, group_sizes};
pub use versions::{Responsible, Step, responsible, steps};

/// What a plan comes to in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers {
    /// KV cache groups.
    pub groups: u64,
    /// Layers of the largest group.
    pub group_size: u64,
    /// Layer slots that stay empty; `None` where groups of mixed specs have none.
    pub padding_layers: Option<u64>,
    /// Bytes of a block.
    pub bytes_per_block: Option<u64>,
    /// Blocks of the pool.
    pub num_blocks: Option<u64>,
    /// Blocks of a request of the longest length.
    pub blocks_per_request: Option<u64>,
    /// Requests of that length that fit.
    pub max_concurrency: Option<f64>,
    /// Tokens, as vLLM logs them.
    pub kv_cache_size_tokens: Option<u64>,
    /// Tensor parallel ranks that hold identical KV.
    pub kv_tp_replicas: Option<u64>,
}

impl Numbers {
    /// The numbers of a plan.
    pub fn of(plan: &Plan) -> Self {
        let pool = plan.fitting_pool();
        Self {
            groups: plan.grouping.groups.len() as u64,
            group_size: plan.grouping.group_size(),
            padding_layers: plan.grouping.padding_layers(),
            bytes_per_block: plan.bytes_per_block,
            num_blocks: pool.map(|pool| pool.num_blocks),
            blocks_per_request: pool.map(|pool| pool.blocks_per_max_len_request),
            max_concurrency: pool.map(|pool| pool.max_concurrency),
            kv_cache_size_tokens: pool.map(|pool| pool.kv_cache_size_tokens),
            kv_tp_replicas: plan.kv_tp_replicas,
        }
    }
}

/// What the model comes to as it is declared.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It is planned.
    Planned(Box<Plan>),
    /// vLLM refuses to group it.
    Refused(GroupingError),
}

impl Outcome {
    /// The numbers, if it is planned.
    pub fn numbers(&self) -> Option<Numbers> {
        match self {
            Self::Planned(plan) => Some(Numbers::of(plan)),
            Self::Refused(_) => None,
        }
    }
}

/// Why a model's groups are as they are.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// What the model comes to.
    pub outcome: Outcome,
    /// Distinct specs, and which merge.
    pub compatibility: Compatibility,
    /// The difference that looks most like a slip, if there is one.
    pub cause: Option<Edit>,
    /// Changes that help, the likeliest cause first, then by gain.
    pub changes: Vec<Change>,
    /// Layers that differ from others of their kind in one field, whether or not that costs anything; the
    /// likeliest slip first, the rarer side as the layers to change.
    pub twins: Vec<Edit>,
    /// What other group sizes would give; empty where no size is chosen.
    pub sizes: Vec<GroupSizeRow>,
    /// What each engine version makes of the model, oldest first.
    pub versions: Vec<Step>,
}

/// Explains what the engine of `rules` makes of `model`.
pub fn explain(model: &Model, settings: &EngineSettings, rules: &Rules) -> Explanation {
    let outcome = match plan(model, settings, rules) {
        Ok(plan) => Outcome::Planned(Box::new(plan)),
        Err(error) => Outcome::Refused(error),
    };
    let compatibility = compatibility(model, rules, &outcome);
    let changes = changes::propose(model, settings, rules, &outcome, &compatibility);
    let twins = changes::twins(rules, &compatibility);
    let cause = changes::cause(&changes, &twins).cloned();
    let sizes = match &outcome {
        Outcome::Planned(plan) => group_sizes(model, settings, rules, plan),
        Outcome::Refused(_) => Vec::new(),
    };
    let versions = steps(model, settings, crate::engine::EngineVersion::all());
    Explanation { outcome, compatibility, cause, changes, twins, sizes, versions }
}
