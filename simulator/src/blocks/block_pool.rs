//! Which blocks are free, and in what order cached ones are given up.
//!
//! Blocks without a hash all behave alike, so they are counted, not named: vLLM puts them at the front
//! of its free queue and cached ones at the back, hence the queue is always "so many plain blocks, then
//! the cached ones, least recently freed first". A cached block of a class of equal groups is one `Slot`
//! that stands for one block a group.
//! Source: `vllm/v1/core/block_pool.py`, 0.32.

use super::index::Index;

/// No slot, entry or run.
pub(crate) const NONE: u32 = u32::MAX;

/// A block (one a group of its class) that has a hash, or is held twice.
#[derive(Debug, Clone, Copy)]
struct Slot {
    refs: u32,
    class: u32,
    /// First key; it is the block's own hash, the others are partial ones beside it.
    entry: u32,
    /// Tokens the first key covers.
    tokens: u32,
    run: u32,
    prev: u32,
    next: u32,
    /// The blocks of the first groups are gone already.
    partial: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    slot: u32,
    /// The next block under the same key, in the order they came.
    chain: u32,
    /// The slot's next key.
    other: u32,
}

/// Slots that were freed together, evicted group by group.
#[derive(Debug, Clone, Copy)]
struct Run {
    class: u32,
    first: u32,
    last: u32,
    len: u32,
    /// The group that is given up now.
    group: u32,
    /// Blocks of that group that are gone, while it is neither the first nor the last.
    taken: u32,
    /// The next slot of the first or last group.
    cursor: u32,
    prev: u32,
    next: u32,
}

/// The answer to a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No block in at least one group.
    Miss,
    /// This slot.
    Slot(u32),
    /// Groups from this one on have an older block than those before it: the class must be split here.
    Mixed(u32),
}

/// The pool.
#[derive(Debug, Clone)]
pub(crate) struct BlockPool {
    plain_free: u64,
    cached_free: u64,
    slots: Vec<Slot>,
    slots_unused: Vec<u32>,
    entries: Vec<Entry>,
    entries_unused: Vec<u32>,
    runs: Vec<Run>,
    runs_unused: Vec<u32>,
    first_run: u32,
    last_run: u32,
    index: Index,
    /// Groups a class.
    pub(crate) weights: Vec<u32>,
    /// What tells a class's keys from another's.
    pub(crate) salts: Vec<u64>,
}

