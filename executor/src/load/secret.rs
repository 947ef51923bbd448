//! An API key that cannot be printed by accident.
//!
//! It comes from an environment variable or a file, never from the command line, and leaves only as a header.

use std::fmt;
use std::path::{Path, PathBuf};

/// A key; neither `Debug` nor any other trait shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a key could not be read; the text never holds a part of it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file could not be read.
    #[error("the key file `{path}` could not be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something that cannot stand in a header.
    #[error("the key from {from} is empty or holds characters that a header cannot carry")]
    Unfit {
        /// The variable or file.
        from: String,
    },
}

impl Secret {
    /// The key as it stands in a file, without white space around it.
    ///
    /// # Errors
    /// When the file cannot be read or holds no key.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SecretError::File { path: path.to_owned(), source })?;
        Self::new(text.trim(), &format!("`{}`", path.display()))
    }

    /// The key as it stands in an environment variable; `from` names the variable.
    ///
    /// # Errors
    /// When it is empty or not fit for a header.
    pub fn new(text: &str, from: &str) -> Result<Self, SecretError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SecretError::Unfit { from: from.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }

    /// The header that carries the key.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// The text with every occurrence of the key taken out: servers repeat it in their errors.
    pub fn redact(&self, text: &str) -> String {
        let redacted = text.replace(&self.0, "[key]");
        // As JSON and Rust's `Debug` write it.
        let escaped = self.0.replace('\\', "\\\\").replace('"', "\\\"");
        if escaped == self.0 { redacted } else { redacted.replace(&escaped, "[key]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let secret = Secret::new("sk-very-secret", "`KEY`").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        assert_eq!(secret.redact("bad key sk-very-secret!"), "bad key [key]!");
        let error = Secret::new("two words", "`KEY`").unwrap_err();
        assert!(!error.to_string().contains("two words"));
    }
}
