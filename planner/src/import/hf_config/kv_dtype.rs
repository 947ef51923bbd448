//! In which dtype is the KV cache kept?
//!
//! # Source
//! vLLM 0.32: `resolve_kv_cache_dtype_string`, `STR_DTYPE_TO_TORCH_DTYPE` in `vllm/utils/torch_utils.py`,
//! `_normalize_quantization_config` in `vllm/transformers_utils/model_arch_config_convertor.py`,
//! `get_kv_quant_mode` in `vllm/v1/kv_cache_interface.py`, `kv_cache_scheme` in
//! `vllm/model_executor/layers/attention/attention.py`.

use std::sync::Arc;

use serde_json::Value;

use super::config::Config;
use super::error::ImportError;
use super::platform::Platform;
use crate::dtype::DType;
use crate::spec::KvQuantMode;

/// A `--kv-cache-dtype`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KvDtype {
    /// As vLLM names it.
    pub(super) name: Arc<str>,
}

const KNOWN: &[(&str, DType, KvQuantMode)] = &[
    ("float32", DType::Float32, KvQuantMode::None),
    ("float16", DType::Float16, KvQuantMode::None),
    ("bfloat16", DType::BFloat16, KvQuantMode::None),
    ("fp8", DType::UInt8, KvQuantMode::Fp8PerTensor),
    ("fp8_e4m3", DType::UInt8, KvQuantMode::Fp8PerTensor),
    ("fp8_e5m2", DType::UInt8, KvQuantMode::Fp8PerTensor),
    ("fp8_inc", DType::Float8E4M3Fn, KvQuantMode::Fp8PerTensor),
    ("fp8_ds_mla", DType::UInt8, KvQuantMode::Fp8PerTensor),
    ("nvfp4_ds_mla", DType::UInt8, KvQuantMode::Nvfp4DsMla),
    ("int4_per_token_head", DType::UInt8, KvQuantMode::Int4PerTokenHead),
    ("int8_per_token_head", DType::Int8, KvQuantMode::Int8PerTokenHead),
    ("fp8_per_token_head", DType::UInt8, KvQuantMode::Fp8PerTokenHead),
    ("nvfp4", DType::UInt8, KvQuantMode::Nvfp4),
    ("nvfp4_4over6", DType::UInt8, KvQuantMode::Nvfp4),
];

impl KvDtype {
    /// The cache's own dtype, or the model's.
    pub(super) fn dtype(&self, model: DType) -> DType {
        self.known().map_or(model, |(_, dtype, _)| *dtype)
    }

    /// How it is quantised.
    pub(super) fn quant_mode(&self) -> KvQuantMode {
        self.known().map_or(KvQuantMode::None, |(_, _, mode)| *mode)
    }

    fn known(&self) -> Option<&'static (&'static str, DType, KvQuantMode)> {
        KNOWN.iter().find(|(name, ..)| *name == &*self.name)
    }

    /// Bytes of one token of a packed MLA row, where the layout packs.
    pub(super) fn mla_state_content_bytes(&self) -> Option<u64> {
        match &*self.name {
            "fp8_ds_mla" => Some(656),
            "nvfp4_ds_mla" => Some(352),
            _ => None,
        }
    }

    /// What the flag and the checkpoint together say.
    pub(super) fn resolve(flag: &str, config: &Config<'_>, platform: Platform) -> Result<Self, ImportError> {
        let mut name = flag.trim().to_ascii_lowercase();
        if name == "auto"
            && let Some(quantization) = config.quantization()
        {
            name = checkpoint(quantization).unwrap_or("auto").to_owned();
        }
        let architecture = config.architecture();
        if name == "bfloat16" && architecture == "DeepseekV32ForCausalLM" {
            "auto".clone_into(&mut name);
        }
        if name == "auto" && architecture == "GlmMoeDsaForCausalLM" && platform == Platform::CudaBlackwell {
            "fp8_e4m3".clone_into(&mut name);
        }
        let resolved = Self { name: name.as_str().into() };
        if name == "auto" || resolved.known().is_some() {
            Ok(resolved)
        } else {
            Err(ImportError::UnknownValue { key: "--kv-cache-dtype".to_owned(), value: name })
        }
    }
}

/// The KV cache dtype that a quantised checkpoint asks for.
fn checkpoint(quantization: &Value) -> Option<&'static str> {
    let method = quantization.get("quant_method").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let producer = quantization.pointer("/producer/name").and_then(Value::as_str);
    // A file of its own names the tool and the algorithm, of which the engine makes the method.
    let algorithm =
        quantization.pointer("/quantization/quant_algo").and_then(Value::as_str).unwrap_or_default();
    let by_file = producer == Some("modelopt")
        && matches!(
            algorithm.to_uppercase().as_str(),
            "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" | "FP8_PB_WO" | "NVFP4"
        );
    if method.starts_with("modelopt") || by_file {
        let inner = quantization.get("quantization").unwrap_or(quantization);
        let algorithm = ["kv_cache_scheme", "kv_cache_quant_algo"].iter().find_map(|key| {
            [inner, quantization].into_iter().find_map(|v| v.get(*key).filter(|v| truthy(v)))
        })?;
        return match algorithm {
            Value::String(name) => match name.to_lowercase().as_str() {
                "fp8" => Some("fp8_e4m3"),
                "nvfp4" => Some("nvfp4"),
                _ => None,
            },
            Value::Object(scheme) => {
                let bits = scheme.get("num_bits").and_then(Value::as_u64);
                let is_float = scheme.get("type").and_then(Value::as_str) == Some("float");
                match bits {
                    Some(8) if is_float && scheme.get("dynamic") == Some(&Value::Bool(false)) => {
                        Some("fp8_e4m3")
                    }
                    Some(4) if is_float => Some("nvfp4"),
                    _ => None,
                }
            }
            _ => None,
        };
    }
    let compressed = matches!(method.as_str(), "compressed-tensors" | "compressed_tensors");
    let scheme = quantization.get("kv_cache_scheme").filter(|v| truthy(v));
    (compressed && producer.is_none() && scheme.is_some()).then_some("fp8")
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(s) => !s.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    }
}
