//! Which blocks are free, and who holds the others.
//!
//! Blocks without a hash all behave alike, so they are counted, not named: vLLM puts them at the front
//! of its free queue and cached ones at the back, hence the queue is always "so many plain blocks, then
//! the cached ones, least recently freed first". A named block of a class of equal groups is one `Slot`
//! that stands for one block in each group of a range. It is cut only where the groups' blocks differ in who
//! holds them, in what they are found under or in when they are given up, and made one again when they do not.
//! Source: `vllm/v1/core/block_pool.py`, 0.32.

use super::index::Index;
use super::keys::{Entry, Part};
use super::queue::{Column, Run};

/// No slot, entry or run.
pub(crate) const NONE: u32 = u32::MAX;

/// A block in each of some neighbouring groups of a class, that has a hash or is held twice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) refs: u32,
    pub(super) class: u32,
    /// The groups it stands for, counted in the class: from `lo` (while it waits in the queue, from its run's
    /// `group` if that is more) to before `hi`.
    pub(super) lo: u32,
    pub(super) hi: u32,
    /// First key; it is the block's own hash, the others are partial ones beside it.
    pub(super) entry: u32,
    /// Tokens the first key covers.
    pub(super) tokens: u32,
    pub(super) run: u32,
    pub(super) prev: u32,
    pub(super) next: u32,
}

/// The pool.
#[derive(Debug, Clone)]
pub(crate) struct BlockPool {
    pub(super) plain_free: u64,
    pub(super) cached_free: u64,
    pub(super) slots: Vec<Slot>,
    pub(super) slots_unused: Vec<u32>,
    pub(super) entries: Vec<Entry>,
    pub(super) entries_unused: Vec<u32>,
    pub(super) index: Index,
    pub(super) runs: Vec<Run>,
    pub(super) runs_unused: Vec<u32>,
    pub(super) first_run: u32,
    pub(super) last_run: u32,
    /// Of runs whose slots stand for different groups.
    pub(super) columns: Vec<Vec<Column>>,
    pub(super) columns_unused: Vec<u32>,
    /// The slots of table entries that are more than one.
    pub(super) composites: Vec<Vec<u32>>,
    pub(super) composites_unused: Vec<u32>,
    /// What the present lookup has found in several slots: the first entry of each key, and where its parts lie
    /// once they have been looked up.
    pub(super) postponed: Vec<(u32, u32, u32)>,
    pub(super) parts: Vec<Part>,
    /// Kept to be used again.
    pub(super) extents: Vec<(u32, u32)>,
    /// Groups a class.
    pub(crate) weights: Vec<u32>,
    /// What tells a class's keys from another's.
    pub(super) salts: Vec<u64>,
}

pub(super) fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(NONE)
}

impl BlockPool {
    /// A pool of `num_blocks`, of which one is the null block.
    pub(crate) fn new(num_blocks: u32, weights: Vec<u32>) -> Self {
        let salts = (0..weights.len()).map(|class| super::tokens::mix(0x5EED, class as u64)).collect();
        Self {
            plain_free: u64::from(num_blocks) - 1,
            cached_free: 0,
            slots: Vec::new(),
            slots_unused: Vec::new(),
            entries: Vec::new(),
            entries_unused: Vec::new(),
            index: Index::new(),
            runs: Vec::new(),
            runs_unused: Vec::new(),
            first_run: NONE,
            last_run: NONE,
            columns: Vec::new(),
            columns_unused: Vec::new(),
            composites: Vec::new(),
            composites_unused: Vec::new(),
            postponed: Vec::new(),
            parts: Vec::new(),
            extents: Vec::new(),
            weights,
            salts,
        }
    }

    /// Blocks that can be handed out.
    pub(crate) fn free(&self) -> u64 {
        self.plain_free + self.cached_free
    }

    /// Groups of a class.
    pub(crate) fn weight(&self, class: u32) -> u64 {
        u64::from(self.weights[class as usize])
    }

    /// Hands out `count` blocks, giving up cached ones if need be; the caller has checked `free`.
    pub(crate) fn take(&mut self, count: u64) {
        let plain = count.min(self.plain_free);
        self.plain_free -= plain;
        let mut left = count - plain;
        while left > 0 && self.first_run != NONE {
            left -= self.evict(left);
        }
    }

    /// Gives back plain blocks, one a group of `class` each.
    pub(crate) fn release_plain(&mut self, class: u32, count: u32) {
        self.plain_free += self.weight(class) * u64::from(count);
    }

    /// Names plain blocks that are handed out (one a group of `class`), with `refs` holders.
    pub(crate) fn name(&mut self, class: u32, refs: u32) -> u32 {
        let hi = self.weights[class as usize];
        self.new_slot(Slot {
            refs,
            class,
            lo: 0,
            hi,
            entry: NONE,
            tokens: 0,
            run: NONE,
            prev: NONE,
            next: NONE,
        })
    }

    pub(super) fn new_slot(&mut self, slot: Slot) -> u32 {
        match self.slots_unused.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                number(self.slots.len() - 1)
            }
        }
    }

    /// Takes one more reference; a free block leaves the queue.
    pub(crate) fn touch(&mut self, slot: u32) {
        if self.slots[slot as usize].refs == 0 {
            self.leave(slot);
        }
        self.slots[slot as usize].refs += 1;
    }

    /// Gives one reference to a slot back; a block that nobody holds any more joins `run`, or the plain ones.
    pub(super) fn release_slot(&mut self, slot: u32, run: u32) {
        let s = &mut self.slots[slot as usize];
        s.refs -= 1;
        if s.refs == 0 {
            self.set_free(slot, run);
        }
    }

    /// Puts a slot that nobody holds to the free ones.
    pub(super) fn set_free(&mut self, slot: u32, run: u32) {
        let s = &self.slots[slot as usize];
        if s.entry == NONE {
            self.plain_free += u64::from(s.hi - s.lo);
            self.slots_unused.push(slot);
        } else {
            self.push(slot, run);
        }
    }

    /// Whether nobody holds the block.
    pub(crate) fn is_evictable(&self, slot: u32) -> bool {
        self.slots[slot as usize].refs == 0
    }

    /// Holders of the block.
    pub(crate) fn refs(&self, slot: u32) -> u32 {
        self.slots[slot as usize].refs
    }

    /// Groups that a held block stands for.
    pub(crate) fn width(&self, slot: u32) -> u32 {
        let s = &self.slots[slot as usize];
        s.hi - s.lo
    }
}
