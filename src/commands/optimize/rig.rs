//! How would the server do with one choice?

use std::collections::BTreeMap;
use std::sync::Arc;

use planner::import::hf_config::{ImportSettings, Imported, Speculative, import};
use planner::{EngineSettings, EngineVersion, GroupSizeRule, MambaCacheMode};
use simulator::cost::calibrate::{Calibration, Subject};
use simulator::cost::closed_loop::{Estimate, Kind, Load};
use simulator::cost::{Batch, CostModel, Dispatch, Exposure, Hardware, Layout, Precision, Prompt};

use super::choice::{Choice, rule_name};
use crate::failure::Failure;
use crate::predict::groups;
use crate::predict::models::NamedModel;
use crate::predict::running::{self, NoRoom, OVERHEAD_BYTES};
use crate::predict::slo::{Broken, Slo};

/// Requests that come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Coming {
    /// So many at once at one server.
    Concurrency(f64),
    /// So many a second, over as many servers as it takes.
    Rate(f64),
}

/// What is asked, whatever the choice.
pub(super) struct Question<'a> {
    pub(super) model: &'a NamedModel,
    pub(super) draft: Option<&'a NamedModel>,
    pub(super) method: Option<&'a str>,
    pub(super) drafts: u32,
    pub(super) accepted: f64,
    pub(super) hardware: &'a Hardware,
    pub(super) precision: Precision,
    pub(super) kv_cache_dtype: &'a str,
    pub(super) mamba_cache_mode: MambaCacheMode,
    pub(super) utilization: f64,
    pub(super) kv_cache_memory: Option<u64>,
    pub(super) input: u32,
    pub(super) output: u32,
    pub(super) coming: Coming,
    pub(super) slo: Option<Slo>,
    pub(super) exposure: Exposure,
    pub(super) calibration: &'a Calibration,
    /// `--max-num-seqs` and `--max-num-batched-tokens` that the memory for activations stands for.
    pub(super) usual: (u32, u32),
}

/// What a choice gives.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// Groups, layers of the largest, and empty slots; unknown where the importer does not know the model.
    pub(super) groups: Option<Groups>,
    /// Requests that the KV cache holds at once, of one replica.
    pub(super) held: f64,
    pub(super) estimate: Estimate,
    /// A step that is filled up with prompts, seconds.
    pub(super) longest_step: f64,
    pub(super) replicas: u64,
    pub(super) devices: u64,
    /// Output tokens a second.
    pub(super) per_device: f64,
    /// A bound that is not kept.
    pub(super) broken: Option<Broken>,
}

/// A plan in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Groups {
    pub(super) count: u64,
    pub(super) size: u64,
    pub(super) padding: Option<u64>,
    pub(super) block_size: u64,
}

/// Why a choice does not run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Why {
    #[error(transparent)]
    Room(#[from] NoRoom),
    #[error("vLLM refuses it: {0}")]
    Refused(String),
    #[error("one request at a time breaks the bound of {}", .0.name())]
    Slo(Broken),
}

#[derive(Debug, Clone)]
struct Planned {
    groups: Option<Groups>,
    dispatch: Dispatch,
    bytes_per_block: f64,
    blocks_per_request: f64,
}

/// A model as vLLM sees it: nothing where the importer does not know it, or why vLLM refuses it.
type Seen = Result<Option<Arc<Imported>>, String>;

/// Ranks, block size, rule and tokens a step.
type PlanKey = (u32, Option<u64>, String, u32);

type Ordered = (u32, bool, u32, u64, String);

/// Answers for choices, with what they share kept.
pub(super) struct Rig<'a> {
    pub(super) question: &'a Question<'a>,
    costs: BTreeMap<(u32, bool), CostModel>,
    models: BTreeMap<(u32, Option<u64>), Seen>,
    plans: BTreeMap<PlanKey, Result<Planned, Why>>,
    /// The most requests at once that keep the SLO.
    loads: BTreeMap<Ordered, f64>,
}

