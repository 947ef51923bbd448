//! How a model's layers become known without anybody writing specs by hand: from its config, or a log.
//!
//! Pure functions over text and values that somebody else has read.

pub mod beside;
pub mod encoding;
pub mod hf_config;
pub mod json;
pub mod log;
