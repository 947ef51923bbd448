//! How running requests go on, and who is preempted for them.

use super::{Budget, Scheduler};
use crate::request::Status;
use crate::step::{Scheduled, Step};

impl Scheduler {
    /// Schedules the running requests; says whether one of them is in its prefill.
    pub(super) fn schedule_running(&mut self, step: &mut Step, budget: &mut Budget) -> bool {
        let mut prefills = false;
        let mut index = 0;
        let context = self.engine.max_model_len;
        while index < self.running.len() && budget.tokens > 0 && budget.input > budget.slots {
            let slot = self.running[index];
            let request = &self.requests[slot as usize];
            // Async: the step in flight already reaches the last token.
            if request.placeholders > 0
                && request.computed + 2 - request.placeholders
                    >= request.prompt.saturating_add(request.max_tokens)
            {
                index += 1;
                continue;
            }
            let wanted =
                (request.tokens + request.drafts + request.placeholders).saturating_sub(request.computed);
            let mut new = wanted;
            if budget.long_prefill > 0 && budget.long_prefill < new {
                new = budget.long_prefill;
            }
            new = new.min(budget.for_request()).min((context - 1).saturating_sub(request.computed));
            if self.aligned_states {
                new = self.align_chunk(slot, new, 0);
            }
            let request = &self.requests[slot as usize];
            new = self.reserve_lookahead(request.tokens, request.computed, new);
            if new == 0 {
                index += 1;
                continue;
            }
            let start = step.blocks.len();
            if !self.make_room(step, budget, slot, new, &mut index) {
                break;
            }
            let request = &mut self.requests[slot as usize];
            prefills |= request.is_prefill_chunk;
            let mut drafts = 0;
            if request.drafts > 0 {
                let past = (new + request.computed).saturating_sub(request.tokens + request.placeholders);
                drafts = past.min(request.drafts);
                request.drafts = 0;
            }
            step.scheduled.push(Scheduled {
                id: request.id,
                slot,
                serial: request.serial,
                tokens: new,
                drafts,
                computed: request.computed,
                generated: 0,
                blocks: range(start, step.blocks.len()),
            });
            budget.spend(new);
            index += 1;
        }
        prefills
    }

    /// Allocates `new` tokens for a running request, preempting others for it; `false` if it had to go.
    fn make_room(
        &mut self,
        step: &mut Step,
        budget: &mut Budget,
        slot: u32,
        new: u32,
        index: &mut usize,
    ) -> bool {
        let request = &self.requests[slot as usize];
        let lookahead = self.engine.speculative.map_or(0, |s| s.lookahead_tokens);
        let tokens = (request.computed + new).saturating_add(lookahead).min(self.engine.max_model_len);
        let limits = request.limits;
        if tokens <= limits.allocation
            && request.computed.saturating_sub(request.in_flight) < limits.skip
            && (request.computed + new).min(request.tokens) < limits.cache
        {
            return true;
        }
        loop {
            let request = &mut self.requests[slot as usize];
            let view = request.view(slot);
            for hits in &mut self.cache.hits {
                hits.clear();
            }
            if self.cache.allocate(&view, new, 0, false, true, &mut request.limits) {
                if self.cache.new_blocks.iter().any(|&(_, count)| count > 0) {
                    step.blocks.extend_from_slice(&self.cache.new_blocks);
                }
                return true;
            }
            let victim = self.victim();
            if self.is_priority() {
                self.running.remove(victim);
                if victim < *index {
                    *index -= 1;
                }
            } else {
                self.running.pop();
            }
            let victim = self.last_victim;
            if self.is_priority()
                && let Some(place) = step.scheduled.iter().position(|part| part.slot == victim)
            {
                let part = step.scheduled.remove(place);
                budget.tokens += part.tokens;
                budget.input += part.tokens + budget.slots;
            }
            self.preempt(victim, step);
            if victim == slot {
                return false;
            }
        }
    }

    /// The place in `running` of the request that goes first.
    fn victim(&mut self) -> usize {
        let mut place = self.running.len() - 1;
        if self.is_priority() {
            let rank = |slot: u32| {
                let request = &self.requests[slot as usize];
                (request.priority, request.arrival)
            };
            place = 0;
            for other in 1..self.running.len() {
                if rank(self.running[other]) > rank(self.running[place]) {
                    place = other;
                }
            }
        }
        self.last_victim = self.running[place];
        place
    }

    fn preempt(&mut self, slot: u32, step: &mut Step) {
        self.cache.free(slot);
        let request = &mut self.requests[slot as usize];
        request.status = Status::Preempted;
        request.computed = 0;
        request.drafts = 0;
        request.stale = request.in_flight;
        request.placeholders = 0;
        request.preemptions += 1;
        step.preempted.push(request.id);
        let place = self.place(slot);
        self.waiting.push_front(place);
    }
}

/// A range of block counts.
pub(super) fn range(start: usize, end: usize) -> (u32, u32) {
    (u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(end).unwrap_or(u32::MAX))
}
