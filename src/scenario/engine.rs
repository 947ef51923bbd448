//! How is the engine set: vLLM's flags by their own names.

use planner::{EngineSettings, EngineVersion, Layout, MambaCacheMode};

use super::complaint::Complaint;
use super::fields::{self, Fields};
use super::grouping;
use super::quantity;
use super::tree::{Node, Value, same_key};

const WHAT: &str = "engine setting";

/// Every setting, for the nearest name.
pub(super) const NAMES: &[&str] = &[
    "version",
    "tensor-parallel-size",
    "decode-context-parallel-size",
    "prefill-context-parallel-size",
    "pipeline-parallel-size",
    "pipeline-stage-layers",
    "disable-hybrid-kv-cache-manager",
    "mamba-cache-mode",
    "kv-cache-layout",
    "max-model-len",
    "derived-max-model-len",
    "max-num-batched-tokens",
    "max-num-seqs",
    "async-scheduling",
    "max-concurrent-batches",
    "max-num-encoder-input-tokens",
    "num-prefill-lookahead-tokens",
    "num-gpu-blocks-override",
    "kv-cache-memory",
    "kv-cache-memory-bytes",
    "num-speculative-tokens",
    "grouping",
];

/// Shorter names, as vLLM has them too.
pub(super) const SHORT_NAMES: &[&str] =
    &["tp", "dcp", "pcp", "pp", "VLLM_PP_LAYER_PARTITION", "VLLM_KV_CACHE_LAYOUT"];

/// Settings that say one thing, the first by its full name: one laid over another takes its place.
const SAME: &[&[&str]] = &[
    &["tensor-parallel-size", "tp"],
    &["decode-context-parallel-size", "dcp"],
    &["prefill-context-parallel-size", "pcp"],
    &["pipeline-parallel-size", "pp"],
    &["pipeline-stage-layers", "VLLM_PP_LAYER_PARTITION"],
    &["kv-cache-layout", "VLLM_KV_CACHE_LAYOUT"],
    &["kv-cache-memory", "kv-cache-memory-bytes"],
    &["max-concurrent-batches", "async-scheduling"],
];

/// The settings that say what `name` says, by all their names; none where it has only one.
fn same(name: &str) -> &'static [&'static str] {
    SAME.iter().find(|names| names.iter().any(|known| same_key(known, name))).copied().unwrap_or_default()
}

/// The full name of a setting.
pub(super) fn full_name(name: &str) -> String {
    let known = NAMES.iter().find(|known| same_key(known, name)).copied();
    same(name).first().copied().or(known).unwrap_or(name).to_owned()
}

/// The settings at `lower` that `upper` does not say in other words.
pub(super) fn left_under(mut lower: Node, upper: &Node) -> Node {
    if let (Value::Map(entries), Value::Map(over)) = (&mut lower.value, &upper.value) {
        entries.retain(|(key, _)| {
            !over.iter().any(|(upper, _)| {
                !same_key(&key.name, &upper.name)
                    && same(&upper.name).iter().any(|name| same_key(name, &key.name))
            })
        });
    }
    lower
}

/// The tensor parallel ranks that a scenario's settings name.
pub(super) fn stated_ranks(tree: &Node) -> Option<u64> {
    let Value::Map(entries) = &tree.value else { return None };
    let (_, engine) = entries.iter().find(|(key, _)| key.name == "engine")?;
    let Value::Map(settings) = &engine.value else { return None };
    let ranks = |key: &str| full_name(key) == "tensor-parallel-size";
    let (_, node) = settings.iter().find(|(key, _)| ranks(&key.name))?;
    quantity::count("tensor-parallel-size", node).ok()
}

const LAYOUTS: &[Layout] =
    &[Layout::Lbhnc, Layout::Lbnhc, Layout::Lhbnc, Layout::Blhnc, Layout::Blnhc, Layout::Bhlnc];

/// The settings of a scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Engine {
    /// Which engine decides.
    pub(super) version: Option<EngineVersion>,
    /// What planning reads.
    pub(super) settings: EngineSettings,
    /// `--max-num-seqs`, requests.
    pub(super) max_num_seqs: Option<u64>,
    /// Draft tokens a step.
    pub(super) num_speculative_tokens: Option<u64>,
}

