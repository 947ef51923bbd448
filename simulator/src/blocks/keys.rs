//! Under which prefix hashes a block is found, and which block is found first.
//!
//! Source: `BlockHashToBlockMap` in `vllm/v1/core/block_pool.py`, 0.32: of several blocks under one key, the
//! first that came is given. A key here is the hash of a class; each group has the blocks of the chain that
//! stand for it, in the chain's order.

use super::block_pool::{BlockPool, NONE, Slot, number};
use super::pieces::COMPOSITE;

/// A key of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    key: u64,
    slot: u32,
    /// The next block under the same key, in the order they came.
    chain: u32,
    /// The slot's next key.
    other: u32,
    /// The chain's last entry, if this is its first.
    last: u32,
}

/// A slot that a lookup gives for some groups, counted in the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: u32,
    pub(crate) lo: u32,
    /// Exclusive.
    pub(crate) hi: u32,
}

impl BlockPool {
    /// The key of a prefix hash in a class.
    pub(crate) fn class_key(&self, class: u32, hash: u64) -> u64 {
        (hash ^ self.salts[class as usize]).max(1)
    }

    /// The groups that a slot stands for for certain: the one that is given up now is left out as long as the
    /// slots do not know whose block is gone.
    fn sure_extent(&self, slot: u32) -> (u32, u32) {
        let s = &self.slots[slot as usize];
        if s.refs > 0 { (s.lo, s.hi) } else { (s.lo.max(self.first_left(s.run)), s.hi) }
    }

    /// The groups that a slot stands for now.
    pub(super) fn extent(&mut self, slot: u32) -> (u32, u32) {
        let Slot { refs, run, .. } = self.slots[slot as usize];
        if refs == 0 {
            self.settle(run);
        }
        self.sure_extent(slot)
    }

    /// What a lookup of `key` gives if every group of the class has a block: a slot, or a number for what
    /// [`resolve`](Self::resolve) finds.
    pub(crate) fn find(&mut self, key: u64) -> Option<u32> {
        let head = self.index.get(key)?;
        let Entry { slot, chain, .. } = self.entries[head as usize];
        let whole = (0, self.weights[self.slots[slot as usize].class as usize]);
        if self.sure_extent(slot) == whole {
            return Some(slot);
        }
        if chain != NONE && self.is_covered(head, whole.1) {
            return Some(self.postpone(head));
        }
        // What is not sure may still be there.
        if self.extent(slot) == whole {
            return Some(slot);
        }
        if chain == NONE {
            return None;
        }
        let mut at = chain;
        while at != NONE {
            let Entry { slot, chain, .. } = self.entries[at as usize];
            self.extent(slot);
            at = chain;
        }
        if self.is_covered(head, whole.1) { Some(self.postpone(head)) } else { None }
    }

    /// Whether the blocks of a chain are surely enough for all `groups`.
    fn is_covered(&mut self, head: u32, groups: u32) -> bool {
        let mut extents = std::mem::take(&mut self.extents);
        extents.clear();
        let mut at = head;
        while at != NONE {
            let Entry { slot, chain, .. } = self.entries[at as usize];
            let extent = self.sure_extent(slot);
            if extent == (0, groups) {
                self.extents = extents;
                return true;
            }
            extents.push(extent);
            at = chain;
        }
        extents.sort_unstable();
        let end = extents.iter().fold(0, |end, &(lo, hi)| if lo <= end { end.max(hi) } else { end });
        self.extents = extents;
        end == groups
    }

    fn postpone(&mut self, head: u32) -> u32 {
        self.postponed.push((head, 0, 0));
        COMPOSITE + number(self.postponed.len() - 1)
    }