impl<'a> Rig<'a> {
    pub(super) fn new(question: &'a Question<'a>) -> Self {
        Self {
            question,
            costs: BTreeMap::new(),
            models: BTreeMap::new(),
            plans: BTreeMap::new(),
            loads: BTreeMap::new(),
        }
    }

    fn length(&self) -> u64 {
        u64::from(self.question.input) + u64::from(self.question.output)
    }

    fn cost(&mut self, choice: &Choice) -> Result<CostModel, Failure> {
        let key = (choice.tensor_parallel, choice.expert_parallel);
        if let Some(cost) = self.costs.get(&key) {
            return Ok(cost.clone());
        }
        let question = self.question;
        let one = |model: &NamedModel| {
            let subject = Subject {
                shape: Arc::clone(&model.shape),
                hardware: Arc::new(question.hardware.clone()),
                precision: question.precision,
                layout: Layout {
                    tensor_parallel: choice.tensor_parallel,
                    expert_parallel: choice.expert_parallel,
                    early_fp8_experts: false,
                },
                dispatch: Dispatch::default(),
                exposure: question.exposure,
            };
            subject.model(&question.calibration.offsets).map_err(|error| {
                Failure::new(format!("failed to cost `{}` on {}", model.name, question.hardware.name))
                    .caused_by(error)
                    .hint("give the device's peaks with `--bandwidth` and `--flops`, or other hardware")
            })
        };
        let mut cost = one(question.model)?;
        if let Some(draft) = question.draft {
            cost = cost.with_draft(one(draft)?, 1.0);
        }
        self.costs.insert(key, cost.clone());
        Ok(cost)
    }

