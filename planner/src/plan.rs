//! The whole answer as one value: groups, what they share, the pool, and what vLLM would log.

use crate::capacity::{self, GroupCapacity, Pool};
use crate::engine::{EngineVersion, Rules};
use crate::error::{CapacityError, GroupingError};
use crate::group::{self, Grouping};
use crate::model::Model;
use crate::pool;
use crate::replicas;
use crate::settings::EngineSettings;
use crate::spec::RequestShape;

/// What vLLM makes of a model's layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The version that was planned for.
    pub version: EngineVersion,
    /// The groups, and how they came about.
    pub grouping: Grouping,
    /// Consecutive tensor parallel ranks that hold identical KV; `None` before 0.31.
    pub kv_tp_replicas: Option<u64>,
    /// Bytes of one block over all layers; `None` without groups.
    pub bytes_per_block: Option<u64>,
    /// What a request of the longest length takes of each group.
    pub capacity: Vec<GroupCapacity>,
    /// The longest request that the engine plans for, tokens: as set, or fitted to the memory.
    pub max_model_len: u64,
    /// The pool, where the memory is known and there are groups.
    pub pool: Option<Result<Pool, CapacityError>>,
}

impl Plan {
    /// The pool, if there is one.
    pub const fn fitting_pool(&self) -> Option<&Pool> {
        match &self.pool {
            Some(Ok(pool)) => Some(pool),
            _ => None,
        }
    }

    /// Blocks of one request of the longest length; of the fitted length where the engine fits it.
    ///
    /// # Errors
    /// On overflow, or where the engine refuses a group.
    pub fn blocks_per_max_len_request(
        &self,
        settings: &EngineSettings,
        rules: &Rules,
    ) -> Result<u64, CapacityError> {
        capacity::request_blocks(&self.grouping, RequestShape { tokens: self.max_model_len, settings, rules })
    }
}

/// Plans `model` as the engine of `rules` does.
///
/// # Errors
/// If vLLM refuses to group the layers; that groups do not fit the memory is part of the plan.
pub fn plan(model: &Model, settings: &EngineSettings, rules: &Rules) -> Result<Plan, GroupingError> {
    let grouping = group::group(model, settings, rules)?;
    let kv_tp_replicas = rules.tp_replicas.then(|| replicas::kv_tp_replicas(&grouping, settings));
    let mut bytes_per_block = None;
    let mut capacity = Vec::new();
    let mut pool = None;
    let mut max_model_len = settings.max_model_len;
    if !grouping.groups.is_empty() {
        let shape = RequestShape { tokens: settings.max_model_len, settings, rules };
        bytes_per_block = all_layers_bytes_per_block(settings, rules, &grouping).ok();
        let known = settings.num_gpu_blocks_override.is_some() || !settings.available_memory_bytes.is_empty();
        if known {
            pool = Some(allocate(model, settings, rules, &grouping, &mut max_model_len));
        }
        match capacity::by_group(&grouping, RequestShape { tokens: max_model_len, ..shape }) {
            Ok(by_group) => capacity = by_group,
            Err(error) if pool.is_none() => pool = Some(Err(error)),
            Err(_) => {}
        }
    }
    Ok(Plan {
        version: rules.version,
        grouping,
        kv_tp_replicas,
        bytes_per_block,
        capacity,
        max_model_len,
        pool,
    })
}

fn allocate(
    model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
    grouping: &Grouping,
    max_model_len: &mut u64,
) -> Result<Pool, CapacityError> {
    match capacity::allocated_grouping(model, settings, rules)? {
        Some(grouping) => capacity::pool(settings, rules, &grouping, max_model_len),
        None => capacity::pool(settings, rules, grouping, max_model_len),
    }
}

/// Bytes of one block with all layers on one worker.
fn all_layers_bytes_per_block(
    settings: &EngineSettings,
    rules: &Rules,
    grouping: &Grouping,
) -> Result<u64, CapacityError> {
    let one = EngineSettings { pipeline_parallel_size: 1, ..EngineSettings::default() };
    let stages = pool::stages(&one, grouping);
    let all = stages.first().map_or(&[][..], Vec::as_slice);
    pool::bytes_per_block(rules, settings.kv_cache_layout, grouping, all)
}
