//! Where a prefill chunk must end.

use super::Scheduler;
use crate::blocks::state::{Checkpoint, checkpoint_position};

impl Scheduler {
    /// Cuts a chunk so that it ends where a state must be kept (`_mamba_block_aligned_split`).
    pub(super) fn align_chunk(&self, slot: u32, new: u32, found: u32) -> u32 {
        let request = &self.requests[slot as usize];
        let start = request.computed + found;
        let prefill_end = request.prefill_end();
        if start >= prefill_end {
            return new;
        }
        let sizes = &self.cache.sizes;
        let drops = self.cache.drops_block;
        let block = sizes.cache;
        // Hits inside blocks are worth a stop only if hashes are finer than the scheduler's blocks.
        let partial = sizes.partial_hits && sizes.hash < sizes.scheduler;
        let checkpoint_block = if partial { sizes.hash } else { sizes.scheduler };
        let mut last_cached = checkpoint_position(request.tokens, block, drops);
        let mut end = start + new;
        let checkpoint = Checkpoint {
            start,
            end,
            position: checkpoint_position(prefill_end, checkpoint_block, drops),
            hash_block: sizes.hash,
            state_block: block,
            alignment: self.checkpoint_alignment,
        };
        let inside = self.has_checkpoints && end >= prefill_end && checkpoint.is_valid();
        if inside {
            last_cached = 0;
        }
        if end < prefill_end {
            let mut most = self.engine.max_num_batched_tokens;
            if self.engine.long_prefill_token_threshold > 0 {
                most = most.min(self.engine.long_prefill_token_threshold);
            }
            let aligned = end / block * block;
            if aligned > start || block <= most {
                end = aligned;
            }
        }
        let next_boundary =
            if !start.is_multiple_of(block) && !inside { (start / block + 1) * block } else { 0 };
        let tail =
            if partial && !inside { checkpoint_position(request.prompt, sizes.hash, drops) } else { 0 };
        let tail = if last_cached < tail && tail < request.prompt { tail } else { 0 };
        let junction = request.shared_prefix_boundary;
        let junction =
            if start < junction && junction < end { start + (junction - start) / block * block } else { 0 };
        for stop in [next_boundary, last_cached, tail, junction] {
            if start < stop && stop < end {
                end = stop;
            }
        }
        end.saturating_sub(start)
    }

    /// Never ends a chunk so close to the prefill's end that a multi-module drafter lacks tokens
    /// (`_reserve_prefill_lookahead`).
    pub(super) fn reserve_lookahead(&self, tokens: u32, computed: u32, new: u32) -> u32 {
        let lookahead = self.engine.speculative.map_or(0, |s| s.prefill_lookahead_tokens);
        if lookahead <= 1 {
            return new;
        }
        let remaining = i64::from(tokens) - i64::from(computed) - i64::from(new);
        if 0 < remaining && remaining < i64::from(lookahead) {
            let less = i64::from(lookahead) - remaining;
            return u32::try_from(i64::from(new) - less).unwrap_or(0);
        }
        new
    }
}
