//! Which counts beside the attention heads must suit the tensor parallel ranks?

use super::super::config::Config;
use super::super::error::ImportError;
use super::super::settings::Context;

/// Sizes of an encoder that are split over the ranks.
struct Encoder {
    architectures: &'static [&'static str],
    /// The key of its config.
    config: &'static str,
    /// What is split.
    sizes: &'static [&'static str],
}

/// # Source
/// What each model file of `vllm/model_executor/models` builds as its tower, vLLM 0.32: `divide` of heads in
/// `{siglip,clip,pixtral,blip,idefics2_vision_model,qwen2_vl,qwen2_5_vl,qwen3_vl,glm4_1v,glm_ocr,ernie45_vl,
/// paddleocr_vl,minicpmv4_6,glmasr,whisper,lfm2_siglip2,dots_ocr,siglip2navit}.py`, and the widths of `ColumnParallelLinear` there and in
/// `granite_speech.py`.
const ENCODERS: &[Encoder] = &[
    Encoder {
        architectures: &[
            "AriaForConditionalGeneration",
            "Blip2ForConditionalGeneration",
            "Cohere2VisionForConditionalGeneration",
            "Gemma3ForConditionalGeneration",
            "Granite4VisionForConditionalGeneration",
            "Idefics3ForConditionalGeneration",
            "LightOnOCRForConditionalGeneration",
            "LlavaForConditionalGeneration",
            "LlavaNextForConditionalGeneration",
            "LlavaNextVideoForConditionalGeneration",
            "LlavaOnevisionForConditionalGeneration",
            "MiniCPMV4_6ForConditionalGeneration",
            "MiniCPMV4_7ForConditionalGeneration",
            "Mistral3ForConditionalGeneration",
            "PaddleOCRVLForConditionalGeneration",
            "PaliGemmaForConditionalGeneration",
            "SmolVLMForConditionalGeneration",
        ],
        config: "vision_config",
        sizes: &["num_attention_heads", "intermediate_size"],
    },
    Encoder {
        architectures: &[
            "Ernie4_5_VLMoeForConditionalGeneration",
            "Glm4vForConditionalGeneration",
            "Glm4vMoeForConditionalGeneration",
            "GlmOcrForConditionalGeneration",
            "Qwen2VLForConditionalGeneration",
        ],
        config: "vision_config",
        sizes: &["num_heads"],
    },
    Encoder {
        architectures: &[
            "Exaone4_5_ForConditionalGeneration",
            "InternS2MobiusForConditionalGeneration",
            "InternS2PreviewForConditionalGeneration",
            "Qwen2_5OmniForConditionalGeneration",
            "Qwen2_5OmniModel",
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen3OmniMoeForConditionalGeneration",
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ],
        config: "vision_config",
        sizes: &["num_heads", "intermediate_size"],
    },
    Encoder {
        architectures: &[
            "DotsOCRForCausalLM",
            "Lfm2VlForConditionalGeneration",
            "MiniMaxM3SparseForConditionalGeneration",
            "Phi4ForCausalLMV",
            "RForConditionalGeneration",
        ],
        config: "vision_config",
        sizes: &["num_attention_heads"],
    },
    Encoder {
        architectures: &["HCXVisionV2ForCausalLM"],
        config: "vision_config",
        sizes: &["num_attention_heads", "num_heads"],
    },
    Encoder {
        architectures: &["GlmAsrForConditionalGeneration"],
        config: "audio_config",
        sizes: &["num_attention_heads", "intermediate_size"],
    },
    Encoder {
        architectures: &["UltravoxModel", "VoxtralForConditionalGeneration"],
        config: "audio_config",
        sizes: &["encoder_attention_heads", "encoder_ffn_dim"],
    },
    Encoder {
        architectures: &[
            "GraniteSpeechForConditionalGeneration",
            "GraniteSpeechPlusForConditionalGeneration",
        ],
        config: "encoder_config",
        sizes: &["output_dim"],
    },
];

