//! How many blocks there are, how many requests and tokens they hold, and what stops a plan from fitting.
//!
//! # Source
//! `get_kv_cache_configs` and the functions that it calls, vLLM `v1/core/kv_cache_utils.py` (since 0.33
//! `kv_cache_planning.py`).

use crate::engine::{Rules, TupleGroups};
use crate::error::CapacityError;
use crate::group::{self, GroupSpec, Grouping};
use crate::model::{Model, SpecId};
use crate::pool::{self, StageGroup};
use crate::settings::EngineSettings;
use crate::size;
use crate::spec::{KvCacheSpec, RequestShape, SpecKind};

/// The block pool of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Blocks of every worker: the smallest stage decides. One of them is the null block.
    pub num_blocks: u64,
    /// Blocks that each stage's own memory would hold.
    pub stage_blocks: Vec<u64>,
    /// The longest request, tokens; shortened where the engine fits it to the memory.
    pub max_model_len: u64,
    /// Blocks of one request of that length, over all groups.
    pub blocks_per_max_len_request: u64,
    /// Requests of that length that the pool holds, as vLLM logs it.
    pub max_concurrency: f64,
    /// The tokens that vLLM logs since 0.21: concurrency x longest request.
    pub kv_cache_size_tokens: u64,
    /// The tokens that vLLM logged up to about 0.20: blocks per group x smallest block.
    pub kv_cache_size_tokens_by_blocks: u64,
    /// Layers of each group on each stage, where there are several.
    pub stage_group_sizes: Vec<Vec<u64>>,
}

/// What a request takes of one group: a capacity that people can add up.
///
/// A request of `n` tokens holds `fixed_blocks + ceil(n / tokens_per_block)` blocks of a group that grows,
/// and at most `max_blocks` of one that does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCapacity {
    /// Blocks whatever the length.
    pub fixed_blocks: u64,
    /// Tokens that one more block holds; `None` does not grow with the length.
    pub tokens_per_block: Option<u64>,
    /// Blocks of a request of the longest length.
    pub max_blocks: u64,
}

/// Blocks that a request holds of a group at most.
fn group_blocks(
    grouping: &Grouping,
    specs: &[SpecId],
    shape: RequestShape<'_>,
) -> Result<u64, CapacityError> {
    let mut most = 0;
    let mut last = None;
    for id in specs {
        if last != Some(*id) {
            most = grouping.specs.spec(*id).max_blocks(shape)?.max(most);
            last = Some(*id);
        }
    }
    Ok(most)
}

/// Blocks of a request of `shape.tokens` tokens over all groups of `grouping`.
///
/// # Errors
/// On overflow, or where the engine refuses a group.
pub fn request_blocks(grouping: &Grouping, shape: RequestShape<'_>) -> Result<u64, CapacityError> {
    grouping.groups.iter().try_fold(0, |sum, group| {
        Ok(size::add("blocks of a request", sum, group_blocks(grouping, group.spec.specs(), shape)?)?)
    })
}

/// Blocks of a request whose prompt is computed and whose steps are of `tokens_a_step` tokens.
///
/// [`request_blocks`] is what vLLM reserves: a window with a whole batch of prompt tokens beside it. Once the prompt is
/// done, blocks before the window are freed, and a step's own tokens are all that is beside it.
///
/// # Errors
/// As [`request_blocks`].
///
/// # Source
/// `SlidingWindowManager.get_num_skipped_tokens` in `vllm/v1/core/single_type_kv_cache_manager.py`.
pub fn decoding_blocks(
    grouping: &Grouping,
    shape: RequestShape<'_>,
    tokens_a_step: u64,
) -> Result<u64, CapacityError> {
    let settings = EngineSettings {
        max_num_batched_tokens: tokens_a_step.min(shape.settings.max_num_batched_tokens),
        ..shape.settings.clone()
    };
    request_blocks(grouping, RequestShape { settings: &settings, ..shape })
}

