//! Which layers does a draft model add to its target's?
//!
//! # Source
//! vLLM 0.32: `SpeculativeConfig.hf_config_override` in `vllm/config/speculative.py`, the draft models in
//! `vllm/model_executor/models/*_{mtp,eagle,eagle3,dflash,dspark}.py` and `vllm/models/*/nvidia`.

mod mtp;

use serde_json::Value;

use super::architectures;
use super::config::Config;
use super::dense::{self, Dense, LLAMA, Window, index};
use super::error::ImportError;
use super::fields;
use super::hybrid::latent_size;
use super::layer::{Attention, Cache, Latent, Layer, Layers};
use super::own;
use super::platform;
use super::refusals;
use super::settings::Context;

/// Methods that add no layers.
const WITHOUT_LAYERS: &[&str] = &["ngram", "ngram_gpu", "suffix", "medusa", "custom_class", "mlp_speculator"];

/// Appends the draft's layers.
pub(super) fn append(
    target: &Config<'_>,
    draft: Option<&Value>,
    context: &mut Context<'_>,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let Some(speculative) = context.settings.speculative.clone() else { return Ok(()) };
    let method = speculative.method.as_str();
    if WITHOUT_LAYERS.contains(&method) {
        return Ok(());
    }
    let draft = draft.map(Config::new_draft).transpose()?;
    // The target's file is read again for its heads, and the overrides are not told to them: `SpeculativeConfig` in
    // `vllm/config/speculative.py`, vLLM 0.32.
    let own = target.as_read();
    if let Some(draft) = draft.as_ref().filter(|draft| !draft.is_wrapped()) {
        fields::check(draft)?;
        refusals::class(draft)?;
    }
    layers.draft_from = Some(layers.layers.len());
    let prefix = match context.settings.draft_prefix.as_str() {
        "" => String::new(),
        given => format!("{given}."),
    };
    let start = first_layer(target)?;
    let added = match (method, &draft) {
        // The same cache, with the window that the target leaves in force: `_create_draft_vllm_config` in
        // `vllm/v1/spec_decode/draft_model.py`, vLLM 0.32.
        ("draft_model", Some(draft)) if !mtp::is_converted(draft)? => {
            let prefix = if prefix.is_empty() { "draft_model." } else { &prefix };
            same_vocabulary(target, draft)?;
            // Its config passes the platform's check too, and the cache's config is the same.
            context.block_of_draft = platform::forced_by_latents(context.settings.platform, draft);
            let draft = draft.clone().under_window(dense::model_window(target)?);
            let mut added = architectures::layers(&draft, context)?.layers;
            for layer in &mut added {
                layer.name.insert_str(0, prefix);
            }
            return extend(layers, added);
        }
        ("eagle" | "eagle3", Some(draft)) => eagle(target, draft, context, start, method)?,
        ("dflash" | "dspark", Some(draft)) => block_drafts(target, draft, context, start, method)?,
        ("eagle" | "eagle3" | "dflash" | "draft_model", None) => {
            return Err(ImportError::DraftConfigMissing { method: method.to_owned() });
        }
        ("dspark", None) if !matches!(target.text_type(), "deepseek_v4" | "deepseek_v41") => {
            return Err(ImportError::DraftConfigMissing { method: method.to_owned() });
        }
        ("dspark", None) => mtp::deepseek_v4_stages(&own, context, start)?,
        // `mtp`, and the older names of single models' heads.
        (_, draft) => {
            let config = draft.as_ref().unwrap_or(&own);
            mtp::layers(target, config, context, first_layer(config)?, method)?
        }
    };
    let named = added
        .into_iter()
        .map(|mut layer| {
            layer.name.insert_str(0, &prefix);
            layer
        })
        .collect();
    extend(layers, named)
}

