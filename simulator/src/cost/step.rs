//! How long one step takes, and what of it goes where.

use thiserror::Error;

use super::factors::{Factor, Factors};
use super::hardware::{Hardware, HardwareError};
use super::host::{Dispatch, Exposure};
use super::shape::{Kept, Shape, quantization_kernels};
use super::weights::{Precision, Rate, WeightFormat};

/// How a model is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Tensor parallel ranks.
    pub tensor_parallel: u32,
    /// Whether experts lie whole on ranks.
    pub expert_parallel: bool,
    /// Whether block-scaled fp8 experts run by the kernels from before vLLM 0.18.
    pub early_fp8_experts: bool,
}

/// Why a step's time cannot be given.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CostError {
    /// The device.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// No ranks, or more than anyone has.
    #[error("tensor parallelism over {0} ranks; give 1 to 4096")]
    Ranks(u32),
}

/// Part of a prompt that a step computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prompt {
    /// Tokens computed.
    pub tokens: f64,
    /// Tokens computed before.
    pub before: f64,
}

/// What one step computes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Batch {
    /// Requests that decode.
    pub requests: f64,
    /// Tokens of each: one, and its drafts.
    pub tokens_each: f64,
    /// Tokens that each has behind it, on average.
    pub context: f64,
    /// Prompt tokens beside them.
    pub prompt: Option<Prompt>,
}

/// Where a step's time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Reading and multiplying dense weights.
    Weights,
    /// Reading and multiplying routed experts.
    Experts,
    /// Reading KV and states.
    Kv,
    /// Kernels as such.
    Kernels,
    /// All-reduces.
    AllReduce,
    /// Prompts computed beside.
    Prompts,
    /// The draft model.
    Draft,
    /// Sampling and output, a request.
    Requests,
    /// The step as such.
    Step,
    /// What the host does for the groups, as far as it shows.
    Groups,
}

impl Component {
    /// All, in the order of [`Breakdown::parts`].
    pub const ALL: [Self; 10] = [
        Self::Weights,
        Self::Experts,
        Self::Kv,
        Self::Kernels,
        Self::AllReduce,
        Self::Prompts,
        Self::Draft,
        Self::Requests,
        Self::Step,
        Self::Groups,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Experts => "experts",
            Self::Kv => "kv",
            Self::Kernels => "kernels",
            Self::AllReduce => "all-reduce",
            Self::Prompts => "prompts",
            Self::Draft => "draft",
            Self::Requests => "requests",
            Self::Step => "step",
            Self::Groups => "groups",
        }
    }
}

/// A step's time, seconds a component.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Breakdown {
    /// In the order of [`Component::ALL`].
    pub parts: [f64; 10],
    /// Host time for the groups that the device hides.
    pub hidden: f64,
}

impl Breakdown {
    /// The whole step, seconds.
    pub fn total(&self) -> f64 {
        self.parts.iter().sum()
    }

    /// One component, seconds.
    pub fn part(&self, component: Component) -> f64 {
        self.parts.get(component as usize).copied().unwrap_or(0.0)
    }

    /// The component that takes most.
    pub fn dominant(&self) -> Component {
        Component::ALL
            .into_iter()
            .max_by(|a, b| self.part(*a).total_cmp(&self.part(*b)))
            .unwrap_or(Component::Weights)
    }

    fn put(&mut self, component: Component, seconds: f64) {
        if let Some(part) = self.parts.get_mut(component as usize) {
            *part += seconds;
        }
    }
}

/// Matrices that are read and multiplied as one, a rank.
#[derive(Debug, Clone, Copy)]
struct Gemm {
    seconds_to_read: f64,
    seconds_a_token: f64,
}

/// Routed experts of equal layers, a rank.
#[derive(Debug, Clone, Copy)]
struct ExpertGemm {
    count: f64,
    share: f64,
    seconds_to_read_one: f64,
    seconds_a_token: f64,
}

/// What equal layers keep, a rank.
#[derive(Debug, Clone, Copy)]
struct Reads {
    seconds_a_token: f64,
    at_most: f64,
    indexed_seconds_a_token: f64,
    state_seconds: f64,
    seconds_a_pair: f64,
}

impl Reads {
    /// Pairs of tokens of which one sees the other, in the first `tokens` of a prompt.
    fn pairs(&self, tokens: f64) -> f64 {
        if tokens <= self.at_most {
            tokens * tokens / 2.0
        } else {
            self.at_most * (tokens - self.at_most / 2.0)
        }
    }
}

