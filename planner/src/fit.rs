//! What fits a device: the longest request, the most requests at a length, and where the memory goes.
//!
//! Memory for the cache is what the engine may use less weights and overhead, or a size that is given. All
//! shares are whole bytes and add up to the memory exactly.

use crate::capacity::{self, Pool};
use crate::engine::Rules;
use crate::error::{CapacityError, GroupingError};
use crate::group::{self, GroupSpec, Grouping};
use crate::model::{Model, SpecId};
use crate::pool::{self, StageGroup};
use crate::settings::EngineSettings;
use crate::size;
use crate::spec::RequestShape;

/// A request is never looked at beyond this length, tokens.
pub const LONGEST: u64 = 1 << 40;

/// A device's memory, bytes, and who takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Of the device, where it is known.
    pub gpu_memory_bytes: Option<u64>,
    /// What the engine may not use.
    pub unused_bytes: u64,
    /// Weights.
    pub weights_bytes: u64,
    /// Activations, graphs, the runtime.
    pub overhead_bytes: u64,
    /// For the KV cache.
    pub kv_bytes: u64,
}

/// Why nothing is left for the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "of {gpu_memory_bytes} bytes the engine may use {usable_bytes}, and weights and overhead need {needed_bytes}"
)]
pub struct NothingLeft {
    /// Of the device, bytes.
    pub gpu_memory_bytes: u64,
    /// What the engine may use, bytes.
    pub usable_bytes: u64,
    /// Weights and overhead, bytes.
    pub needed_bytes: u64,
}

impl Budget {
    /// The cache gets what the engine may use of `gpu_memory_bytes` less weights and overhead.
    ///
    /// `utilization` is from 0 to 1. The engine rounds what it may use up to a byte.
    ///
    /// # Errors
    /// If nothing is left.
    ///
    /// # Source
    /// `request_memory` in vLLM's `v1/worker/utils.py`.
    pub fn of_device(
        gpu_memory_bytes: u64,
        utilization: f64,
        weights_bytes: u64,
        overhead_bytes: u64,
    ) -> Result<Self, NothingLeft> {
        let usable_bytes = usable(gpu_memory_bytes, utilization).min(gpu_memory_bytes);
        let needed_bytes = weights_bytes.saturating_add(overhead_bytes);
        match usable_bytes.checked_sub(needed_bytes) {
            Some(kv_bytes) if kv_bytes > 0 => Ok(Self {
                gpu_memory_bytes: Some(gpu_memory_bytes),
                unused_bytes: gpu_memory_bytes - usable_bytes,
                weights_bytes,
                overhead_bytes,
                kv_bytes,
            }),
            _ => Err(NothingLeft { gpu_memory_bytes, usable_bytes, needed_bytes }),
        }
    }

    /// A cache of `kv_bytes`, whatever the device.
    pub const fn of_cache(kv_bytes: u64) -> Self {
        Self { gpu_memory_bytes: None, unused_bytes: 0, weights_bytes: 0, overhead_bytes: 0, kv_bytes }
    }

    /// All of it.
    pub const fn total_bytes(&self) -> u64 {
        self.unused_bytes + self.weights_bytes + self.overhead_bytes + self.kv_bytes
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the engine multiplies in floating point too, and a device has far below 2^53 bytes"
)]
fn usable(bytes: u64, utilization: f64) -> u64 {
    (bytes as f64 * utilization).ceil() as u64
}

/// How many requests of one length run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtLength {
    /// Of each request, tokens.
    pub tokens: u64,
    /// Blocks of each request, over all groups.
    pub blocks: u64,
    /// Whole requests that the blocks hold, the null block left out.
    pub sequences: u64,
    /// Blocks of each request once its prompt is computed: fewer where layers have windows.
    pub decoding_blocks: u64,
    /// Requests that decode at once while one more prompt has its reservation.
    pub decoding_sequences: u64,
}

impl AtLength {
    /// Of `num_blocks` blocks, the null block among them.
    ///
    /// # Errors
    /// As [`capacity::request_blocks`].
    pub fn of(
        grouping: &Grouping,
        shape: RequestShape<'_>,
        num_blocks: u64,
        tokens_a_step: u64,
    ) -> Result<Self, CapacityError> {
        let blocks = capacity::request_blocks(grouping, shape)?;
        let decoding_blocks = capacity::decoding_blocks(grouping, shape, tokens_a_step)?.min(blocks);
        let usable = num_blocks.saturating_sub(1);
        let beside = usable.checked_sub(blocks - decoding_blocks);
        let decoding = beside.and_then(|left| left.checked_div(decoding_blocks)).unwrap_or(0);
        let sequences = usable.checked_div(blocks).unwrap_or(0);
        Ok(Self {
            tokens: shape.tokens,
            blocks,
            sequences,
            decoding_blocks,
            decoding_sequences: decoding.max(sequences),
        })
    }
}

