//! Which groups behave alike and are computed once, and what a request holds in them.

use super::block_pool::{BlockPool, NONE};
use super::pieces::COMPOSITE;
use crate::engine::{BlockSizes, Engine};
use crate::group::{Group, Manager, StateMode};

/// The null block's place in a table.
pub(crate) const NULL: u32 = u32::MAX;
/// A block without a hash that only this request holds.
pub(crate) const PLAIN: u32 = u32::MAX - 1;
/// `num_cached_block` has no entry for the request.
pub(crate) const UNTRACKED: u32 = u32::MAX;

/// A run of neighbouring groups with equal specs: one computation stands for all of them.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) manager: Manager,
    /// Tokens a block, DCP included.
    pub(crate) block_size: u32,
    /// Equal for specs that are looked up together.
    pub(crate) spec: u32,
    /// Whether hits drop their last block (`use_eagle`).
    pub(crate) eagle: bool,
    /// Most blocks that admission asks for, for managers that give blocks back.
    pub(crate) admission_cap: Option<u32>,
    /// Keys cached in this step (state groups).
    pub(crate) cached_this_step: Vec<u64>,
}

/// Blocks of one request in one class: every group of it holds the same pattern.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// `NULL`, `PLAIN`, a slot or a composite of slots, a block each.
    pub(crate) entries: Vec<u32>,
    /// How many entries are `PLAIN`.
    pub(crate) plain: u32,
    /// How many are slots or composites.
    pub(crate) named: u32,
    /// Blocks at the start that have been offered to the cache, or `UNTRACKED`.
    pub(crate) cached: u32,
    /// Blocks at the start that left the window.
    pub(crate) skipped: u32,
    /// A block shared up to its middle: its index and its entry there.
    pub(crate) partial_hit: Option<(u32, u32)>,
    /// State groups in align mode: whether the request has had its blocks.
    pub(crate) allocated: bool,
    /// Align mode: index of the block with the last state, or `NULL`.
    pub(crate) last_state: u32,
    /// Align mode: blocks retired so far.
    pub(crate) retired: u32,
    /// Align mode: position and block index of a checkpoint inside the chunk.
    pub(crate) checkpoint: Option<(u32, u32)>,
}

impl Table {
    /// Forgets everything; the entries were given back.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.plain = 0;
        self.named = 0;
        self.cached = UNTRACKED;
        self.skipped = 0;
        self.partial_hit = None;
        self.allocated = false;
        self.last_state = NULL;
        self.retired = 0;
        self.checkpoint = None;
    }

    /// Blocks in the table, null ones included.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Appends `count` plain blocks.
    pub(crate) fn push_plain(&mut self, count: u32) {
        self.entries.resize(self.entries.len() + count as usize, PLAIN);
        self.plain += count;
    }

    /// Puts another entry for the same blocks at `index`.
    pub(crate) fn replace(&mut self, index: usize, entry: u32) {
        let old = std::mem::replace(&mut self.entries[index], entry);
        if let Some((_, partial)) = &mut self.partial_hit
            && *partial == old
        {
            *partial = entry;
        }
    }
}

impl Class {
    /// The classes of `groups`, in order, with the number of groups of each; `apart`: a class a group.
    pub(crate) fn of(
        engine: &Engine,
        groups: &[Group],
        flagged: &[bool],
        apart: bool,
    ) -> (Vec<Self>, Vec<u32>) {
        let mut classes: Vec<Self> = Vec::new();
        let mut weights: Vec<u32> = Vec::new();
        let mut last: Option<(&Group, bool)> = None;
        for (group, &eagle) in groups.iter().zip(flagged) {
            let same = last.is_some_and(|(other, flag)| {
                !apart
                    && flag == eagle
                    && other.spec == group.spec
                    && other.manager == group.manager
                    && other.block_size == group.block_size
                    && other.dcp_sharded == group.dcp_sharded
            });
            if same && let Some(weight) = weights.last_mut() {
                *weight += 1;
            } else {
                classes.push(Self::new(engine, group, eagle));
                weights.push(1);
            }
            last = Some((group, eagle));
        }
        (classes, weights)
    }