/// A model on a device, ready to be asked.
#[derive(Debug, Clone)]
pub struct CostModel {
    factors: Factors,
    dense: Gemm,
    head: Gemm,
    experts: Vec<ExpertGemm>,
    reads: Vec<Reads>,
    kernels: f64,
    all_reduce: f64,
    all_reduce_a_token: f64,
    with_prompts: f64,
    small_batch: f64,
    weight_bytes: f64,
    kv_bytes_a_token: f64,
    draft: Option<(Box<CostModel>, f64)>,
    dispatch: Dispatch,
    exposure: Exposure,
}

/// Reading and computing overlap, but for where they are equally long.
fn overlapped(a: f64, b: f64) -> f64 {
    let (a, b) = (a * a, b * b);
    a.mul_add(a, b * b).sqrt().sqrt()
}

impl CostModel {
    /// Sets a model up on a device.
    ///
    /// # Errors
    /// If the device lacks a figure that is needed, or there are no ranks.
    pub fn new(
        shape: &Shape,
        hardware: &Hardware,
        precision: Precision,
        layout: Layout,
        factors: &Factors,
    ) -> Result<Self, CostError> {
        if !(1..=4096).contains(&layout.tensor_parallel) {
            return Err(CostError::Ranks(layout.tensor_parallel));
        }
        let ranks = f64::from(layout.tensor_parallel);
        let factor = |name| factors.get(name);
        let bandwidth = hardware.need("bandwidth", hardware.bandwidth, "reading weights")?;
        let bf16 = hardware.need("bf16", hardware.bf16, "multiplying")?;
        let rate_of = |format: WeightFormat| -> Result<(f64, Rate), HardwareError> {
            let (rate, kind) = format.rate(hardware);
            Ok((hardware.need("bf16", rate, "multiplying")?, kind))
        };
        let (dense_rate, dense_kind) = rate_of(precision.dense)?;
        let dense_share = factor(Factor::DenseFlops)
            * match dense_kind {
                Rate::Bf16 => 1.0,
                Rate::Fp8 => factor(Factor::Fp8Flops),
                Rate::Fp4 => factor(Factor::Fp4Flops),
            };
        let read = bandwidth * factor(Factor::DenseBandwidth);
        let packed = if precision.dense == WeightFormat::Nvfp4 { factor(Factor::Fp4Bandwidth) } else { 1.0 };
        let (mut split, mut whole, mut pages) = (0.0, 0.0, 0.0);
        let mut expert_bytes = 0.0;
        let (mut kernels, mut latency, mut large) = (0.0, 0.0, 0.0);
        let mut experts = Vec::new();
        let mut reads = Vec::new();
        for (count, layer) in &shape.layers {
            let count = f64::from(*count);
            split += count * layer.split;
            whole += count * layer.whole;
            let format = if layer.experts.is_some() { precision.experts } else { precision.dense };
            let parts = layer.all_reduces.min(2.0) / 2.0;
            let early = layout.early_fp8_experts && precision.experts == WeightFormat::Fp8Block;
            let slow =
                if early && layer.experts.is_some() { 1.0 + factor(Factor::EarlyFp8Experts) } else { 1.0 };
            kernels += count * slow * (layer.kernels + parts * quantization_kernels(format.name()));
            latency += count * layer.all_reduces;
            large += count * layer.all_reduces.min(2.0);
            if let Some(own) = layer.experts {
                let (rate, _) = rate_of(precision.experts)?;
                let width = if layout.expert_parallel { own.width } else { own.width / ranks };
                let int4 =
                    if precision.experts == WeightFormat::Int4 { factor(Factor::Int4Experts) } else { 1.0 };
                let narrow = width / (width + factor(Factor::ExpertWidth));
                let speed = bandwidth * factor(Factor::ExpertBandwidth) * int4 * narrow / slow;
                let rate = rate * factor(Factor::DenseFlops) * factor(Factor::ExpertFlops) * int4 / slow;
                expert_bytes += count * own.count * own.weights * precision.experts.bytes() / ranks;
                experts.push(ExpertGemm {
                    count: own.count,
                    share: own.top_k / own.count,
                    seconds_to_read_one: count * own.weights * precision.experts.bytes() / ranks / speed,
                    seconds_a_token: count * 2.0 * own.top_k * own.weights / ranks / rate,
                });
            }
            let Kept { elements, split_at_most, reads_at_most, indexed, state_bytes } = layer.kept;
            let over = ranks.min(split_at_most.max(1.0));
            let page = bandwidth * factor(Factor::KvBandwidth);
            pages += count * elements * precision.kv_bytes / over;
            reads.push(Reads {
                seconds_a_token: count * elements * precision.kv_bytes / over / page,
                at_most: reads_at_most.unwrap_or(f64::MAX),
                indexed_seconds_a_token: count * indexed / page,
                state_seconds: count * 2.0 * state_bytes / over / page,
                seconds_a_pair: count * layer.pair_flops / ranks / (bf16 * factor(Factor::AttentionFlops)),
            });
        }
        let dense_weights = split / ranks + whole;
        let head = shape.hidden * shape.vocab / ranks;
        let all_reduce = if layout.tensor_parallel > 1 {
            let doublings = ranks.log2() - 1.0;
            latency
                * factor(Factor::AllReduceUs)
                * 1e-6
                * (1.0 + factor(Factor::AllReduceDoubling) * doublings)
        } else {
            0.0
        };
        let all_reduce_a_token = if layout.tensor_parallel > 1 {
            let link = hardware.need("link_bandwidth", hardware.link_bandwidth, "tensor parallelism")?;
            large * shape.hidden * 2.0 * 2.0 * (ranks - 1.0) / ranks / (link * factor(Factor::LinkBandwidth))
        } else {
            0.0
        };
        Ok(Self {
            factors: *factors,
            dense: Gemm {
                seconds_to_read: dense_weights * precision.dense.bytes() / (read * packed),
                seconds_a_token: 2.0 * dense_weights / (dense_rate * dense_share),
            },
            head: Gemm {
                seconds_to_read: head * 2.0 / read,
                seconds_a_token: 2.0 * head / (bf16 * factor(Factor::DenseFlops)),
            },
            experts,
            reads,
            kernels: kernels * hardware.kernel_us * 1e-6 * factor(Factor::KernelTime),
            all_reduce,
            all_reduce_a_token,
            with_prompts: shape.num_layers() * factor(Factor::PromptLayerUs) * 1e-6,
            small_batch: factor(Factor::SmallBatch),
            weight_bytes: dense_weights * precision.dense.bytes()
                + expert_bytes
                + head * 2.0 * if shape.tied { 1.0 } else { 2.0 },
            kv_bytes_a_token: pages,
            draft: None,
            dispatch: Dispatch::default(),
            exposure: Exposure::Overlapped,
        })
    }

