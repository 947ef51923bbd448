//! Which lists of types does a config's class refuse?
//!
//! # Source
//! `PreTrainedConfig.validate_layer_type` in transformers' `configuration_utils.py`, 5.19, which every class runs.

use super::super::config::{Config, short};
use super::super::error::ImportError;
use super::super::layer_types::LayerType;

/// Model types whose class takes the list out of the checked attribute, or does not run the check.
///
/// # Source
/// `vllm/transformers_utils/configs/{dory,hy_v4,step5}.py` of vLLM 0.33 and 0.32, transformers' `step3p5` and
/// `step3p7`, which cut their lists.
const UNCHECKED: &[&str] = &["dory", "hy_v4", "step3p5", "step3p7", "step3p7_text", "step5"];

/// Model types whose class takes the check's own names only: others rename older ones first.
const OWN_NAMES: &[&str] =
    &["gemma2", "gemma3_text", "gpt_oss", "llama", "mistral", "olmo3", "qwen2", "qwen3", "qwen3_moe"];

/// Refuses a list that is not as long as the layers, and names that no layer has.
pub(super) fn check(config: &Config<'_>) -> Result<(), ImportError> {
    if UNCHECKED.contains(&config.text_type()) {
        return Ok(());
    }
    let Some(layers) = config.whole("num_hidden_layers")? else { return Ok(()) };
    let listed = |key: &str| -> Result<Option<Vec<&str>>, ImportError> {
        if config.is_stated(key) { config.texts(key) } else { Ok(None) }
    };
    let Some(names) = listed("layer_types")? else {
        if config.text_type() != "zamba2" {
            return Ok(());
        }
        // Its class's own list is of 54 layers, whatever the file says.
        let own = listed("layers_block_type")?.map_or(54, |names| names.len());
        return long_enough("layer_types", own, layers);
    };
    long_enough("layer_types", names.len(), layers)?;
    if OWN_NAMES.contains(&config.text_type())
        && let Some(name) = names.iter().find(|name| !LayerType::is_known(name))
    {
        return Err(ImportError::UnknownValue { key: "layer_types".to_owned(), value: short(name) });
    }
    match listed("mlp_layer_types")? {
        Some(names) => long_enough("mlp_layer_types", names.len(), layers),
        None => Ok(()),
    }
}

fn long_enough(key: &str, length: usize, layers: u64) -> Result<(), ImportError> {
    if length as u64 == layers {
        return Ok(());
    }
    Err(ImportError::Refused(format!(
        "`num_hidden_layers` ({layers}) must be equal to the number of `{key}` ({length}): transformers checks it when \
         vLLM reads the config"
    )))
}
