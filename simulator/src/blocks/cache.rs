//! How a request's blocks are found, handed out, cached and given back over all groups.
//!
//! Source: `vllm/v1/core/kv_cache_manager.py` and `kv_cache_coordinator.py`, 0.32.

use super::block_pool::BlockPool;
use super::class::{Ask, Class, Copies, NULL, Table, UNTRACKED, free_table, named};
use super::state::{StateContext, checkpoint_position};
use super::tokens::{Segment, Tokens};
use crate::engine::{BlockSizes, Engine, SetupError};
use crate::group::{Group, Manager};

/// Classes with one spec, looked up together.
#[derive(Debug, Clone)]
pub(crate) struct Lookup {
    pub(crate) classes: Vec<u32>,
    pub(crate) manager: Manager,
    pub(crate) block_size: u32,
    pub(crate) eagle: bool,
}

/// What the cache reads of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) slot: u32,
    pub(crate) prompt: u32,
    pub(crate) tokens: u32,
    pub(crate) computed: u32,
    pub(crate) in_flight: u32,
    pub(crate) encoder_tokens: u32,
    pub(crate) shared_prefix_boundary: u32,
    /// Whether it waits, or was preempted.
    pub(crate) waits: bool,
}

/// How far a request may go before anything about its blocks changes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Tokens that have a slot.
    pub(crate) allocation: u32,
    /// Processed tokens before which no block leaves a window.
    pub(crate) skip: u32,
    /// Tokens before which nothing more is cached.
    pub(crate) cache: u32,
}

/// The managers of all groups and their pool.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    pub(crate) pool: BlockPool,
    pub(crate) classes: Vec<Class>,
    /// A table a class, by request slot.
    pub(crate) tables: Vec<Vec<Table>>,
    /// By request slot.
    pub(crate) tokens: Vec<Tokens>,
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) sizes: BlockSizes,
    pub(crate) caching: bool,
    /// One group: the coordinator for single groups.
    pub(crate) single: bool,
    /// Whether any group drops its last block.
    pub(crate) any_eagle: bool,
    pub(crate) drops_block: bool,
    pub(crate) reprefilled: u32,
    retention: Option<u32>,
    num_blocks: u32,
    max_model_len: u32,
    watermark_blocks: u64,
    lookahead: u32,
    copies: Copies,
    /// Hits, a class each.
    pub(crate) hits: Vec<Vec<u32>>,
    /// New entries of the last allocation: groups of a class, blocks each got.
    pub(crate) new_blocks: Vec<(u32, u32)>,
    mask: Vec<bool>,
    /// Classes were split since this was last cleared.
    pub(crate) was_split: bool,
}

impl Cache {
    /// Managers for `groups`.
    pub(crate) fn new(engine: &Engine, groups: &[Group]) -> Result<Self, SetupError> {
        let sizes = engine.block_sizes(groups)?;
        let drops_block = engine.speculative.is_some_and(|s| s.drops_block);
        let mut flagged: Vec<bool> = groups.iter().map(|group| group.eagle).collect();
        if drops_block && !flagged.contains(&true) {
            flagged.fill(true);
        }
        let any_eagle = flagged.contains(&true);
        let single = groups.len() == 1;
        if !single {
            // Groups of one spec are looked up together, so one flag counts for all of them.
            for index in 0..groups.len() {
                let shared =
                    (0..groups.len()).any(|other| flagged[other] && groups[other].spec == groups[index].spec);
                flagged[index] = shared;
            }
        }
        let (classes, weights) = Class::of(engine, groups, &flagged);
        let prefill_lookahead = engine.speculative.map_or(0, |s| s.prefill_lookahead_tokens);
        let mut cache = Self {
            pool: BlockPool::new(engine.num_blocks, weights),
            hits: vec![Vec::new(); classes.len()],
            classes,
            tables: Vec::new(),
            tokens: Vec::new(),
            lookups: Vec::new(),
            sizes,
            caching: engine.enable_prefix_caching,
            single,
            any_eagle,
            drops_block,
            reprefilled: prefill_lookahead.saturating_sub(1),
            retention: engine.prefix_cache_retention_interval,
            num_blocks: engine.num_blocks,
            max_model_len: engine.max_model_len,
            watermark_blocks: watermark(engine),
            lookahead: engine.speculative.map_or(0, |s| s.lookahead_tokens),
            copies: Vec::new(),
            new_blocks: Vec::new(),
            mask: Vec::new(),
            was_split: false,
        };
        cache.arrange_lookups();
        Ok(cache)
    }

