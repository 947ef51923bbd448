//! Which blocks of a request become findable, and under what.
//!
//! Source: `cache_blocks`, `_cache_partial_tail_block` and `reachable_block_mask` in
//! `vllm/v1/core/single_type_kv_cache_manager.py`, 0.32.

use super::cache::{Cache, View, window_blocks};
use super::class::{NULL, PLAIN, Table, UNTRACKED, named};
use super::state::checkpoint_position;
use crate::group::Manager;

impl Cache {
    /// Offers the blocks of the first `tokens` tokens of every group.
    pub(super) fn cache_in(&mut self, view: &View, tables: &mut [Table], tokens: u32) {
        for (id, table) in (0_u32..).zip(tables.iter_mut()) {
            let cacheable = self.cacheable_tokens(id, tokens);
            self.cache_class(view, id, table, cacheable);
        }
    }

    /// The part of `tokens` that a later hit could match (`get_num_cacheable_tokens`).
    fn cacheable_tokens(&self, id: u32, tokens: u32) -> u32 {
        let finalized = tokens.saturating_sub(self.reprefilled);
        if self.single {
            return finalized;
        }
        let align = |tokens: u32| {
            if self.sizes.partial_hits {
                tokens
            } else {
                tokens / self.sizes.scheduler * self.sizes.scheduler
            }
        };
        let class = &self.classes[id as usize];
        let cacheable = align(tokens);
        if class.eagle && cacheable > 0 {
            return finalized.min(align(finalized) + class.block_size);
        }
        cacheable
    }

    fn cache_class(&mut self, view: &View, id: u32, table: &mut Table, tokens: u32) {
        let class = &self.classes[id as usize];
        if !class.manager.prefix_cacheable() {
            return;
        }
        let before = if table.cached == UNTRACKED { 0 } else { table.cached };
        let full = tokens / class.block_size;
        if before < full {
            let masked = self.reachable(view, id, before, full);
            let class = &self.classes[id as usize];
            let scale = class.block_size / self.sizes.hash;
            for index in before..full.min(table.len()) {
                if table.entries[index as usize] == NULL || (masked && !self.mask[(index - before) as usize])
                {
                    continue;
                }
                let hash = self.tokens[view.slot as usize].hash((index + 1) * scale - 1, self.sizes.hash);
                let Some(entry) = named(id, table, &mut self.pool, index as usize) else { continue };
                let key = self.pool.class_key(id, hash);
                self.pool.cache(entry, key, (index + 1) * class.block_size);
            }
            table.cached = full;
        }
        match self.classes[id as usize].manager {
            Manager::Full => self.cache_full_tail(view, id, table, tokens),
            Manager::State { .. } => {
                if self.classes[id as usize].manager.is_aligned_state() {
                    let after = table.cached;
                    self.cache_state_tail(view, id, table, tokens);
                    // A tail may set the count back; what was cached above is noted all the same.
                    let now = std::mem::replace(&mut table.cached, after);
                    self.classes[id as usize].note_cached(table, &self.pool, before);
                    table.cached = now;
                } else {
                    self.classes[id as usize].note_cached(table, &self.pool, before);
                }
            }
            _ => {}
        }
    }

    /// Registers a prompt's tail that ends inside a block (`FullAttentionManager._cache_partial_tail_block`).
    fn cache_full_tail(&mut self, view: &View, id: u32, table: &mut Table, tokens: u32) {
        let class = &self.classes[id as usize];
        let (block_size, hash_block) = (class.block_size, self.sizes.hash);
        if block_size == hash_block {
            return;
        }
        let limit = if class.eagle { view.prompt } else { view.prompt.saturating_sub(1) };
        let boundary = limit / hash_block * hash_block;
        if boundary == 0 || boundary > tokens || boundary.is_multiple_of(block_size) {
            return;
        }
        self.cache_partial(view, id, table, boundary / block_size, boundary, false);
    }

    /// Makes a block findable at a boundary inside it (`cache_partial_block`) and gives its entry and key.
    fn cache_partial(
        &mut self,
        view: &View,
        id: u32,
        table: &mut Table,
        index: u32,
        tokens: u32,
        replace: bool,
    ) -> Option<(u32, u64)> {
        let entry = named(id, table, &mut self.pool, index as usize)?;
        let unit = tokens / self.sizes.hash;
        let hash = self.tokens[view.slot as usize].hash(unit - 1, self.sizes.hash);
        let pool = &mut self.pool;
        let key = pool.class_key(id, hash);
        let mut number = 0;
        while let Some(slot) = pool.piece(entry, number) {
            number += 1;
            let is_cached = pool.is_cached(slot);
            if replace {
                if is_cached && pool.tokens(slot) == tokens {
                    continue;
                }
                pool.forget_keys(slot);
            } else if !pool.has_key(slot, key) && is_cached && pool.tokens(slot) < tokens {
                pool.forget_keys(slot);
            }
            pool.add_key(slot, key, tokens);
        }
        Some((entry, key))
    }

