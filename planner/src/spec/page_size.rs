//! Bytes of one layer's page: the slots of one block.
//!
//! Up to 0.27 the page follows from the kind, the quantisation and the cache dtype's name; since 0.28 a
//! backend that packs publishes head slots and bytes a state, and one formula serves all kinds.

use super::{AttentionKind, AttentionSpec, KvCacheSpec, KvQuantMode, StrideAlignment};
use crate::engine::Rules;
use crate::size::{self, SizeError};

/// Why a page has no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The arithmetic left 64 bits.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The declared padding is smaller than the page (vLLM asserts).
    #[error("`page_size_padded` is {padded} bytes, less than the page's own {unpadded}")]
    PaddedBelowPage {
        /// Declared, bytes.
        padded: u64,
        /// Without padding, bytes.
        unpadded: u64,
    },
}

impl KvCacheSpec {
    /// Bytes of a page without padding.
    ///
    /// # Errors
    /// If it does not fit 64 bits.
    pub fn unpadded_page_size_bytes(&self, rules: &Rules) -> Result<u64, SizeError> {
        match self {
            Self::Mamba(spec) => {
                spec.state.shapes.iter().zip(&spec.state.dtypes).try_fold(0, |total, (shape, dtype)| {
                    let elements = size::product("state", shape)?;
                    let bytes = size::mul("state", elements, dtype.size_bytes())?;
                    size::add("state", total, bytes)
                })
            }
            Self::Attention(spec) if rules.page_from_state_content => state_content_page(spec, rules),
            Self::Attention(spec) => {
                let page = formula_page(spec, rules)?;
                size::add("page", page, scales_bytes(spec)?)
            }
        }
    }

    /// Bytes of a page without padding and without scales, which is what a format's alignment rounds up.
    ///
    /// # Errors
    /// If it does not fit 64 bits.
    pub fn real_page_size_bytes(&self, rules: &Rules) -> Result<u64, SizeError> {
        match self {
            Self::Attention(spec) if !rules.page_from_state_content => formula_page(spec, rules),
            _ => self.unpadded_page_size_bytes(rules),
        }
    }

    /// Bytes of a page.
    ///
    /// # Errors
    /// If it does not fit 64 bits, or if the declared padding is below the page's own size.
    pub fn page_size_bytes(&self, rules: &Rules) -> Result<u64, PageError> {
        let unpadded = self.unpadded_page_size_bytes(rules)?;
        match self.aligned_page_size_bytes(rules)?.or(self.page_size_padded()) {
            None => Ok(unpadded),
            Some(padded) if padded >= unpadded => Ok(padded),
            Some(padded) => Err(PageError::PaddedBelowPage { padded, unpadded }),
        }
    }

    /// Bytes that the stride between physical blocks must be a multiple of.
    ///
    /// # Errors
    /// As [`Self::page_size_bytes`].
    pub fn block_stride_alignment_bytes(&self, rules: &Rules) -> Result<u64, PageError> {
        let Self::Attention(spec) = self else { return Ok(1) };
        match spec.block_stride_alignment {
            None => Ok(1),
            Some(StrideAlignment::Bytes(bytes)) => Ok(bytes.max(1)),
            Some(StrideAlignment::MultipleOf { multiple_of }) => {
                let kernel_block_size = size::gcd(multiple_of, spec.block_size);
                if kernel_block_size == spec.block_size {
                    return Ok(1);
                }
                self.with_block_size(kernel_block_size).page_size_bytes(rules)
            }
        }
    }

    /// Bytes that the page is padded to by its own format's alignment: the dataclass pads itself when it is
    /// made. `None` has no alignment, or is aligned already and keeps what it had.
    pub(crate) fn aligned_page_size_bytes(&self, rules: &Rules) -> Result<Option<u64>, SizeError> {
        let Self::Attention(spec) = self else { return Ok(None) };
        let alignment = match &spec.kind {
            AttentionKind::Mla(_, mla) | AttentionKind::HiddenState(_, mla) => mla.alignment,
            AttentionKind::SlidingMla(_, mla) => mla.alignment,
            _ => None,
        };
        let Some(alignment) = alignment else { return Ok(None) };
        let real = self.real_page_size_bytes(rules)?;
        let aligned = size::round_up("page", real, alignment)?;
        Ok((aligned != real).then_some(aligned))
    }
}

