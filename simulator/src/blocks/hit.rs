//! How long a prefix of a request is cached in every group.
//!
//! Source: `find_longest_cache_hit` of the coordinators and managers, vLLM 0.32.

use super::cache::{Cache, Lookup, window_blocks};
use super::class::{NULL, PLAIN};
use super::pieces::COMPOSITE;
use crate::group::Manager;

/// A hit: tokens found everywhere, and the longest hit of any one spec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) tokens: u32,
    /// Where a shared prefix ends that some group has not cached, or 0.
    pub(crate) shared_prefix_boundary: u32,
}

impl Cache {
    /// Fills `hits` with the blocks of the longest prefix found for a request of `tokens` tokens.
    pub(crate) fn find_longest_hit(&mut self, slot: u32, tokens: u32) -> Hit {
        for hits in &mut self.hits {
            hits.clear();
        }
        if !self.caching || tokens <= 1 {
            return Hit::default();
        }
        self.pool.forget_parts();
        let longest = tokens - 1;
        let lookups = std::mem::take(&mut self.lookups);
        let hit = if self.single
            && let Some(lookup) = lookups.first()
        {
            let tokens = self.find(lookup, slot, longest, tokens, self.any_eagle, lookup.block_size);
            Hit { tokens, shared_prefix_boundary: 0 }
        } else {
            self.converge(&lookups, slot, longest, tokens)
        };
        self.lookups = lookups;
        if self.pool.has_postponed() {
            for hits in &self.hits {
                for &found in hits.iter().filter(|&&found| (COMPOSITE..PLAIN).contains(&found)) {
                    self.pool.resolve(found);
                }
            }
        }
        hit
    }

    fn converge(&mut self, lookups: &[Lookup], slot: u32, longest: u32, tokens: u32) -> Hit {
        for hits in &mut self.hits {
            hits.clear();
        }
        let hashed = tokens / self.sizes.hash * self.sizes.hash;
        let alignment = self.alignment();
        let simple = lookups.len() == 2 && lookups[0].manager.is_full();
        let mut hit = longest;
        let mut deepest = 0;
        let mut found: Vec<Option<u32>> = vec![None; lookups.len()];
        let mut verified = vec![false; lookups.len()];
        loop {
            let mut current = hit;
            for (index, lookup) in lookups.iter().enumerate() {
                if lookup.manager.is_full()
                    && let Some(length) = found[index]
                {
                    current = current.min(length);
                    continue;
                }
                let drop = lookup.eagle && !verified[index];
                let mut limit = current;
                if drop && !lookup.manager.is_state() {
                    let fine = self.sizes.partial_hits
                        && lookup.manager.finds_inside_blocks()
                        && lookup.block_size > self.sizes.hash;
                    let margin = if fine { self.sizes.hash } else { lookup.block_size };
                    limit = (current + margin).min(hashed);
                }
                let length = self.find(lookup, slot, limit, tokens, drop, alignment);
                if drop {
                    verified[index] = true;
                } else if length < current {
                    verified.fill(false);
                }
                current = length;
                found[index] = Some(length);
                deepest = deepest.max(current);
            }
            if current >= hit {
                break;
            }
            hit = current;
            if simple {
                break;
            }
        }
        for lookup in lookups.iter().filter(|lookup| lookup.manager.is_full()) {
            for &class in &lookup.classes {
                self.hits[class as usize].truncate(hit.div_ceil(lookup.block_size) as usize);
            }
        }
        let shared_prefix_boundary = if deepest > hit { deepest } else { 0 };
        Hit { tokens: hit, shared_prefix_boundary }
    }

    /// The longest hit of one spec, at most `limit` tokens; its blocks go to `hits`.
    fn find(
        &mut self,
        lookup: &Lookup,
        slot: u32,
        limit: u32,
        tokens: u32,
        drop: bool,
        alignment: u32,
    ) -> u32 {
        for &class in &lookup.classes {
            self.hits[class as usize].clear();
        }
        match lookup.manager {
            Manager::Full => self.find_full(lookup, slot, limit, tokens, drop, alignment),
            Manager::SlidingWindow { window, .. } => {
                self.find_window(lookup, slot, limit, window, drop, alignment)
            }
            Manager::ChunkedLocal { chunk } => self.find_chunk(lookup, slot, limit, chunk),
            Manager::State { .. } => self.find_state(lookup, slot, limit, tokens, alignment),
            Manager::Cross | Manager::Ring => 0,
        }
    }

    /// Looks the block that ends with hash `unit` up in all classes; pushes it to `hits` if all have it.
    fn probe(&mut self, lookup: &Lookup, slot: u32, unit: u32) -> bool {
        let hash = self.tokens[slot as usize].hash(unit, self.sizes.hash);
        for (place, &class) in lookup.classes.iter().enumerate() {
            let key = self.pool.class_key(class, hash);
            let Some(found) = self.pool.find(key) else {
                for &class in &lookup.classes[..place] {
                    self.hits[class as usize].pop();
                }
                return false;
            };
            self.hits[class as usize].push(found);
        }
        true
    }