    /// Looks up which block each group has of what was [found](Self::find) in several slots.
    pub(crate) fn resolve(&mut self, found: u32) {
        let place = (found - COMPOSITE) as usize;
        let (head, ..) = self.postponed[place];
        let first = self.entries[head as usize].slot;
        let mut open = vec![(0, self.weights[self.slots[first as usize].class as usize])];
        let mut still_open = Vec::new();
        let start = self.parts.len();
        let mut at = head;
        while at != NONE && !open.is_empty() {
            let Entry { slot, chain, .. } = self.entries[at as usize];
            let (lo, hi) = self.extent(slot);
            for (from, to) in open.drain(..) {
                let (a, b) = (lo.max(from), hi.min(to));
                if a >= b {
                    still_open.push((from, to));
                    continue;
                }
                self.parts.push(Part { slot, lo: a, hi: b });
                if from < a {
                    still_open.push((from, a));
                }
                if b < to {
                    still_open.push((b, to));
                }
            }
            std::mem::swap(&mut open, &mut still_open);
            at = chain;
        }
        self.parts[start..].sort_unstable_by_key(|part| part.lo);
        self.postponed[place] = (head, number(start), number(self.parts.len()));
    }

    /// The parts that [`resolve`](Self::resolve) has found.
    pub(crate) fn parts_of(&self, found: u32) -> &[Part] {
        let (_, start, end) = self.postponed[(found - COMPOSITE) as usize];
        &self.parts[start as usize..end as usize]
    }

    /// Whether anything was found in several slots since this was last forgotten.
    pub(crate) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Forgets what earlier lookups found in several slots.
    pub(crate) fn forget_parts(&mut self) {
        self.parts.clear();
        self.postponed.clear();
    }

    /// Whether the block has a hash.
    pub(crate) fn is_cached(&self, slot: u32) -> bool {
        self.slots[slot as usize].entry != NONE
    }

    /// The block's own key.
    pub(crate) fn key(&self, slot: u32) -> Option<u64> {
        let entry = self.slots[slot as usize].entry;
        (entry != NONE).then(|| self.entries[entry as usize].key)
    }

    /// Tokens the block's own key covers.
    pub(crate) fn tokens(&self, slot: u32) -> u32 {
        self.slots[slot as usize].tokens
    }