/// What a request takes of each group.
///
/// # Errors
/// As [`request_blocks`].
pub fn by_group(grouping: &Grouping, shape: RequestShape<'_>) -> Result<Vec<GroupCapacity>, CapacityError> {
    grouping
        .groups
        .iter()
        .map(|group| {
            let max_blocks = group_blocks(grouping, group.spec.specs(), shape)?;
            let (fixed_blocks, tokens_per_block) = grouping.specs.spec(group.first_spec()).growth(shape)?;
            Ok(GroupCapacity { fixed_blocks, tokens_per_block, max_blocks })
        })
        .collect()
}

/// Memory that one request of `shape.tokens` tokens needs on a worker, bytes.
///
/// # Source
/// `_max_memory_usage_bytes_from_groups`.
fn needed_bytes(
    grouping: &Grouping,
    groups: &[StageGroup<'_>],
    bytes_per_block: u64,
    shape: RequestShape<'_>,
) -> Result<u64, CapacityError> {
    const WHAT: &str = "memory of a request";
    let rules = shape.rules;
    let page = |id: &SpecId| grouping.specs.page_size_bytes(*id);
    let mixed = groups.iter().all(|group| matches!(*group.spec, GroupSpec::UniformType(_)));
    if !rules.blocks_from_groups && mixed {
        if let [group] = groups {
            return group.specs().iter().try_fold(0, |sum, id| {
                let blocks = grouping.specs.spec(*id).max_blocks(shape)?;
                Ok(size::add(WHAT, sum, size::mul(WHAT, blocks, page(id))?)?)
            });
        }
        return tuple_bytes(grouping, groups, shape);
    }
    let mut blocks = 0;
    for group in groups {
        blocks = size::add(WHAT, blocks, group_blocks(grouping, group.specs(), shape)?)?;
    }
    Ok(size::mul(WHAT, bytes_per_block, blocks)?)
}

/// Tuple groups reserve whole tuples of the first group's page sizes.
fn tuple_bytes(
    grouping: &Grouping,
    groups: &[StageGroup<'_>],
    shape: RequestShape<'_>,
) -> Result<u64, CapacityError> {
    const WHAT: &str = "memory of a request";
    let counts = |ids: &[SpecId]| pool::layers_by_page_size(grouping, ids);
    let first = groups.first().map_or(&[][..], |group| group.specs());
    let tuple = counts(first).iter().try_fold(0, |sum, (page, _)| size::add(WHAT, sum, *page))?;
    let tuples = groups
        .iter()
        .map(|group| counts(group.specs()).iter().map(|(_, count)| *count).max().unwrap_or(0))
        .max()
        .unwrap_or(0);
    groups.iter().try_fold(0, |sum, group| {
        let blocks = group_blocks(grouping, group.specs(), shape)?;
        Ok(size::add(WHAT, sum, size::product(WHAT, &[tuples, blocks, tuple])?)?)
    })
}

struct Worker<'a> {
    groups: &'a [StageGroup<'a>],
    bytes_per_block: u64,
    memory_bytes: u64,
    /// What the capacity check may count on; below zero if the null block alone does not fit.
    check_bytes: i128,
}

impl Worker<'_> {
    /// The longest request that fits, found as the engine finds it; 0 if not even one token does.
    fn longest(&self, grouping: &Grouping, shape: RequestShape<'_>) -> Result<u64, CapacityError> {
        let fits = |tokens: u64| -> Result<bool, CapacityError> {
            let shape = RequestShape { tokens, ..shape };
            let needed = needed_bytes(grouping, self.groups, self.bytes_per_block, shape)?;
            Ok(i128::from(needed) <= self.check_bytes)
        };
        if !fits(1)? {
            return Ok(0);
        }
        let (mut left, mut right, mut result) = (1, shape.tokens, 1);
        while left <= right {
            let middle = left + (right - left) / 2;
            if fits(middle)? {
                result = middle;
                left = middle + 1;
            } else {
                right = middle - 1;
            }
        }
        Ok(result)
    }

    fn check(&self, grouping: &Grouping, shape: RequestShape<'_>) -> Result<(), CapacityError> {
        if self.check_bytes <= 0 {
            return Err(CapacityError::NoMemory);
        }
        let needed = needed_bytes(grouping, self.groups, self.bytes_per_block, shape)?;
        if i128::from(needed) > self.check_bytes {
            return Err(CapacityError::NotEnough {
                needed_bytes: needed,
                available_bytes: u64::try_from(self.check_bytes).unwrap_or(0),
                max_model_len: shape.tokens,
                estimated_max_model_len: self.longest(grouping, shape)?,
            });
        }
        Ok(())
    }
}