/// Where the memory of the cache goes with as many requests as fit, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    /// Keys, values and states of the requests' tokens.
    pub requests: u64,
    /// Pages that are padded to a common size.
    pub page_padding: u64,
    /// Slots of a block that no layer of the group fills.
    pub padding_layers: u64,
    /// The rest of each request's last block in a group.
    pub block_rounding: u64,
    /// Blocks that are free, too few for one more request or left by a limit on requests.
    pub free_blocks: u64,
    /// The block that vLLM holds back.
    pub null_block: u64,
    /// Less than a block.
    pub remainder: u64,
}

impl Shares {
    /// All of it.
    pub const fn total_bytes(&self) -> u64 {
        self.requests
            + self.page_padding
            + self.padding_layers
            + self.block_rounding
            + self.free_blocks
            + self.null_block
            + self.remainder
    }
}

/// What fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The groups that the engine allocates.
    pub grouping: Grouping,
    /// Bytes of a block of the stage that has the fewest blocks.
    pub bytes_per_block: u64,
    /// Blocks, the null block among them.
    pub num_blocks: u64,
    /// The longest single request, tokens; `None` if memory does not limit it, 0 if not one token fits.
    pub longest: Option<u64>,
    /// The engine's own answer for the length asked for.
    pub pool: Result<Pool, CapacityError>,
    /// The length asked for, or the longest that fits, and how many such requests run.
    pub chosen: AtLength,
    /// How many run at a few other lengths, shortest first.
    pub lengths: Vec<AtLength>,
    /// Requests that run in [`Self::shares`]: those that fit, or the limit.
    pub sequences: u64,
    /// Where the memory goes with so many requests of the chosen length.
    pub shares: Shares,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// vLLM refuses the layers.
    #[error(transparent)]
    Grouping(#[from] GroupingError),
    /// vLLM refuses the groups for another reason than their size.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// No layer has a cache.
    #[error("no layer has a KV cache")]
    NoCache,
}

