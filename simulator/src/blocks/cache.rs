//! How a request's blocks are found, handed out, cached and given back over all groups.
//!
//! Source: `vllm/v1/core/kv_cache_manager.py` and `kv_cache_coordinator.py`, 0.32.

use super::block_pool::BlockPool;
use super::class::{Ask, Class, Copies, NULL, PLAIN, Table, UNTRACKED, free_table};
use super::state::StateContext;
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
    pub(super) retention: Option<u32>,
    num_blocks: u32,
    max_model_len: u32,
    watermark_blocks: u64,
    lookahead: u32,
    pub(super) copies: Copies,
    /// Slots of the requests that hold blocks, and where each of them stands here.
    pub(super) holders: Vec<u32>,
    places: Vec<u32>,
    /// Hits, a class each.
    pub(crate) hits: Vec<Vec<u32>>,
    /// New entries of the last allocation: groups of a class, blocks each got.
    pub(crate) new_blocks: Vec<(u32, u32)>,
    pub(super) mask: Vec<bool>,
}

impl Cache {
    /// Managers for `groups`; `apart` computes every group by itself.
    pub(crate) fn new(engine: &Engine, groups: &[Group], apart: bool) -> Result<Self, SetupError> {
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
        let (classes, weights) = Class::of(engine, groups, &flagged, apart);
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
            holders: Vec::new(),
            places: Vec::new(),
            new_blocks: Vec::new(),
            mask: Vec::new(),
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

    /// Makes room for request slot `slot` and gives it its tokens.
    pub(crate) fn admit(&mut self, slot: u32, prompt: &[Segment], output: u64) {
        let index = slot as usize;
        if index >= self.tables.len() {
            self.tables.resize_with(index + 1, Vec::new);
            self.tokens.resize_with(index + 1, Tokens::default);
            self.places.resize(index + 1, NULL);
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
        let pool = &self.pool;
        for (id, (class, table)) in (0_u32..).zip(self.classes.iter().zip(tables)) {
            let hits: &[u32] = if with_hits { &self.hits[id as usize] } else { &[] };
            total += match class.manager {
                Manager::State { .. } => class.state_needed(id, table, pool, ask, hits, tokens, context)?,
                Manager::Cross => {
                    let ask = Ask { total_computed: 0, local_computed: 0, ..*ask };
                    class.needed(id, table, pool, &ask, &[], view.encoder_tokens)
                }
                Manager::Ring => u64::from(table.entries.is_empty()) * pool.weight(id),
                _ => class.needed(id, table, pool, ask, hits, tokens),
            };
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
            let place = &mut self.places[view.slot as usize];
            if *place == NULL {
                *place = u32::try_from(self.holders.len()).unwrap_or(NULL);
                self.holders.push(view.slot);
            }
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
            for (id, table) in (0_u32..).zip(tables.iter_mut()) {
                self.adopt(id, table, local);
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

    /// Gives all blocks of a request back.
    pub(crate) fn free(&mut self, slot: u32) {
        let tables = &mut self.tables[slot as usize];
        for (id, table) in (0_u32..).zip(tables.iter_mut()) {
            free_table(id, table, &mut self.pool);
        }
        let place = std::mem::replace(&mut self.places[slot as usize], NULL);
        if place != NULL {
            self.holders.swap_remove(place as usize);
            if let Some(&moved) = self.holders.get(place as usize) {
                self.places[moved as usize] = place;
            }
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
                        PLAIN => held += u64::from(weight),
                        entry => {
                            for piece in self.pool.pieces(entry) {
                                let count = holders.entry(piece).or_default();
                                *count += 1;
                                if *count == 1 {
                                    held += u64::from(self.pool.width(piece));
                                }
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
