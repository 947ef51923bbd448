//! Under which limits the scheduler works, and which settings cannot be simulated.

use thiserror::Error;

use crate::group::{Group, Manager, StateMode};

/// The scheduler's settings (vLLM's `SchedulerConfig`, `CacheConfig` and what it derives from
/// `SpeculativeConfig`, 0.32).
#[derive(Debug, Clone, PartialEq)]
pub struct Engine {
    /// Requests running at once.
    pub max_num_seqs: u32,
    /// Tokens a step.
    pub max_num_batched_tokens: u32,
    /// Tokens a request may reach.
    pub max_model_len: u32,
    /// Blocks of the pool, the null block included.
    pub num_blocks: u32,
    /// Order of the waiting queue, and who is preempted.
    pub policy: Policy,
    /// Whether a step is scheduled before the tokens of the one before it are back.
    pub async_scheduling: bool,
    /// Whether blocks of shared prefixes are found again.
    pub enable_prefix_caching: bool,
    /// Draft tokens, if any.
    pub speculative: Option<Speculative>,
    /// Decode context parallel ranks.
    pub dcp: u32,
    /// Share of the blocks kept free when a waiting request is let in.
    pub watermark: f64,
    /// Whether a request is let in only if its whole prompt fits.
    pub reserve_full_prompt: bool,
    /// Longest prefill chunk while others wait; 0 is no limit.
    pub long_prefill_token_threshold: u32,
    /// Which states and windows stay findable: `None` all of them, 0 only where a prompt can be
    /// taken up again, else one each so many tokens.
    pub prefix_cache_retention_interval: Option<u32>,
    /// Tokens a prefix hash covers, where it is not to be the greatest common divisor of the block sizes.
    pub prefix_match_unit: Option<u32>,
    /// `cache_config.block_size`, where it is not the smallest block of an attention group.
    pub block_size: Option<u32>,
}

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// By arrival.
    Fcfs,
    /// By priority (small first), then arrival.
    Priority,
}

/// What a drafter asks of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speculative {
    /// Draft tokens a request and step.
    pub tokens: u32,
    /// Slots reserved past the scheduled tokens.
    pub lookahead_tokens: u32,
    /// Prompt tokens the drafter reads past a chunk.
    pub prefill_lookahead_tokens: u32,
    /// Whether prefix hits drop their last block.
    pub drops_block: bool,
    /// Slots of the token budget that a request's drafting takes besides its tokens.
    pub drafting_slots: u32,
}

/// A way to draft, by vLLM's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftMethod {
    /// Looked up in the prompt.
    Ngram,
    /// EAGLE, EAGLE-3 or a single MTP module.
    Eagle,
    /// Several MTP modules.
    MultiModuleMtp,
    /// DFlash: a bonus query and one query a draft token.
    Dflash,
    /// DSpark sampling from the anchor.
    Dspark,
    /// A separate draft model.
    DraftModel,
}

impl Speculative {
    /// What `method` asks for with `tokens` draft tokens.
    ///
    /// Source: `VllmConfig.num_lookahead_tokens`, `num_prefill_lookahead_tokens` and
    /// `SpeculativeConfig.max_num_new_slots_for_drafting`, vLLM 0.32.
    pub fn new(method: DraftMethod, tokens: u32) -> Self {
        let base = Self {
            tokens,
            lookahead_tokens: tokens,
            prefill_lookahead_tokens: 1,
            drops_block: true,
            drafting_slots: 0,
        };
        match method {
            DraftMethod::Ngram => {
                Self { lookahead_tokens: 0, prefill_lookahead_tokens: 0, drops_block: false, ..base }
            }
            DraftMethod::Eagle => base,
            DraftMethod::MultiModuleMtp => Self { prefill_lookahead_tokens: tokens, ..base },
            DraftMethod::Dflash => {
                Self { lookahead_tokens: tokens.saturating_add(1), drafting_slots: tokens, ..base }
            }
            DraftMethod::Dspark => Self { drafting_slots: tokens.saturating_sub(1), ..base },
            DraftMethod::DraftModel => {
                Self { prefill_lookahead_tokens: 0, drops_block: false, drafting_slots: 1, ..base }
            }
        }
    }
}

/// The largest count of tokens or blocks that is taken, so that sums of a few stay exact.
const LARGEST: u32 = 1 << 29;