    fn new(engine: &Engine, group: &Group, eagle: bool) -> Self {
        let block_size = engine.tokens_of_block(group);
        let in_flight =
            engine.max_num_batched_tokens.saturating_mul(u32::try_from(engine.depth()).unwrap_or(1));
        // `max_admission_blocks_per_request` counts in the spec's own blocks.
        let cap = |tokens: u32| tokens.min(engine.max_model_len).div_ceil(group.block_size);
        let admission_cap = match group.manager {
            Manager::SlidingWindow { window, extra_retained_tokens } => {
                Some(cap((window - 1).saturating_add(extra_retained_tokens).saturating_add(in_flight)) + 1)
            }
            Manager::ChunkedLocal { chunk } => Some(cap(chunk.saturating_add(in_flight))),
            Manager::Full | Manager::State { .. } | Manager::Cross | Manager::Ring => None,
        };
        Self {
            manager: group.manager,
            block_size,
            spec: group.spec,
            eagle,
            admission_cap,
            cached_this_step: Vec::new(),
        }
    }

    /// Tokens at the start that attention reads no more once `computed` are done
    /// (`get_num_skipped_tokens`).
    pub(crate) fn skipped_tokens(&self, computed: u32) -> u32 {
        match self.manager {
            Manager::SlidingWindow { window, extra_retained_tokens } => {
                (computed + 1).saturating_sub(window).saturating_sub(extra_retained_tokens)
            }
            Manager::ChunkedLocal { chunk } => computed / chunk * chunk,
            Manager::State { .. } => computed.saturating_sub(1),
            Manager::Full | Manager::Cross | Manager::Ring => 0,
        }
    }

    /// The fewest computed tokens at which one more block than `skipped` is out of reach.
    fn next_skip(&self, skipped: u32) -> u32 {
        let tokens = (skipped + 1).saturating_mul(self.block_size);
        match self.manager {
            Manager::SlidingWindow { window, extra_retained_tokens } => {
                tokens.saturating_add(window - 1).saturating_add(extra_retained_tokens)
            }
            Manager::ChunkedLocal { chunk } => tokens.div_ceil(chunk).saturating_mul(chunk),
            Manager::State { .. } => tokens.saturating_add(1),
            Manager::Full | Manager::Cross | Manager::Ring => u32::MAX,
        }
    }

    /// Extra state blocks a request.
    pub(crate) fn speculative_blocks(&self) -> u32 {
        match self.manager {
            Manager::State { speculative_blocks, .. } => speculative_blocks,
            _ => 0,
        }
    }

    /// The number of tokens up to which `table` needs no block (`get_num_blocks_to_allocate` gives 0 and
    /// changes nothing).
    pub(crate) fn allocation_limit(&self, table: &Table) -> u32 {
        let spare = table.len().saturating_sub(self.speculative_blocks()).saturating_mul(self.block_size);
        match self.manager {
            Manager::Full | Manager::SlidingWindow { .. } | Manager::ChunkedLocal { .. } => {
                if table.partial_hit.is_some() { 0 } else { spare }
            }
            Manager::State { mode: StateMode::Align, checkpoint_blocks, .. } => {
                if table.partial_hit.is_some() || !table.allocated || checkpoint_blocks > 0 {
                    0
                } else {
                    spare
                }
            }
            Manager::State { .. } => spare,
            Manager::Cross => u32::MAX,
            Manager::Ring => {
                if table.entries.is_empty() {
                    0
                } else {
                    u32::MAX
                }
            }
        }
    }

    /// The fewest processed tokens at which a block of `table` is given back.
    pub(crate) fn skip_limit(&self, table: &Table) -> u32 {
        let by_window = self.next_skip(table.skipped);
        if !self.manager.is_aligned_state() || table.last_state == NULL {
            return by_window;
        }
        match table.entries.get(table.last_state as usize) {
            Some(&NULL) | None => by_window,
            Some(_) => {
                by_window.min((table.last_state + 1).saturating_mul(self.block_size).saturating_add(1))
            }
        }
    }

    /// Gives back what `processed` tokens leave behind (`remove_skipped_blocks`).
    pub(crate) fn remove_skipped(&self, id: u32, table: &mut Table, pool: &mut BlockPool, processed: u32) {
        let tokens = self.skipped_tokens(processed);
        if tokens > 0 {
            let blocks = (tokens / self.block_size).min(table.len());
            if self.manager.is_aligned_state() {
                self.retire(id, table, pool, blocks);
            } else {
                self.free_window(id, table, pool, blocks);
            }
            table.skipped = table.skipped.max(blocks);
        }
        if self.manager.is_aligned_state()
            && table.last_state != NULL
            && table.last_state + 1 < processed.div_ceil(self.block_size)
            && let Some(&entry) = table.entries.get(table.last_state as usize)
            && entry != NULL
        {
            let run = pool.open_run(id);
            release_entry(id, table, pool, table.last_state as usize, run);
            pool.close_run(run);
        }
    }

