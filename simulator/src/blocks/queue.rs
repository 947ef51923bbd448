//! In what order cached blocks that nobody holds are given up.
//!
//! What is freed together is a run. A manager a group frees its blocks, so a run is given up group by group,
//! and in each group in the order in which the blocks were freed. How far that has gone is noted in the run
//! for all of its slots, and in the slots only once someone asks.

use super::block_pool::{BlockPool, NONE, number};

/// Slots that were freed together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    class: u32,
    first: u32,
    last: u32,
    len: u32,
    /// The group that is given up now: the blocks of those before it are gone.
    group: u32,
    /// The first so many blocks of `group` are gone too, and the slots do not know yet.
    taken: u32,
    /// Where going through the slots goes on, or `NONE` for the first.
    cursor: u32,
    /// A table of what each group has, where not all slots stand for all groups from `group` on.
    columns: u32,
    ragged: bool,
    prev: u32,
    next: u32,
}

/// One group of a ragged run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Column {
    /// Blocks that are not given up.
    blocks: u32,
    /// Slots of which this is the last group.
    ends: u32,
}

impl BlockPool {
    /// Gives up at most `limit` blocks of the oldest run and says how many.
    pub(super) fn evict(&mut self, limit: u64) -> u64 {
        let id = self.first_run;
        let left = if self.runs[id as usize].columns == NONE {
            self.evict_even(id, limit)
        } else {
            self.evict_ragged(id, limit)
        };
        if self.runs[id as usize].len == 0 {
            self.drop_run(id);
        }
        self.cached_free -= limit - left;
        limit - left
    }

    fn evict_even(&mut self, id: u32, limit: u64) -> u64 {
        let mut run = self.runs[id as usize];
        let last_group = self.weights[run.class as usize] - 1;
        let (mut left, len) = (limit, u64::from(run.len));
        if run.group < last_group {
            let blocks = u64::from(run.taken) + left;
            let whole = (blocks / len).min(u64::from(last_group - run.group));
            run.group += u32::try_from(whole).unwrap_or(0);
            let rest = blocks - whole * len;
            (run.taken, left) =
                if run.group < last_group { (u32::try_from(rest).unwrap_or(0), 0) } else { (0, rest) };
        }
        // The last group's block takes the slot with it.
        while left > 0 && run.len > 0 {
            let slot = run.first;
            let next = self.slots[slot as usize].next;
            self.forget_keys(slot);
            self.slots_unused.push(slot);
            run.first = next;
            run.len -= 1;
            left -= 1;
            if next != NONE {
                self.slots[next as usize].prev = NONE;
            }
        }
        self.runs[id as usize] = run;
        left
    }

    fn evict_ragged(&mut self, id: u32, limit: u64) -> u64 {
        let mut left = limit;
        while left > 0 && self.runs[id as usize].len > 0 {
            let run = &mut self.runs[id as usize];
            let column = self.columns[run.columns as usize][run.group as usize];
            if column.blocks == run.taken {
                run.group += 1;
                run.taken = 0;
                run.cursor = NONE;
            } else if column.ends == 0 {
                let count = left.min(u64::from(column.blocks - run.taken));
                run.taken += u32::try_from(count).unwrap_or(0);
                left -= count;
            } else {
                let group = run.group;
                let mut at = if run.cursor == NONE { run.first } else { run.cursor };
                while self.slots[at as usize].lo > group {
                    at = self.slots[at as usize].next;
                }
                run.cursor = self.slots[at as usize].next;
                let column = &mut self.columns[run.columns as usize][group as usize];
                column.blocks -= 1;
                left -= 1;
                if self.slots[at as usize].hi == group + 1 {
                    column.ends -= 1;
                    self.unlink(at);
                    self.forget_keys(at);
                    self.slots_unused.push(at);
                } else {
                    self.slots[at as usize].lo = group + 1;
                }
            }
        }
        left
    }

    /// The first group of which no block of a run is gone.
    pub(super) fn first_left(&self, id: u32) -> u32 {
        let run = &self.runs[id as usize];
        run.group + u32::from(run.taken > 0)
    }

    /// Notes in the slots which of them have lost their block of the run's present group.
    pub(super) fn settle(&mut self, id: u32) {
        let Run { group, taken, first, columns, .. } = self.runs[id as usize];
        if taken == 0 {
            return;
        }
        let (mut at, mut left) = (first, taken);
        while left > 0 && at != NONE {
            let slot = &mut self.slots[at as usize];
            if slot.lo <= group {
                slot.lo = group + 1;
                left -= 1;
            }
            at = slot.next;
        }
        self.runs[id as usize].taken = 0;
        if columns == NONE {
            self.count_columns(id);
        } else {
            self.columns[columns as usize][group as usize].blocks -= taken;
        }
    }

