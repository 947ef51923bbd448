//! How the blocks of a hit come into a request's table, where not all groups have theirs in one slot.
//!
//! A prefix that was given up in some groups and computed again is found in two slots from then on: the new
//! one where the old is gone, the old one elsewhere. The first request that takes it up makes the two one again.

use super::cache::Cache;
use super::class::{PLAIN, Table};
use super::keys::Part;
use super::pieces::COMPOSITE;
use crate::group::Manager;

impl Cache {
    /// Puts the hits of class `id` into `table` and takes references to them.
    pub(super) fn adopt(&mut self, id: u32, table: &mut Table, computed: u32) {
        let class = &self.classes[id as usize];
        if class.manager == Manager::Ring {
            return;
        }
        let skipped = class.skipped_hits(computed);
        let mut hits = std::mem::take(&mut self.hits[id as usize]);
        let used = hits.get_mut(skipped as usize..).unwrap_or_default();
        for (index, hit) in (skipped as usize..).zip(used.iter_mut()) {
            if *hit < COMPOSITE {
                self.pool.touch(*hit);
            } else if *hit < PLAIN {
                *hit = self.adopt_parts(id, *hit, index);
            }
        }
        self.classes[id as usize].adopt(table, skipped, used, computed);
        hits.clear();
        self.hits[id as usize] = hits;
    }

    /// Makes the parts of a hit slots of their own, takes a reference to each, and unites those that nothing
    /// tells apart; gives the entry for the table.
    fn adopt_parts(&mut self, id: u32, hit: u32, index: usize) -> u32 {
        let mut parts = self.pool.parts_of(hit).to_vec();
        let mut pieces: Vec<u32> = Vec::with_capacity(parts.len());
        for number in 0..parts.len() {
            let Part { mut slot, lo, hi } = parts[number];
            let (from, to) = self.pool.extent(slot);
            let later = &mut parts[number + 1..];
            if from < lo {
                slot = self.cut(id, slot, lo, index, later);
            }
            if hi < to {
                self.cut(id, slot, hi, index, later);
            }
            self.pool.touch(slot);
            pieces.push(slot);
        }
        let mut entry: Vec<u32> = Vec::with_capacity(pieces.len());
        for slot in pieces {
            match entry.last() {
                Some(&last) if self.unite(id, last, slot, index) => {}
                _ => entry.push(slot),
            }
        }
        self.pool.composite(&entry)
    }

    /// Cuts a slot before group `at`, tells its holders and the `later` parts of the hit, and gives the second part.
    fn cut(&mut self, id: u32, slot: u32, at: u32, index: usize, later: &mut [Part]) -> u32 {
        let new = self.pool.cut(slot, at);
        for part in later {
            if part.slot == slot && part.lo >= at {
                part.slot = new;
            }
        }
        self.spread(id, slot, new, index);
        new
    }

    /// Puts `new` beside `slot` wherever it is held, most likely at `index` of the tables.
    fn spread(&mut self, id: u32, slot: u32, new: u32, index: usize) {
        let mut left = self.pool.refs(slot);
        if left == 0 {
            return;
        }
        for &holder in &self.holders {
            let Some(table) = self.tables[holder as usize].get_mut(id as usize) else { continue };
            let Some(&entry) = table.entries.get(index) else { continue };
            if let Some(entry) = self.pool.spread(entry, slot, new) {
                table.replace(index, entry);
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
        // A state that was saved inside a chunk does not lie where its tokens would.
        for &holder in &self.holders {
            let Some(table) = self.tables[holder as usize].get_mut(id as usize) else { continue };
            for place in (0..table.entries.len()).filter(|&place| place != index) {
                if let Some(entry) = self.pool.spread(table.entries[place], slot, new) {
                    table.replace(place, entry);
                }
            }
        }
        for (_, source, copy) in self.copies.iter_mut().filter(|copy| copy.0 == id) {
            for held in [source, copy] {
                if let Some(entry) = self.pool.spread(*held, slot, new) {
                    *held = entry;
                }
            }
        }
    }

    /// Makes neighbours of the hit that is taken up one, if all others that hold one hold both.
    fn unite(&mut self, id: u32, a: u32, b: u32, index: usize) -> bool {
        let others = self.pool.refs(a) - 1;
        if self.pool.refs(b) != others + 1 {
            return false;
        }
        let mut holding = Vec::new();
        if others > 0 {
            for &holder in &self.holders {
                let table = self.tables[holder as usize].get(id as usize);
                let entry = table.and_then(|table| table.entries.get(index));
                if entry.is_some_and(|&entry| self.pool.holds_both(entry, a, b)) {
                    holding.push(holder);
                }
            }
        }
        if holding.len() != others as usize || !self.pool.unite(a, b) {
            return false;
        }
        for holder in holding {
            let table = &mut self.tables[holder as usize][id as usize];
            let entry = self.pool.contract(table.entries[index], b);
            table.replace(index, entry);
        }
        true
    }
}
