//! Which family builds an architecture's layers, and under which names?
//!
//! # Source
//! `vllm/model_executor/models/registry.py` of vLLM 0.32 and 0.33.

mod known;

use serde_json::Value;

use super::config::Config;
use super::dense::{self, Dense};
use super::error::ImportError;
use super::hybrid::{self, Hybrid};
use super::layer::Layers;
use super::layer_types::layer_types;
use super::mla::{self, Mla};
use super::own::{self, Own};
use super::settings::Context;
use known::{Architecture, KNOWN, POOLING, TRANSFORMERS};

/// A family and what it needs to know.
#[derive(Debug, Clone, Copy)]
enum Family {
    Dense(Dense),
    Hybrid(Hybrid),
    Mla(Mla),
    Own(Own),
    /// The language model decides: the architecture of its own config, or the class of its model type.
    Wrapper,
}

/// Known architectures, a group a kind of cache.
pub fn known_architectures() -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str>)> {
    KNOWN.iter().map(|(group, rows)| (*group, rows.iter().map(|row| row.name)))
}

/// Whether vLLM runs an architecture with the code of the library transformers.
pub(super) fn is_transformers(name: &str) -> bool {
    KNOWN.iter().any(|(group, rows)| *group == TRANSFORMERS && rows.iter().any(|row| row.name == name))
}

fn find(name: &str) -> Option<&'static Architecture> {
    KNOWN.iter().flat_map(|(_, rows)| rows.iter()).find(|row| row.name == name)
}

/// The ends of architectures' names, one of which stands for another where a model pools.
///
/// # Source
/// `_SUFFIX_TO_DEFAULTS` in `vllm/config/model.py` and `_normalize_arch` in `registry.py`, vLLM 0.32.
const ENDS: &[&str] = &[
    "ForCausalLM",
    "ForConditionalGeneration",
    "ChatModel",
    "LMHeadModel",
    "ForTextEncoding",
    "EmbeddingModel",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForAudioClassification",
    "ForImageClassification",
    "ForVideoClassification",
    "ClassificationModel",
    "ForRewardModeling",
    "RewardModel",
    "Model",
];

/// Whether vLLM runs an architecture to embed, classify or reward texts, and not to write them.
///
/// # Source
/// `_get_default_runner_type` in `vllm/config/model.py`, vLLM 0.32.
pub(super) fn pools(name: &str) -> bool {
    if find(name).is_some() || GENERATES.contains(&name) {
        return KNOWN
            .iter()
            .any(|(group, rows)| *group == POOLING && rows.iter().any(|row| row.name == name));
    }
    let end = ENDS.iter().find(|end| name.ends_with(*end));
    end.is_some_and(|end| !WRITES.contains(end))
}

/// Ends of architectures' names that write texts.
const WRITES: &[&str] = &["ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel"];

/// Base models that vLLM runs with the class of one that writes.
///
/// # Source
/// `_EMBEDDING_MODELS` in `registry.py`, vLLM 0.32.
const GENERATES: &[&str] = &["Gemma2Model", "LlamaModel", "MistralModel", "Qwen2Model"];

/// The known architecture that a name stands for.
fn resolve(name: &str) -> Option<&'static Architecture> {
    find(name).or_else(|| {
        let stem = ENDS.iter().find_map(|end| name.strip_suffix(end))?;
        ENDS.iter().find_map(|end| find(&format!("{stem}{end}")))
    })
}

/// The architecture that vLLM runs of those that a config names: the first that it knows; `None` where it names none.
///
/// # Source
/// `inspect_model_cls` in `registry.py`, vLLM 0.32.
pub(super) fn named(value: &Value) -> Result<Option<String>, ImportError> {
    let names = match value {
        Value::Null => return Ok(None),
        Value::Array(list) => list,
        _ => return Err(not_names(value)),
    };
    let names: Vec<&str> =
        names.iter().map(|name| name.as_str().ok_or_else(|| not_names(name))).collect::<Result<_, _>>()?;
    let known = names.iter().find(|name| resolve(name).is_some());
    Ok(known.or(names.first()).map(|name| (*name).to_owned()))
}

fn not_names(value: &Value) -> ImportError {
    super::config::wrong("architectures", "a list of names", value)
}

/// The layers of a model.
pub(super) fn layers(config: &Config<'_>, context: &mut Context<'_>) -> Result<Layers, ImportError> {
    let name = config.architecture();
    if name.is_empty() {
        return Err(ImportError::NoArchitecture);
    }
    let row = resolve(name).ok_or_else(|| unknown(name))?;
    let language = if matches!(row.family, Family::Wrapper) { inner(config)? } else { row };
    if OF_QWEN.contains(&language.name) {
        all_or_none_slide(config)?;
    }
    build(config, context, row.prefix, language.family)
}

