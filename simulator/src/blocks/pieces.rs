//! How a block that stands for many groups is cut where they differ, and made one again.
//!
//! An entry of a request's table is a slot, or a composite: the slots that have the request's block of some
//! groups each. Whoever cuts or unites a slot that is held tells the tables of its holders.

use super::block_pool::{BlockPool, NONE, Slot, number};
use super::class::PLAIN;

/// Entries from here on, up to `PLAIN`, are composites.
pub(crate) const COMPOSITE: u32 = 1 << 31;

impl BlockPool {
    /// The slots of an entry, one after the other.
    pub(crate) fn piece(&self, entry: u32, number: usize) -> Option<u32> {
        if entry < COMPOSITE {
            return (number == 0).then_some(entry);
        }
        if entry >= PLAIN {
            return None;
        }
        self.composites[(entry - COMPOSITE) as usize].get(number).copied()
    }

    /// All slots of an entry.
    pub(crate) fn pieces(&self, entry: u32) -> impl Iterator<Item = u32> {
        (0..).map_while(move |number| self.piece(entry, number))
    }

    /// An entry of these slots.
    pub(crate) fn composite(&mut self, pieces: &[u32]) -> u32 {
        if let [slot] = *pieces {
            return slot;
        }
        let id = self.composites_unused.pop().unwrap_or_else(|| {
            self.composites.push(Vec::new());
            number(self.composites.len() - 1)
        });
        self.composites[id as usize].extend_from_slice(pieces);
        COMPOSITE + id
    }

    fn forget_composite(&mut self, entry: u32) {
        let id = entry - COMPOSITE;
        self.composites[id as usize].clear();
        self.composites_unused.push(id);
    }

    /// Adds `new` behind `slot` to an entry that has it; `None` if it does not.
    pub(crate) fn spread(&mut self, entry: u32, slot: u32, new: u32) -> Option<u32> {
        if entry < COMPOSITE {
            return (entry == slot).then(|| self.composite(&[slot, new]));
        }
        if entry >= PLAIN {
            return None;
        }
        let pieces = &mut self.composites[(entry - COMPOSITE) as usize];
        let place = pieces.iter().position(|&other| other == slot)?;
        pieces.insert(place + 1, new);
        Some(entry)
    }

    /// Whether `b` follows `a` in an entry.
    pub(crate) fn holds_both(&self, entry: u32, a: u32, b: u32) -> bool {
        (COMPOSITE..PLAIN).contains(&entry)
            && self.composites[(entry - COMPOSITE) as usize].windows(2).any(|pair| pair == [a, b])
    }

    /// Takes `gone` out of an entry that has it and another.
    pub(crate) fn contract(&mut self, entry: u32, gone: u32) -> u32 {
        let pieces = &mut self.composites[(entry - COMPOSITE) as usize];
        pieces.retain(|&other| other != gone);
        if let [slot] = pieces[..] {
            self.forget_composite(entry);
            return slot;
        }
        entry
    }

    /// Takes one more reference to all of an entry, and gives an entry for the holder.
    pub(crate) fn hold(&mut self, entry: u32) -> u32 {
        let pieces: Vec<u32> = self.pieces(entry).collect();
        for &slot in &pieces {
            self.slots[slot as usize].refs += 1;
        }
        self.composite(&pieces)
    }

    /// Gives one reference to all of an entry back; what nobody holds any more joins `run`, or the plain blocks.
    pub(crate) fn release(&mut self, entry: u32, run: u32) {
        if entry < COMPOSITE {
            self.release_slot(entry, run);
            return;
        }
        let pieces = std::mem::take(&mut self.composites[(entry - COMPOSITE) as usize]);
        let mut last = NONE;
        for &slot in &pieces {
            let s = &mut self.slots[slot as usize];
            s.refs -= 1;
            if s.refs > 0 || (last != NONE && self.unite(last, slot)) {
                continue;
            }
            if last != NONE {
                self.set_free(last, run);
            }
            last = slot;
        }
        if last != NONE {
            self.set_free(last, run);
        }
        self.composites[(entry - COMPOSITE) as usize] = pieces;
        self.forget_composite(entry);
    }

    /// Cuts a slot before group `at` of its class and gives the part from there on.
    pub(crate) fn cut(&mut self, slot: u32, at: u32) -> u32 {
        let s = self.slots[slot as usize];
        if s.refs == 0 {
            self.settle(s.run);
            self.count_columns(s.run);
        }
        let new =
            self.new_slot(Slot { lo: at.max(s.lo), entry: NONE, run: NONE, prev: NONE, next: NONE, ..s });
        self.slots[slot as usize].hi = at;
        self.copy_keys(slot, new);
        if s.refs == 0 {
            self.link_behind(slot, new, at);
        }
        new
    }

    /// Makes two slots that nobody waits for in the queue one, which is `a`, if nothing tells their groups apart;
    /// the caller has seen that those who hold one hold the other.
    pub(crate) fn unite(&mut self, a: u32, b: u32) -> bool {
        let (left, right) = (self.slots[a as usize], self.slots[b as usize]);
        if left.refs != right.refs || left.hi != right.lo || !self.join_keys(a, b) {
            return false;
        }
        self.slots[a as usize].hi = right.hi;
        self.slots_unused.push(b);
        true
    }

    /// Names a block that is handed out and moves the keys of `source` to it; it has one holder.
    pub(crate) fn name_copy(&mut self, class: u32, source: u32) -> u32 {
        if source < COMPOSITE {
            let copy = self.name(class, 1);
            self.move_keys(source, copy);
            return copy;
        }
        let pieces: Vec<u32> = self.pieces(source).collect();
        let mut copies: Vec<u32> = Vec::with_capacity(pieces.len());
        for slot in pieces {
            let copy = self.name(class, 1);
            let Slot { lo, hi, .. } = self.slots[slot as usize];
            (self.slots[copy as usize].lo, self.slots[copy as usize].hi) = (lo, hi);
            self.move_keys(slot, copy);
            match copies.last() {
                Some(&last) if self.unite(last, copy) => {}
                _ => copies.push(copy),
            }
        }
        self.composite(&copies)
    }

    /// Makes an entry findable under `key` only, which covers `tokens`.
    pub(crate) fn cache(&mut self, entry: u32, key: u64, tokens: u32) {
        let mut number = 0;
        while let Some(slot) = self.piece(entry, number) {
            if self.is_cached(slot) {
                self.forget_keys(slot);
            }
            self.add_key(slot, key, tokens);
            number += 1;
        }
    }
}