    /// Puts classes of one spec together, full attention first.
    fn arrange_lookups(&mut self) {
        self.lookups.clear();
        for (id, class) in self.classes.iter().enumerate() {
            if !class.manager.prefix_cacheable() {
                continue;
            }
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            let same = |lookup: &&mut Lookup| self.classes[lookup.classes[0] as usize].spec == class.spec;
            if let Some(lookup) = self.lookups.iter_mut().find(same) {
                lookup.classes.push(id);
                lookup.eagle |= class.eagle;
            } else {
                self.lookups.push(Lookup {
                    classes: vec![id],
                    manager: class.manager,
                    block_size: class.block_size,
                    eagle: class.eagle,
                });
            }
        }
        self.lookups.sort_by_key(|lookup| !lookup.manager.is_full());
    }

    /// Splits a class before its group `at`, because the groups' cached blocks differ there.
    pub(crate) fn split(&mut self, class: u32, at: u32) {
        let twin = self.pool.split(class, at);
        let index = class as usize;
        let copy = self.classes[index].clone();
        let change = self.pool.salts[index] ^ self.pool.salts[index + 1];
        self.classes.insert(index + 1, copy);
        for key in &mut self.classes[index + 1].cached_this_step {
            *key = (*key ^ change).max(1);
        }
        self.hits.insert(index + 1, Vec::new());
        for tables in &mut self.tables {
            if let Some(table) = tables.get(index) {
                let mapped = table.mapped(&twin);
                tables.insert(index + 1, mapped);
            }
        }
        let mut copies = Vec::with_capacity(self.copies.len());
        for &(id, source, copy) in &self.copies {
            copies.push((if id > class { id + 1 } else { id }, source, copy));
            if id == class {
                copies.push((class + 1, twin[source as usize], twin[copy as usize]));
            }
        }
        copies.sort_by_key(|&(id, _, _)| id);
        self.copies = copies;
        self.was_split = true;
        self.arrange_lookups();
    }

    /// Makes room for request slot `slot` and gives it its tokens.
    pub(crate) fn admit(&mut self, slot: u32, prompt: &[Segment], output: u64) {
        let index = slot as usize;
        if index >= self.tables.len() {
            self.tables.resize_with(index + 1, Vec::new);
            self.tokens.resize_with(index + 1, Tokens::default);
        }
        let classes = self.classes.len();
        let tables = &mut self.tables[index];
        tables.resize_with(classes, Table::default);
        for table in tables {
            table.clear();
        }
        if self.caching {
            self.tokens[index].reset(prompt, output);
        }
    }

    /// Starts a step.
    pub(crate) fn new_step(&mut self) {
        if self.caching {
            for class in &mut self.classes {
                class.cached_this_step.clear();
            }
        }
    }

    /// Tokens that hits are a multiple of.
    pub(crate) fn alignment(&self) -> u32 {
        if self.sizes.partial_hits { self.sizes.hash } else { self.sizes.scheduler }
    }

    fn state_context(&self) -> StateContext {
        StateContext {
            hash_block: self.sizes.hash,
            alignment: self.alignment(),
            drops_block: self.drops_block,
        }
    }

    /// Blocks needed over all groups, or `None` if a hit is of this very step.
    fn needed(
        &mut self,
        view: &View,
        tables: &mut [Table],
        ask: &Ask,
        tokens: u32,
        with_hits: bool,
    ) -> Option<u64> {
        let context = self.state_context();
        let mut total = 0;
        for (id, (class, table)) in self.classes.iter().zip(tables).enumerate() {
            let hits: &[u32] = if with_hits { &self.hits[id] } else { &[] };
            let each = match class.manager {
                Manager::State { .. } => class.state_needed(table, &self.pool, ask, hits, tokens, context)?,
                Manager::Cross => {
                    let ask = Ask { total_computed: 0, local_computed: 0, ..*ask };
                    class.needed(table, &self.pool, &ask, &[], view.encoder_tokens)
                }
                Manager::Ring => u64::from(table.entries.is_empty()),
                _ => class.needed(table, &self.pool, ask, hits, tokens),
            };
            total += each * u64::from(self.pool.weights[id]);
        }
        Some(total)
    }

    /// Gives `view` slots for `new` more tokens past `found` hit tokens (`allocate_slots`); `whole` asks
    /// that its whole sequence fits, `busy` says that others run. `false`: it does not fit, nothing is taken.
    pub(crate) fn allocate(
        &mut self,
        view: &View,
        new: u32,
        found: u32,
        whole: bool,
        busy: bool,
        limits: &mut Limits,
    ) -> bool {
        let mut tables = std::mem::take(&mut self.tables[view.slot as usize]);
        let done = self.allocate_in(view, &mut tables, new, found, whole, busy);
        if done {
            *limits = self.limits(view, &tables);
        } else {
            // The window was moved all the same.
            limits.skip = 0;
        }
        self.tables[view.slot as usize] = tables;
        done
    }