/// Refuses an encoder that the ranks do not divide.
pub(super) fn encoder(config: &Config<'_>, context: &Context<'_>) -> Result<(), ImportError> {
    let name = config.architecture();
    for encoder in ENCODERS.iter().filter(|encoder| encoder.architectures.contains(&name)) {
        for size in encoder.sizes {
            match config.tower_whole(encoder.config, size) {
                Ok(Some(count)) if !count.is_multiple_of(context.tp) => {
                    return Err(ImportError::EncoderNotDivisible {
                        key: format!("{}.{size}", encoder.config),
                        size: count,
                        tensor_parallel_size: context.tp,
                    });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Model types whose mixture refuses more ranks than experts, and the key of the experts.
///
/// # Source
/// The blocks of experts in `vllm/model_executor/models/{cohere2_moe,ernie45_moe,exaone_moe,hy_v3,k2_horizon,laguna,
/// lfm2_moe,mimo_v2,minimax_m2,qwen2_moe,qwen3_moe,qwen3_next,step3_text,step3p5}.py`,
/// `vllm/models/{hy_v4,minimax_m3}/nvidia`, vLLM 0.32.
const EXPERTS: &[(&str, &str)] = &[
    ("cohere2_moe", "num_experts"),
    ("ernie4_5_moe", "moe_num_experts"),
    ("exaone_moe", "num_experts"),
    ("hy_v3", "num_experts"),
    ("hy_v4", "num_experts"),
    ("laguna", "num_experts"),
    ("lfm2_moe", "num_experts"),
    ("mimo_v2", "n_routed_experts"),
    ("mimo_v2_flash", "n_routed_experts"),
    ("minimax_m2", "num_local_experts"),
    ("minimax_m3", "num_local_experts"),
    ("minimax_m3_text", "num_local_experts"),
    ("qwen2_moe", "num_experts"),
    ("qwen3_5_moe", "num_experts"),
    ("qwen3_5_moe_text", "num_experts"),
    ("qwen3_moe", "num_experts"),
    ("qwen3_next", "num_experts"),
    ("qwen3_vl_moe_text", "num_experts"),
    ("step3_text", "moe_num_experts"),
    ("step3p5", "moe_num_experts"),
];

/// Refuses more ranks than experts.
pub(super) fn experts(config: &Config<'_>, context: &Context<'_>) -> Result<(), ImportError> {
    let Some((_, key)) = EXPERTS.iter().find(|(kind, _)| *kind == config.text_type()) else { return Ok(()) };
    match config.stated(key)? {
        Some(experts) if experts > 0 && context.tp > experts => Err(ImportError::Refused(format!(
            "tensor parallel size {} is greater than the number of experts {experts}",
            context.tp
        ))),
        _ => Ok(()),
    }
}

/// Architectures of plain feed-forward layers, whose width is split.
///
/// # Source
/// `MergedColumnParallelLinear` in `vllm/model_executor/layers/linear.py` asserts it, vLLM 0.32.
const PLAIN: &[&str] = &[
    "CohereForCausalLM",
    "Cohere2ForCausalLM",
    "Exaone4ForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "GemmaForCausalLM",
    "Glm4ForCausalLM",
    "GraniteForCausalLM",
    "InternLM2ForCausalLM",
    "LlamaForCausalLM",
    "MiniCPMForCausalLM",
    "MistralForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
];

/// Model types whose experts have a width of their own, which is split.
///
/// # Source
/// `FusedMoEConfig.__post_init__` in `vllm/model_executor/layers/fused_moe/config.py`, vLLM 0.32.
const MIXTURES: &[&str] = &[
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe",
    "glm_moe_dsa",
    "kimi_k2",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_vl_moe_text",
];

/// Refuses widths that the ranks do not divide.
pub(super) fn widths(config: &Config<'_>, context: &Context<'_>) -> Result<(), ImportError> {
    let key = if PLAIN.contains(&config.architecture()) {
        "intermediate_size"
    } else if MIXTURES.contains(&config.text_type()) {
        "moe_intermediate_size"
    } else {
        return Ok(());
    };
    match config.stated(key)? {
        Some(size) if !size.is_multiple_of(context.tp) => Err(ImportError::NotDivisible {
            what: if key == "intermediate_size" {
                "the width of the feed-forward layers"
            } else {
                "the width of the experts"
            },
            size,
            tensor_parallel_size: context.tp,
        }),
        _ => Ok(()),
    }
}

/// Tokens that a vocabulary is padded to a multiple of.
///
/// # Source
/// `DEFAULT_VOCAB_PADDING_SIZE` in `vllm/model_executor/layers/vocab_parallel_embedding.py`, vLLM 0.32.
const VOCABULARY_PADDING: u64 = 64;

/// Refuses a padded vocabulary that the ranks do not divide, which powers of two up to 64 always do.
pub(super) fn vocabulary(config: &Config<'_>, context: &Context<'_>) -> Result<(), ImportError> {
    match config.stated("vocab_size") {
        Ok(Some(size)) if size > 0 => {
            let padded = size.checked_next_multiple_of(VOCABULARY_PADDING).unwrap_or(size);
            if padded.is_multiple_of(context.tp) {
                return Ok(());
            }
            Err(ImportError::NotDivisible {
                what: "the padded vocabulary",
                size: padded,
                tensor_parallel_size: context.tp,
            })
        }
        _ => Ok(()),
    }
}

/// Refuses groups of the norm behind linear attention that the ranks do not divide.
///
/// # Source
/// `BailingMoELinearAttention` in `vllm/model_executor/layers/mamba/linear/bailing_linear_attn.py`, vLLM 0.32.
pub(super) fn norm_groups(config: &Config<'_>, context: &Context<'_>) -> Result<(), ImportError> {
    if config.architecture() != "BailingMoeV2_5ForCausalLM" {
        return Ok(());
    }
    let groups = config.whole("group_norm_size")?.unwrap_or(1);
    if groups.is_multiple_of(context.tp) {
        return Ok(());
    }
    Err(ImportError::NotDivisible {
        what: "the groups of the norm behind linear attention (`group_norm_size`)",
        size: groups,
        tensor_parallel_size: context.tp,
    })
}