    /// Adds a draft model that runs `passes` times a step.
    #[must_use]
    pub fn with_draft(mut self, draft: Self, passes: f64) -> Self {
        self.draft = Some((Box::new(draft), passes));
        self
    }

    /// Adds what the host does for the groups.
    #[must_use]
    pub fn with_groups(mut self, dispatch: Dispatch, exposure: Exposure) -> Self {
        self.dispatch = dispatch;
        self.exposure = exposure;
        self
    }

    /// Weights of one rank, bytes.
    pub fn weight_bytes(&self) -> f64 {
        self.weight_bytes
    }

    /// KV of one token on one rank, bytes, before padding; windows and states aside.
    pub fn kv_bytes_a_token(&self) -> f64 {
        self.kv_bytes_a_token
    }

    /// The factors it was made with.
    pub fn factors(&self) -> &Factors {
        &self.factors
    }

    /// How much longer matrix units take at few rows.
    fn slowness(&self, tokens: f64) -> f64 {
        1.0 + (self.small_batch - 1.0) / (1.0 + tokens / 512.0)
    }

    fn dense_time(&self, tokens: f64, sampled: f64) -> f64 {
        let slow = self.slowness(tokens);
        overlapped(self.dense.seconds_to_read, self.dense.seconds_a_token * tokens * slow)
            + overlapped(self.head.seconds_to_read, self.head.seconds_a_token * sampled)
    }

    fn experts_time(&self, tokens: f64) -> f64 {
        let draws = tokens * self.factors.get(Factor::RoutingSpread);
        self.experts
            .iter()
            .map(|group| {
                let touched = group.count * (1.0 - (1.0 - group.share).powf(draws));
                overlapped(touched * group.seconds_to_read_one, group.seconds_a_token * tokens)
            })
            .sum()
    }

    /// What the matrices of prompt tokens add to a step with `beside` other tokens, seconds.
    fn prompt_gemm_time(&self, tokens: f64, beside: f64, sampled: f64) -> f64 {
        let gemm = self.dense_time(beside + tokens, sampled) - self.dense_time(beside, sampled)
            + self.experts_time(beside + tokens)
            - self.experts_time(beside);
        gemm.max(0.0) + self.all_reduce_a_token * tokens
    }

