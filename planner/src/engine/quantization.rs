//! Which ways of quantising a checkpoint does a version know?

use super::EngineVersion;

/// Every way, and where not every version has it, the first and the last minor version that does.
///
/// # Source
/// `QuantizationMethods` in `vllm/model_executor/layers/quantization/__init__.py`, vLLM 0.24 to 0.33; `auto-round` is a name
/// that `inc` goes by, in its `override_quantization_method`.
const METHODS: &[(&str, u16, u16)] = &[
    ("auto-round", 0, u16::MAX),
    ("auto_awq", 0, u16::MAX),
    ("auto_gptq", 0, u16::MAX),
    ("awq", 0, u16::MAX),
    ("awq_marlin", 0, u16::MAX),
    ("bitsandbytes", 0, 27),
    ("compressed-tensors", 0, u16::MAX),
    ("deepseek_v4_fp8", 0, u16::MAX),
    ("experts_int8", 0, u16::MAX),
    ("fbgemm_fp8", 0, u16::MAX),
    ("fp8", 0, u16::MAX),
    ("fp8_per_block", 0, u16::MAX),
    ("fp8_per_channel", 0, u16::MAX),
    ("fp8_per_tensor", 0, u16::MAX),
    ("fp_quant", 0, u16::MAX),
    ("gpt_oss_mxfp4", 0, u16::MAX),
    ("gptq", 0, u16::MAX),
    ("gptq_marlin", 0, u16::MAX),
    ("humming", 0, u16::MAX),
    ("inc", 0, u16::MAX),
    ("int8_per_channel_weight_only", 0, u16::MAX),
    ("modelopt", 0, u16::MAX),
    ("modelopt_fp4", 0, u16::MAX),
    ("modelopt_mixed", 0, u16::MAX),
    ("modelopt_mxfp8", 0, u16::MAX),
    ("moe_wna16", 0, u16::MAX),
    ("mxfp4", 0, u16::MAX),
    ("mxfp8", 0, u16::MAX),
    ("nvfp4_per_token", 26, u16::MAX),
    ("online", 0, u16::MAX),
    ("quark", 0, u16::MAX),
    ("torchao", 0, u16::MAX),
];

impl EngineVersion {
    /// Whether this version reads checkpoints that say they are quantised by `method`.
    pub fn quantises_by(self, method: &str) -> bool {
        METHODS.iter().any(|(name, first, last)| *name == method && (*first..=*last).contains(&self.minor()))
    }

    /// The ways of quantising a checkpoint that this version knows.
    pub fn quantisations(self) -> impl Iterator<Item = &'static str> {
        let knows = move |(_, first, last): &&(&str, u16, u16)| (*first..=*last).contains(&self.minor());
        METHODS.iter().filter(knows).map(|(name, ..)| *name)
    }
}