impl Engine {
    /// Lays the settings at `node` over these.
    pub(super) fn overlaid(mut self, node: Node) -> Result<Self, Complaint> {
        let mut entries = Fields::of("engine", WHAT, node)?;
        if let Some(node) = entries.take("version") {
            self.version = Some(version(&node)?);
        }
        self.parallel(&mut entries)?;
        self.memory(&mut entries)?;
        self.lengths(&mut entries)?;
        let settings = &mut self.settings;
        let mut batches = entries.count("max-concurrent-batches")?;
        if let Some(node) = entries.take("async-scheduling") {
            let async_scheduling = fields::flag("async-scheduling", &node)?;
            if batches.is_some() {
                return Err(Complaint::at(
                    &node.place,
                    "`async-scheduling` and `max-concurrent-batches` both say how many batches are in flight",
                )
                .hint("write one of them"));
            }
            batches = settings.pipeline_parallel_size.checked_add(u64::from(async_scheduling));
        }
        if let Some(batches) = batches {
            settings.max_concurrent_batches = batches;
        }
        if let Some(value) = entries.flag("disable-hybrid-kv-cache-manager")? {
            settings.disable_hybrid_kv_cache_manager = value;
        }
        if let Some(node) = entries.take("mamba-cache-mode") {
            settings.mamba_cache_mode = one_of(
                "mamba-cache-mode",
                &node,
                &[
                    ("none", MambaCacheMode::None),
                    ("align", MambaCacheMode::Align),
                    ("all", MambaCacheMode::All),
                ],
            )?;
        }
        if let Some(node) = entries.take_either("kv-cache-layout", "VLLM_KV_CACHE_LAYOUT")? {
            let choices: Vec<(&str, Layout)> =
                LAYOUTS.iter().map(|layout| (layout.name(), *layout)).collect();
            settings.kv_cache_layout = one_of("kv-cache-layout", &node, &choices)?;
        }
        if let Some(node) = entries.take("grouping") {
            let name = fields::written(&node);
            settings.group_size_rule = grouping::parse(&name)
                .map_err(|reason| Complaint::at(&node.place, reason.cause).hint(reason.hint))?;
        }
        entries.end()?;
        Ok(self)
    }

    fn parallel(&mut self, entries: &mut Fields) -> Result<(), Complaint> {
        let settings = &mut self.settings;
        for (name, short, field) in [
            ("tensor-parallel-size", "tp", &mut settings.tensor_parallel_size),
            ("decode-context-parallel-size", "dcp", &mut settings.decode_context_parallel_size),
            ("prefill-context-parallel-size", "pcp", &mut settings.prefill_context_parallel_size),
            ("pipeline-parallel-size", "pp", &mut settings.pipeline_parallel_size),
        ] {
            if let Some(node) = entries.take_either(name, short)? {
                *field = quantity::count(name, &node)?;
                if *field > RANKS {
                    return Err(Complaint::at(
                        &node.place,
                        format!("`{name}` is {field}, and can be at most {RANKS}"),
                    ));
                }
            }
        }
        if let Some(node) = entries.take_either("pipeline-stage-layers", "VLLM_PP_LAYER_PARTITION")? {
            settings.pipeline_stage_layers = match &node.value {
                Value::List(items) => items
                    .iter()
                    .map(|item| quantity::natural("pipeline-stage-layers", item))
                    .collect::<Result<_, _>>()?,
                Value::Text(text) => {
                    let layers: Result<Vec<u64>, _> =
                        text.split(',').map(|part| part.trim().parse()).collect();
                    layers.map_err(|_source| {
                        Complaint::wrong_type("pipeline-stage-layers", "numbers of layers", &node)
                    })?
                }
                _ => {
                    return Err(Complaint::wrong_type(
                        "pipeline-stage-layers",
                        "a list of layers a stage",
                        &node,
                    ));
                }
            };
            let stages = settings.pipeline_stage_layers.len() as u64;
            if stages != settings.pipeline_parallel_size {
                return Err(Complaint::at(
                    &node.place,
                    format!(
                        "`pipeline-stage-layers` has {stages} stages, and `pipeline-parallel-size` is {}",
                        settings.pipeline_parallel_size
                    ),
                ));
            }
        }
        Ok(())
    }