    /// Counts what each group of a run has, if that is not known.
    pub(super) fn count_columns(&mut self, id: u32) {
        let run = self.runs[id as usize];
        if run.columns != NONE {
            return;
        }
        let place = self.columns_unused.pop().unwrap_or_else(|| {
            self.columns.push(Vec::new());
            number(self.columns.len() - 1)
        });
        let columns = &mut self.columns[place as usize];
        columns.clear();
        columns.resize(self.weights[run.class as usize] as usize + 1, Column::default());
        // First how many start, then how many are there.
        let mut at = run.first;
        while at != NONE {
            let slot = &self.slots[at as usize];
            columns[slot.lo.max(run.group) as usize].blocks += 1;
            columns[slot.hi as usize - 1].ends += 1;
            at = slot.next;
        }
        let mut there = 0;
        for column in columns.iter_mut() {
            there += column.blocks;
            column.blocks = there;
            there -= column.ends;
        }
        self.runs[id as usize].columns = place;
    }

    /// Takes a slot out of its run's list.
    fn unlink(&mut self, slot: u32) {
        let s = self.slots[slot as usize];
        let run = &mut self.runs[s.run as usize];
        run.len -= 1;
        if run.cursor == slot {
            run.cursor = s.next;
        }
        if s.prev == NONE {
            run.first = s.next;
        } else {
            self.slots[s.prev as usize].next = s.next;
        }
        if s.next == NONE {
            run.last = s.prev;
        } else {
            self.slots[s.next as usize].prev = s.prev;
        }
    }

    /// Takes a free slot, as much as is left of it, out of the queue.
    pub(super) fn leave(&mut self, slot: u32) {
        let id = self.slots[slot as usize].run;
        self.settle(id);
        let run = self.runs[id as usize];
        let s = &mut self.slots[slot as usize];
        s.lo = s.lo.max(run.group);
        let (lo, hi) = (s.lo as usize, s.hi as usize);
        if run.columns != NONE {
            let columns = &mut self.columns[run.columns as usize];
            for column in &mut columns[lo..hi] {
                column.blocks -= 1;
            }
            columns[hi - 1].ends -= 1;
        }
        self.cached_free -= (hi - lo) as u64;
        self.unlink(slot);
        if self.runs[id as usize].len == 0 {
            self.drop_run(id);
        }
    }

    /// Puts `new`, which has been cut off `slot` before group `at`, behind it in its run.
    pub(super) fn link_behind(&mut self, slot: u32, new: u32, at: u32) {
        let s = &mut self.slots[slot as usize];
        let (id, next) = (s.run, s.next);
        s.next = new;
        let n = &mut self.slots[new as usize];
        (n.run, n.prev, n.next) = (id, slot, next);
        let run = &mut self.runs[id as usize];
        run.len += 1;
        if next == NONE {
            run.last = new;
        } else {
            self.slots[next as usize].prev = new;
        }
        self.columns[run.columns as usize][at as usize - 1].ends += 1;
    }

    fn drop_run(&mut self, id: u32) {
        let Run { prev, next, columns, .. } = self.runs[id as usize];
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
        if columns != NONE {
            self.columns_unused.push(columns);
        }
        self.runs_unused.push(id);
    }

    /// Starts a run at the end of the queue; it must be closed before anything is handed out.
    pub(crate) fn open_run(&mut self, class: u32) -> u32 {
        let run = Run {
            class,
            first: NONE,
            last: NONE,
            len: 0,
            group: 0,
            taken: 0,
            cursor: NONE,
            columns: NONE,
            ragged: false,
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

    /// Adds a slot to an open run.
    pub(super) fn push(&mut self, slot: u32, id: u32) {
        let run = &mut self.runs[id as usize];
        let prev = run.last;
        run.last = slot;
        run.len += 1;
        let s = &mut self.slots[slot as usize];
        run.ragged |= s.lo != 0 || s.hi != self.weights[run.class as usize];
        self.cached_free += u64::from(s.hi - s.lo);
        (s.run, s.prev, s.next) = (id, prev, NONE);
        if prev == NONE {
            run.first = slot;
        } else {
            self.slots[prev as usize].next = slot;
        }
    }

    /// Closes a run; it is dropped if nothing went into it.
    pub(crate) fn close_run(&mut self, id: u32) {
        if self.runs[id as usize].len == 0 {
            self.drop_run(id);
        } else if self.runs[id as usize].ragged {
            self.count_columns(id);
        }
    }
}