fn number(length: usize) -> u32 {
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
            runs: Vec::new(),
            runs_unused: Vec::new(),
            first_run: NONE,
            last_run: NONE,
            index: Index::new(),
            weights,
            salts,
        }
    }

    /// Blocks that can be handed out.
    pub(crate) fn free(&self) -> u64 {
        self.plain_free + self.cached_free
    }

    fn weight(&self, class: u32) -> u64 {
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

    /// Gives up at most `limit` blocks of the oldest run and says how many.
    fn evict(&mut self, limit: u64) -> u64 {
        let id = self.first_run;
        let mut run = self.runs[id as usize];
        let last_group = self.weights[run.class as usize] - 1;
        let mut left = limit;
        while left > 0 {
            if run.group == last_group {
                let slot = run.cursor;
                let next = self.slots[slot as usize].next;
                self.forget_keys(slot);
                self.slots_unused.push(slot);
                run.first = next;
                run.cursor = next;
                run.len -= 1;
                left -= 1;
                if run.len == 0 {
                    break;
                }
                self.slots[next as usize].prev = NONE;
            } else if run.group == 0 {
                let slot = &mut self.slots[run.cursor as usize];
                slot.partial = true;
                run.cursor = slot.next;
                left -= 1;
                if run.cursor == NONE {
                    run.group = 1;
                    run.taken = 0;
                    run.cursor = run.first;
                }
            } else {
                if run.taken == 0 {
                    let whole = (left / u64::from(run.len)).min(u64::from(last_group - run.group));
                    left -= whole * u64::from(run.len);
                    run.group += u32::try_from(whole).unwrap_or(0);
                    if run.group == last_group {
                        continue;
                    }
                }
                let count = left.min(u64::from(run.len - run.taken));
                run.taken += u32::try_from(count).unwrap_or(0);
                left -= count;
                if run.taken == run.len {
                    run.taken = 0;
                    run.group += 1;
                }
            }
        }
        self.runs[id as usize] = run;
        if run.len == 0 {
            self.drop_run(id);
        }
        self.cached_free -= limit - left;
        limit - left
    }

    fn drop_run(&mut self, id: u32) {
        let Run { prev, next, .. } = self.runs[id as usize];
        if prev == NONE {
            self.first_run = next;
        } else {
            self.runs[prev as usize].next = next;
        }
        if next == NONE {
            self.last_run = prev;
        } else {
            self.runs[next as usize].prev = prev;
        }
        self.runs_unused.push(id);
    }

    /// Starts a run at the end of the queue; it must get a slot or be closed.
    pub(crate) fn open_run(&mut self, class: u32) -> u32 {
        let run = Run {
            class,
            first: NONE,
            last: NONE,
            len: 0,
            group: 0,
            taken: 0,
            cursor: NONE,
            prev: self.last_run,
            next: NONE,
        };
        let id = match self.runs_unused.pop() {
            Some(id) => {
                self.runs[id as usize] = run;
                id
            }
            None => {
                self.runs.push(run);
                number(self.runs.len() - 1)
            }
        };
        if self.last_run == NONE {
            self.first_run = id;
        } else {
            self.runs[self.last_run as usize].next = id;
        }
        self.last_run = id;
        id
    }

    /// Drops the run again if nothing went into it.
    pub(crate) fn close_run(&mut self, id: u32) {
        if self.runs[id as usize].len == 0 {
            self.drop_run(id);
        }
    }

    /// Gives one reference back; a block that nobody holds any more joins `run`, or the plain ones.
    pub(crate) fn release(&mut self, slot: u32, run: u32) {
        let s = &mut self.slots[slot as usize];
        s.refs -= 1;
        if s.refs > 0 {
            return;
        }
        let weight = u64::from(self.weights[s.class as usize]);
        if s.entry == NONE {
            self.slots_unused.push(slot);
            self.plain_free += weight;
            return;
        }
        s.run = run;
        s.next = NONE;
        let r = &mut self.runs[run as usize];
        s.prev = r.last;
        let prev = r.last;
        r.last = slot;
        r.len += 1;
        if prev == NONE {
            r.first = slot;
            r.cursor = slot;
        } else {
            self.slots[prev as usize].next = slot;
        }
        self.cached_free += weight;
    }

    /// Gives back plain blocks, one a group of `class` each.
    pub(crate) fn release_plain(&mut self, class: u32, count: u32) {
        self.plain_free += self.weight(class) * u64::from(count);
    }

    /// Takes one more reference; a free block leaves the queue.
    pub(crate) fn touch(&mut self, slot: u32) {
        let s = self.slots[slot as usize];
        if s.refs == 0 {
            let r = &mut self.runs[s.run as usize];
            r.len -= 1;
            if r.cursor == slot {
                r.cursor = s.next;
            }
            if s.prev == NONE {
                r.first = s.next;
            }
            if s.next == NONE {
                r.last = s.prev;
            }
            if r.len > 0 && r.cursor == NONE {
                // The first group is through: the slots left are those it gave up before.
                r.group = 1;
                r.taken = 0;
                r.cursor = r.first;
            }
            let empty = r.len == 0;
            if s.prev != NONE {
                self.slots[s.prev as usize].next = s.next;
            }
            if s.next != NONE {
                self.slots[s.next as usize].prev = s.prev;
            }
            if empty {
                self.drop_run(s.run);
            }
            self.cached_free -= self.weight(s.class);
        }
        self.slots[slot as usize].refs += 1;
    }

    /// Takes one more reference to a block that is held.
    pub(crate) fn hold(&mut self, slot: u32) {
        self.slots[slot as usize].refs += 1;
    }

    /// Names plain blocks that are handed out (one a group of `class`), with `refs` holders.
    pub(crate) fn name(&mut self, class: u32, refs: u32) -> u32 {
        let slot =
            Slot { refs, class, entry: NONE, tokens: 0, run: NONE, prev: NONE, next: NONE, partial: false };
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

    /// Whether nobody holds the block.
    pub(crate) fn is_evictable(&self, slot: u32) -> bool {
        self.slots[slot as usize].refs == 0
    }

    /// Whether the block has a hash.
    pub(crate) fn is_cached(&self, slot: u32) -> bool {
        self.slots[slot as usize].entry != NONE
    }

    /// Holders of the block.
    pub(crate) fn refs(&self, slot: u32) -> u32 {
        self.slots[slot as usize].refs
    }

    /// Groups that the block stands for.
    pub(crate) fn weight_of(&self, slot: u32) -> u32 {
        self.weights[self.slots[slot as usize].class as usize]
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

    /// The key of a prefix hash in a class.
    pub(crate) fn class_key(&self, class: u32, hash: u64) -> u64 {
        (hash ^ self.salts[class as usize]).max(1)
    }

    /// The block that a lookup of `key` gives.
    pub(crate) fn find(&self, key: u64) -> Found {
        let Some(entry) = self.index.get(key) else { return Found::Miss };
        let first = self.entries[entry as usize];
        let slot = &self.slots[first.slot as usize];
        if !slot.partial {
            return Found::Slot(first.slot);
        }
        // Only the oldest run is partly gone, so a second block of the key is whole.
        if first.chain == NONE {
            return Found::Miss;
        }
        let run = &self.runs[slot.run as usize];
        let gone = if run.group == 0 {
            1
        } else if self.is_passed(first.slot, run) {
            run.group + 1
        } else {
            run.group
        };
        Found::Mixed(gone)
    }

    /// Whether the run's present group has given up its block of `slot`.
    fn is_passed(&self, slot: u32, run: &Run) -> bool {
        if run.group == 0 || self.weights[run.class as usize] == run.group + 1 {
            // In the last group a slot that is passed is gone altogether.
            return run.group == 0 && self.slots[slot as usize].partial;
        }
        let (mut at, mut left) = (run.first, run.taken);
        while left > 0 && at != NONE {
            if at == slot {
                return true;
            }
            at = self.slots[at as usize].next;
            left -= 1;
        }
        false
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

    /// Makes `slot` findable under `key`; the first key is its own and covers `tokens`.
    pub(crate) fn add_key(&mut self, slot: u32, key: u64, tokens: u32) {
        if self.has_key(slot, key) {
            return;
        }
        let entry = Entry { key, slot, chain: NONE, other: NONE };
        let id = match self.entries_unused.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                number(self.entries.len() - 1)
            }
        };
        let s = &mut self.slots[slot as usize];
        if s.entry == NONE {
            s.entry = id;
            s.tokens = tokens;
        } else {
            let mut at = s.entry;
            while self.entries[at as usize].other != NONE {
                at = self.entries[at as usize].other;
            }
            self.entries[at as usize].other = id;
        }
        match self.index.get(key) {
            None => self.index.set(key, id),
            Some(mut at) => {
                while self.entries[at as usize].chain != NONE {
                    at = self.entries[at as usize].chain;
                }
                self.entries[at as usize].chain = id;
            }
        }
    }

    /// Makes `slot` findable no more.
    pub(crate) fn forget_keys(&mut self, slot: u32) {
        let mut at = self.slots[slot as usize].entry;
        while at != NONE {
            let entry = self.entries[at as usize];
            if let Some(head) = self.index.get(entry.key) {
                if head == at {
                    if entry.chain == NONE {
                        self.index.remove(entry.key);
                    } else {
                        self.index.set(entry.key, entry.chain);
                    }
                } else {
                    let mut before = head;
                    while self.entries[before as usize].chain != at {
                        before = self.entries[before as usize].chain;
                    }
                    self.entries[before as usize].chain = entry.chain;
                }
            }
            self.entries_unused.push(at);
            at = entry.other;
        }
        let s = &mut self.slots[slot as usize];
        s.entry = NONE;
        s.tokens = 0;
    }

    /// Moves `from`'s keys to `to`, which has none.
    pub(crate) fn move_keys(&mut self, from: u32, to: u32) {
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

    /// Splits `class` before its group `at`: the groups from there on become class `class + 1` with slots
    /// of their own. Gives, for each slot, its counterpart (`NONE` for slots of other classes).
    ///
    /// Later classes are renumbered here; the caller renumbers what it holds.
    pub(crate) fn split(&mut self, class: u32, at: u32) -> Vec<u32> {
        let index = class as usize;
        for slot in &mut self.slots {
            if slot.class > class {
                slot.class += 1;
            }
        }
        for run in &mut self.runs {
            if run.class > class {
                run.class += 1;
            }
        }
        let weight = self.weights[index];
        self.weights[index] = at;
        self.weights.insert(index + 1, weight - at);
        let fresh = super::tokens::mix(self.salts[index], u64::from(at) + 1);
        self.salts.insert(index + 1, fresh);

        let before = self.slots.len();
        let mut unused = vec![false; before];
        for &slot in &self.slots_unused {
            unused[slot as usize] = true;
        }
        let mut twin = vec![NONE; before];
        for old in 0..before {
            if self.slots[old].class == class && !unused[old] {
                let refs = self.slots[old].refs;
                twin[old] = self.name(class + 1, refs);
            }
        }
        self.copy_keys(class, &twin, &unused);
        let mut id = self.first_run;
        while id != NONE {
            let next = self.runs[id as usize].next;
            if self.runs[id as usize].class == class {
                self.split_run(id, at, &twin);
            }
            id = next;
        }
        twin
    }

    /// Gives the counterparts the keys of their slots, block order under a key kept.
    fn copy_keys(&mut self, class: u32, twin: &[u32], unused: &[bool]) {
        let change = self.salts[class as usize] ^ self.salts[class as usize + 1];
        for (old, &new) in twin.iter().enumerate() {
            if new == NONE || unused[old] {
                continue;
            }
            let mut at = self.slots[old].entry;
            while at != NONE {
                let Entry { key, other, .. } = self.entries[at as usize];
                // The head of a chain brings the whole chain, so that the order holds.
                if self.index.get(key) == Some(at) {
                    let mut member = at;
                    while member != NONE {
                        let Entry { slot, chain, .. } = self.entries[member as usize];
                        let tokens = self.slots[slot as usize].tokens;
                        self.add_key(twin[slot as usize], (key ^ change).max(1), tokens);
                        member = chain;
                    }
                }
                at = other;
            }
        }
        // A slot's own key comes first whatever order the chains were copied in.
        for (old, &new) in twin.iter().enumerate() {
            if new == NONE || self.slots[old].entry == NONE {
                continue;
            }
            let own = (self.entries[self.slots[old].entry as usize].key ^ change).max(1);
            self.lead_with(new, own);
            self.slots[new as usize].tokens = self.slots[old].tokens;
        }
    }

    fn lead_with(&mut self, slot: u32, key: u64) {
        let (mut before, mut at) = (NONE, self.slots[slot as usize].entry);
        while at != NONE && self.entries[at as usize].key != key {
            before = at;
            at = self.entries[at as usize].other;
        }
        if at == NONE || before == NONE {
            return;
        }
        self.entries[before as usize].other = self.entries[at as usize].other;
        self.entries[at as usize].other = self.slots[slot as usize].entry;
        self.slots[slot as usize].entry = at;
    }

    /// Cuts a run of the split class into the part before group `at` and the part from it on.
    fn split_run(&mut self, id: u32, at: u32, twin: &[u32]) {
        let run = self.runs[id as usize];
        let (mut order, mut slot) = (Vec::new(), run.first);
        while slot != NONE {
            order.push(slot);
            slot = self.slots[slot as usize].next;
        }
        let passed = if run.group == 0
            || run.group == self.weights[run.class as usize] + self.weights[run.class as usize + 1] - 1
        {
            order.iter().position(|&slot| slot == run.cursor).unwrap_or(order.len())
        } else {
            run.taken as usize
        };
        // The second part, right behind the first.
        let second = self.open_run(run.class + 1);
        self.drop_run(second);
        self.runs_unused.pop();
        let after = self.runs[id as usize].next;
        self.runs[second as usize].prev = id;
        self.runs[second as usize].next = after;
        self.runs[id as usize].next = second;
        if after == NONE {
            self.last_run = second;
        } else {
            self.runs[after as usize].prev = second;
        }
        let (first_weight, second_weight) =
            (self.weights[run.class as usize], self.weights[run.class as usize + 1]);
        let (group_a, passed_a, group_b, passed_b) = if run.group < at {
            (run.group, passed, 0, 0)
        } else {
            (first_weight, 0, run.group - at, passed)
        };
        let twins: Vec<u32> = order.iter().map(|&slot| twin[slot as usize]).collect();
        self.lay_run(id, &order, group_a, passed_a, first_weight);
        self.lay_run(second, &twins, group_b, passed_b, second_weight);
    }

    /// Lays `order` out as a run of which whole `group`s and `passed` slots of the next are gone.
    fn lay_run(&mut self, id: u32, order: &[u32], group: u32, passed: usize, weight: u32) {
        let last_group = group + 1 >= weight;
        let mut kept: Vec<u32> = Vec::with_capacity(order.len());
        for (place, &slot) in order.iter().enumerate() {
            let dead = group >= weight || (last_group && place < passed);
            if dead {
                self.forget_keys(slot);
                self.slots_unused.push(slot);
            } else {
                self.slots[slot as usize].partial = group > 0 || place < passed;
                kept.push(slot);
            }
        }
        for (place, &slot) in kept.iter().enumerate() {
            let s = &mut self.slots[slot as usize];
            s.run = id;
            s.prev = if place == 0 { NONE } else { kept[place - 1] };
            s.next = kept.get(place + 1).copied().unwrap_or(NONE);
        }
        let first = kept.first().copied().unwrap_or(NONE);
        let run = &mut self.runs[id as usize];
        run.first = first;
        run.last = kept.last().copied().unwrap_or(NONE);
        run.len = number(kept.len());
        run.group = group;
        run.taken = 0;
        run.cursor = first;
        if group == 0 && !last_group {
            run.cursor = kept.get(passed).copied().unwrap_or(NONE);
            if run.cursor == NONE && !kept.is_empty() {
                run.group = 1;
                run.cursor = first;
            }
        } else if !last_group {
            run.taken = number(passed);
        }
        if kept.is_empty() {
            self.drop_run(id);
        }
    }
}