/// The grouping that the engine allocates for: it sets `extra_retained_tokens` itself since 0.28.
///
/// `None` is the grouping of the model as declared.
///
/// # Errors
/// If the layers as the engine sets them cannot be grouped.
pub fn allocated_grouping(
    model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
) -> Result<Option<Grouping>, CapacityError> {
    if !rules.retained_tokens_by_engine {
        return Ok(None);
    }
    let retained = settings.num_prefill_lookahead_tokens.saturating_sub(1);
    let declares = |spec: &KvCacheSpec| {
        spec.attention()
            .and_then(|spec| spec.kind.sliding())
            .is_some_and(|sliding| sliding.extra_retained_tokens != retained)
    };
    if !model.specs.iter().any(declares) {
        return Ok(None);
    }
    let mut model = model.clone();
    for spec in &mut model.specs {
        if let KvCacheSpec::Attention(spec) = spec
            && let Some(sliding) = spec.kind.sliding_mut()
        {
            sliding.extra_retained_tokens = retained;
        }
    }
    group::group(&model, settings, rules).map(Some).map_err(CapacityError::Grouping)
}

/// The pool that the memory of `settings` gives these groups.
///
/// `fitted_max_model_len` becomes the longest request that the engine plans for, also where the pool is refused later.
///
/// # Errors
/// If the groups do not fit it.
pub fn pool(
    settings: &EngineSettings,
    rules: &Rules,
    grouping: &Grouping,
    fitted_max_model_len: &mut u64,
) -> Result<Pool, CapacityError> {
    let layout = settings.kv_cache_layout;
    for (layer, id) in grouping.layers.iter().enumerate() {
        if grouping.specs.spec(*id).kind() == SpecKind::EncoderOnly {
            return Err(CapacityError::Unregistered { layer });
        }
    }
    let assigned: usize = grouping.groups.iter().map(|group| group.layers.len()).sum();
    let unassigned = assigned != grouping.layers.len();
    if rules.layout_checked_first && unassigned {
        return Err(CapacityError::LayersUnassigned);
    }
    let stages = pool::stages(settings, grouping);
    let memory = |stage: usize| {
        let all = &settings.available_memory_bytes;
        all.get(stage).or_else(|| all.last()).copied().unwrap_or(0)
    };
    let mut workers = Vec::with_capacity(stages.len());
    for (stage, groups) in stages.iter().enumerate() {
        if rules.layout_checked_first {
            pool::check_layout(rules, layout, grouping, groups)?;
        }
        let bytes_per_block = pool::bytes_per_block(rules, layout, grouping, groups)?;
        let memory_bytes = match settings.num_gpu_blocks_override {
            Some(blocks) => size::mul("overridden memory", blocks, bytes_per_block)?,
            None => memory(stage),
        };
        let null_block = if rules.null_block_reserved { i128::from(bytes_per_block) } else { 0 };
        workers.push(Worker {
            groups,
            bytes_per_block,
            memory_bytes,
            check_bytes: i128::from(memory_bytes) - null_block,
        });
    }
    let mut shape = RequestShape { tokens: settings.max_model_len, settings, rules };
    if settings.auto_fit_max_model_len {
        let mut fitted = shape.tokens;
        for worker in &workers {
            fitted = fitted.min(worker.longest(grouping, shape)?);
        }
        if fitted == 0 {
            return Err(CapacityError::NothingFits);
        }
        shape.tokens = fitted;
        *fitted_max_model_len = fitted;
    }
    for worker in &workers {
        worker.check(grouping, shape)?;
    }
    if unassigned {
        return Err(CapacityError::LayersUnassigned);
    }
    let mut stage_blocks = Vec::with_capacity(workers.len());
    for worker in &workers {
        pool::check_layout(rules, layout, grouping, worker.groups)?;
        stage_blocks.push(worker.memory_bytes / worker.bytes_per_block.max(1));
    }
    let num_blocks = stage_blocks.iter().copied().min().unwrap_or(0);
    let blocks_per_max_len_request = request_blocks(grouping, shape)?;
    let first = stages.first().map_or(&[][..], Vec::as_slice);
    let divisor = concurrency_divisor(grouping, first, shape)?;
    let max_concurrency = ratio(num_blocks, divisor);
    let several = stages.len() > 1;
    Ok(Pool {
        num_blocks,
        stage_blocks,
        max_model_len: shape.tokens,
        blocks_per_max_len_request,
        max_concurrency,
        kv_cache_size_tokens: tokens(max_concurrency, shape.tokens),
        kv_cache_size_tokens_by_blocks: tokens_by_blocks(settings, grouping, num_blocks)?,
        stage_group_sizes: if several {
            stages.iter().map(|stage| stage.iter().map(|group| group.layers.len() as u64).collect()).collect()
        } else {
            Vec::new()
        },
    })
}

