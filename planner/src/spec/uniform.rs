//! Whether specs always need the same number of token slots, so that mixed specs can share one group.

use super::{AttentionKind, KvCacheSpec};
use crate::engine::Rules;

/// Why `UniformTypeKVCacheSpecs` cannot answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotUniform {
    /// The specs are not of one type.
    Differs,
    /// The class is not in vLLM's spec registry; it asserts.
    Unregistered,
}

/// Whether `other` always needs as many slots as `first`, the first spec of a collection.
///
/// `page` and `other_page` are the two page sizes in bytes.
///
/// # Errors
/// If not, or if vLLM refuses the question.
///
/// # Source
/// `UniformTypeKVCacheSpecs.is_uniform_type` and each class's `is_uniform_with_collection`; the base
/// classes are those that `vllm/v1/core/single_type_kv_cache_manager.py` registers.
pub(crate) fn uniform_with(
    rules: &Rules,
    (first, page): (&KvCacheSpec, u64),
    (other, other_page): (&KvCacheSpec, u64),
) -> Result<(), NotUniform> {
    if first.block_size() != other.block_size() {
        return Err(NotUniform::Differs);
    }
    if rules.dcp_sharded_is_declared && first.dcp_sharded() != other.dcp_sharded() {
        return Err(NotUniform::Differs);
    }
    let same = match (first, other) {
        (KvCacheSpec::Mamba(a), KvCacheSpec::Mamba(b)) => {
            a.num_speculative_blocks == b.num_speculative_blocks
                && (!rules.state_pages_must_match
                    || (a.num_prefill_checkpoint_blocks == b.num_prefill_checkpoint_blocks
                        && a.prefill_checkpoint_alignment == b.prefill_checkpoint_alignment
                        && a.tp_replicated == b.tp_replicated
                        && page == other_page))
        }
        (KvCacheSpec::Mamba(_), KvCacheSpec::Attention(_)) => false,
        (KvCacheSpec::Attention(a), other) => {
            let kind = other.kind();
            let b = other.attention().map(|b| &b.kind);
            match &a.kind {
                AttentionKind::EncoderOnly => return Err(NotUniform::Unregistered),
                full if full.full().is_some() => kind.is_full_family(),
                AttentionKind::Sliding(a) => {
                    b.and_then(AttentionKind::sliding).is_some_and(|b| a.sliding_window == b.sliding_window)
                }
                AttentionKind::SlidingMla(a, a_mla) => matches!(
                    b, Some(AttentionKind::SlidingMla(b, b_mla))
                        if a.sliding_window == b.sliding_window && a_mla.bounded_replay == b_mla.bounded_replay
                ),
                AttentionKind::Chunked { attention_chunk_size } => matches!(
                    b, Some(AttentionKind::Chunked { attention_chunk_size: b }) if attention_chunk_size == b
                ),
                same => same.kind() == kind,
            }
        }
    };
    if same { Ok(()) } else { Err(NotUniform::Differs) }
}
