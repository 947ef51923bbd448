//! How a checkpoint's weights are stored: from its config, or from what people call it.

use serde_json::Value;
use simulator::cost::{Precision, Shape, WeightFormat};

use crate::failure::Failure;

/// What people call a checkpoint's precision; `auto` is what its config says.
pub(crate) const NAMES: &str = "auto, bf16, fp8, nvfp4, mxfp4, int4";

/// The precision of a name.
///
/// Four-bit checkpoints of models with experts keep the rest in 16 bits, as NVIDIA's, Moonshot's and OpenAI's do;
/// fp8 checkpoints of models with experts are scaled by blocks, as DeepSeek's, MiniMax's and Qwen's are.
///
/// # Errors
/// If there is no such name.
pub(crate) fn named(
    name: &str,
    config: &Value,
    shape: &Shape,
    kv_cache_dtype: &str,
) -> Result<Precision, Failure> {
    let experts = shape.has_experts();
    let format = match name.to_ascii_lowercase().as_str() {
        "auto" | "" => of_config(config, experts),
        other => match format(other) {
            // fp8 checkpoints of models with experts are scaled by blocks.
            Some(WeightFormat::Fp8) if experts && !other.contains("static") => WeightFormat::Fp8Block,
            Some(format) => format,
            None => {
                return Err(Failure::new(format!("no precision is called `{other}`"))
                    .hint(format!("write one of {NAMES}")));
            }
        },
    };
    let four_bits = matches!(format, WeightFormat::Nvfp4 | WeightFormat::Mxfp4 | WeightFormat::Int4);
    let kv_bytes = match kv_cache_dtype {
        "auto" | "bfloat16" | "bf16" | "float16" => 2.0,
        dtype if dtype.starts_with("fp8") => 1.0,
        other => {
            return Err(
                Failure::new(format!("no KV cache dtype is called `{other}`")).hint("write auto or fp8")
            );
        }
    };
    Ok(Precision {
        dense: if four_bits && experts { WeightFormat::Bf16 } else { format },
        experts: format,
        kv_bytes,
    })
}

/// The format of a name, aiconfigurator's names among them.
pub(crate) fn format(name: &str) -> Option<WeightFormat> {
    Some(match name.to_ascii_lowercase().replace('-', "_").as_str() {
        "bf16" | "bfloat16" | "fp16" | "float16" | "half" => WeightFormat::Bf16,
        // Eight bits of either kind are as large, and on these devices as fast.
        "fp8" | "fp8_static" | "fp8_ootb" | "fp8_per_tensor" | "w8a8" | "int8" | "sq" => WeightFormat::Fp8,
        "fp8_block" => WeightFormat::Fp8Block,
        "nvfp4" | "fp4" | "nvfp4_wo" | "w4a16_nvfp4" => WeightFormat::Nvfp4,
        "int4" | "int4_wo" | "int4_awq" | "awq" | "gptq" | "w4a16" | "w4afp8" => WeightFormat::Int4,
        name if name == "mxfp4" || name.starts_with("w4a16_mxfp4") || name.starts_with("w4a8_mxfp4") => {
            WeightFormat::Mxfp4
        }
        _ => return None,
    })
}

fn of_config(config: &Value, experts: bool) -> WeightFormat {
    let nested =
        || ["text_config", "llm_config"].iter().find_map(|key| config.get(*key)?.get("quantization_config"));
    let Some(quantization) = config.get("quantization_config").or_else(nested) else {
        // MoE configs that name only their experts' dtype (DeepSeek V4).
        return WeightFormat::Bf16;
    };
    let text =
        |key: &str| quantization.get(key).and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let (method, algo, format) = (text("quant_method"), text("quant_algo"), text("format"));
    if config.get("expert_dtype").and_then(Value::as_str) == Some("fp4")
        || method == "mxfp4"
        || format.contains("mxfp4")
    {
        return WeightFormat::Mxfp4;
    }
    if algo.contains("nvfp4") {
        return WeightFormat::Nvfp4;
    }
    let bits = quantization
        .get("config_groups")
        .and_then(Value::as_object)
        .and_then(|groups| groups.values().next())
        .and_then(|group| group.get("weights")?.get("num_bits")?.as_u64())
        .or_else(|| quantization.get("bits").and_then(Value::as_u64));
    let block = quantization.get("weight_block_size").is_some();
    match bits {
        Some(4) => WeightFormat::Int4,
        _ if method == "fp8" || algo.contains("fp8") || bits == Some(8) => {
            if block && experts {
                WeightFormat::Fp8Block
            } else {
                WeightFormat::Fp8
            }
        }
        _ if algo == "mixed_precision" => WeightFormat::Fp8,
        _ => WeightFormat::Bf16,
    }
}
