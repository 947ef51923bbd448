//! From a scenario and its plan to what the simulator takes.

use planner::spec::{AttentionKind, KvCacheSpec};
use planner::{GroupSpec, MambaCacheMode, SpecId};
use simulator::cost::Hardware;
use simulator::{DraftMethod, Engine, Group, Manager, Policy, Speculative, StateMode};

use crate::failure::Failure;
use crate::predict::groups::Family;
use crate::scenario::Scenario;

/// What the scheduler is told besides the scenario.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EngineArgs {
    /// Blocks of the pool, the null block included [default: from the plan's memory].
    #[arg(long, value_name = "N")]
    num_blocks: Option<u32>,

    /// Requests that run at once at most [default: from the scenario, vLLM's for the hardware, or 256].
    #[arg(long, value_name = "N")]
    max_num_seqs: Option<u32>,

    /// Find blocks of shared prefixes again.
    #[arg(long)]
    prefix_caching: bool,

    /// Schedule a step only when the one before it is back.
    #[arg(long)]
    sync: bool,

    /// Order of the waiting queue.
    #[arg(long, value_enum, default_value = "fcfs", value_name = "NAME")]
    policy: PolicyName,

    /// Draft tokens a step [default: from the scenario].
    #[arg(long, value_name = "K")]
    drafts: Option<u32>,

    /// How drafts are made [default: as `--method` of a `--model`, or dspark].
    #[arg(long, value_enum, value_name = "NAME")]
    draft_method: Option<DraftName>,

    /// Share of the blocks kept free when a request is let in.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    watermark: f64,

    /// Longest prefill chunk while others wait; 0 is no limit.
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    long_prefill_threshold: u32,

    /// Keep states and windows findable only so often: 0 keeps the ends of prompts, `all` everything.
    #[arg(long, default_value = "0", value_name = "TOKENS")]
    retention: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PolicyName {
    Fcfs,
    Priority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DraftName {
    Ngram,
    Eagle,
    Mtp,
    Dflash,
    Dspark,
    DraftModel,
}

/// Where metadata builders run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Platform {
    Nvidia,
    Rocm,
}

impl Platform {
    /// The platform of the hardware that times are predicted for, of a scenario's own, or of a model's import.
    pub(crate) fn of(scenario: &Scenario, hardware: Option<&Hardware>) -> Self {
        if let Some(hardware) = hardware {
            return if hardware.platform == "rocm" { Self::Rocm } else { Self::Nvidia };
        }
        let name = scenario.hardware.as_ref().map_or("", |hardware| hardware.name.as_str());
        let imported = scenario.imported.as_ref().is_some_and(|from| from.platform == "rocm");
        if imported || name.contains("AMD") || name.contains("Instinct") { Self::Rocm } else { Self::Nvidia }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Rocm => "ROCm",
        }
    }
}

/// What is simulated.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) groups: Vec<Group>,
    pub(crate) families: Vec<Family>,
    pub(crate) words: Vec<String>,
    pub(crate) kv_tp_replicas: u64,
}

impl Setup {
    /// The builder of each group on a platform.
    pub(crate) fn builders(&self, platform: Platform) -> Vec<String> {
        self.families.iter().map(|family| family.builder(platform == Platform::Rocm).to_owned()).collect()
    }
}