/// A draft that is a model of its own must know the target's tokens.
///
/// # Source
/// `verify_equal_vocab_size_if_draft_model` in `vllm/config/speculative.py`, vLLM 0.32.
fn same_vocabulary(target: &Config<'_>, draft: &Config<'_>) -> Result<(), ImportError> {
    match (target.stated("vocab_size")?, draft.stated("vocab_size")?) {
        (Some(target), Some(draft)) if target != draft => Err(ImportError::Refused(format!(
            "the draft's vocabulary of {draft} tokens is not the target's of {target}"
        ))),
        _ => Ok(()),
    }
}

fn extend(layers: &mut Layers, added: Vec<Layer>) -> Result<(), ImportError> {
    super::config::layers_below_limit((layers.layers.len() + added.len()) as u64)?;
    layers.layers.extend(added);
    Ok(())
}

/// The index of a draft's first layer: the target's layers.
fn first_layer(target: &Config<'_>) -> Result<u64, ImportError> {
    if target.text_type() == "longcat_flash" {
        return target.need("num_layers");
    }
    match target.text("hybrid_override_pattern")? {
        Some(pattern) if target.whole("num_hidden_layers")?.is_none() => Ok(pattern.len() as u64),
        _ => Ok(target.whole("num_hidden_layers")?.unwrap_or(0)),
    }
}

/// The window that the target leaves in force for layers that do not say.
///
/// # Source
/// `MiMoV2FlashDecoderLayer` and `Step3p5DecoderLayer` take it away.
fn inherited_window(target: &Config<'_>) -> Result<Option<u64>, ImportError> {
    if matches!(target.text_type(), "mimo_v2_flash" | "mimo_v2" | "step3p5" | "step3p7" | "step3p7_text") {
        return Ok(None);
    }
    dense::model_window(target)
}

/// One layer's keys and values of `config`, with a window.
fn keys_and_values(
    config: &Config<'_>,
    context: &Context<'_>,
    dense: Dense,
    window: Option<u64>,
) -> Result<Cache, ImportError> {
    let heads = dense::heads(config, context)?;
    let head_size = match dense.head {
        dense::Head::Hidden => dense::hidden_head(config, heads)?,
        _ => dense::head_dim(config, heads)?,
    };
    let total = dense::total_kv_heads(config, dense.kv, heads)?;
    let kv_heads = context.kv_heads(total)?;
    Ok(Cache::Attention(Attention { kv_heads, head_size, window, ..Attention::default() }))
}

/// Architectures that an EAGLE draft may have, once it is named as one.
///
/// # Source
/// `_SPECULATIVE_DECODING_MODELS` in `vllm/model_executor/models/registry.py`, vLLM 0.32 and 0.33.
const EAGLE: &[&str] = &[
    "Eagle3DeepseekV2ForCausalLM",
    "Eagle3DeepseekV3ForCausalLM",
    "Eagle3LlamaForCausalLM",
    "Eagle3MiniMaxM2ForCausalLM",
    "Eagle3Qwen2_5vlForCausalLM",
    "Eagle3Qwen3ForCausalLM",
    "Eagle3Qwen3vlForCausalLM",
    "EagleCohereForCausalLM",
    "EagleDeepSeekMTPModel",
    "EagleLlama4ForCausalLM",
    "EagleLlamaForCausalLM",
    "EagleMiniCPMForCausalLM",
    "EagleMistralForCausalLM",
    "EagleMistralLarge3ForCausalLM",
    "LlamaForCausalLMEagle3",
];

/// The architecture that vLLM looks for, from the draft's own.
///
/// # Source
/// `EAGLEConfig` in `vllm/transformers_utils/configs/eagle.py`, `hf_config_override` in
/// `vllm/config/speculative.py`, vLLM 0.32.
fn eagle_name(draft: &Config<'_>, method: &str) -> String {
    let own = match draft.text_type() {
        "deepseek_v3" => "DeepSeekMTPModel",
        "deepseek_v32" | "glm_moe_dsa" => "DeepseekV32MTPModel",
        _ => draft.architecture(),
    };
    let named = match method {
        "eagle3" => own.starts_with("Eagle3") || own.ends_with("Eagle3"),
        _ => own.starts_with("Eagle"),
    };
    match (named, method) {
        (true, _) => own.to_owned(),
        (false, "eagle3") => format!("Eagle3{own}"),
        (false, _) => format!("Eagle{own}"),
    }
}