    fn allocate_in(
        &mut self,
        view: &View,
        tables: &mut [Table],
        new: u32,
        found: u32,
        whole: bool,
        busy: bool,
    ) -> bool {
        let with_hits = found > 0 || self.hits.iter().any(|hits| !hits.is_empty());
        let local = view.computed + found;
        let total = local.min(self.max_model_len);
        let watermark = if busy && view.waits { self.watermark_blocks } else { 0 };
        let prefill_end =
            if self.retention == Some(0) { view.prompt.max(view.tokens.saturating_sub(1)) } else { 0 };
        if whole {
            let tokens = view.tokens.min(self.max_model_len);
            let ask = Ask {
                total_computed: total,
                local_computed: local,
                main_model: tokens,
                admission: true,
                prefill_end,
            };
            match self.needed(view, tables, &ask, tokens, with_hits) {
                Some(blocks) if blocks + watermark <= self.pool.free() => {}
                _ => return false,
            }
        }
        let main_model = total + new;
        let tokens = main_model.saturating_add(self.lookahead).min(self.max_model_len);
        let processed = total.saturating_sub(view.in_flight);
        for (id, (class, table)) in (0_u32..).zip(self.classes.iter().zip(tables.iter_mut())) {
            class.remove_skipped(id, table, &mut self.pool, processed);
        }
        let ask =
            Ask { total_computed: local, local_computed: local, main_model, admission: false, prefill_end };
        match self.needed(view, tables, &ask, tokens, with_hits) {
            Some(blocks) if blocks + watermark <= self.pool.free() => {}
            _ => return false,
        }
        if with_hits && tables.iter().all(|table| table.cached == UNTRACKED) {
            for (id, (class, table)) in self.classes.iter().zip(tables.iter_mut()).enumerate() {
                class.adopt(table, &mut self.pool, &self.hits[id], local);
            }
        }
        self.new_blocks.clear();
        for (id, (class, table)) in (0_u32..).zip(self.classes.iter_mut().zip(tables.iter_mut())) {
            let pool = &mut self.pool;
            let count = match class.manager {
                Manager::State { .. } => {
                    class.state_extend(id, table, pool, &mut self.copies, tokens, main_model)
                }
                Manager::Cross => class.extend(id, table, pool, &mut self.copies, view.encoder_tokens),
                Manager::Ring if table.entries.is_empty() => {
                    class.extend(id, table, pool, &mut self.copies, 1)
                }
                Manager::Ring => 0,
                _ => class.extend(id, table, pool, &mut self.copies, tokens),
            };
            self.new_blocks.push((self.pool.weights[id as usize], count));
        }
        if self.caching {
            self.cache_in(view, tables, (total + new).min(view.tokens));
        }
        true
    }

    /// Caches the blocks of the first `tokens` tokens (`cache_blocks`).
    pub(crate) fn cache_blocks(&mut self, view: &View, tokens: u32, limits: &mut Limits) {
        let mut tables = std::mem::take(&mut self.tables[view.slot as usize]);
        self.cache_in(view, &mut tables, tokens);
        *limits = self.limits(view, &tables);
        self.tables[view.slot as usize] = tables;
    }

