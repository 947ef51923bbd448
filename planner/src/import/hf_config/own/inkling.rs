//! Inkling: attention with a short convolution's window beside it.
//!
//! # Source
//! vLLM 0.32: `vllm/models/inkling/nvidia/{attention,sconv_swa_attn}.py`.

use super::super::config::Config;
use super::super::error::ImportError;
use super::super::layer::Layers;
use super::super::settings::Context;

pub(in super::super) fn layers(
    _config: &Config<'_>,
    _context: &mut Context<'_>,
    _prefix: &str,
) -> Result<Layers, ImportError> {
    Err(ImportError::UnknownArchitecture { name: "InklingForCausalLM".to_owned(), similar: Vec::new() })
}