/// EAGLE and EAGLE3: a layer or two after the target's.
fn eagle(
    target: &Config<'_>,
    draft: &Config<'_>,
    context: &Context<'_>,
    start: u64,
    method: &str,
) -> Result<Vec<Layer>, ImportError> {
    let name = draft.architecture();
    // A wrapper names itself, and Speculators' form is converted.
    if !draft.is_wrapped() && !EAGLE.contains(&eagle_name(draft, method).as_str()) {
        return Err(ImportError::UnknownDraft {
            name: super::config::short(&eagle_name(draft, method)),
            method: method.to_owned(),
        });
    }
    let n = draft.num_layers()?;
    let latent = ["Deepseek", "DeepSeek", "MistralLarge3"].iter().any(|part| name.contains(part));
    if latent && draft.whole("kv_lora_rank")?.is_some() {
        let head_size = latent_size(draft)?;
        let cache = Cache::Latent(Latent { head_size, ..Latent::default() });
        return Ok((0..n)
            .map(|i| Layer::new(format!("model.layers.{}.self_attn.attn", start + i), cache.clone()))
            .collect());
    }
    let known = ["Llama", "Qwen", "Mistral", "Cohere", "MiniCPM", "MiniMax", "Eagle", "eagle", "GptOss"];
    if !known.iter().any(|part| name.contains(part)) {
        return Err(ImportError::UnknownDraft {
            name: super::config::short(name),
            method: method.to_owned(),
        });
    }
    let folder = if name.contains("MiniCPM") { "eagle_layers" } else { "layers" };
    let inherited = inherited_window(target)?;
    let listed = draft.texts("layer_types")?;
    let own = dense::window(draft)?;
    (0..n)
        .map(|i| {
            let slides =
                listed.as_ref().is_some_and(|types| types.get(index(i)) == Some(&"sliding_attention"));
            let window = if slides { own.or(inherited) } else { inherited };
            let cache = keys_and_values(draft, context, LLAMA, window)?;
            Ok(Layer::new(format!("model.{folder}.{}.self_attn.attn", start + i), cache))
        })
        .collect()
}

/// DFlash and DSpark: drafts that write a block of tokens at once.
fn block_drafts(
    target: &Config<'_>,
    draft: &Config<'_>,
    context: &Context<'_>,
    start: u64,
    method: &str,
) -> Result<Vec<Layer>, ImportError> {
    let n = draft.num_layers()?;
    if draft.text_type() == "k3_dspark" || draft.architecture() == "K3DSparkModel" {
        dense::heads(draft, context)?;
        // `vllm/transformers_utils/configs/k3_dspark.py`, vLLM 0.32.
        let read = draft.list("target_layer_ids")?.unwrap_or_default().len() as u64;
        if read == 0 || draft.whole("num_target_layers")? != Some(read) {
            return Err(ImportError::Refused(
                "the draft's `num_target_layers` is not the number of its `target_layer_ids`".to_owned(),
            ));
        }
        let head_size = latent_size(draft)?;
        let cache =
            Cache::Latent(Latent { head_size, non_causal_multi_token_decode: true, ..Latent::default() });
        return Ok((0..n)
            .map(|i| Layer::new(format!("model.layers.{}.self_attn", start + i), cache.clone()))
            .collect());
    }
    let staged = matches!(draft.architecture(), "DSparkDraftModel" | "DSparkV41DraftModel");
    if (staged && draft.text_type() != "qwen3") || matches!(draft.text_type(), "deepseek_v4" | "deepseek_v41")
    {
        return mtp::deepseek_v4_stages(draft, context, start);
    }
    if draft.architecture() == "MuseSparkDSparkModel" || draft.text_type() == "muse_spark_dspark" {
        return muse_spark(target, draft, context, start, n);
    }
    if draft.architecture() == "Gemma4DSparkModel" {
        return own::gemma4(draft, context, "model.").map(|layers| layers.layers);
    }
    let known = [
        "DFlash",
        "DSpark",
        "Qwen3DSpark",
        "Qwen3OmniDSpark",
        "MuseGlimmerAssistant",
        "LiLiCorr",
        "Qwen3",
        "Llama",
    ];
    if !known.iter().any(|part| draft.architecture().contains(part)) {
        return Err(ImportError::UnknownDraft {
            name: super::config::short(draft.architecture()),
            method: method.to_owned(),
        });
    }
    let flash = draft.object("dflash_config");
    let flag = |key: &str| flash.and_then(|map| map.get(key)).and_then(Value::as_bool).unwrap_or(false);
    let types = super::layer_types::layer_types(draft)?;
    let any_slides =
        types.as_ref().is_some_and(|types| types.contains(&super::layer_types::LayerType::Sliding));
    let own = match flash.and_then(|map| map.get("swa_window_size")) {
        Some(value) => super::config::whole_value("dflash_config.swa_window_size", value)?,
        None => draft.whole("sliding_window")?,
    };
    let inherited = inherited_window(target)?;
    (0..n)
        .map(|i| {
            let slides = match &types {
                Some(types) if any_slides || !flag("use_swa") => {
                    types.get(index(i)) == Some(&super::layer_types::LayerType::Sliding)
                }
                _ => flag("use_swa"),
            };
            let window = if slides { own.or(inherited) } else { inherited };
            let cache = keys_and_values(draft, context, Dense { window: Window::Model, ..LLAMA }, window)?;
            Ok(Layer::new(format!("model.layers.{}.self_attn.attn", start + i), cache))
        })
        .collect()
}