    fn memory(&mut self, entries: &mut Fields) -> Result<(), Complaint> {
        let settings = &mut self.settings;
        if let Some(node) = entries.take_set("num-gpu-blocks-override") {
            settings.num_gpu_blocks_override = match node.value {
                Value::Null => None,
                _ => Some(quantity::count("num-gpu-blocks-override", &node)?),
            };
        }
        let long = entries.take_set("kv-cache-memory-bytes");
        let short = entries.take_set("kv-cache-memory");
        if let (Some(_), Some(twice)) = (&long, &short) {
            return Err(Complaint::at(&twice.place, "`kv-cache-memory` is given twice"));
        }
        if let Some(node) = long.or(short) {
            settings.available_memory_bytes = match &node.value {
                Value::Null => Vec::new(),
                Value::List(stages) => stages
                    .iter()
                    .map(|stage| quantity::memory("kv-cache-memory", stage))
                    .collect::<Result<_, _>>()?,
                _ => vec![quantity::memory("kv-cache-memory", &node)?],
            };
            let stages = settings.available_memory_bytes.len() as u64;
            if stages > 1 && stages != settings.pipeline_parallel_size {
                return Err(Complaint::at(
                    &node.place,
                    format!(
                        "`kv-cache-memory` has {stages} entries, and `pipeline-parallel-size` is {}",
                        settings.pipeline_parallel_size
                    ),
                )
                .hint("write one size, or one a pipeline stage"));
            }
        }
        Ok(())
    }

    fn lengths(&mut self, entries: &mut Fields) -> Result<(), Complaint> {
        let settings = &mut self.settings;
        let derived = entries
            .take("derived-max-model-len")
            .map(|node| quantity::tokens("derived-max-model-len", &node))
            .transpose()?;
        if let Some(node) = entries.take("max-model-len") {
            let auto = matches!(&node.value, Value::Int(-1))
                || matches!(&node.value, Value::Text(text) if text == "auto");
            settings.auto_fit_max_model_len = auto;
            if !auto {
                settings.max_model_len = quantity::tokens("max-model-len", &node)?;
            } else if derived.is_none() {
                return Err(Complaint::at(
                    &node.place,
                    "`max-model-len` is to be fitted, and the model's own length is not known",
                )
                .hint("write the model's length as `derived-max-model-len: TOKENS`"));
            }
        }
        if let (true, Some(derived)) = (settings.auto_fit_max_model_len, derived) {
            settings.max_model_len = derived;
        }
        if let Some(node) = entries.take("max-num-batched-tokens") {
            settings.max_num_batched_tokens = quantity::tokens("max-num-batched-tokens", &node)?;
        }
        if let Some(node) = entries.take("max-num-encoder-input-tokens") {
            settings.max_num_encoder_input_tokens = quantity::natural("max-num-encoder-input-tokens", &node)?;
        }
        if let Some(node) = entries.take("num-prefill-lookahead-tokens") {
            settings.num_prefill_lookahead_tokens = quantity::natural("num-prefill-lookahead-tokens", &node)?;
        }
        if let Some(node) = entries.take("max-num-seqs") {
            self.max_num_seqs = Some(quantity::tokens("max-num-seqs", &node)?);
        }
        if let Some(node) = entries.take("num-speculative-tokens") {
            self.num_speculative_tokens = Some(quantity::natural("num-speculative-tokens", &node)?);
        }
        Ok(())
    }
}

/// The most ranks of one kind.
const RANKS: u64 = 65_536;

pub(super) fn version(node: &Node) -> Result<EngineVersion, Complaint> {
    let text = fields::written(node);
    let text = text.trim_matches(['"', '\'']);
    text.parse().map_err(|error: planner::engine::UnknownVersion| {
        Complaint::at(&node.place, error.to_string()).hint("write a version such as `0.33`")
    })
}

fn one_of<T: Copy>(name: &'static str, node: &Node, choices: &[(&str, T)]) -> Result<T, Complaint> {
    let text = if node.value == Value::Null { "none".to_owned() } else { fields::written(node) };
    choices.iter().find(|(choice, _)| choice.eq_ignore_ascii_case(&text)).map(|(_, value)| *value).ok_or_else(
        || Complaint::unknown(&node.place, name, &text, choices.iter().map(|(choice, _)| *choice)),
    )
}