/// Plans a scenario and sets the simulator up.
///
/// # Errors
/// If vLLM refuses the plan, or a figure is too large.
pub(crate) fn setup(scenario: &Scenario, args: &EngineArgs) -> Result<Setup, Failure> {
    let fail =
        |cause: String| Failure::new(format!("failed to simulate `{}`", scenario.name)).caused_by(cause);
    let rules = scenario.engine().rules();
    let plan = planner::plan(&scenario.model, &scenario.settings, &rules).map_err(|error| {
        fail(error.to_string()).hint("`k3plan explain` says what would make it plannable")
    })?;
    let small = |what: &str, value: u64| {
        u32::try_from(value)
            .map_err(|_too_large| fail(format!("{what} is {value}, which is too large to simulate")))
    };
    let num_blocks = match (args.num_blocks, &plan.pool) {
        (Some(blocks), _) => blocks,
        (None, Some(Ok(pool))) => small("the number of blocks", pool.num_blocks)?,
        (None, Some(Err(error))) => return Err(fail(error.to_string())),
        (None, None) => {
            return Err(fail("the scenario does not say how much memory there is".to_owned()).hint(
                "give the blocks with `--num-blocks`, or the memory with `--set kv-cache-memory='40 GiB'`",
            ));
        }
    };
    let imported = scenario.imported.as_ref().and_then(|from| from.method.as_deref());
    let drafts = match (args.drafts, scenario.num_speculative_tokens) {
        (Some(drafts), Some(own)) if imported.is_some() && u64::from(drafts) != own => {
            return Err(fail(format!("`--drafts {drafts}` contradicts the model's `--num-speculative-tokens {own}`"))
                .hint("write `--num-speculative-tokens` alone: the model's layers and the simulation both follow it"));
        }
        (Some(drafts), _) => drafts,
        (None, Some(drafts)) => small("the number of draft tokens", drafts)?,
        (None, None) => 0,
    };
    let own = imported.and_then(of_model);
    let named = match (args.draft_method.map(method), own) {
        (Some(named), Some(own)) if named != own => {
            return Err(fail(format!(
                "`--draft-method` contradicts the model's method, {}",
                imported.unwrap_or_default()
            ))
            .hint("write `--method` alone: the model's layers and the simulation both follow it"));
        }
        (named, own) => named.or(own).unwrap_or(DraftMethod::Dspark),
    };
    let speculative = (drafts > 0).then(|| Speculative::new(named, drafts));
    let mut groups = Vec::new();
    let (mut families, mut words) = (Vec::new(), Vec::new());
    let draft_only = |layers: &[u32]| layers.iter().all(|&layer| scenario.model.is_draft(layer as usize));
    for group in &plan.grouping.groups {
        let id = group.first_spec();
        let spec = plan.grouping.specs.spec(id);
        let manager = manager(spec, scenario.settings.mamba_cache_mode, &small)?;
        let layers = small("a group's size", group.layers.len() as u64)?;
        let page = plan.grouping.page_size_bytes(group).map_err(|error| fail(error.to_string()))?;
        let page_size_bytes = match &group.spec {
            GroupSpec::One(_) => page,
            // Pages of mixed specs are added up already.
            GroupSpec::UniformType(_) => page / u64::from(layers.max(1)),
        };
        groups.push(Group {
            manager,
            block_size: small("a block size", spec.block_size())?,
            layers,
            page_size_bytes,
            spec: spec_number(&plan.grouping, id),
            eagle: draft_only(&group.layers) && speculative.is_some_and(|s| s.drops_block),
            dcp_sharded: spec.dcp_sharded(),
        });
        families.push(Family::of(spec));
        words.push(format!("{} x{}", spec.kind().name(), group.layers.len()));
    }
    let retention = match args.retention.as_str() {
        "all" => None,
        tokens => Some(tokens.parse().map_err(|_unreadable| {
            Failure::new(format!("`--retention` is `{tokens}`")).hint("give a number of tokens, or `all`")
        })?),
    };
    let engine = Engine {
        max_num_seqs: match (args.max_num_seqs, scenario.max_num_seqs) {
            (Some(seqs), _) => seqs,
            (None, Some(seqs)) => small("max-num-seqs", seqs)?,
            (None, None) => 256,
        },
        max_num_batched_tokens: small("max-num-batched-tokens", scenario.settings.max_num_batched_tokens)?,
        max_model_len: small("max-model-len", plan.max_model_len)?,
        num_blocks,
        policy: if args.policy == PolicyName::Priority { Policy::Priority } else { Policy::Fcfs },
        async_scheduling: !args.sync,
        enable_prefix_caching: args.prefix_caching,
        speculative,
        dcp: small("decode context parallelism", scenario.settings.decode_context_parallel_size)?,
        watermark: args.watermark,
        reserve_full_prompt: true,
        long_prefill_token_threshold: args.long_prefill_threshold,
        prefix_cache_retention_interval: if args.prefix_caching && has_sparse(&groups) {
            retention
        } else {
            None
        },
        prefix_match_unit: None,
        block_size: None,
    };
    engine.check(&groups).map_err(|error| fail(error.to_string()))?;
    Ok(Setup { engine, groups, families, words, kv_tp_replicas: plan.kv_tp_replicas.unwrap_or(1) })
}