/// Why a simulation cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// A setting is zero or too large.
    #[error("{setting} is {value}; it must be between {least} and {most}")]
    OutOfRange {
        /// The setting's name.
        setting: &'static str,
        /// What was given.
        value: u64,
        /// The smallest value that works.
        least: u64,
        /// The largest value that works.
        most: u64,
    },
    /// The watermark is no share.
    #[error("the watermark must be a share of the blocks, at least 0 and below 1")]
    Watermark,
    /// There is no KV cache group.
    #[error("the plan has no KV cache group to simulate")]
    NoGroups,
    /// A group's block size, window or chunk is zero or too large.
    #[error("KV cache group {group}: {field} is {value}; it must be between 1 and {LARGEST}")]
    Group {
        /// 0-based index of the group.
        group: usize,
        /// The field.
        field: &'static str,
        /// What was given.
        value: u32,
    },
    /// vLLM has no prefix caching for this group.
    #[error("KV cache group {group} cannot be combined with prefix caching: {why}")]
    NotCacheable {
        /// 0-based index of the group.
        group: usize,
        /// What stands against it.
        why: &'static str,
    },
    /// The prefix match unit does not divide a group's block size.
    #[error("a prefix match unit of {unit} tokens does not divide the block sizes {block_sizes:?}")]
    PrefixMatchUnit {
        /// The unit asked for.
        unit: u32,
        /// Block sizes of the groups, in tokens.
        block_sizes: Vec<u32>,
    },
    /// The retention interval is no multiple of the scheduler's block size.
    #[error(
        "a prefix cache retention interval of {interval} tokens is no multiple of the scheduler's block size of {block_size}"
    )]
    Retention {
        /// The interval asked for.
        interval: u32,
        /// The scheduler's block size.
        block_size: u32,
    },
    /// The common multiple of the block sizes is too large.
    #[error("the block sizes {block_sizes:?} have no common multiple below {LARGEST}")]
    CommonMultiple {
        /// Block sizes of the groups, in tokens.
        block_sizes: Vec<u32>,
    },
}

/// The block sizes that scheduling and hashing work with (`resolve_kv_cache_block_sizes`, vLLM 0.32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockSizes {
    /// Common multiple of the groups' block sizes.
    pub(crate) scheduler: u32,
    /// Tokens a prefix hash covers.
    pub(crate) hash: u32,
    /// `cache_config.block_size`.
    pub(crate) cache: u32,
    /// Whether hits may end inside a block.
    pub(crate) partial_hits: bool,
}

impl Engine {
    /// Checks the settings against the groups.
    ///
    /// # Errors
    /// [`SetupError`] names the setting or the group.
    pub fn check(&self, groups: &[Group]) -> Result<(), SetupError> {
        let range = |setting, value: u32, least: u32| {
            if value < least || value > LARGEST {
                return Err(SetupError::OutOfRange {
                    setting,
                    value: u64::from(value),
                    least: u64::from(least),
                    most: u64::from(LARGEST),
                });
            }
            Ok(())
        };
        range("max_num_seqs", self.max_num_seqs, 1)?;
        range("max_num_batched_tokens", self.max_num_batched_tokens, 1)?;
        range("max_model_len", self.max_model_len, 2)?;
        range("the number of blocks", self.num_blocks, 1)?;
        range("decode context parallelism", self.dcp, 1)?;
        if !(0.0..1.0).contains(&self.watermark) {
            return Err(SetupError::Watermark);
        }
        if let Some(speculative) = self.speculative {
            range("the number of draft tokens", speculative.tokens, 1)?;
            range("lookahead tokens", speculative.lookahead_tokens, 0)?;
            range("prefill lookahead tokens", speculative.prefill_lookahead_tokens, 0)?;
            range("drafting slots", speculative.drafting_slots, 0)?;
        }
        if groups.is_empty() {
            return Err(SetupError::NoGroups);
        }
        for (index, group) in groups.iter().enumerate() {
            self.check_group(index, group)?;
        }
        let sizes = self.block_sizes(groups)?;
        if let Some(interval) = self.prefix_cache_retention_interval
            && !interval.is_multiple_of(sizes.scheduler)
        {
            return Err(SetupError::Retention { interval, block_size: sizes.scheduler });
        }
        if self.enable_prefix_caching {
            for (index, group) in groups.iter().enumerate() {
                if matches!(group.manager, Manager::ChunkedLocal { .. })
                    && (group.eagle || group.block_size != sizes.scheduler)
                {
                    let why = "chunked local attention takes neither a drafter that drops blocks nor \
                               another block size beside it";
                    return Err(SetupError::NotCacheable { group: index, why });
                }
            }
        }
        Ok(())
    }