    /// Blocks before `end`, last first, up to one that is gone.
    fn free_window(&self, id: u32, table: &mut Table, pool: &mut BlockPool, end: u32) {
        if end == 0 || table.entries[end as usize - 1] == NULL {
            return;
        }
        let run = pool.open_run(id);
        for index in (0..end as usize).rev() {
            if table.entries[index] == NULL {
                break;
            }
            release_entry(id, table, pool, index, run);
        }
        pool.close_run(run);
    }

    /// Align mode: states before `end` that are not retired yet; null ones lie between them.
    fn retire(&self, id: u32, table: &mut Table, pool: &mut BlockPool, end: u32) {
        if table.retired >= end {
            return;
        }
        let run = pool.open_run(id);
        for index in (table.retired as usize..end as usize).rev() {
            if table.entries[index] != NULL {
                release_entry(id, table, pool, index, run);
            }
        }
        pool.close_run(run);
        table.retired = end;
    }

    /// Blocks all groups need for `tokens` (`get_num_blocks_to_allocate` of the base manager).
    pub(crate) fn needed(
        &self,
        id: u32,
        table: &Table,
        pool: &BlockPool,
        ask: &Ask,
        hits: &[u32],
        tokens: u32,
    ) -> u64 {
        let weight = pool.weight(id);
        let mut required = tokens.div_ceil(self.block_size);
        if ask.admission
            && let Some(cap) = self.admission_cap
        {
            required = required.min(cap);
        }
        let held = table.len();
        if table.cached != UNTRACKED {
            return u64::from(required.saturating_sub(held)) * weight;
        }
        let skipped = self.skipped_tokens(ask.total_computed) / self.block_size;
        let local = u32::try_from(hits.len()).unwrap_or(u32::MAX) + held;
        let mut fresh = required.saturating_sub(skipped.max(local));
        let hits_left = hits.get(skipped.saturating_sub(held) as usize..).unwrap_or(&[]);
        if self.ends_inside_block(hits, ask.local_computed) {
            fresh += 1;
        }
        u64::from(fresh) * weight + evictable(id, pool, hits_left)
    }

    /// Whether a hit of `computed` tokens ends inside a block.
    pub(crate) fn ends_inside_block(&self, hits: &[u32], computed: u32) -> bool {
        !hits.is_empty() && !computed.is_multiple_of(self.block_size)
    }

    /// Hits at the start that are behind the window already, of `computed` tokens.
    pub(crate) fn skipped_hits(&self, computed: u32) -> u32 {
        self.skipped_tokens(computed) / self.block_size
    }

    /// Puts the hits from `skipped` on into the table (`add_local_computed_blocks`); references are taken already.
    pub(crate) fn adopt(&self, table: &mut Table, skipped: u32, hits: &[u32], computed: u32) {
        table.entries.resize(skipped as usize, NULL);
        for &entry in hits {
            table.named += u32::from(entry < PLAIN);
            table.entries.push(entry);
        }
        table.cached = table.len();
        if self.ends_inside_block(hits, computed) {
            let index = computed / self.block_size;
            table.partial_hit = hits.last().map(|&entry| (index, entry));
            table.cached = index;
        }
    }

    /// Hands out blocks for `tokens` (`allocate_new_blocks` of the base manager) and says how many are new.
    pub(crate) fn extend(
        &self,
        id: u32,
        table: &mut Table,
        pool: &mut BlockPool,
        copies: &mut Copies,
        tokens: u32,
    ) -> u32 {
        let weight = u64::from(pool.weights[id as usize]);
        let mut new = 0;
        if let Some((index, source)) = table.partial_hit.take() {
            pool.take(weight);
            redirect(id, table, pool, copies, index, source);
            new = 1;
        }
        let count = tokens.div_ceil(self.block_size).saturating_sub(table.len());
        if count > 0 {
            pool.take(weight * u64::from(count));
            table.push_plain(count);
        }
        new + count
    }

