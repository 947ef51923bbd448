//! How a recurrent state's blocks move in align mode: one running state, states kept at block
//! boundaries, null blocks between them.
//!
//! Source: `MambaManager` in `vllm/v1/core/single_type_kv_cache_manager.py`, 0.32.

use super::block_pool::BlockPool;
use super::class::{Ask, Class, Copies, NULL, PLAIN, Table, UNTRACKED, redirect};
use super::pieces::COMPOSITE;
use crate::group::{Manager, StateMode};

/// The boundary at which a prefill that ends at `tokens` can be taken up again
/// (`get_mamba_prefill_checkpoint_position`).
pub(crate) fn checkpoint_position(tokens: u32, unit: u32, drops_block: bool) -> u32 {
    let limit = if drops_block { tokens } else { tokens.saturating_sub(1) };
    let position = limit / unit * unit;
    if drops_block { position.saturating_sub(unit) } else { position }
}

/// A prefill chunk and the checkpoint it might save.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoint {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) position: u32,
    pub(crate) hash_block: u32,
    pub(crate) state_block: u32,
    pub(crate) alignment: Option<u32>,
}

impl Checkpoint {
    /// Whether a backend can save it inside the chunk (`is_mamba_prefill_checkpoint_valid`).
    pub(crate) fn is_valid(&self) -> bool {
        let Some(alignment) = self.alignment.filter(|&alignment| alignment > 0) else { return false };
        let state_block = i64::from(self.state_block);
        let initial = (i64::from(self.start) - 1).div_euclid(state_block);
        let column = i64::from(self.end.div_ceil(self.state_block)) - 2;
        self.start.is_multiple_of(self.hash_block)
            && column > initial
            && self.start + self.hash_block <= self.position
            && self.start < self.position
            && self.position < self.end
            && (self.position - self.start).is_multiple_of(alignment)
    }
}

/// What state groups need to know of the coordinator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateContext {
    /// Tokens a prefix hash covers.
    pub(crate) hash_block: u32,
    /// Tokens that hits are a multiple of.
    pub(crate) alignment: u32,
    /// Whether checkpoints step back for a drafter.
    pub(crate) drops_block: bool,
}

impl Class {
    /// Blocks all groups need (`MambaManager.get_num_blocks_to_allocate`); `None` if the hit was made in this
    /// step, so that the request must wait for the next.
    #[expect(clippy::too_many_arguments, reason = "what vLLM's method is given")]
    pub(crate) fn state_needed(
        &self,
        id: u32,
        table: &mut Table,
        pool: &BlockPool,
        ask: &Ask,
        hits: &[u32],
        tokens: u32,
        context: StateContext,
    ) -> Option<u64> {
        let is_new = |slot: u32| pool.key(slot).is_some_and(|key| self.cached_this_step.contains(&key));
        let found_now = match hits.last() {
            Some(&last) if last < COMPOSITE => is_new(last),
            Some(&last) if last < PLAIN => pool.parts_of(last).iter().any(|part| is_new(part.slot)),
            _ => false,
        };
        if found_now {
            return None;
        }
        let Manager::State { mode, speculative_blocks, checkpoint_blocks, checkpoint_alignment } =
            self.manager
        else {
            return Some(0);
        };
        if mode != StateMode::Align {
            let tokens = tokens.saturating_add(self.block_size.saturating_mul(speculative_blocks));
            return Some(self.needed(id, table, pool, ask, hits, tokens));
        }
        let tokens = ask.main_model;
        let required = i64::from(tokens.div_ceil(self.block_size)) + i64::from(speculative_blocks);
        let mut fresh = required - i64::try_from(hits.len()).unwrap_or(0) - i64::from(table.len());
        let partial = self.ends_inside_block(hits, ask.local_computed) || table.partial_hit.is_some();
        if partial {
            fresh = fresh.max(0) + 1;
        }
        let position = checkpoint_position(tokens, context.alignment, context.drops_block);
        let index = i64::from(tokens.div_ceil(self.block_size)) - 2;
        let checkpoint = Checkpoint {
            start: ask.total_computed,
            end: tokens,
            position,
            hash_block: context.hash_block,
            state_block: self.block_size,
            alignment: checkpoint_alignment,
        };
        let saved = checkpoint_blocks > 0
            && position > 0
            && tokens >= ask.prefill_end
            && checkpoint.is_valid()
            && index >= 0
            && (index >= i64::from(table.len())
                || usize::try_from(index).is_ok_and(|i| table.entries.get(i) == Some(&NULL))
                || (table.allocated && index >= i64::from(table.len()) - i64::from(speculative_blocks)));
        if !ask.admission {
            table.checkpoint =
                if saved { u32::try_from(index).ok().map(|index| (position, index)) } else { None };
        }
        if fresh > 0 {
            let mut most = 1 + i64::from(partial) + i64::from(saved);
            if !table.allocated {
                most += i64::from(speculative_blocks);
            }
            fresh = fresh.min(most);
        }
        // A hit ends in one state; before it lie null blocks.
        let blocks = |slot: Option<u32>, groups: u64| {
            let free = i64::from(slot.is_some_and(|slot| pool.is_evictable(slot)));
            u64::try_from(fresh + free).unwrap_or(0) * groups
        };
        Some(match hits.last() {
            Some(&last) if last < COMPOSITE => blocks(Some(last), pool.weight(id)),
            Some(&last) if last < PLAIN => {
                let parts = pool.parts_of(last).iter();
                parts.map(|part| blocks(Some(part.slot), u64::from(part.hi - part.lo))).sum()
            }
            _ => blocks(None, pool.weight(id)),
        })
    }