    /// Keeps the state at the prompt's last boundary (`MambaManager._cache_partial_tail_block`).
    fn cache_state_tail(&mut self, view: &View, id: u32, table: &mut Table, tokens: u32) {
        let block_size = self.classes[id as usize].block_size;
        let alignment = self.alignment();
        if let Some((position, index)) = table.checkpoint {
            let prompt_checkpoint = position == checkpoint_position(view.prompt, alignment, self.drops_block);
            let kept = position.is_multiple_of(block_size) && position > 0 && {
                let block = position / block_size - 1;
                let masked = self.state_mask(block, block + 1, &[]);
                !masked || self.mask[0]
            };
            if !prompt_checkpoint && !kept && position != view.shared_prefix_boundary {
                let entry = table.entries.get(index as usize).copied().unwrap_or(NULL);
                let mut number = 0;
                while let Some(slot) = self.pool.piece(entry, number) {
                    self.pool.forget_keys(slot);
                    number += 1;
                }
                return;
            }
            let covered = table.entries.get(index as usize).is_some_and(|&entry| {
                entry < PLAIN
                    && self
                        .pool
                        .pieces(entry)
                        .all(|slot| self.pool.is_cached(slot) && self.pool.tokens(slot) == position)
            });
            if covered {
                return;
            }
            if let Some((_, key)) = self.cache_partial(view, id, table, index, position, true) {
                self.classes[id as usize].cached_this_step.push(key);
            }
            return;
        }
        if tokens == 0 || !tokens.is_multiple_of(self.sizes.hash) {
            return;
        }
        if tokens != checkpoint_position(view.prompt, self.sizes.hash, self.drops_block) {
            return;
        }
        let index = tokens.div_ceil(block_size) - 1;
        let Some((entry, key)) = self.cache_partial(view, id, table, index, tokens, false) else { return };
        if !tokens.is_multiple_of(block_size) {
            table.partial_hit = Some((index, entry));
            table.cached = index;
        }
        self.classes[id as usize].cached_this_step.push(key);
    }

    /// Fills `mask` with the blocks that a hit can reach; `false`: all of them (`reachable_block_mask`).
    fn reachable(&mut self, view: &View, id: u32, start: u32, end: u32) -> bool {
        let mut boundaries = [0_u32; 3];
        let count = self.boundaries(view, &mut boundaries);
        match self.classes[id as usize].manager {
            Manager::SlidingWindow { window, .. } => {
                let class = &self.classes[id as usize];
                let (block_size, eagle) = (class.block_size, class.eagle);
                self.window_mask(block_size, window, eagle, start, end, &boundaries[..count])
            }
            Manager::State { .. } => {
                let block_size = self.classes[id as usize].block_size;
                self.state_mask_of(block_size, start, end, &boundaries[..count])
            }
            _ => false,
        }
    }

    /// Where a later request with this prompt can take it up again (`replay_boundaries`).
    fn boundaries(&self, view: &View, into: &mut [u32; 3]) -> usize {
        let mut count = 0;
        if self.any_eagle {
            let block = self.sizes.scheduler;
            let resend = (view.prompt.saturating_sub(1) / block * block).saturating_sub(block);
            let extension = (view.prompt / block * block).saturating_sub(block);
            into[0] = resend.min(extension);
            into[1] = resend.max(extension);
            count += 2;
        } else {
            into[0] = view.prompt.saturating_sub(1);
            count += 1;
        }
        if view.shared_prefix_boundary > 0 {
            into[count] = view.shared_prefix_boundary;
            count += 1;
        }
        count
    }

    fn window_mask(
        &mut self,
        block_size: u32,
        window: u32,
        eagle: bool,
        start: u32,
        end: u32,
        boundaries: &[u32],
    ) -> bool {
        let alignment = self.alignment();
        if !alignment.is_multiple_of(block_size) {
            return false;
        }
        let need = window_blocks(window, block_size, eagle);
        let shift = u32::from(eagle);
        let segment = match self.retention {
            None => Some(alignment),
            Some(0) => None,
            Some(interval) => Some(interval),
        };
        self.mask.clear();
        self.mask.resize((end - start) as usize, false);
        if let Some(segment) = segment {
            let per_segment = segment / block_size;
            if need >= per_segment {
                return false;
            }
            for index in start.max(shift)..end {
                if (index - shift) % per_segment >= per_segment - need {
                    self.mask[(index - start) as usize] = true;
                }
            }
        }
        if self.retention.is_some() {
            for &boundary in boundaries {
                let last = boundary / alignment * alignment / block_size + shift;
                for index in start.max(last.saturating_sub(need))..end.min(last) {
                    self.mask[(index - start) as usize] = true;
                }
            }
        }
        true
    }

    fn state_mask(&mut self, start: u32, end: u32, boundaries: &[u32]) -> bool {
        let block_size =
            self.classes.iter().find(|c| c.manager.is_aligned_state()).map_or(1, |c| c.block_size);
        self.state_mask_of(block_size, start, end, boundaries)
    }

    fn state_mask_of(&mut self, block_size: u32, start: u32, end: u32, boundaries: &[u32]) -> bool {
        let Some(interval) = self.retention else { return false };
        self.mask.clear();
        self.mask.resize((end - start) as usize, false);
        if interval > 0 {
            let per_segment = interval / block_size;
            if per_segment <= 1 {
                return false;
            }
            let mut index = (start + per_segment) / per_segment * per_segment - 1;
            while index < end {
                self.mask[(index - start) as usize] = true;
                index += per_segment;
            }
        }
        let alignment = self.alignment();
        for &boundary in boundaries {
            let block = boundary / alignment * alignment / block_size;
            if block >= 1 && (start..end).contains(&(block - 1)) {
                self.mask[(block - 1 - start) as usize] = true;
            }
        }
        true
    }
}