/// Fits `model` to a cache of `kv_bytes` on each rank; `settings.max_model_len` is the length asked for, a request's
/// decode steps are of `tokens_a_step` tokens (1 and its drafts).
///
/// # Errors
/// If vLLM would not plan this model at any size.
pub fn fit(
    model: &Model,
    settings: &EngineSettings,
    rules: &Rules,
    kv_bytes: u64,
    max_num_seqs: Option<u64>,
    tokens_a_step: u64,
) -> Result<Fit, FitError> {
    let settings = EngineSettings {
        available_memory_bytes: vec![kv_bytes],
        num_gpu_blocks_override: None,
        auto_fit_max_model_len: false,
        ..settings.clone()
    };
    let grouping = match capacity::allocated_grouping(model, &settings, rules)? {
        Some(grouping) => grouping,
        None => group::group(model, &settings, rules)?,
    };
    if grouping.groups.is_empty() {
        return Err(FitError::NoCache);
    }
    let longest = longest(&settings, rules, &grouping)?;
    let asked = settings.max_model_len;
    let mut length = asked;
    let pool = capacity::pool(&settings, rules, &grouping, &mut length);
    match &pool {
        Ok(_) | Err(CapacityError::NotEnough { .. } | CapacityError::NoMemory) => {}
        Err(error) => return Err(error.clone().into()),
    }
    let stages = pool::stages(&settings, &grouping);
    let mut tightest: Option<(u64, u64, &[StageGroup<'_>])> = None;
    for stage in &stages {
        let bytes = pool::bytes_per_block(rules, settings.kv_cache_layout, &grouping, stage)?;
        let blocks = kv_bytes / bytes.max(1);
        if tightest.is_none_or(|(fewest, ..)| blocks < fewest) {
            tightest = Some((blocks, bytes, stage));
        }
    }
    let (num_blocks, bytes_per_block, stage) = tightest.ok_or(FitError::NoCache)?;
    let at_length = |tokens: u64| -> Result<AtLength, CapacityError> {
        let shape = RequestShape { tokens, settings: &settings, rules };
        AtLength::of(&grouping, shape, num_blocks, tokens_a_step)
    };
    let chosen = at_length(longest.map_or(asked, |longest| longest.min(asked)))?;
    let mut lengths = Vec::new();
    for tokens in [1024, 8192, 32_768, 131_072, 262_144, 1_048_576] {
        if tokens != chosen.tokens && longest.is_none_or(|longest| tokens <= longest) && tokens <= asked {
            lengths.push(at_length(tokens)?);
        }
    }
    let sequences = max_num_seqs.map_or(chosen.sequences, |limit| limit.min(chosen.sequences));
    let shape = RequestShape { tokens: chosen.tokens, settings: &settings, rules };
    let used = Used { rules, grouping: &grouping, stage, bytes_per_block, shape };
    let mut shares = used.shares(sequences)?;
    let whole = size::mul("pool", num_blocks, bytes_per_block).map_err(CapacityError::Size)?;
    let taken =
        size::product("pool", &[sequences, chosen.blocks, bytes_per_block]).map_err(CapacityError::Size)?;
    shares.null_block = bytes_per_block.min(whole);
    shares.free_blocks = whole.saturating_sub(shares.null_block).saturating_sub(taken);
    shares.remainder = kv_bytes - whole;
    Ok(Fit { bytes_per_block, num_blocks, longest, pool, chosen, lengths, sequences, shares, grouping })
}

/// The longest request, as the engine's own search finds it; `None` if memory does not limit it.
fn longest(
    settings: &EngineSettings,
    rules: &Rules,
    grouping: &Grouping,
) -> Result<Option<u64>, CapacityError> {
    let settings =
        EngineSettings { auto_fit_max_model_len: true, max_model_len: LONGEST, ..settings.clone() };
    let mut fitted = LONGEST;
    match capacity::pool(&settings, rules, grouping, &mut fitted) {
        Ok(_) | Err(CapacityError::NoMemory | CapacityError::NotEnough { .. }) => {
            Ok((fitted < LONGEST).then_some(fitted))
        }
        Err(CapacityError::NothingFits) => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// How requests of one length fill the blocks of a stage.
struct Used<'a> {
    rules: &'a Rules,
    grouping: &'a Grouping,
    stage: &'a [StageGroup<'a>],
    bytes_per_block: u64,
    shape: RequestShape<'a>,
}

impl Used<'_> {
    fn shares(&self, sequences: u64) -> Result<Shares, CapacityError> {
        const WHAT: &str = "memory of the requests";
        let mut shares = Shares::default();
        let capacities = capacity::by_group(self.grouping, self.shape)?;
        for (group, capacity) in self.stage.iter().zip(capacities) {
            let blocks = size::mul(WHAT, sequences, capacity.max_blocks)?;
            let (content, padded) = self.pages(group)?;
            let slots = size::mul(WHAT, blocks, self.bytes_per_block.saturating_sub(padded))?;
            let page_padding = size::mul(WHAT, blocks, padded - content)?;
            let all = size::mul(WHAT, blocks, content)?;
            // Slots of the last block that the request has no token for.
            let rounding = match capacity.tokens_per_block {
                Some(tokens) if tokens > 0 => {
                    let grown = capacity.max_blocks.saturating_sub(capacity.fixed_blocks);
                    let spare = u128::from(grown) * u128::from(tokens);
                    let spare = spare.saturating_sub(u128::from(self.shape.tokens));
                    let bytes = spare.saturating_mul(u128::from(content)) / u128::from(tokens);
                    let bytes = bytes.saturating_mul(u128::from(sequences));
                    u64::try_from(bytes).unwrap_or(all).min(all)
                }
                _ => 0,
            };
            shares.padding_layers = size::add(WHAT, shares.padding_layers, slots)?;
            shares.page_padding = size::add(WHAT, shares.page_padding, page_padding)?;
            shares.block_rounding = size::add(WHAT, shares.block_rounding, rounding)?;
            shares.requests = size::add(WHAT, shares.requests, all - rounding)?;
        }
        Ok(shares)
    }

    /// Bytes of a block that the group's layers fill, without and with the padding of their pages.
    fn pages(&self, group: &StageGroup<'_>) -> Result<(u64, u64), CapacityError> {
        const WHAT: &str = "pages of a block";
        let specs = &self.grouping.specs;
        let own = |id: &SpecId| -> Result<(u64, u64), CapacityError> {
            let page = specs.page_size_bytes(*id);
            Ok((specs.spec(*id).unpadded_page_size_bytes(self.rules)?.min(page), page))
        };
        let (content, padded) = match &*group.spec {
            GroupSpec::One(id) => {
                let layers = group.layers.len() as u64;
                let (content, page) = own(id)?;
                (size::mul(WHAT, content, layers)?, size::mul(WHAT, page, layers)?)
            }
            GroupSpec::UniformType(_) if group.layers.is_empty() => (0, 0),
            GroupSpec::UniformType(ids) => ids.iter().try_fold((0, 0), |(content, padded), id| {
                let (own_content, page) = own(id)?;
                Ok::<_, CapacityError>((
                    size::add(WHAT, content, own_content)?,
                    size::add(WHAT, padded, page)?,
                ))
            })?,
        };
        let padded = padded.min(self.bytes_per_block);
        Ok((content.min(padded), padded))
    }
}