/// Blocks that concurrency divides by.
///
/// # Source
/// `get_max_concurrency_for_kv_cache_config`.
fn concurrency_divisor(
    grouping: &Grouping,
    groups: &[StageGroup<'_>],
    shape: RequestShape<'_>,
) -> Result<u64, CapacityError> {
    const WHAT: &str = "blocks of a request";
    let page = |group: &StageGroup<'_>| {
        group
            .specs()
            .iter()
            .try_fold(0, |sum, id| size::add("page", sum, grouping.specs.page_size_bytes(*id)))
    };
    let by_group = shape.rules.concurrency_by_group || shape.rules.tuple_groups == TupleGroups::None;
    let mut bytes = 0_u128;
    let mut blocks = 0;
    for group in groups {
        let own = group_blocks(grouping, group.specs(), shape)?;
        blocks = size::add(WHAT, blocks, own)?;
        bytes += u128::from(own) * u128::from(page(group)?);
    }
    if by_group {
        return Ok(blocks);
    }
    let first = u128::from(groups.first().map_or(Ok(0), page)?.max(1));
    u64::try_from(bytes.div_ceil(first))
        .map_err(|_too_large| CapacityError::Size(size::SizeError { what: WHAT }))
}

#[expect(clippy::cast_precision_loss, reason = "the engine divides in floating point too")]
fn ratio(blocks: u64, per_request: u64) -> f64 {
    blocks as f64 / per_request as f64
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the engine multiplies in floating point and cuts the fraction off"
)]
fn tokens(concurrency: f64, max_model_len: u64) -> u64 {
    (concurrency * max_model_len as f64) as u64
}

/// The tokens that vLLM logged up to about 0.20.
fn tokens_by_blocks(
    settings: &EngineSettings,
    grouping: &Grouping,
    num_blocks: u64,
) -> Result<u64, CapacityError> {
    let smallest = grouping.groups.iter().map(|group| grouping.block_size(group)).min().unwrap_or(0);
    let groups = grouping.groups.len().max(1) as u64;
    let ranks =
        size::mul("tokens", settings.decode_context_parallel_size, settings.prefill_context_parallel_size)?;
    Ok(size::product("tokens", &[num_blocks / groups, smallest, ranks.max(1)])?)
}
