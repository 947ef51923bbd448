//! The JSON reports: own types, converted by hand, versioned by a `schema` key.

use planner::{CapacityError, EngineSettings, GroupingError, Model, Plan, RawSpec, Rules};
use schemars::JsonSchema;
use serde::Serialize;

use super::plan_text;

/// `k3plan plan --json`: one report for all scenarios.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanReport {
    /// Always `k3plan.plan/1`.
    pub(crate) schema: &'static str,
    /// One plan a scenario, in the order of the command line.
    pub(crate) plans: Vec<PlanJson>,
}

/// One scenario's plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanJson {
    /// The scenario's name.
    pub(crate) scenario: String,
    /// The vLLM version that was planned for, such as `0.33`.
    pub(crate) engine: String,
    /// The step of vLLM's that made the groups.
    pub(crate) decision: Option<String>,
    /// The groups, in vLLM's order.
    pub(crate) groups: Vec<GroupJson>,
    /// Layers of each bucket that the groups were cut from.
    pub(crate) bucket_layers: Vec<u64>,
    /// Layers of the largest group.
    pub(crate) group_size: u64,
    /// Layer slots that no layer fills; null where groups of mixed specs have none.
    pub(crate) padding_layers: Option<u64>,
    /// Tensor parallel ranks that hold identical KV; null before 0.31.
    pub(crate) kv_tp_replicas: Option<u64>,
    /// Bytes of one block over all layers.
    pub(crate) bytes_per_block: Option<u64>,
    /// The block pool; null where the memory is unknown or too small.
    pub(crate) pool: Option<PoolJson>,
    /// What vLLM would log about the cache.
    pub(crate) log_lines: Vec<String>,
    /// Why vLLM would refuse to start.
    pub(crate) error: Option<ErrorJson>,
}

/// One KV cache group.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GroupJson {
    /// vLLM's class of the group's spec.
    pub(crate) class: String,
    /// Indices of its layers, in vLLM's order.
    pub(crate) layers: Vec<u32>,
    /// Their names.
    pub(crate) layer_names: Vec<String>,
    /// Tokens of a block.
    pub(crate) block_size: u64,
    /// Bytes of a page: of one layer, or of all layers of a group of mixed specs.
    pub(crate) page_size_bytes: Option<u64>,
    /// Blocks of a request of the longest length.
    pub(crate) blocks_per_max_len_request: Option<u64>,
    /// Blocks of a request whatever its length.
    pub(crate) fixed_blocks: Option<u64>,
    /// Tokens that one more block holds; null does not grow.
    pub(crate) tokens_per_block: Option<u64>,
    /// The distinct specs of the group, in the form of scenario files.
    pub(crate) specs: Vec<serde_json::Value>,
}

/// The block pool.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PoolJson {
    /// Blocks, the null block among them.
    pub(crate) num_blocks: u64,
    /// Tokens of the longest request.
    pub(crate) max_model_len: u64,
    /// Blocks of such a request over all groups.
    pub(crate) blocks_per_max_len_request: u64,
    /// Such requests that fit.
    pub(crate) max_concurrency: f64,
    /// Tokens as vLLM logs them since about 0.21: concurrency x longest request.
    pub(crate) kv_cache_size_tokens: u64,
    /// Tokens as vLLM logged them up to about 0.20: blocks // groups x smallest block.
    pub(crate) kv_cache_size_tokens_by_blocks: u64,
    /// Blocks that each pipeline stage's memory would hold.
    pub(crate) stage_blocks: Vec<u64>,
    /// Layers of each group on each pipeline stage, where there are several.
    pub(crate) stage_group_sizes: Vec<Vec<u64>>,
}

/// Why vLLM would refuse.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorJson {
    /// `grouping` or `capacity`.
    pub(crate) stage: &'static str,
    /// The Python exception.
    pub(crate) class: &'static str,
    /// The layer that it names.
    pub(crate) layer: Option<u64>,
    /// What is wrong.
    pub(crate) message: String,
    /// Bytes that a request of the longest length needs.
    pub(crate) needed_bytes: Option<u64>,
    /// Bytes that are available for it.
    pub(crate) available_bytes: Option<u64>,
    /// The longest request that would fit, tokens.
    pub(crate) estimated_max_model_len: Option<u64>,
}

