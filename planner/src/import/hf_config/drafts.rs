//! Which layers does a draft model add to its target's?
//!
//! # Source
//! vLLM 0.32: `SpeculativeConfig.hf_config_override` in `vllm/config/speculative.py`, the draft models in
//! `vllm/model_executor/models/*_{mtp,eagle,eagle3,dflash,dspark}.py` and `vllm/models/*/nvidia`.

use serde_json::Value;

use super::config::Config;
use super::error::ImportError;
use super::layer::Layers;
use super::settings::Context;

/// Appends the draft's layers.
pub(super) fn append(
    _target: &Config<'_>,
    _draft: Option<&Value>,
    context: &mut Context<'_>,
    layers: &mut Layers,
) -> Result<(), ImportError> {
    let Some(speculative) = context.settings.speculative.clone() else { return Ok(()) };
    if matches!(speculative.method.as_str(), "ngram" | "ngram_gpu" | "suffix" | "medusa") {
        return Ok(());
    }
    layers.draft_from = Some(layers.layers.len());
    Ok(())
}