    /// The model as vLLM sees it; nothing where the importer does not know it.
    ///
    /// # Errors
    /// Why vLLM refuses it.
    pub(super) fn imported(&mut self, choice: &Choice) -> Result<Option<Arc<Imported>>, String> {
        let question = self.question;
        let key = (choice.tensor_parallel, choice.block_size);
        let length = self.length();
        self.models
            .entry(key)
            .or_insert_with(|| {
                let Ok(platform) = running::platform(question.hardware).parse() else { return Ok(None) };
                let settings = ImportSettings {
                    tensor_parallel_size: u64::from(choice.tensor_parallel),
                    max_model_len: length,
                    block_size: choice.block_size,
                    kv_cache_dtype: question.kv_cache_dtype.to_owned(),
                    mamba_cache_mode: question.mamba_cache_mode,
                    speculative: (question.drafts > 0).then(|| Speculative {
                        method: question.method.unwrap_or("mtp").to_owned(),
                        num_speculative_tokens: u64::from(question.drafts),
                    }),
                    platform,
                    ..ImportSettings::default()
                };
                use planner::import::hf_config::ImportError;
                match import(&question.model.config, question.draft.map(|d| &*d.config), &settings) {
                    Ok(imported) => Ok(Some(Arc::new(imported))),
                    Err(ImportError::UnknownArchitecture { .. }) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            })
            .clone()
    }

    /// The planner's settings of a choice.
    fn settings(&self, choice: &Choice, imported: &Imported) -> EngineSettings {
        EngineSettings {
            tensor_parallel_size: u64::from(choice.tensor_parallel),
            max_model_len: self.length(),
            mamba_cache_mode: self.question.mamba_cache_mode,
            max_num_batched_tokens: u64::from(choice.max_num_batched_tokens),
            max_concurrent_batches: if self.question.exposure == Exposure::Overlapped { 2 } else { 1 },
            group_size_rule: choice.rule,
            kv_cache_layout: imported.layout.unwrap_or_default(),
            ..EngineSettings::default()
        }
    }

    fn planned(&mut self, choice: &Choice, cost: &CostModel) -> Result<Planned, Why> {
        let key = (
            choice.tensor_parallel,
            choice.block_size,
            rule_name(choice.rule),
            choice.max_num_batched_tokens,
        );
        if let Some(known) = self.plans.get(&key) {
            return known.clone();
        }
        let planned = match self.imported(choice) {
            Err(refusal) => Err(Why::Refused(refusal)),
            // Pages without padding.
            #[expect(clippy::cast_precision_loss, reason = "a request's length")]
            Ok(None) => Ok(Planned {
                groups: None,
                dispatch: Dispatch::default(),
                bytes_per_block: cost.kv_bytes_a_token().max(1.0),
                blocks_per_request: self.length() as f64,
            }),
            Ok(Some(imported)) => self.plan(choice, &imported),
        };
        self.plans.insert(key, planned.clone());
        planned
    }

    fn plan(&self, choice: &Choice, imported: &Imported) -> Result<Planned, Why> {
        let refused = |error: &dyn std::fmt::Display| Why::Refused(error.to_string());
        // Any memory that holds a request does: blocks are counted for the real one below.
        let settings =
            EngineSettings { available_memory_bytes: vec![1 << 44], ..self.settings(choice, imported) };
        let plan = planner::plan(&imported.model, &settings, &EngineVersion::default().rules())
            .map_err(|error| refused(&error))?;
        let grouping = &plan.grouping;
        let (Some(bytes_per_block), Some(pool)) = (plan.bytes_per_block, plan.pool) else {
            // Without a KV cache any number runs.
            return Ok(Planned {
                groups: None,
                dispatch: Dispatch::default(),
                bytes_per_block: 1.0,
                blocks_per_request: 1.0,
            });
        };
        let pool = pool.map_err(|error| refused(&error))?;
        #[expect(clippy::cast_precision_loss, reason = "blocks and bytes of a request")]
        Ok(Planned {
            groups: Some(Groups {
                count: grouping.groups.len() as u64,
                size: grouping.group_size(),
                padding: grouping.padding_layers(),
                block_size: imported.block_size,
            }),
            dispatch: groups::dispatch(grouping, self.question.hardware, self.question.drafts > 0),
            bytes_per_block: bytes_per_block as f64,
            blocks_per_request: pool.blocks_per_max_len_request.max(1) as f64,
        })
    }

    /// Memory for the KV cache of one device, bytes.
    fn memory(&self, choice: &Choice, cost: &CostModel) -> Result<f64, Failure> {
        let question = self.question;
        #[expect(clippy::cast_precision_loss, reason = "a device's memory")]
        if let Some(bytes) = question.kv_cache_memory {
            return Ok(bytes as f64);
        }
        let memory = question.hardware.memory_bytes.ok_or_else(|| {
            Failure::new(format!("hardware `{}` has no figure for `memory_bytes`", question.hardware.name))
                .caused_by("how many requests run at once depends on it")
                .hint("give the memory of the KV cache with `--kv-cache-memory`, such as 40GiB")
        })?;
        let (seqs, tokens) = question.usual;
        let usual = Choice { max_num_seqs: seqs, max_num_batched_tokens: tokens, ..*choice };
        let overhead = (OVERHEAD_BYTES + self.working_bytes(choice) - self.working_bytes(&usual)).max(0.0);
        #[expect(clippy::cast_precision_loss, reason = "a device's memory")]
        Ok(memory as f64 * question.utilization - cost.weight_bytes() - overhead)
    }

    /// Memory that the longest step works in, as far as it depends on the batch: the widest layer's activations in
    /// 16 bits, and logits and probabilities in 32.
    fn working_bytes(&self, choice: &Choice) -> f64 {
        let shape = &self.question.model.shape;
        let ranks = f64::from(choice.tensor_parallel);
        let widest = shape
            .layers
            .iter()
            .map(|(_, layer)| {
                let dense = layer.split / shape.hidden / ranks;
                let experts = layer.experts.map_or(0.0, |own| {
                    let width = if choice.expert_parallel { own.width } else { own.width / ranks };
                    own.top_k * ((2.0 * width).max(shape.hidden) + width)
                });
                dense.max(experts) + 4.0 * shape.hidden
            })
            .fold(0.0, f64::max);
        let sampled = f64::from(choice.max_num_seqs) * f64::from(1 + self.question.drafts);
        f64::from(choice.max_num_batched_tokens) * widest * 2.0 + sampled * shape.vocab * 8.0
    }

    /// What a choice gives.
    ///
    /// # Errors
    /// If the device lacks a figure.
    pub(super) fn try_out(&mut self, choice: &Choice) -> Result<Result<Outcome, Why>, Failure> {
        if choice.max_num_batched_tokens < choice.max_num_seqs {
            let why = format!(
                "max_num_batched_tokens ({}) is below max_num_seqs ({})",
                choice.max_num_batched_tokens, choice.max_num_seqs
            );
            return Ok(Err(Why::Refused(why)));
        }
        let cost = self.cost(choice)?;
        let left = self.memory(choice, &cost)?;
        if left <= 0.0 {
            let weights = cost.weight_bytes() / 1e9;
            #[expect(clippy::cast_precision_loss, reason = "a device's memory")]
            let memory = self.question.hardware.memory_bytes.unwrap_or(0) as f64;
            let usable = memory * self.question.utilization / 1e9;
            return Ok(Err(Why::Room(NoRoom::Weights { weights, usable })));
        }
        let planned = match self.planned(choice, &cost) {
            Ok(planned) => planned,
            Err(why) => return Ok(Err(why)),
        };
        // One block is the null block.
        let blocks = (left / planned.bytes_per_block).floor() - 1.0;
        let held = blocks / planned.blocks_per_request;
        if held < 1.0 {
            return Ok(Err(Why::Room(NoRoom::Request { tokens: self.length() })));
        }
        let (input, output) = (f64::from(self.question.input), f64::from(self.question.output));
        // A running request holds its prompt and, as blocks are taken when they are needed, part of its output.
        let held = held * (input + output) / (input + 0.75 * output);
        let limit = held.min(f64::from(choice.max_num_seqs)).floor().max(1.0);
        let cost = cost.with_groups(planned.dispatch, self.question.exposure);
        Ok(self.serve(choice, &cost, &planned, held, limit))
    }

    fn load(&self, choice: &Choice, concurrency: f64, limit: f64) -> Load {
        let question = self.question;
        let each = 1.0 + f64::from(question.drafts);
        // Prompts get what decoding requests leave of a step.
        let beside = concurrency.min(limit) * each;
        Load {
            kind: Kind::ClosedLoop,
            concurrency,
            input: f64::from(question.input),
            output: f64::from(question.output),
            // A long run: the first wave does not count.
            prompts: f64::MAX,
            running_at_most: limit,
            chunk: (f64::from(choice.max_num_batched_tokens) - beside).max(16.0),
            drafts: f64::from(question.drafts),
            accepted: question.accepted,
        }
    }

    fn serve(
        &mut self,
        choice: &Choice,
        cost: &CostModel,
        planned: &Planned,
        held: f64,
        limit: f64,
    ) -> Result<Outcome, Why> {
        let question = self.question;
        let slo = question.slo.unwrap_or_default();
        let (concurrency, replicas) = match question.coming {
            Coming::Concurrency(concurrency) => (concurrency, 1),
            Coming::Rate(rate) => {
                let most = self.most(choice, cost, planned).min(limit);
                let at = |load: f64| cost.estimate(&self.load(choice, load, limit)).request_rate;
                if let Some(bound) = slo.broken(&cost.estimate(&self.load(choice, 1.0, limit)), 1.0, 1.0) {
                    return Err(Why::Slo(bound));
                }
                let replicas = (rate / at(most).max(1e-9)).ceil().clamp(1.0, 1e9);
                let each = rate / replicas;
                let (mut low, mut high) = (1e-3, most);
                for _ in 0..24 {
                    let middle = f64::midpoint(low, high);
                    if at(middle) < each { low = middle } else { high = middle }
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
                (high, replicas as u64)
            }
        };
        let load = self.load(choice, concurrency, limit);
        let estimate = cost.estimate(&load);
        let devices = replicas.saturating_mul(u64::from(choice.tensor_parallel));
        #[expect(clippy::cast_precision_loss, reason = "a number of devices")]
        let per_device = match question.coming {
            Coming::Concurrency(_) => estimate.output_rate / devices as f64,
            Coming::Rate(rate) => rate * load.output / devices as f64,
        };
        let filled = Batch {
            requests: estimate.running,
            tokens_each: 1.0 + load.drafts,
            context: load.input + load.output / 2.0,
            prompt: Some(Prompt { tokens: load.chunk.min(load.input * estimate.running), before: 0.0 }),
        };
        Ok(Outcome {
            groups: planned.groups,
            held,
            longest_step: cost.step(&filled).total(),
            replicas,
            devices,
            per_device,
            broken: slo.broken(&estimate, 1.0, 1.0),
            estimate,
        })
    }

    /// The most requests at once that keep the SLO, memory aside.
    fn most(&mut self, choice: &Choice, cost: &CostModel, planned: &Planned) -> f64 {
        let key = (
            choice.tensor_parallel,
            choice.expert_parallel,
            choice.max_num_batched_tokens,
            planned.groups.map_or(0, |groups| groups.count),
            rule_name(choice.rule),
        );
        if let Some(most) = self.loads.get(&key) {
            return *most;
        }
        let slo = self.question.slo.unwrap_or_default();
        let keeps =
            |load: f64| slo.broken(&cost.estimate(&self.load(choice, load, f64::MAX)), 1.0, 1.0).is_none();
        let (mut good, mut bad) = (1.0, 65_536.0);
        while bad - good > 1.0 {
            let middle = f64::midpoint(good, bad).floor();
            if keeps(middle) { good = middle } else { bad = middle }
        }
        self.loads.insert(key, good);
        good
    }

    /// Group sizes that are worth a look: those that no other beats in groups and padding, and the proposed rules.
    pub(super) fn rules(&mut self, choice: &Choice) -> Vec<Option<GroupSizeRule>> {
        use planner::group::group_size::{groups, padding, size_for};
        let mut rules = vec![choice.rule];
        let Ok(Some(imported)) = self.imported(choice) else { return rules };
        let engine = EngineVersion::default().rules();
        let Ok(grouping) = planner::group::group(&imported.model, &self.settings(choice, &imported), &engine)
        else {
            return rules;
        };
        if grouping.decision != planner::Decision::UniformPageSize {
            return rules;
        }
        let counts: Vec<u64> = grouping.buckets.iter().map(|bucket| bucket.layers.len() as u64).collect();
        let size = |rule: Option<GroupSizeRule>| size_for(rule.unwrap_or(engine.group_size), &counts, &[]);
        let mut sizes = vec![size(choice.rule)];
        let largest = counts.iter().copied().max().unwrap_or(1);
        let marks: Vec<(u64, u64, u64)> =
            (1..=largest).map(|size| (size, groups(&counts, size), padding(&counts, size))).collect();
        let proposed = [
            None,
            Some(GroupSizeRule::PaddingPlusGroups { padding_per_group_milli: 1000 }),
            Some(GroupSizeRule::SkipSingleLayers),
        ];
        let fixed = marks.iter().filter(|(_, groups, padding)| {
            !marks.iter().any(|(_, g, p)| g <= groups && p <= padding && (g < groups || p < padding))
        });
        let fixed = fixed.map(|(size, _, _)| Some(GroupSizeRule::Fixed(*size)));
        for rule in proposed.into_iter().chain(fixed) {
            if !sizes.contains(&size(rule)) {
                sizes.push(size(rule));
                rules.push(rule);
            }
        }
        rules
    }
}