    /// The fewest tokens handed to the coordinator's `cache_blocks` at which this class's cache changes.
    pub(crate) fn cache_limit(
        &self,
        table: &Table,
        sizes: &BlockSizes,
        prompt: u32,
        reprefilled: u32,
        hybrid: bool,
    ) -> u32 {
        if !self.manager.prefix_cacheable() {
            return u32::MAX;
        }
        let cached = if table.cached == UNTRACKED { 0 } else { table.cached };
        let mut target = (cached + 1).saturating_mul(self.block_size);
        if self.manager.is_aligned_state() {
            // The prompt's last boundary is offered whenever it is the end of what is cached, and each
            // time the key counts as cached in this step.
            if table.checkpoint.is_some() {
                return 0;
            }
            if hybrid
                && !sizes.partial_hits
                && self.block_size == sizes.scheduler
                && sizes.hash == self.block_size
            {
                let boundary = (prompt.saturating_sub(1)) / sizes.hash * sizes.hash;
                let index = (boundary / self.block_size) as usize;
                let settled = cached > boundary / self.block_size
                    || (index > 0 && table.entries.get(index - 1) == Some(&NULL));
                if !self.eagle && settled {
                    return target;
                }
                if !self.eagle && cached < boundary / self.block_size {
                    return target.min(boundary);
                }
            }
            return 0;
        }
        if self.manager.is_full() && self.block_size != sizes.hash {
            let limit = if self.eagle { prompt } else { prompt.saturating_sub(1) };
            let boundary = limit / sizes.hash * sizes.hash;
            if boundary > 0
                && !boundary.is_multiple_of(self.block_size)
                && cached <= boundary / self.block_size
            {
                // Registering the tail again is harmless, so it may be tried early.
                return if cached == boundary / self.block_size { boundary.min(target) } else { target };
            }
        }
        if hybrid && !sizes.partial_hits {
            target = if self.eagle {
                let shifted = target
                    .saturating_sub(self.block_size)
                    .div_ceil(sizes.scheduler)
                    .saturating_mul(sizes.scheduler);
                target.max(shifted).saturating_add(reprefilled).max(sizes.scheduler)
            } else {
                target.div_ceil(sizes.scheduler).saturating_mul(sizes.scheduler)
            };
        } else {
            target = target.saturating_add(if hybrid { 0 } else { reprefilled });
        }
        target
    }
}

/// What an allocation is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    /// Local and external computed tokens.
    pub(crate) total_computed: u32,
    /// Computed tokens found here.
    pub(crate) local_computed: u32,
    /// Tokens of the target model.
    pub(crate) main_model: u32,
    /// Whether this is the check before admission.
    pub(crate) admission: bool,
    /// Where the prefill ends, or 0 with dense retention.
    pub(crate) prefill_end: u32,
}

/// Blocks copied in this step: class, entries of the source and the destination, both held until the step is
/// scheduled.
pub(crate) type Copies = Vec<(u32, u32, u32)>;

/// Blocks of a hit, over all groups of class `id`, that nobody holds.
fn evictable(id: u32, pool: &BlockPool, hits: &[u32]) -> u64 {
    let mut blocks = 0;
    for &hit in hits {
        if hit < COMPOSITE {
            blocks += if pool.is_evictable(hit) { pool.weight(id) } else { 0 };
        } else if hit < PLAIN {
            let free = pool.parts_of(hit).iter().filter(|part| pool.is_evictable(part.slot));
            blocks += free.map(|part| u64::from(part.hi - part.lo)).sum::<u64>();
        }
    }
    blocks
}

/// Gives one entry of a table back and leaves the null block in its place.
pub(crate) fn release_entry(id: u32, table: &mut Table, pool: &mut BlockPool, index: usize, run: u32) {
    match std::mem::replace(&mut table.entries[index], NULL) {
        NULL => {}
        PLAIN => {
            table.plain -= 1;
            pool.release_plain(id, 1);
        }
        entry => {
            table.named -= 1;
            pool.release(entry, run);
        }
    }
}

/// Replaces a shared block by a private copy (`_apply_cow`); the blocks for it are taken already.
pub(crate) fn redirect(
    id: u32,
    table: &mut Table,
    pool: &mut BlockPool,
    copies: &mut Copies,
    index: u32,
    source: u32,
) {
    let copy = pool.name(id, 2);
    table.entries[index as usize] = copy;
    copies.push((id, source, copy));
}

/// An entry that is about to get a key: plain blocks get a name first.
pub(crate) fn named(id: u32, table: &mut Table, pool: &mut BlockPool, index: usize) -> Option<u32> {
    match table.entries.get(index).copied() {
        None | Some(NULL) => None,
        Some(PLAIN) => {
            let slot = pool.name(id, 1);
            table.entries[index] = slot;
            table.plain -= 1;
            table.named += 1;
            Some(slot)
        }
        Some(entry) => Some(entry),
    }
}

/// Gives back all blocks of a table, last first, and clears it.
pub(crate) fn free_table(id: u32, table: &mut Table, pool: &mut BlockPool) {
    if table.named == 0 {
        pool.release_plain(id, table.plain);
    } else {
        let run = pool.open_run(id);
        for index in (0..table.entries.len()).rev() {
            let entry = table.entries[index];
            if entry < PLAIN {
                pool.release(entry, run);
            }
        }
        pool.release_plain(id, table.plain);
        pool.close_run(run);
    }
    table.clear();
}

const _: () = assert!(NONE == NULL);
