//! How many blocks one request of a given length holds of one layer's cache at most.

use super::{AttentionKind, KvCacheSpec};
use crate::engine::Rules;
use crate::error::CapacityError;
use crate::settings::{EngineSettings, MambaCacheMode};
use crate::size::{self, SizeError};

/// The length that is asked for, and the engine settings that it is asked under.
#[derive(Debug, Clone, Copy)]
pub struct RequestShape<'a> {
    /// Tokens of the request.
    pub tokens: u64,
    /// The engine.
    pub settings: &'a EngineSettings,
    /// The engine's rules.
    pub rules: &'a Rules,
}

impl KvCacheSpec {
    /// Blocks that a request of `shape.tokens` holds of this cache at most.
    ///
    /// # Errors
    /// If the engine refuses (a sliding window under decode context parallelism), or on overflow.
    ///
    /// # Source
    /// `max_memory_usage_bytes` of each class in `vllm/v1/kv_cache_interface.py`, over the page size.
    pub fn max_blocks(&self, shape: RequestShape<'_>) -> Result<u64, CapacityError> {
        const WHAT: &str = "blocks of a request";
        let RequestShape { tokens, settings, rules } = shape;
        let block_size = self.block_size();
        let blocks = |tokens: u64| size::div_ceil(WHAT, tokens, block_size);
        let in_flight = settings.max_in_flight_tokens(rules);
        let spec = match self {
            Self::Attention(spec) => spec,
            Self::Mamba(spec) => {
                let own = match settings.mamba_cache_mode {
                    MambaCacheMode::All if rules.state_mode_all_grows => blocks(tokens)?,
                    MambaCacheMode::Align => size::add(WHAT, 2, spec.num_prefill_checkpoint_blocks)?,
                    MambaCacheMode::None | MambaCacheMode::All => 1,
                };
                return Ok(size::add(WHAT, own, spec.num_speculative_blocks)?);
            }
        };
        Ok(match &spec.kind {
            AttentionKind::Full(_)
            | AttentionKind::Mla(..)
            | AttentionKind::Sink(..)
            | AttentionKind::Rswa(..)
            | AttentionKind::HiddenState(..) => {
                let mut ranks = if rules.pcp_shards_positions {
                    size::mul(
                        WHAT,
                        settings.decode_context_parallel_size,
                        settings.prefill_context_parallel_size,
                    )?
                } else {
                    settings.decode_context_parallel_size
                };
                if !spec.dcp_sharded {
                    ranks = 1;
                }
                blocks(size::div_ceil(WHAT, tokens, ranks.max(1))?)?
            }
            AttentionKind::Sliding(sliding) | AttentionKind::SlidingMla(sliding, _) => {
                if spec.dcp_sharded && settings.decode_context_parallel_size != 1 {
                    return Err(CapacityError::SlidingWindowUnderDcp);
                }
                let kept =
                    size::add(WHAT, sliding.sliding_window.saturating_sub(1), sliding.extra_retained_tokens)?;
                let held = size::add(WHAT, kept, in_flight)?.min(tokens);
                // One more, since the window need not begin where a block does.
                size::add(WHAT, blocks(held)?, 1)?
            }
            AttentionKind::Chunked { attention_chunk_size } => {
                blocks(size::add(WHAT, *attention_chunk_size, in_flight)?.min(tokens))?
            }
            AttentionKind::Cross => blocks(settings.max_num_encoder_input_tokens)?,
            AttentionKind::EncoderOnly => 0,
            AttentionKind::CircularBuffer => 1,
        })
    }

    /// How the blocks of a request grow with its length, without the cap of its window: a fixed number of
    /// blocks, and tokens a block where it grows.
    ///
    /// # Errors
    /// As [`Self::max_blocks`].
    pub fn growth(&self, shape: RequestShape<'_>) -> Result<(u64, Option<u64>), CapacityError> {
        let grows = match self {
            Self::Mamba(_) => {
                shape.rules.state_mode_all_grows && shape.settings.mamba_cache_mode == MambaCacheMode::All
            }
            Self::Attention(spec) => spec.kind.kind().is_full_family(),
        };
        if !grows {
            return Ok((self.max_blocks(shape)?, None));
        }
        let fixed = self.max_blocks(RequestShape { tokens: 0, ..shape })?;
        let ranks = match self {
            Self::Attention(spec) if spec.dcp_sharded => shape.settings.decode_context_parallel_size.max(1),
            _ => 1,
        };
        Ok((fixed, Some(size::mul("tokens of a block", self.block_size(), ranks)?)))
    }
}

impl From<SizeError> for CapacityError {
    fn from(error: SizeError) -> Self {
        Self::Size(error)
    }
}
