//! How a model's layers become known without anybody writing specs by hand.
//!
//! Pure functions over text and values that somebody else has read.

pub mod hf_config;
pub mod json;
pub mod log;