impl PlanJson {
    /// The report of one plan.
    pub(crate) fn of(
        name: &str,
        model: &Model,
        settings: &EngineSettings,
        rules: &Rules,
        plan: Result<&Plan, &GroupingError>,
    ) -> Self {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                return Self {
                    scenario: name.to_owned(),
                    engine: rules.version.to_string(),
                    decision: None,
                    groups: Vec::new(),
                    bucket_layers: Vec::new(),
                    group_size: 0,
                    padding_layers: None,
                    kv_tp_replicas: None,
                    bytes_per_block: None,
                    pool: None,
                    log_lines: Vec::new(),
                    error: Some(ErrorJson {
                        stage: "grouping",
                        class: error.class().name(),
                        layer: error.layer().map(|layer| layer as u64),
                        message: error.to_string(),
                        needed_bytes: None,
                        available_bytes: None,
                        estimated_max_model_len: None,
                    }),
                };
            }
        };
        let grouping = &plan.grouping;
        let pool = plan.fitting_pool();
        Self {
            scenario: name.to_owned(),
            engine: plan.version.to_string(),
            decision: Some(decision_name(grouping.decision).to_owned()),
            groups: grouping
                .groups
                .iter()
                .enumerate()
                .map(|(i, group)| {
                    let mut distinct = Vec::new();
                    for id in group.spec.specs() {
                        if !distinct.contains(id) {
                            distinct.push(*id);
                        }
                    }
                    let capacity = plan.capacity.get(i);
                    GroupJson {
                        class: grouping.class_name(group).to_owned(),
                        layers: group.layers.clone(),
                        layer_names: group
                            .layers
                            .iter()
                            .map(|layer| model.name_of(*layer as usize).into_owned())
                            .collect(),
                        block_size: grouping.block_size(group),
                        page_size_bytes: grouping.page_size_bytes(group).ok(),
                        blocks_per_max_len_request: capacity.map(|capacity| capacity.max_blocks),
                        fixed_blocks: capacity.map(|capacity| capacity.fixed_blocks),
                        tokens_per_block: capacity.and_then(|capacity| capacity.tokens_per_block),
                        specs: distinct
                            .iter()
                            .filter_map(|id| {
                                serde_json::to_value(RawSpec::from(grouping.specs.spec(*id))).ok()
                            })
                            .collect(),
                    }
                })
                .collect(),
            bucket_layers: grouping.buckets.iter().map(|bucket| bucket.layers.len() as u64).collect(),
            group_size: grouping.group_size(),
            padding_layers: grouping.padding_layers(),
            kv_tp_replicas: plan.kv_tp_replicas,
            bytes_per_block: plan.bytes_per_block,
            pool: pool.map(|pool| PoolJson {
                num_blocks: pool.num_blocks,
                max_model_len: pool.max_model_len,
                blocks_per_max_len_request: pool.blocks_per_max_len_request,
                max_concurrency: pool.max_concurrency,
                kv_cache_size_tokens: pool.kv_cache_size_tokens,
                kv_cache_size_tokens_by_blocks: pool.kv_cache_size_tokens_by_blocks,
                stage_blocks: pool.stage_blocks.clone(),
                stage_group_sizes: pool.stage_group_sizes.clone(),
            }),
            log_lines: match pool {
                Some(pool) => plan_text::log_lines(model, settings, rules, plan, pool),
                None => plan_text::padding_lines(grouping),
            },
            error: match &plan.pool {
                Some(Err(error)) => Some(capacity_error(error)),
                _ => None,
            },
        }
    }
}

fn capacity_error(error: &CapacityError) -> ErrorJson {
    let (needed, available, estimated) = match error {
        CapacityError::NotEnough { needed_bytes, available_bytes, estimated_max_model_len, .. } => {
            (Some(*needed_bytes), Some(*available_bytes), Some(*estimated_max_model_len))
        }
        _ => (None, None, None),
    };
    ErrorJson {
        stage: "capacity",
        class: error.class().name(),
        layer: None,
        message: error.to_string(),
        needed_bytes: needed,
        available_bytes: available,
        estimated_max_model_len: estimated,
    }
}

/// The decision's name in reports.
pub(crate) const fn decision_name(decision: planner::Decision) -> &'static str {
    use planner::Decision;
    match decision {
        Decision::AttentionFree => "attention_free",
        Decision::UniformSpec => "uniform_spec",
        Decision::UniformType => "uniform_type",
        Decision::Tuples => "tuples",
        Decision::StateSlots => "state_slots",
        Decision::Packed => "packed",
        Decision::UniformPageSize => "uniform_page_size",
        Decision::FullAllocation => "full_allocation",
    }
}