    fn check_group(&self, index: usize, group: &Group) -> Result<(), SetupError> {
        let field = |field, value: u32| {
            if value == 0 || value > LARGEST {
                return Err(SetupError::Group { group: index, field, value });
            }
            Ok(())
        };
        field("the block size", group.block_size)?;
        match group.manager {
            Manager::SlidingWindow { window, extra_retained_tokens } => {
                field("the sliding window", window)?;
                field("the extra retained tokens", extra_retained_tokens.max(1))?;
            }
            Manager::ChunkedLocal { chunk } => field("the attention chunk", chunk)?,
            Manager::State { speculative_blocks, .. } => {
                field("the speculative blocks", speculative_blocks.max(1))?;
            }
            Manager::Full | Manager::Cross | Manager::Ring => {}
        }
        if self.enable_prefix_caching && group.manager == Manager::Cross {
            let why = "encoder states are not shared between requests";
            return Err(SetupError::NotCacheable { group: index, why });
        }
        Ok(())
    }

    /// The sizes that `groups` are scheduled and hashed with.
    pub(crate) fn block_sizes(&self, groups: &[Group]) -> Result<BlockSizes, SetupError> {
        let sizes: Vec<u32> = groups.iter().map(|group| self.tokens_of_block(group)).collect();
        let cache = self.block_size.unwrap_or_else(|| {
            let attention = groups.iter().filter(|g| !g.manager.is_state()).map(|g| g.block_size).min();
            attention.or_else(|| groups.iter().map(|g| g.block_size).min()).unwrap_or(1)
        });
        if let [only] = groups {
            let size = cache.saturating_mul(if only.dcp_sharded { self.dcp } else { 1 });
            return Ok(BlockSizes { scheduler: size, hash: size, cache, partial_hits: false });
        }
        let too_large = || SetupError::CommonMultiple { block_sizes: sizes.clone() };
        let scheduler =
            sizes.iter().try_fold(1_u32, |all, &size| common_multiple(all, size)).ok_or_else(too_large)?;
        let whole = BlockSizes { scheduler, hash: scheduler, cache, partial_hits: false };
        let unaligned = groups.iter().any(|group| {
            matches!(group.manager, Manager::State { mode: StateMode::None | StateMode::All, .. })
        });
        if !self.enable_prefix_caching || unaligned {
            return Ok(whole);
        }
        let mut hashed: Vec<u32> = groups
            .iter()
            .zip(&sizes)
            .filter(|(group, _)| group.manager.prefix_cacheable())
            .map(|(_, &size)| size)
            .collect();
        if hashed.is_empty() {
            hashed.clone_from(&sizes);
        }
        let hash = self
            .prefix_match_unit
            .unwrap_or_else(|| hashed.iter().fold(0, |all, &size| common_divisor(all, size)));
        if hash == 0 || hashed.iter().any(|size| !size.is_multiple_of(hash)) {
            return Err(SetupError::PrefixMatchUnit { unit: hash, block_sizes: sizes });
        }
        let finer_state = groups.iter().any(|group| {
            group.manager.is_aligned_state()
                && (group.block_size > hash || (self.dcp > 1 && group.block_size >= hash))
        });
        let blocked = groups.iter().any(|group| {
            group.manager.prefix_cacheable()
                && !group.manager.finds_inside_blocks()
                && self.tokens_of_block(group) != hash
        });
        Ok(BlockSizes { scheduler, hash, cache, partial_hits: finer_state && !blocked })
    }

    /// Tokens one block of `group` covers over all DCP ranks.
    pub(crate) fn tokens_of_block(&self, group: &Group) -> u32 {
        group.block_size.saturating_mul(if group.dcp_sharded { self.dcp } else { 1 })
    }

    /// Steps that may be in flight at once (`VllmConfig.max_concurrent_batches`, without pipeline stages).
    pub(crate) fn depth(&self) -> usize {
        if self.async_scheduling { 2 } else { 1 }
    }
}

fn common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn common_multiple(a: u32, b: u32) -> Option<u32> {
    let product = (a / common_divisor(a, b)).checked_mul(b)?;
    (product <= LARGEST).then_some(product)
}