/// Since 0.28: head slots x stored states x bytes a state.
fn state_content_page(spec: &AttentionSpec, rules: &Rules) -> Result<u64, SizeError> {
    let heads = spec.num_head_slots.unwrap_or(spec.num_kv_heads);
    let states = if rules.tokens_per_state {
        let (tokens, per_states) = spec.tokens_per_state.parts();
        let scaled = size::mul("page", spec.block_size, per_states)?;
        scaled.checked_div(tokens).ok_or(SizeError { what: "page" })?
    } else {
        spec.block_size / compress_ratio(spec)
    };
    let content = match spec.state_content_bytes {
        Some(bytes) => bytes,
        None => {
            size::mul("page", size::add("page", spec.head_size, spec.head_size_v)?, spec.dtype.size_bytes())?
        }
    };
    size::product("page", &[heads, states, content])
}

/// Up to 0.27: a formula a kind.
fn formula_page(spec: &AttentionSpec, rules: &Rules) -> Result<u64, SizeError> {
    let packed = |head: u64| match spec.kv_quant_mode {
        // fp4 data, and an fp8 scale for every 16 elements.
        KvQuantMode::Nvfp4 => head / 2 + head / 16,
        KvQuantMode::Int4PerTokenHead if rules.int4_halves => head / 2,
        _ => head,
    };
    let element = spec.dtype.size_bytes();
    let states = spec.block_size / compress_ratio(spec);
    let cells =
        |per_head: u64| size::product("page", &[spec.block_size, spec.num_kv_heads, per_head, element]);
    let page = match &spec.kind {
        AttentionKind::Mla(_, mla) | AttentionKind::HiddenState(_, mla) => {
            match (mla.cache_dtype_str.as_deref(), mla.model_version.as_deref()) {
                // 448 bytes without and 128 with rotary position, and 8 of scales.
                (Some("fp8_ds_mla"), Some("deepseek_v4")) => size::mul("page", states, 584)?,
                // 512 bytes of latent, 16 of scales, 128 of rotary position.
                (Some("fp8_ds_mla"), _) => size::mul("page", spec.block_size, 656)?,
                _ => {
                    let head = if rules.int4_halves && spec.kv_quant_mode == KvQuantMode::Int4PerTokenHead {
                        spec.head_size / 2
                    } else {
                        spec.head_size
                    };
                    size::product("page", &[states, spec.num_kv_heads, head, element])?
                }
            }
        }
        AttentionKind::SlidingMla(_, mla) => {
            if mla.cache_dtype_str.as_deref() == Some("fp8_ds_mla")
                && mla.model_version.as_deref() == Some("deepseek_v4")
            {
                size::mul("page", states, 584)?
            } else {
                size::product("page", &[states, spec.num_kv_heads, spec.head_size, element])?
            }
        }
        AttentionKind::Full(_) | AttentionKind::Sink(..) | AttentionKind::Rswa(..) => {
            cells(size::add("page", packed(spec.head_size), packed(spec.head_size_v))?)?
        }
        // Windows never learned of four-bit elements.
        AttentionKind::Sliding(_) if spec.kv_quant_mode != KvQuantMode::Nvfp4 => {
            cells(size::add("page", spec.head_size, spec.head_size_v)?)?
        }
        AttentionKind::Sliding(_) => {
            cells(size::add("page", packed(spec.head_size), packed(spec.head_size_v))?)?
        }
        AttentionKind::Chunked { .. }
        | AttentionKind::Cross
        | AttentionKind::EncoderOnly
        | AttentionKind::CircularBuffer => cells(size::mul("page", 2, packed(spec.head_size))?)?,
    };
    Ok(page)
}

/// Up to 0.27, scales in float32: one for a key and one for a value of each token and head.
fn scales_bytes(spec: &AttentionSpec) -> Result<u64, SizeError> {
    if spec.kv_quant_mode.is_per_token_head() {
        size::product("page", &[2, spec.block_size, spec.num_kv_heads, 4])
    } else {
        Ok(0)
    }
}

fn compress_ratio(spec: &AttentionSpec) -> u64 {
    match &spec.kind {
        AttentionKind::Mla(_, mla) | AttentionKind::HiddenState(_, mla) => mla.compress_ratio.max(1),
        AttentionKind::SlidingMla(_, mla) => mla.compress_ratio.max(1),
        _ => 1,
    }
}
