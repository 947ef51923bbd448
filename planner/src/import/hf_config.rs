//! Which layers with which specs does vLLM make of a Hugging Face `config.json`?
//!
//! The way of a config: read with its class's defaults ([`config`]), told apart by architecture
//! ([`architectures`]), turned into layers by its family, aligned and given vLLM's dtypes and block sizes
//! ([`finish`]). Sources are vLLM 0.32's model files unless a comment says otherwise.

mod align;
mod architectures;
mod causal;
mod config;
mod defaults;
mod dense;
mod drafts;
mod error;
mod fields;
mod finish;
mod hybrid;
mod kv_dtype;
mod layer;
mod layer_types;
mod mla;
mod model_dtype;
mod own;
mod platform;
mod refusals;
mod rope;
mod settings;
mod state;

use serde_json::Value;

use crate::model::Model;
use crate::settings::Layout;

pub use architectures::known_architectures;
pub use error::ImportError;
pub use platform::Platform;
pub use settings::{ImportSettings, Speculative};

/// The most layers that a config may ask for.
pub const MAX_LAYERS: u64 = 100_000;

/// What a config says about a model's KV cache, for one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The layers, named as vLLM names them; a draft's last.
    pub model: Model,
    /// `cache_config.block_size` after alignment, tokens.
    pub block_size: u64,
    /// The values of `--block-size` that the platform's kernels take, up to 256 tokens.
    pub block_sizes: Vec<u64>,
    /// `cache_config.mamba_page_size_padded`, bytes.
    pub mamba_page_size_padded: Option<u64>,
    /// Layers that use another layer's cache: `(layer, whose)`.
    pub shared: Vec<(String, String)>,
    /// The architecture that was imported.
    pub architecture: String,
    /// The KV cache dtype, resolved as far as the config says, as vLLM names it.
    pub kv_cache_dtype: String,
    /// The layout of the cache that its backends demand, where they demand one.
    pub layout: Option<Layout>,
    /// What vLLM logs when it aligns attention blocks and state pages.
    pub alignment: Vec<String>,
    /// What was assumed where the config or the platform leaves it open.
    pub notes: Vec<String>,
}

/// Imports `config` (and a draft model's) for an engine.
///
/// # Errors
/// If the architecture is not known, a needed key is missing or no whole number, or sizes do not divide over
/// the ranks as vLLM demands.
pub fn import(
    config: &Value,
    draft: Option<&Value>,
    settings: &ImportSettings,
) -> Result<Imported, ImportError> {
    let target =
        config::Config::new(config)?.overridden(&settings.hf_overrides, settings.disable_sliding_window)?;
    fields::check(&target)?;
    let mut context = settings::Context::new(&target, settings)?;
    if let Some(window) = dense::window(&target.as_read())?.filter(|_| settings.disable_sliding_window)
        && window < settings.max_model_len
    {
        context.notes.push(format!(
            "without its window vLLM runs this model up to {window} tokens only, or with \
             VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
        ));
    }
    if let Some(name) = target.architecture_by_model_type() {
        context.notes.push(format!(
            "the config names no architecture: vLLM takes `{name}`, the base model of its model type"
        ));
    }
    let mut layers = architectures::layers(&target, &mut context)?;
    fields::model_type(&target, settings.version)?;
    refusals::check(&target, &context, &layers)?;
    context.notes.extend(refusals::note_on_quantization(&target));
    drafts::append(&target, draft, &mut context, &mut layers)?;
    finish::finish(&target, context, &layers)
}
