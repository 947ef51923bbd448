//! Which requests a load is made of: random ones of exact length, or a file's.

pub mod file;
pub mod mooncake;
pub mod random_tokens;
pub mod share_gpt;

use std::path::PathBuf;

/// Why a data set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The file cannot be read.
    #[error("the data set `{path}` could not be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An entry that is not of the format.
    #[error("entry {entry} of the data set `{path}` is not understood: {reason}")]
    Entry {
        /// The file.
        path: PathBuf,
        /// From 1: the line of a JSONL file, else the place in the list.
        entry: usize,
        /// Why.
        reason: String,
    },
    /// No entry that can be used.
    #[error("the data set `{path}` holds no usable entry")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Lengths that no prompt can have.
    #[error("a prompt of {input} to {most} tokens from ids {first} to {last} cannot be made")]
    Lengths {
        /// Fewest tokens.
        input: u64,
        /// Most tokens.
        most: u64,
        /// First token id.
        first: u32,
        /// Token id after the last.
        last: u32,
    },
}

/// How many tokens a text has: the server's answer, or a guess.
pub trait CountTokens {
    /// Tokens of the text.
    fn count(&mut self, text: &str) -> u64;
}

/// A guess of four bytes a token, for servers that do not tell.
#[derive(Debug, Clone, Copy)]
pub struct GuessTokens;

impl CountTokens for GuessTokens {
    fn count(&mut self, text: &str) -> u64 {
        (text.len() as u64).div_ceil(4)
    }
}