    fn cache_in(&mut self, view: &View, tables: &mut [Table], tokens: u32) {
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
                let Some(slot) = named(id, table, &mut self.pool, index as usize) else { continue };
                if self.pool.is_cached(slot) {
                    self.pool.forget_keys(slot);
                }
                let key = self.pool.class_key(id, hash);
                self.pool.add_key(slot, key, (index + 1) * class.block_size);
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

    /// Makes a block findable at a boundary inside it (`cache_partial_block`) and gives its slot and key.
    fn cache_partial(
        &mut self,
        view: &View,
        id: u32,
        table: &mut Table,
        index: u32,
        tokens: u32,
        replace: bool,
    ) -> Option<(u32, u64)> {
        let slot = named(id, table, &mut self.pool, index as usize)?;
        let unit = tokens / self.sizes.hash;
        let hash = self.tokens[view.slot as usize].hash(unit - 1, self.sizes.hash);
        let key = self.pool.class_key(id, hash);
        let known = self.pool.has_key(slot, key);
        if replace || (!known && self.pool.is_cached(slot) && self.pool.tokens(slot) < tokens) {
            self.pool.forget_keys(slot);
        }
        self.pool.add_key(slot, key, tokens);
        Some((slot, key))
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
                if let Some(&entry) = table.entries.get(index as usize)
                    && entry < super::class::PLAIN
                {
                    self.pool.forget_keys(entry);
                }
                return;
            }
            let covered = table.entries.get(index as usize).is_some_and(|&entry| {
                entry < super::class::PLAIN
                    && self.pool.is_cached(entry)
                    && self.pool.tokens(entry) == position
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
        let Some((slot, key)) = self.cache_partial(view, id, table, index, tokens, false) else { return };
        if !tokens.is_multiple_of(block_size) {
            table.partial_hit = Some((index, slot));
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

    /// Gives all blocks of a request back.
    pub(crate) fn free(&mut self, slot: u32) {
        let tables = &mut self.tables[slot as usize];
        for (id, table) in (0_u32..).zip(tables.iter_mut()) {
            free_table(id, table, &mut self.pool);
        }
    }

    /// Gives the blocks of this step's copies back.
    pub(crate) fn release_copies(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        let mut copies = std::mem::take(&mut self.copies);
        // A manager at a time, each in the order of its copies.
        copies.sort_by_key(|&(class, _, _)| class);
        let mut at = 0;
        while at < copies.len() {
            let class = copies[at].0;
            let run = self.pool.open_run(class);
            while at < copies.len() && copies[at].0 == class {
                self.pool.release(copies[at].1, run);
                self.pool.release(copies[at].2, run);
                at += 1;
            }
            self.pool.close_run(run);
        }
    }

    fn limits(&self, view: &View, tables: &[Table]) -> Limits {
        let mut limits = Limits { allocation: u32::MAX, skip: u32::MAX, cache: u32::MAX };
        for (class, table) in self.classes.iter().zip(tables) {
            limits.allocation = limits.allocation.min(class.allocation_limit(table));
            limits.skip = limits.skip.min(class.skip_limit(table));
            if self.caching {
                let cache =
                    class.cache_limit(table, &self.sizes, view.prompt, self.reprefilled, !self.single);
                limits.cache = limits.cache.min(cache);
            }
        }
        limits
    }

    /// Blocks that the requests of `slots` hold over all groups, counted from their tables; the second
    /// value is a number of holders that a block's references do not equal.
    pub(crate) fn recount(&self, slots: &[u32]) -> (u64, Option<u32>) {
        let mut held = 0;
        let mut holders = std::collections::BTreeMap::<u32, u32>::new();
        for &slot in slots {
            for (table, &weight) in self.tables[slot as usize].iter().zip(&self.pool.weights) {
                for &entry in &table.entries {
                    match entry {
                        NULL => {}
                        super::class::PLAIN => held += u64::from(weight),
                        entry => {
                            let count = holders.entry(entry).or_default();
                            *count += 1;
                            if *count == 1 {
                                held += u64::from(self.pool.weight_of(entry));
                            }
                        }
                    }
                }
            }
        }
        let wrong = holders.iter().find(|&(&entry, &count)| self.pool.refs(entry) != count);
        (held, wrong.map(|(_, &count)| count))
    }

    /// Blocks a request holds, a class each with its number of groups; null blocks are counted as entries.
    pub(crate) fn lengths(&self, slot: u32) -> impl Iterator<Item = (u32, u32)> {
        self.pool.weights.iter().copied().zip(self.tables[slot as usize].iter().map(Table::len))
    }

    /// Blocks that a prompt of `tokens` tokens is admitted with when nothing else runs and nothing is cached.
    pub(crate) fn needed_alone(&self, tokens: u32, encoder_tokens: u32) -> u64 {
        let mut total = 0;
        for (class, &weight) in self.classes.iter().zip(&self.pool.weights) {
            let blocks = match class.manager {
                Manager::Ring => 1,
                Manager::Cross => encoder_tokens.div_ceil(class.block_size),
                Manager::State { mode: crate::group::StateMode::Align, .. } => {
                    1 + class.speculative_blocks().min(u32::MAX - 1)
                }
                _ => tokens.div_ceil(class.block_size).saturating_add(class.speculative_blocks()),
            };
            total += u64::from(blocks.min(class.admission_cap.unwrap_or(u32::MAX))) * u64::from(weight);
        }
        total
    }

    /// Blocks of the pool, the null block included.
    pub(crate) fn num_blocks(&self) -> u32 {
        self.num_blocks
    }
}

/// Contiguous blocks that a hit in a window needs (`_contiguous_blocks_for_hit`).
pub(crate) fn window_blocks(window: u32, block_size: u32, eagle: bool) -> u32 {
    (window - 1).div_ceil(block_size) + u32::from(eagle)
}

/// `int(watermark * num_blocks)`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is below the number of blocks, a u32, and not negative"
)]
fn watermark(engine: &Engine) -> u64 {
    (engine.watermark * f64::from(engine.num_blocks)) as u64
}