fn has_sparse(groups: &[Group]) -> bool {
    groups.iter().any(|group| matches!(group.manager, Manager::SlidingWindow { .. } | Manager::State { .. }))
}

fn method(name: DraftName) -> DraftMethod {
    match name {
        DraftName::Ngram => DraftMethod::Ngram,
        DraftName::Eagle => DraftMethod::Eagle,
        DraftName::Mtp => DraftMethod::MultiModuleMtp,
        DraftName::Dflash => DraftMethod::Dflash,
        DraftName::Dspark => DraftMethod::Dspark,
        DraftName::DraftModel => DraftMethod::DraftModel,
    }
}

/// The simulated method of one that a model is imported with, where the scheduler knows it.
fn of_model(name: &str) -> Option<DraftMethod> {
    Some(match name {
        "ngram" | "ngram_gpu" => DraftMethod::Ngram,
        "eagle" | "eagle3" => DraftMethod::Eagle,
        "dflash" => DraftMethod::Dflash,
        "dspark" => DraftMethod::Dspark,
        "draft_model" => DraftMethod::DraftModel,
        name if name.contains("mtp") => DraftMethod::MultiModuleMtp,
        _ => return None,
    })
}

/// Equal specs get equal numbers.
fn spec_number(grouping: &planner::Grouping, id: SpecId) -> u32 {
    let spec = grouping.specs.spec(id);
    grouping.specs.iter().find(|(_, other, _)| *other == spec).map_or(id.0, |(first, _, _)| first.0)
}

fn manager(
    spec: &KvCacheSpec,
    mode: MambaCacheMode,
    small: &impl Fn(&str, u64) -> Result<u32, Failure>,
) -> Result<Manager, Failure> {
    Ok(match spec {
        KvCacheSpec::Mamba(state) => Manager::State {
            mode: match (state.mamba_cache_mode.as_deref(), mode) {
                (Some("align"), _) | (None, MambaCacheMode::Align) => StateMode::Align,
                (Some("all"), _) | (None, MambaCacheMode::All) => StateMode::All,
                _ => StateMode::None,
            },
            speculative_blocks: small("num_speculative_blocks", state.num_speculative_blocks)?,
            checkpoint_blocks: small("num_prefill_checkpoint_blocks", state.num_prefill_checkpoint_blocks)?,
            checkpoint_alignment: state
                .prefill_checkpoint_alignment
                .map(|tokens| small("prefill_checkpoint_alignment", tokens))
                .transpose()?,
        },
        KvCacheSpec::Attention(attention) => match &attention.kind {
            AttentionKind::Sliding(window) | AttentionKind::SlidingMla(window, _) => Manager::SlidingWindow {
                window: small("sliding_window", window.sliding_window)?,
                extra_retained_tokens: small("extra_retained_tokens", window.extra_retained_tokens)?,
            },
            AttentionKind::Chunked { attention_chunk_size } => {
                Manager::ChunkedLocal { chunk: small("attention_chunk_size", *attention_chunk_size)? }
            }
            AttentionKind::Cross => Manager::Cross,
            AttentionKind::CircularBuffer => Manager::Ring,
            AttentionKind::Full(_)
            | AttentionKind::Mla(..)
            | AttentionKind::Sink(..)
            | AttentionKind::Rswa(..)
            | AttentionKind::HiddenState(..)
            | AttentionKind::EncoderOnly => Manager::Full,
        },
    })
}
