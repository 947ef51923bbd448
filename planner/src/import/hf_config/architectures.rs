//! Which family builds an architecture's layers, and under which names?
//!
//! # Source
//! `vllm/model_executor/models/registry.py` of vLLM 0.32.

use super::config::Config;
use super::dense::{self, Dense, Head, Kv, LLAMA, Window};
use super::error::ImportError;
use super::hybrid::{self, Hybrid};
use super::layer::Layers;
use super::mla::{self, Mla};
use super::own::{self, Own};
use super::settings::Context;

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

/// One architecture.
struct Architecture {
    name: &'static str,
    /// What its layers' names begin with.
    prefix: &'static str,
    family: Family,
}

const fn row(name: &'static str, prefix: &'static str, family: Family) -> Architecture {
    Architecture { name, prefix, family }
}

const MODEL: &str = "model.";
const LANGUAGE: &str = "language_model.model.";
const TYPES: Family = Family::Dense(Dense { window: Window::MaybeTypes, ..LLAMA });
const NEED_TYPES: Family = Family::Dense(Dense { window: Window::Types(0), ..LLAMA });
const PLAIN: Family = Family::Dense(LLAMA);
const HIDDEN: Family = Family::Dense(Dense { head: Head::Hidden, ..LLAMA });

const fn named(name: &'static str, dense: Dense) -> Family {
    Family::Dense(Dense { name, ..dense })
}

const HIDDEN_DENSE: Dense = Dense { head: Head::Hidden, ..LLAMA };