    /// Hands out blocks (`MambaManager.allocate_new_blocks`) and says how many entries the worker gets.
    pub(crate) fn state_extend(
        &mut self,
        id: u32,
        table: &mut Table,
        pool: &mut BlockPool,
        copies: &mut Copies,
        tokens: u32,
        main_model: u32,
    ) -> u32 {
        let Manager::State { mode, speculative_blocks, .. } = self.manager else { return 0 };
        if mode != StateMode::Align {
            let tokens = tokens.saturating_add(self.block_size.saturating_mul(speculative_blocks));
            return self.extend(id, table, pool, copies, tokens);
        }
        let required = main_model.div_ceil(self.block_size) + speculative_blocks;
        let held = table.len();
        let checkpoint = u32::from(table.checkpoint.is_some());
        if required <= held && table.partial_hit.is_none() && checkpoint == 0 {
            table.allocated = true;
            return 0;
        }
        if table.allocated {
            table.last_state = held.saturating_sub(1 + speculative_blocks);
        } else if held > 0 {
            table.last_state = held - 1;
        }
        let skipped = required.saturating_sub(speculative_blocks + 1);
        let kept_from = skipped.saturating_sub(checkpoint);
        if held < skipped && held < kept_from {
            table.entries.resize(kept_from as usize, NULL);
        }
        if table.allocated {
            for index in held.saturating_sub(speculative_blocks)..held {
                if index >= kept_from {
                    break;
                }
                // The scratch block of a draft token moves to the end.
                let entry = std::mem::replace(&mut table.entries[index as usize], NULL);
                table.entries.push(entry);
            }
        }
        let partial = table.partial_hit.take();
        let fresh = required.saturating_sub(table.len()) + u32::from(partial.is_some());
        pool.take(pool.weight(id) * u64::from(fresh));
        let mut returned = table.len() - held;
        let mut plain = fresh;
        if let Some((index, source)) = partial {
            plain -= 1;
            if table.allocated {
                // The running request stays on its block; the cached state moves to the copy.
                let copy = pool.name_copy(id, source);
                let source = pool.hold(source);
                copies.push((id, source, copy));
                self.cached_this_step.extend(pool.pieces(copy).filter_map(|slot| pool.key(slot)));
            } else {
                redirect(id, table, pool, copies, index, source);
                returned += 1;
            }
        }
        table.push_plain(plain);
        table.allocated = true;
        returned + plain
    }

    /// Notes the keys of the blocks that were cached from `before` on, for hits of the same step.
    pub(crate) fn note_cached(&mut self, table: &Table, pool: &BlockPool, before: u32) {
        if table.cached == UNTRACKED || table.cached <= before {
            return;
        }
        let end = (table.cached as usize).min(table.entries.len());
        for &entry in table.entries.get(before as usize..end).unwrap_or(&[]) {
            self.cached_this_step.extend(pool.pieces(entry).filter_map(|slot| pool.key(slot)));
        }
    }
}