    /// What attention takes for `tokens` of a prompt after its first `before`, seconds.
    fn prompt_attention_time(&self, tokens: f64, before: f64) -> f64 {
        self.reads
            .iter()
            .map(|reads| reads.seconds_a_pair * (reads.pairs(before + tokens) - reads.pairs(before)))
            .sum()
    }

    /// What prompt tokens add to a step with `beside` other tokens, seconds.
    fn prompt_time(&self, prompt: Prompt, beside: f64, sampled: f64) -> f64 {
        self.prompt_gemm_time(prompt.tokens, beside, sampled)
            + self.prompt_attention_time(prompt.tokens, prompt.before)
    }

    /// Steps that compute a prompt of so many tokens, in chunks of `chunk` tokens at most.
    pub fn prompt_steps(tokens: f64, chunk: f64) -> f64 {
        (tokens / chunk.max(1.0)).ceil().clamp(1.0, 1e4)
    }

    /// What a step takes longer as soon as it computes any prompt, seconds.
    pub fn with_prompts(&self) -> f64 {
        self.with_prompts
    }

    /// What so many prompts of `tokens` each, waiting at the same moment, add to steps with `beside` other tokens,
    /// seconds; what those steps take longer as such ([`Self::with_prompts`]) aside. As in vLLM's scheduler, a step
    /// takes prompts together up to `chunk` tokens, and the last of a longer one shares its step with the next.
    pub fn prompts_together(&self, prompts: f64, tokens: f64, chunk: f64, beside: f64) -> f64 {
        let all = prompts * tokens;
        let each = all.min(chunk.max(1.0));
        if each <= 0.0 {
            return 0.0;
        }
        all / each * self.prompt_gemm_time(each, beside, beside)
            + prompts * self.prompt_attention_time(tokens, 0.0)
    }

    /// What prompts add to a step on average, seconds, where for each of its steps `prompts` of `tokens` each come:
    /// some steps have one, or all have several, up to `chunk` tokens; those that find no room wait.
    pub fn prompts_a_step(&self, prompts: f64, tokens: f64, chunk: f64, beside: f64) -> f64 {
        let together = prompts.max(1.0);
        let room = (chunk.max(1.0) / tokens.max(1.0)).min(prompts);
        room / together * self.prompts_together(together, tokens, chunk, beside)
    }

    /// A prompt that is computed alone, seconds: what the first token takes on an idle server's device.
    pub fn prompt_alone(&self, tokens: f64) -> f64 {
        self.dense_time(tokens, 1.0)
            + self.experts_time(tokens)
            + self.prompt_attention_time(tokens, 0.0)
            + self.all_reduce_a_token * tokens
            + self.kernels
            + self.all_reduce
            + self.with_prompts
            + self.factors.get(Factor::StepUs) * 1e-6
    }

    /// A step's time.
    pub fn step(&self, batch: &Batch) -> Breakdown {
        let mut out = Breakdown::default();
        let tokens = batch.requests * batch.tokens_each;
        let sampled = batch.requests * batch.tokens_each;
        out.put(Component::Weights, self.dense_time(tokens, sampled));
        out.put(Component::Experts, self.experts_time(tokens));
        let kv: f64 = self
            .reads
            .iter()
            .map(|reads| {
                reads.seconds_a_token * batch.context.min(reads.at_most)
                    + reads.indexed_seconds_a_token * batch.context
                    + reads.state_seconds
            })
            .sum();
        out.put(Component::Kv, kv * batch.requests);
        out.put(Component::Kernels, self.kernels);
        out.put(Component::AllReduce, self.all_reduce + self.all_reduce_a_token * tokens);
        if let Some(prompt) = batch.prompt {
            out.put(Component::Prompts, self.prompt_time(prompt, tokens, sampled) + self.with_prompts);
        }
        if let Some((draft, passes)) = &self.draft {
            let one = Batch { prompt: None, tokens_each: 1.0, ..*batch };
            let step = draft.step(&one);
            let own = step.total() - step.part(Component::Step) - step.part(Component::Requests);
            out.put(Component::Draft, passes * own);
        }
        out.put(Component::Requests, batch.requests * self.factors.get(Factor::RequestUs) * 1e-6);
        out.put(Component::Step, self.factors.get(Factor::StepUs) * 1e-6);
        let device = out.total();
        let exposed = self.dispatch.exposed(&self.factors, self.exposure, device);
        out.put(Component::Groups, exposed);
        out.hidden = self.dispatch.time(&self.factors) - exposed;
        out
    }
}