/// Every architecture, sorted by group and name.
#[rustfmt::skip]
const KNOWN: &[(&str, &[Architecture])] = &[
    ("attention", &[
        row("AfmoeForCausalLM", MODEL, NEED_TYPES),
        row("ApertusForCausalLM", MODEL, TYPES),
        row("ArceeForCausalLM", MODEL, TYPES),
        row("BailingMoeForCausalLM", MODEL, named("layers.{}.attention.attn", LLAMA)),
        row("BailingMoeV2ForCausalLM", MODEL, named("layers.{}.attention.attn", LLAMA)),
        row("BloomForCausalLM", "transformer.", named("h.{}.self_attention.attn", Dense { kv: Kv::PerHead, ..HIDDEN_DENSE })),
        row("ChatGLMForConditionalGeneration", "transformer.encoder.", named("layers.{}.self_attention.attn", Dense { kv: Kv::Glm, ..HIDDEN_DENSE })),
        row("ChatGLMModel", "transformer.encoder.", named("layers.{}.self_attention.attn", Dense { kv: Kv::Glm, ..HIDDEN_DENSE })),
        row("Cohere2ForCausalLM", MODEL, Family::Dense(Dense { window: Window::Types(1), ..LLAMA })),
        row("Cohere2MoeForCausalLM", MODEL, Family::Dense(Dense { window: Window::Types(1), ..LLAMA })),
        row("CohereForCausalLM", MODEL, PLAIN),
        row("CwmForCausalLM", MODEL, TYPES),
        row("DbrxForCausalLM", "transformer.", named("blocks.{}.norm_attn_norm.attn.attn", Dense { kv: Kv::Dbrx, ..HIDDEN_DENSE })),
        row("DeciLMForCausalLM", MODEL, Family::Own(Own::DeciLm)),
        row("Ernie4_5ForCausalLM", MODEL, PLAIN),
        row("Ernie4_5_MoeForCausalLM", MODEL, PLAIN),
        row("Exaone4ForCausalLM", MODEL, NEED_TYPES),
        row("ExaoneForCausalLM", "transformer.", named("h.{}.attn.attention.attn", LLAMA)),
        row("ExaoneMoEForCausalLM", MODEL, Family::Own(Own::Exaone)),
        row("ExaoneMoeForCausalLM", MODEL, Family::Own(Own::Exaone)),
        row("FalconForCausalLM", "transformer.", named("h.{}.self_attention.attn", Dense { kv: Kv::Falcon, ..HIDDEN_DENSE })),
        row("FlexOlmoForCausalLM", MODEL, TYPES),
        row("GPT2LMHeadModel", "transformer.", named("h.{}.attn.attn", Dense { kv: Kv::PerHead, ..HIDDEN_DENSE })),
        row("GPTBigCodeForCausalLM", MODEL, named("h.{}.attn.attn", Dense { kv: Kv::One, ..HIDDEN_DENSE })),
        row("GPTJForCausalLM", "transformer.", named("h.{}.attn.attn", Dense { kv: Kv::PerHead, ..HIDDEN_DENSE })),
        row("GPTNeoXForCausalLM", MODEL, named("layers.{}.attention.attn", Dense { kv: Kv::PerHead, ..HIDDEN_DENSE })),
        row("Gemma2ForCausalLM", MODEL, NEED_TYPES),
        row("Gemma3ForCausalLM", MODEL, NEED_TYPES),
        row("Gemma3nForCausalLM", "language_model.", NEED_TYPES),
        row("Gemma4ForCausalLM", MODEL, Family::Own(Own::Gemma4)),
        row("GemmaForCausalLM", MODEL, PLAIN),
        row("Glm4ForCausalLM", MODEL, PLAIN),
        row("Glm4MoeForCausalLM", MODEL, PLAIN),
        row("GlmForCausalLM", MODEL, TYPES),
        row("GptOssForCausalLM", MODEL, named("layers.{}.attn.attn", Dense { window: Window::EvenLayers, ..LLAMA })),
        row("GraniteForCausalLM", MODEL, TYPES),
        row("GraniteMoeForCausalLM", MODEL, HIDDEN_TYPES),
        row("GraniteMoeSWAForCausalLM", MODEL, HIDDEN_TYPES),
        row("GraniteMoeSharedForCausalLM", MODEL, HIDDEN_TYPES),
        row("GraniteSWAForCausalLM", MODEL, TYPES),
        row("HYV3ForCausalLM", MODEL, PLAIN),
        row("HunYuanDenseV1ForCausalLM", MODEL, TYPES),
        row("HunYuanMoEV1ForCausalLM", MODEL, TYPES),
        row("HyperCLOVAXForCausalLM", MODEL, PLAIN),
        row("IQuestCoderForCausalLM", MODEL, TYPES),
        row("IQuestLoopCoderForCausalLM", MODEL, Family::Own(Own::LoopCoder)),
        row("InternLM2ForCausalLM", MODEL, named("layers.{}.attention.attn", HIDDEN_DENSE)),
        row("InternLM3ForCausalLM", MODEL, TYPES),
        row("Jais2ForCausalLM", MODEL, TYPES),
        row("K2HorizonForCausalLM", MODEL, PLAIN),
        row("LLaMAForCausalLM", MODEL, TYPES),
        row("LagunaForCausalLM", MODEL, TYPES),
        row("Llama4ForCausalLM", MODEL, Family::Own(Own::Llama4)),
        row("LlamaForCausalLM", MODEL, TYPES),
        row("MellumForCausalLM", MODEL, TYPES),
        row("MiMoForCausalLM", MODEL, HIDDEN),
        row("MiMoV2FlashForCausalLM", MODEL, Family::Own(Own::MiMoV2)),
        row("MiMoV2ForCausalLM", MODEL, Family::Own(Own::MiMoV2)),
        row("MiniCPM3ForCausalLM", MODEL, Family::Dense(Dense { head: Head::QkParts, kv: Kv::PerHead, ..LLAMA })),
        row("MiniCPMForCausalLM", MODEL, HIDDEN),
        row("MiniMaxM2ForCausalLM", MODEL, PLAIN),
        row("MiniMaxM3SparseForCausalLM", MODEL, Family::Own(Own::MiniMaxM3)),
        row("Ministral3ForCausalLM", MODEL, TYPES),
        row("MistralForCausalLM", MODEL, TYPES),
        row("MixtralForCausalLM", MODEL, PLAIN),
        row("MuseGlimmerForCausalLM", MODEL, Family::Own(Own::MuseGlimmer)),
        row("NanbeigeForCausalLM", MODEL, TYPES),
        row("NemotronForCausalLM", MODEL, PLAIN),
        row("OPTForCausalLM", "model.decoder.", named("layers.{}.self_attn.attn", Dense { kv: Kv::PerHead, ..HIDDEN_DENSE })),
        row("Olmo2ForCausalLM", MODEL, TYPES),
        row("Olmo3ForCausalLM", MODEL, TYPES),
        row("OlmoForCausalLM", MODEL, TYPES),
        row("OlmoeForCausalLM", MODEL, HIDDEN),
        row("OrionForCausalLM", MODEL, HIDDEN),
        row("PanguEmbeddedForCausalLM", MODEL, PLAIN),
        row("Param2MoEForCausalLM", MODEL, PLAIN),
        row("Phi3ForCausalLM", MODEL, TYPES),
        row("PhiForCausalLM", MODEL, TYPES),
        row("PhiMoEForCausalLM", MODEL, PLAIN),
        row("Plamo3ForCausalLM", "model.layers.", named("layers.{}.mixer.attn", Dense { window: Window::MaybeTypes, ..LLAMA })),
        row("Qwen2ForCausalLM", MODEL, HIDDEN),
        row("Qwen2MoeForCausalLM", MODEL, HIDDEN),
        row("Qwen3ForCausalLM", MODEL, PLAIN),
        row("Qwen3MoeForCausalLM", MODEL, PLAIN),
        row("SarvamMoEForCausalLM", MODEL, named("layers.{}.attention.attn", LLAMA)),
        row("SeedOssForCausalLM", MODEL, TYPES),
        row("SmolLM3ForCausalLM", MODEL, TYPES),
        row("SolarForCausalLM", MODEL, PLAIN),
        row("StableLmForCausalLM", MODEL, HIDDEN),
        row("Starcoder2ForCausalLM", MODEL, TYPES),
        row("Step1ForCausalLM", MODEL, HIDDEN),
        row("Step3TextForCausalLM", MODEL, Family::Dense(Dense { kv: Kv::One, ..LLAMA })),
        row("Step3p5ForCausalLM", MODEL, Family::Own(Own::Step3p5)),
        row("TeleChat2ForCausalLM", MODEL, TYPES),
        row("TeleChat3ForCausalLM", MODEL, TYPES),
        row("TeleFLMForCausalLM", MODEL, TYPES),
        row("VaultGemmaForCausalLM", MODEL, TYPES),
    ]),
    ("latent attention", &[
        row("AXK1ForCausalLM", MODEL, Family::Mla(Mla::Plain)),
        row("DeepseekForCausalLM", MODEL, Family::Mla(Mla::Plain)),
        row("DeepseekV2ForCausalLM", MODEL, Family::Mla(Mla::Plain)),
        row("DeepseekV32ForCausalLM", MODEL, Family::Mla(Mla::Sparse)),
        row("DeepseekV3ForCausalLM", MODEL, Family::Mla(Mla::Plain)),
        row("DeepseekV4ForCausalLM", MODEL, Family::Own(Own::DeepseekV4)),
        row("Glm4MoeLiteForCausalLM", MODEL, Family::Mla(Mla::Plain)),
        row("GlmMoeDsaForCausalLM", MODEL, Family::Mla(Mla::Sparse)),
        row("HYV4ForCausalLM", MODEL, Family::Mla(Mla::Sparse)),
        row("LongcatFlashForCausalLM", MODEL, Family::Mla(Mla::LongCat)),
        row("MistralLarge3ForCausalLM", MODEL, Family::Mla(Mla::Plain)),
        row("PanguUltraMoEForCausalLM", MODEL, Family::Mla(Mla::Plain)),
    ]),
    ("attention and recurrent states", &[
        row("FalconH1ForCausalLM", MODEL, Family::Hybrid(Hybrid::FalconH1)),
        row("FalconMambaForCausalLM", MODEL, Family::Hybrid(Hybrid::Mamba1)),
        row("GraniteMoeHybridForCausalLM", MODEL, Family::Hybrid(Hybrid::GraniteMoe)),
        row("JambaForCausalLM", MODEL, Family::Hybrid(Hybrid::Jamba)),
        row("KimiLinearForCausalLM", MODEL, Family::Hybrid(Hybrid::KimiLinear)),
        row("Lfm2ForCausalLM", MODEL, Family::Hybrid(Hybrid::Lfm2)),
        row("Lfm2MoeForCausalLM", MODEL, Family::Hybrid(Hybrid::Lfm2)),
        row("Mamba2ForCausalLM", MODEL, Family::Hybrid(Hybrid::Mamba2)),
        row("MambaForCausalLM", MODEL, Family::Hybrid(Hybrid::Mamba1)),
        row("NemotronHForCausalLM", MODEL, Family::Hybrid(Hybrid::NemotronH)),
        row("NemotronHPuzzleForCausalLM", MODEL, Family::Hybrid(Hybrid::NemotronH)),
        row("OlmoHybridForCausalLM", MODEL, Family::Hybrid(Hybrid::Olmo)),
        row("Qwen3NextForCausalLM", MODEL, Family::Hybrid(Hybrid::DeltaNet)),
        row("Qwen3_5ForCausalLM", MODEL, Family::Hybrid(Hybrid::DeltaNet)),
        row("Qwen3_5MoeForCausalLM", MODEL, Family::Hybrid(Hybrid::DeltaNet)),
        row("Zamba2ForCausalLM", MODEL, Family::Hybrid(Hybrid::Zamba2)),
    ]),
    ("images, sound and text", &[
        row("AriaForConditionalGeneration", LANGUAGE, TYPES),
        row("AudioFlamingo3ForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("Blip2ForConditionalGeneration", "language_model.model.decoder.", Family::Wrapper),
        row("Cohere2VisionForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("DiffusionGemmaForBlockDiffusion", MODEL, Family::Own(Own::Gemma4)),
        row("Ernie4_5_VLMoeForConditionalGeneration", LANGUAGE, PLAIN),
        row("Exaone4_5_ForConditionalGeneration", LANGUAGE, NEED_TYPES),
        row("Gemma3ForConditionalGeneration", LANGUAGE, NEED_TYPES),
        row("Gemma3nForConditionalGeneration", "language_model.", NEED_TYPES),
        row("Gemma4ForConditionalGeneration", LANGUAGE, Family::Own(Own::Gemma4)),
        row("Gemma4UnifiedForConditionalGeneration", LANGUAGE, Family::Own(Own::Gemma4)),
        row("Glm4vForConditionalGeneration", LANGUAGE, PLAIN),
        row("Glm4vMoeForConditionalGeneration", LANGUAGE, PLAIN),
        row("GlmAsrForConditionalGeneration", LANGUAGE, TYPES),
        row("GlmOcrForConditionalGeneration", LANGUAGE, PLAIN),
        row("GraniteSpeechForConditionalGeneration", LANGUAGE, TYPES),
        row("GraniteSpeechPlusForConditionalGeneration", LANGUAGE, TYPES),
        row("Idefics3ForConditionalGeneration", "model.text_model.", TYPES),
        row("InternS1ForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("InternVLChatModel", LANGUAGE, Family::Wrapper),
        row("InternVLForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("KimiK25ForConditionalGeneration", LANGUAGE, Family::Mla(Mla::Plain)),
        row("KimiK3ForConditionalGeneration", LANGUAGE, Family::Hybrid(Hybrid::KimiLinear)),
        row("KimiVLForConditionalGeneration", LANGUAGE, Family::Mla(Mla::Plain)),
        row("Lfm2VlForConditionalGeneration", LANGUAGE, Family::Hybrid(Hybrid::Lfm2)),
        row("Llama4ForConditionalGeneration", LANGUAGE, Family::Own(Own::Llama4)),
        row("LlavaForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("LlavaNextForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("LlavaNextVideoForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("LlavaOnevisionForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("MiniCPMV4_6ForConditionalGeneration", LANGUAGE, Family::Hybrid(Hybrid::DeltaNet)),
        row("MiniCPMV4_7ForConditionalGeneration", LANGUAGE, Family::Hybrid(Hybrid::DeltaNet)),
        row("MiniMaxM3SparseForConditionalGeneration", LANGUAGE, Family::Own(Own::MiniMaxM3)),
        row("Mistral3ForConditionalGeneration", LANGUAGE, TYPES),
        row("MuseGlimmerForConditionalGeneration", MODEL, Family::Own(Own::MuseGlimmer)),
        row("PaddleOCRVLForConditionalGeneration", LANGUAGE, PLAIN),
        row("PaliGemmaForConditionalGeneration", LANGUAGE, Family::Wrapper),
        row("PixtralForConditionalGeneration", LANGUAGE, TYPES),
        row("Qwen2AudioForConditionalGeneration", LANGUAGE, HIDDEN),
        row("Qwen2VLForConditionalGeneration", LANGUAGE, HIDDEN),
        row("Qwen2_5OmniForConditionalGeneration", LANGUAGE, HIDDEN),
        row("Qwen2_5OmniModel", LANGUAGE, HIDDEN),
        row("Qwen2_5_VLForConditionalGeneration", LANGUAGE, HIDDEN),
        row("Qwen3ASRForConditionalGeneration", LANGUAGE, PLAIN),
        row("Qwen3OmniMoeForConditionalGeneration", LANGUAGE, PLAIN),
        row("Qwen3VLForConditionalGeneration", LANGUAGE, PLAIN),
        row("Qwen3VLMoeForConditionalGeneration", LANGUAGE, PLAIN),
        row("Qwen3_5ForConditionalGeneration", LANGUAGE, Family::Hybrid(Hybrid::DeltaNet)),
        row("Qwen3_5MoeForConditionalGeneration", LANGUAGE, Family::Hybrid(Hybrid::DeltaNet)),
        row("SmolVLMForConditionalGeneration", "model.text_model.", TYPES),
        row("Step3p7ForConditionalGeneration", LANGUAGE, Family::Own(Own::Step3p5)),
        row("Step3p7FlashForCausalLM", LANGUAGE, Family::Own(Own::Step3p5)),
        row("WhisperForConditionalGeneration", "", Family::Own(Own::Whisper)),
    ]),
];

const HIDDEN_TYPES: Family = Family::Dense(Dense { head: Head::Hidden, window: Window::MaybeTypes, ..LLAMA });

/// Known architectures, a group a kind of cache.
pub fn known_architectures() -> impl Iterator<Item = (&'static str, impl Iterator<Item = &'static str>)> {
    KNOWN.iter().map(|(group, rows)| (*group, rows.iter().map(|row| row.name)))
}

fn find(name: &str) -> Option<&'static Architecture> {
    KNOWN.iter().flat_map(|(_, rows)| rows.iter()).find(|row| row.name == name)
}

/// The layers of a model.
pub(super) fn layers(config: &Config<'_>, context: &mut Context<'_>) -> Result<Layers, ImportError> {
    let name = config.architecture();
    if name.is_empty() {
        return Err(ImportError::NoArchitecture);
    }
    let row = find(name).ok_or_else(|| unknown(name))?;
    build(config, context, row.prefix, row.family)
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
        Family::Wrapper => {
            let family = inner_family(config)?;
            build(config, context, prefix, family)
        }
    }
}

/// The family of a wrapped language model, by its own architecture or its model type.
fn inner_family(config: &Config<'_>) -> Result<Family, ImportError> {
    let inner =
        config.texts("architectures")?.and_then(|list| list.first().copied()).filter(|_| config.is_nested());
    if let Some(row) = inner.and_then(find)
        && !matches!(row.family, Family::Wrapper)
    {
        return Ok(row.family);
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
        "deepseek_v2" => "DeepseekV2ForCausalLM",
        "deepseek_v3" => "DeepseekV3ForCausalLM",
        other => return Err(unknown(other)),
    };
    find(name).map(|row| row.family).ok_or_else(|| unknown(name))
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
