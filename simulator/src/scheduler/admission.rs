//! Which waiting requests are let in.

use super::running::range;
use super::{Budget, Scheduler};
use crate::blocks::hit::Hit;
use crate::request::Status;
use crate::step::{Scheduled, Step};

/// Why the queue is not looked at further, or what a request gets.
enum Admission {
    Stop,
    Chunk { tokens: u32, drafts: u32 },
}

impl Scheduler {
    /// Lets waiting requests in, in order, until one does not fit.
    pub(super) fn schedule_waiting(&mut self, step: &mut Step, budget: &mut Budget, prefills: bool) {
        let any_running = !step.scheduled.is_empty();
        while budget.tokens > 0 && budget.input > budget.slots {
            if self.running.len() >= self.engine.max_num_seqs as usize {
                break;
            }
            let Some(slot) = self.waiting.peek() else { break };
            if self.requests[slot as usize].stale > 0 {
                // Its last output is still on the way.
                self.waiting.pop();
                self.skipped.push(slot);
                continue;
            }
            let request = &self.requests[slot as usize];
            let hit = self.cache.find_longest_hit(slot, request.tokens);
            self.requests[slot as usize].shared_prefix_boundary = hit.shared_prefix_boundary;
            let Admission::Chunk { tokens, drafts } =
                self.first_chunk(slot, hit, budget, prefills, any_running)
            else {
                break;
            };
            let request = &mut self.requests[slot as usize];
            let view = request.view(slot);
            let whole = self.engine.reserve_full_prompt;
            let busy = !self.running.is_empty();
            if !self.cache.allocate(&view, tokens, hit.tokens, whole, busy, &mut request.limits) {
                break;
            }
            self.waiting.pop();
            self.running.push(slot);
            let request = &mut self.requests[slot as usize];
            if request.status == Status::Waiting {
                step.new.push((request.id, hit.tokens));
            } else {
                step.resumed.push((request.id, hit.tokens));
            }
            request.status = Status::Running;
            request.computed = hit.tokens;
            let start = step.blocks.len();
            step.blocks.extend(self.cache.lengths(slot));
            step.scheduled.push(Scheduled {
                id: request.id,
                slot,
                serial: request.serial,
                tokens,
                drafts,
                computed: hit.tokens,
                generated: 0,
                blocks: range(start, step.blocks.len()),
            });
            budget.spend(tokens);
        }
        while let Some(slot) = self.skipped.pop() {
            let place = self.place(slot);
            self.waiting.push_front(place);
        }
    }

    fn first_chunk(
        &self,
        slot: u32,
        hit: Hit,
        budget: &Budget,
        prefills: bool,
        any_running: bool,
    ) -> Admission {
        let request = &self.requests[slot as usize];
        let room = budget.for_request();
        let mut new = request.tokens - hit.tokens;
        let drafts = self.engine.speculative.map_or(0, |s| s.tokens);
        // One token left: drafts are made up so that the step stays uniform.
        let mut padded = false;
        if drafts > 0
            && new == 1
            && !prefills
            && (any_running || hit.tokens > 0)
            && (hit.tokens + 2).saturating_add(drafts) <= self.engine.max_model_len
        {
            if 1 + drafts > room {
                return Admission::Stop;
            }
            new = 1 + drafts;
            padded = true;
        }
        if budget.long_prefill > 0 && budget.long_prefill < new {
            new = budget.long_prefill;
        }
        new = new.min(room);
        if self.aligned_states {
            new = self.align_chunk(slot, new, hit.tokens);
            if new == 0 {
                return Admission::Stop;
            }
            if padded && new != 1 + drafts {
                new = 1;
                padded = false;
            }
        }
        new = self.reserve_lookahead(request.tokens, hit.tokens, new);
        if new == 0 {
            return Admission::Stop;
        }
        Admission::Chunk { tokens: new, drafts: if padded { drafts } else { 0 } }
    }
}