    fn trim(&mut self, lookup: &Lookup, blocks: u32) {
        for &class in &lookup.classes {
            self.hits[class as usize].truncate(blocks as usize);
        }
    }

    fn find_full(
        &mut self,
        lookup: &Lookup,
        slot: u32,
        limit: u32,
        tokens: u32,
        drop: bool,
        alignment: u32,
    ) -> u32 {
        let block_size = lookup.block_size;
        let scale = block_size / self.sizes.hash;
        let fine = alignment < block_size && block_size.is_multiple_of(alignment);
        let mut blocks = 0;
        while blocks < (limit / block_size).min(tokens / block_size) {
            if !self.probe(lookup, slot, (blocks + 1) * scale - 1) {
                break;
            }
            blocks += 1;
        }
        let mut length = blocks * block_size;
        if fine {
            let first = blocks * scale;
            let last = (first + scale - 1).min(limit / alignment).min(tokens / self.sizes.hash);
            for unit in (first..last).rev() {
                if self.probe(lookup, slot, unit) {
                    length = (unit + 1) * alignment;
                    break;
                }
            }
        }
        if drop && length > 0 {
            length -= alignment.min(block_size);
        }
        length -= length % alignment;
        self.trim(lookup, length.div_ceil(block_size));
        length
    }

    fn find_window(
        &mut self,
        lookup: &Lookup,
        slot: u32,
        limit: u32,
        window: u32,
        drop: bool,
        alignment: u32,
    ) -> u32 {
        let block_size = lookup.block_size;
        let scale = block_size / self.sizes.hash;
        let need = window_blocks(window, block_size, drop);
        let most = limit / block_size;
        // Found right to left; `hits` is turned round at the end.
        let mut run = 0_u32;
        let mut blocks = 0;
        let mut matched = false;
        for index in (0..most).rev() {
            if self.probe(lookup, slot, (index + 1) * scale - 1) {
                if run == 0 && block_size != alignment {
                    let end = if drop { index } else { index + 1 };
                    if !(end * block_size).is_multiple_of(alignment) {
                        self.unpush(lookup);
                        continue;
                    }
                }
                run += 1;
                if run >= need {
                    blocks = index + run;
                    matched = true;
                    break;
                }
            } else {
                run = 0;
                for &class in &lookup.classes {
                    self.hits[class as usize].clear();
                }
            }
        }
        for &class in &lookup.classes {
            let hits = &mut self.hits[class as usize];
            hits.reverse();
            if matched {
                hits.splice(0..0, std::iter::repeat_n(NULL, (blocks - run) as usize));
            }
        }
        if !matched {
            // What is left is the prefix's own start.
            blocks = run;
            while block_size != alignment && !(blocks * block_size).is_multiple_of(alignment) {
                blocks -= 1;
            }
        }
        if drop && blocks > 0 {
            blocks -= 1;
            while block_size != alignment && !(blocks * block_size).is_multiple_of(alignment) {
                blocks -= 1;
            }
        }
        self.trim(lookup, blocks);
        blocks * block_size
    }

    fn unpush(&mut self, lookup: &Lookup) {
        for &class in &lookup.classes {
            self.hits[class as usize].pop();
        }
    }

    fn find_chunk(&mut self, lookup: &Lookup, slot: u32, limit: u32, chunk: u32) -> u32 {
        let block_size = lookup.block_size;
        let scale = block_size / self.sizes.hash;
        let start = limit / chunk * chunk / block_size;
        for &class in &lookup.classes {
            self.hits[class as usize].resize(start as usize, NULL);
        }
        let mut blocks = start;
        while blocks < limit / block_size && self.probe(lookup, slot, (blocks + 1) * scale - 1) {
            blocks += 1;
        }
        blocks * block_size
    }

    fn find_state(&mut self, lookup: &Lookup, slot: u32, limit: u32, tokens: u32, alignment: u32) -> u32 {
        let block_size = lookup.block_size;
        let scale = block_size / self.sizes.hash;
        if alignment < block_size && block_size.is_multiple_of(alignment) {
            let most = (limit / alignment).min(tokens / self.sizes.hash);
            for unit in (0..most).rev() {
                if self.probe(lookup, slot, unit) {
                    self.pad(lookup, unit / scale);
                    return (unit + 1) * alignment;
                }
            }
            return 0;
        }
        for index in (0..limit / block_size).rev() {
            if self.probe(lookup, slot, (index + 1) * scale - 1) {
                if block_size != alignment && !((index + 1) * block_size).is_multiple_of(alignment) {
                    self.unpush(lookup);
                    continue;
                }
                self.pad(lookup, index);
                return (index + 1) * block_size;
            }
        }
        0
    }

    /// Null blocks before the one that was found.
    fn pad(&mut self, lookup: &Lookup, blocks: u32) {
        for &class in &lookup.classes {
            self.hits[class as usize].splice(0..0, std::iter::repeat_n(NULL, blocks as usize));
        }
    }
}
