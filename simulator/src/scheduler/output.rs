//! What a step's tokens do when they come back.

use super::Scheduler;
use crate::request::Status;
use crate::step::Scheduled;

impl Scheduler {
    /// Takes the tokens of a step in (`update_from_output`); who ends is added to `finished`.
    pub(super) fn update(&mut self, flight: &[Scheduled], finished: &mut Vec<u32>) {
        let is_async = self.engine.async_scheduling;
        let drafts = self.engine.speculative.map_or(0, |s| s.tokens);
        let before = finished.len();
        let mut running_ended = false;
        for part in flight {
            let request = &mut self.requests[part.slot as usize];
            if request.serial != part.serial || request.status == Status::Finished {
                continue;
            }
            request.in_flight -= part.tokens;
            let is_stale = request.stale > 0;
            if is_stale {
                request.stale -= part.tokens;
            }
            if part.drafts > 0 && part.generated > 0 && !is_stale {
                let rejected = part.drafts - (part.generated - 1);
                request.computed -= rejected.min(request.computed);
                request.placeholders -= rejected.min(request.placeholders);
            }
            if part.generated == 0 {
                continue;
            }
            let left = (request.prompt.saturating_add(request.max_tokens) - request.tokens)
                .min(self.engine.max_model_len.saturating_sub(request.tokens))
                .max(1);
            let taken = part.generated.min(left);
            request.tokens += taken;
            let ended = taken == left;
            let was_running = request.status == Status::Running;
            if is_async {
                if !is_stale {
                    request.placeholders -= taken;
                }
                if was_running && self.cache.caching {
                    let tokens = request.computed.saturating_sub(request.placeholders);
                    if tokens >= request.limits.cache {
                        let view = request.view(part.slot);
                        self.cache.cache_blocks(&view, tokens, &mut request.limits);
                    }
                }
            } else if !ended && drafts > 0 {
                request.drafts = if request.is_prefill_chunk { 0 } else { drafts };
            }
            if ended {
                finished.push(part.id);
                if was_running {
                    running_ended = true;
                } else {
                    self.waiting.remove(part.slot);
                }
                self.retire(part.slot);
            }
        }
        if running_ended {
            let requests = &self.requests;
            self.running.retain(|&slot| requests[slot as usize].status != Status::Finished);
        }
        finished[before..].sort_unstable();
    }
}