    /// Whether `slot` is found under `key`.
    pub(crate) fn has_key(&self, slot: u32, key: u64) -> bool {
        let mut at = self.slots[slot as usize].entry;
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.key == key {
                return true;
            }
            at = entry.other;
        }
        false
    }

    fn new_entry(&mut self, entry: Entry) -> u32 {
        match self.entries_unused.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                number(self.entries.len() - 1)
            }
        }
    }

    /// Adds an entry behind the slot's others.
    fn append_entry(&mut self, slot: u32, id: u32) {
        let mut at = self.slots[slot as usize].entry;
        if at == NONE {
            self.slots[slot as usize].entry = id;
            return;
        }
        while self.entries[at as usize].other != NONE {
            at = self.entries[at as usize].other;
        }
        self.entries[at as usize].other = id;
    }

    /// Makes `slot` findable under `key`; the first key is its own and covers `tokens`.
    pub(crate) fn add_key(&mut self, slot: u32, key: u64, tokens: u32) {
        if self.has_key(slot, key) {
            return;
        }
        let id = self.new_entry(Entry { key, slot, chain: NONE, other: NONE, last: NONE });
        self.entries[id as usize].last = id;
        if self.slots[slot as usize].entry == NONE {
            self.slots[slot as usize].tokens = tokens;
        }
        self.append_entry(slot, id);
        match self.index.get(key) {
            None => self.index.set(key, id),
            Some(head) => {
                let last = std::mem::replace(&mut self.entries[head as usize].last, id);
                self.entries[last as usize].chain = id;
            }
        }
    }

    /// Takes an entry out of its chain and puts what is given, or what comes after it, in its place.
    fn rechain(&mut self, at: u32, successor: u32) {
        let key = self.entries[at as usize].key;
        let Some(head) = self.index.get(key) else { return };
        let last = self.entries[head as usize].last;
        if head == at {
            if successor == NONE {
                self.index.remove(key);
            } else {
                self.index.set(key, successor);
                self.entries[successor as usize].last = if last == at { successor } else { last };
            }
            return;
        }
        let mut before = head;
        while self.entries[before as usize].chain != at {
            before = self.entries[before as usize].chain;
        }
        self.entries[before as usize].chain = successor;
        if last == at {
            self.entries[head as usize].last = if successor == NONE { before } else { successor };
        }
    }

    /// Makes `slot` findable no more.
    pub(crate) fn forget_keys(&mut self, slot: u32) {
        let mut at = self.slots[slot as usize].entry;
        while at != NONE {
            let Entry { chain, other, .. } = self.entries[at as usize];
            self.rechain(at, chain);
            self.entries_unused.push(at);
            at = other;
        }
        let s = &mut self.slots[slot as usize];
        s.entry = NONE;
        s.tokens = 0;
    }

    /// Moves `from`'s keys to `to`, which has none.
    pub(super) fn move_keys(&mut self, from: u32, to: u32) {
        let tokens = self.slots[from as usize].tokens;
        let mut keys = Vec::new();
        let mut at = self.slots[from as usize].entry;
        while at != NONE {
            keys.push(self.entries[at as usize].key);
            at = self.entries[at as usize].other;
        }
        self.forget_keys(from);
        for key in keys {
            self.add_key(to, key, tokens);
        }
    }

    /// Gives `to`, which stands for other groups, the keys of `from`, each at the same place of its chain.
    pub(super) fn copy_keys(&mut self, from: u32, to: u32) {
        let mut at = self.slots[from as usize].entry;
        while at != NONE {
            let Entry { key, chain, other, .. } = self.entries[at as usize];
            let copy = self.new_entry(Entry { key, slot: to, chain, other: NONE, last: NONE });
            self.entries[at as usize].chain = copy;
            if chain == NONE
                && let Some(head) = self.index.get(key)
            {
                self.entries[head as usize].last = copy;
            }
            self.append_entry(to, copy);
            at = other;
        }
        self.slots[to as usize].tokens = self.slots[from as usize].tokens;
    }

    /// Gives `a` the place of both under every key and takes `b` off, if they have the same keys and the order of
    /// no group's blocks changes by it.
    pub(super) fn join_keys(&mut self, a: u32, b: u32) -> bool {
        if self.slots[a as usize].tokens != self.slots[b as usize].tokens {
            return false;
        }
        let mut joins = Vec::new();
        let (mut of_a, mut of_b) = (self.slots[a as usize].entry, self.slots[b as usize].entry);
        while of_a != NONE && of_b != NONE {
            if self.entries[of_a as usize].key != self.entries[of_b as usize].key {
                return false;
            }
            let Some(at_b) = self.common_place(of_a, of_b) else { return false };
            joins.push((of_a, of_b, at_b));
            of_a = self.entries[of_a as usize].other;
            of_b = self.entries[of_b as usize].other;
        }
        if of_a != of_b {
            return false;
        }
        for (of_a, of_b, at_b) in joins {
            if at_b {
                let chain = self.entries[of_a as usize].chain;
                self.rechain(of_a, chain);
                self.entries[of_a as usize].chain = self.entries[of_b as usize].chain;
                self.rechain(of_b, of_a);
            } else {
                let chain = self.entries[of_b as usize].chain;
                self.rechain(of_b, chain);
            }
            self.entries_unused.push(of_b);
        }
        self.slots[b as usize].entry = NONE;
        true
    }

    /// Whether two entries of one chain could both be where `b`'s is (`Some(true)`) or `a`'s.
    fn common_place(&self, a: u32, b: u32) -> Option<bool> {
        let groups = |entry: u32| {
            let slot = &self.slots[self.entries[entry as usize].slot as usize];
            (slot.lo, slot.hi)
        };
        let meet = |x: (u32, u32), y: (u32, u32)| x.0 < y.1 && y.0 < x.1;
        let mut at = self.index.get(self.entries[a as usize].key)?;
        let mut first = NONE;
        let (mut meets_a, mut meets_b) = (false, false);
        loop {
            if at == NONE {
                return None;
            }
            if at == a || at == b {
                if first != NONE {
                    break;
                }
                first = at;
            } else if first != NONE {
                meets_a |= meet(groups(at), groups(a));
                meets_b |= meet(groups(at), groups(b));
            }
            at = self.entries[at as usize].chain;
        }
        // The later one may come forward if it passes none of its own groups' blocks, the earlier one go back.
        let (first_may_move, second_may_move) =
            if first == a { (!meets_a, !meets_b) } else { (!meets_b, !meets_a) };
        if second_may_move {
            Some(first == b)
        } else if first_may_move {
            Some(first == a)
        } else {
            None
        }
    }
}