/// Architectures whose layers are a `Qwen2Model` or a `Qwen3Model`.
///
/// # Source
/// `vllm/model_executor/models/{qwen2,qwen2_rm,qwen2_vl,qwen2_5_vl,qwen2_5_omni_thinker,qwen2_audio,qwen3,mimo}.py`, vLLM 0.32.
const OF_QWEN: &[&str] = &[
    "MiMoForCausalLM",
    "Qwen2AudioForConditionalGeneration",
    "Qwen2ForCausalLM",
    "Qwen2ForProcessRewardModel",
    "Qwen2ForRewardModel",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3ForCausalLM",
];

/// Refuses layers of which some slide, where `max_window_layers` does not cover them all.
///
/// # Source
/// `Qwen2Model` in `vllm/model_executor/models/qwen2.py` asserts it, vLLM 0.32.
fn all_or_none_slide(config: &Config<'_>) -> Result<(), ImportError> {
    let Some(types) = layer_types(config)? else { return Ok(()) };
    let mixed = types.windows(2).any(|pair| pair.first() != pair.last());
    let (layers, covered) = (config.num_layers()?, config.whole("max_window_layers")?);
    if !mixed || covered == Some(layers) {
        return Ok(());
    }
    let covered = covered.map_or_else(|| "missing".to_owned(), |covered| covered.to_string());
    Err(ImportError::Refused(format!(
        "`layer_types` mixes layers that slide with others, which vLLM runs in this model only where `max_window_layers` \
         ({covered}) is the number of layers ({layers})"
    )))
}

fn build(
    config: &Config<'_>,
    context: &mut Context<'_>,
    prefix: &str,
    family: Family,
) -> Result<Layers, ImportError> {
    match family {
        Family::Dense(dense) => dense::layers(config, context, prefix, dense),
        Family::Hybrid(kind) => hybrid::layers(config, context, prefix, kind),
        Family::Mla(kind) => mla::layers(config, context, prefix, kind),
        Family::Own(kind) => own::layers(config, context, prefix, kind),
        Family::Wrapper => Err(unknown(config.text_type())),
    }
}

/// A wrapped language model, by its own architecture or its model type.
fn inner(config: &Config<'_>) -> Result<&'static Architecture, ImportError> {
    let inner =
        config.texts("architectures")?.and_then(|list| list.first().copied()).filter(|_| config.is_nested());
    if let Some(row) = inner.and_then(find)
        && !matches!(row.family, Family::Wrapper)
    {
        return Ok(row);
    }
    let name = match config.text_type() {
        "llama" => "LlamaForCausalLM",
        "qwen2" => "Qwen2ForCausalLM",
        "qwen3" => "Qwen3ForCausalLM",
        "qwen3_moe" => "Qwen3MoeForCausalLM",
        "mistral" => "MistralForCausalLM",
        "mixtral" => "MixtralForCausalLM",
        "gemma" => "GemmaForCausalLM",
        "gemma2" => "Gemma2ForCausalLM",
        "gpt_oss" => "GptOssForCausalLM",
        "cohere2" => "Cohere2ForCausalLM",
        "opt" => "OPTForCausalLM",
        "internlm2" => "InternLM2ForCausalLM",
        "phi3" => "Phi3ForCausalLM",
        "granite" => "GraniteForCausalLM",
        "ministral3" => "Ministral3ForCausalLM",
        "nemotron_h" => "NemotronHForCausalLM",
        "hyperclovax" => "HyperCLOVAXForCausalLM",
        "qwen2_moe" => "Qwen2MoeForCausalLM",
        "qwen3_next" => "Qwen3NextForCausalLM",
        "qwen3_5" | "qwen3_5_text" => "Qwen3_5ForCausalLM",
        "qwen3_5_moe" | "qwen3_5_moe_text" => "Qwen3_5MoeForCausalLM",
        "step3_text" => "Step3TextForCausalLM",
        "deepseek" => "DeepseekForCausalLM",
        "deepseek_v2" => "DeepseekV2ForCausalLM",
        "deepseek_v3" => "DeepseekV3ForCausalLM",
        other => return Err(unknown(other)),
    };
    find(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> ImportError {
    let head: String = name.chars().take_while(char::is_ascii_alphabetic).take(6).collect();
    let similar = if head.len() < 3 {
        Vec::new()
    } else {
        KNOWN
            .iter()
            .flat_map(|(_, rows)| rows.iter())
            .map(|row| row.name)
            .filter(|known| known.starts_with(&head))
            .take(8)
            .collect()
    };
    ImportError::UnknownArchitecture { name: super::config::short(name), similar }
}
