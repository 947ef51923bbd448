//! What a client sees of a server that a fixed number of requests keeps busy.
//!
//! The steady state, in closed form: all slots decode, and each request that ends is followed by a prompt that the
//! others wait for. With `B` running requests, a decode step `d` and a prompt's work `p` of which every other
//! request sees one a cycle: TPOT = d / accepted + (B - 1) p / output tokens, as long as not every step has a prompt;
//! from there on those of one step are computed together, and what exceeds `max_num_batched_tokens` waits. What a step
//! with prompts takes longer as such is shared by the prompts that fall into one step.

use super::factors::Factor;
use super::step::{Batch, Breakdown, Component, CostModel};

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// So many at once; the next comes when one ends.
    ClosedLoop,
    /// So many at once, and no others.
    OneBatch,
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// How requests come.
    pub kind: Kind,
    /// Requests at once.
    pub concurrency: f64,
    /// Prompt tokens a request, on average.
    pub input: f64,
    /// Output tokens a request, on average.
    pub output: f64,
    /// Requests in all; the first `concurrency` of them come at the same moment.
    pub prompts: f64,
    /// Requests that run at once at most: KV memory or `max_num_seqs`.
    pub running_at_most: f64,
    /// `max_num_batched_tokens`.
    pub chunk: f64,
    /// Draft tokens verified a step.
    pub drafts: f64,
    /// Tokens a step gives a request, acceptance length.
    pub accepted: f64,
}

/// What a client measures, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Mean time between tokens after the first.
    pub tpot: f64,
    /// Mean time to the first token.
    pub ttft: f64,
    /// Median time between chunks: a step without prompts.
    pub itl: f64,
    /// Mean time of a request.
    pub e2e: f64,
    /// Requests that run at once.
    pub running: f64,
    /// Output tokens a second, all requests.
    pub output_rate: f64,
    /// Requests a second.
    pub request_rate: f64,
    /// A step in the middle of requests, with its share of prompts.
    pub step: Breakdown,
}

impl Estimate {
    /// Multiplies what a client sees; the parts of a step stay in proportion.
    pub(super) fn scale(&mut self, tpot: f64, ttft: f64, load: &Load) {
        self.tpot *= tpot;
        self.itl *= tpot;
        self.ttft *= ttft;
        for part in &mut self.step.parts {
            *part *= tpot;
        }
        let output = load.output.max(1.0);
        self.e2e = self.ttft + self.tpot * (output - 1.0);
        self.request_rate = load.concurrency / self.e2e;
        self.output_rate = self.request_rate * output;
    }
}

impl CostModel {
    /// What a client of this load measures.
    pub fn estimate(&self, load: &Load) -> Estimate {
        let running = load.concurrency.min(load.running_at_most).max(1.0);
        let accepted = load.accepted.max(1.0);
        let output = load.output.max(1.0);
        let batch = Batch {
            requests: running,
            tokens_each: 1.0 + load.drafts,
            context: load.input + output / 2.0,
            prompt: None,
        };
        let mut step = self.step(&batch);
        let itl = step.total();
        let prompts = |count: f64| self.prompts_together(count, load.input, load.chunk, running);
        let factor = |name| self.factors().get(name);
        let (between, ttft) = match load.kind {
            Kind::ClosedLoop => {
                // Prompts of others that come for each of a request's own steps.
                let come = (running - 1.0) / (output / accepted);
                let met = come * Self::prompt_steps(load.input, load.chunk);
                let as_such = self.with_prompts() * -(-met).exp_m1();
                // Nothing follows the only token.
                let between = if output > 1.0 {
                    (self.prompts_a_step(come, load.input, load.chunk, running) + as_such) / accepted
                } else {
                    0.0
                };
                let tpot = itl / accepted + between;
                let first_wave = 0.5 * load.concurrency / load.prompts.max(load.concurrency);
                let ttft = factor(Factor::FirstTokenMs) * 1e-3
                    + self.prompt_alone(load.input)
                    + itl * factor(Factor::StepsToFirstToken)
                    + first_wave * prompts(running - 1.0)
                    + running * factor(Factor::PromptMs) * 1e-3;
                // The device computes one prompt after the other: a cycle has room for those of all.
                let ttft = ttft.max(prompts(running) - tpot * (output - 1.0));
                let cycle = tpot * output;
                (between, ttft + (load.concurrency / running - 1.0) * cycle * factor(Factor::QueueShare))
            }
            Kind::OneBatch => {
                let all = self.prompt_alone(load.input) + prompts(running - 1.0);
                (0.0, all + factor(Factor::FirstTokenMs) * 1e-3)
            }
        };
        step.parts[Component::Prompts as usize] += between * accepted;
        let tpot = itl / accepted + between;
        let e2e = ttft + tpot * (output - 1.0);
        let request_rate = load.concurrency / e2e;
        Estimate { tpot, ttft, itl, e2e, running, output_rate: request_rate * output, request_rate, step }
    }
}