/// A dense draft of Muse Spark, whose windows come in a cycle that ends with its last layer.
///
/// # Source
/// vLLM 0.33: `vllm/models/muse_spark/{common/dspark.py,nvidia/model.py}`, `MuseSparkDSparkConfig` in
/// `vllm/transformers_utils/configs/muse_spark.py`.
fn muse_spark(
    target: &Config<'_>,
    draft: &Config<'_>,
    context: &Context<'_>,
    start: u64,
    n: u64,
) -> Result<Vec<Layer>, ImportError> {
    let heads = draft.whole("num_attention_heads")?.unwrap_or(40);
    context.divide("the attention heads", heads)?;
    let kv_heads = context.kv_heads(draft.whole("num_key_value_heads")?.unwrap_or(8))?;
    let head_size = draft.whole("head_dim")?.unwrap_or(128);
    let cycle = muse_spark_cycle(draft)?;
    let shift = match draft.whole("every_n_layers_nope")? {
        Some(0) => return Err(ImportError::Refused("`every_n_layers_nope` is 0".to_owned())),
        Some(every) => every - n % every,
        None => 0,
    };
    let inherited = inherited_window(target)?;
    Ok((start..start.saturating_add(n))
        .map(|i| {
            let at = i.saturating_add(shift).checked_rem(cycle.len() as u64);
            let own = at.and_then(|at| cycle.get(index(at)).copied().flatten());
            let cache = Cache::Attention(Attention {
                kv_heads,
                head_size,
                window: own.or(inherited),
                ..Attention::default()
            });
            Layer::new(format!("model.layers.{i}.self_attn.attn"), cache)
        })
        .collect())
}

/// `global_attn_cfg`: a list, or one written as a text; what is no number above 0 attends to all.
fn muse_spark_cycle(draft: &Config<'_>) -> Result<Vec<Option<u64>>, ImportError> {
    if let Ok(Some(text)) = draft.text("global_attn_cfg") {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let entries = inner.into_iter().flat_map(|inner| inner.split(','));
        return Ok(entries.map(|entry| entry.trim().parse().ok().filter(|size| *size > 0)).collect());
    }
    let listed = draft.list("global_attn_cfg")?.unwrap_or_default();
    Ok(listed.iter().map(|entry| entry.as_u64().filter(|size| *size > 0)).collect())
}
