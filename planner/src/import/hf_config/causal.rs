//! Which layers keep nothing since their tokens see each other in both directions?
//!
//! A model that embeds texts encodes them at once: vLLM gives its layers no cache.
//!
//! # Source
//! `is_causal` in the attention classes of `vllm/model_executor/models/` and `Gemma3TextModelConfig` in its
//! `config.py`; which architectures run these classes was asked of vLLM 0.32 (`tests/golden/models-causal.jsonl.gz`).

use super::config::Config;
use super::error::ImportError;

/// Architectures whose attention looks at `is_causal`; others attend as they always do.
const LOOK: &[&str] = &[
    "AriaForConditionalGeneration",
    "AudioFlamingo3ForConditionalGeneration",
    "BagelForConditionalGeneration",
    "BeeForConditionalGeneration",
    "Cosmos3ForConditionalGeneration",
    "DeepseekForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DotsOCRForCausalLM",
    "Eagle2_5_VLForConditionalGeneration",
    "Ernie4_5ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "Gemma3ForSequenceClassification",
    "Glm4MoeLiteForCausalLM",
    "GlmAsrForConditionalGeneration",
    "H2OVLChatModel",
    "HCXVisionV2ForCausalLM",
    "IQuestCoderForCausalLM",
    "IQuestLoopCoderForCausalLM",
    "Idefics3ForConditionalGeneration",
    "InternLM3ForCausalLM",
    "InternVLForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "LLaMAForCausalLM",
    "LightOnOCRForConditionalGeneration",
    "LlamaForCausalLM",
    "LlamaForSequenceClassification",
    "LlamaForTokenClassification",
    "LlamaModel",
    "Llama_Nemotron_Nano_VL",
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaNextVideoForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "MiMoForCausalLM",
    "MiniCPMV4_6ForConditionalGeneration",
    "MiniCPMV4_7ForConditionalGeneration",
    "Ministral3ForCausalLM",
    "Mistral3ForConditionalGeneration",
    "MistralForCausalLM",
    "MistralForSequenceClassification",
    "MistralLarge3ForCausalLM",
    "MistralModel",
    "MoonshotKimiaForCausalLM",
    "MossTranscribeDiarizeForConditionalGeneration",
    "NVLM_D",
    "OpenCUAForConditionalGeneration",
    "PaddleOCRVLForConditionalGeneration",
    "PanguEmbeddedForCausalLM",
    "PanguProMoEV2ForCausalLM",
    "Phi3ForCausalLM",
    "Phi3Model",
    "Phi3VForCausalLM",
    "Phi4ForCausalLMV",
    "QianfanOCRForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration",
    "Qwen2ForCausalLM",
    "Qwen2ForProcessRewardModel",
    "Qwen2ForRewardModel",
    "Qwen2ForTokenClassification",
    "Qwen2Model",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5OmniForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3ASRForConditionalGeneration",
    "Qwen3ASRRealtimeGeneration",
    "Qwen3ForCausalLM",
    "Qwen3ForSequenceClassification",
    "Qwen3Model",
    "Qwen3VLForConditionalGeneration",
    "Qwen4ExpForCausalLM",
    "Qwen4ExpForConditionalGeneration",
    "RForConditionalGeneration",
    "SkyworkR1VChatModel",
    "SmolVLMForConditionalGeneration",
    "TeleChat3ForCausalLM",
    "TeleFLMForCausalLM",
    "UltravoxModel",
];

/// Whether the target's attention only encodes.
pub(super) fn encodes(config: &Config<'_>) -> Result<bool, ImportError> {
    match config.architecture() {
        "Gemma3TextModel" => config.flag("use_bidirectional_attention"),
        name => Ok(LOOK.contains(&name) && looks_both_ways(config)),
    }
}

/// Whether a config says so; vLLM takes no such model for one of latents (`ModelConfig.use_mla`).
pub(super) fn looks_both_ways(config: &Config<'_>) -> bool {
    config.has("is_causal") && matches!(config.flag("is_causal"), Ok(false))
}
