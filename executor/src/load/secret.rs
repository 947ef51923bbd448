//! An API key that cannot be printed by accident.
//!
//! It comes from an environment variable or a file, never from the command line, and leaves only as a header.

use std::fmt;

/// Stands where a key stood.
const SHOWN: &str = "[key]";
/// What servers write in the place of a key's middle.
const MASKS: &[&str] = &["**", "...", "\u{2026}"];

/// A key; neither `Debug` nor any other trait shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a key could not be read; the text never holds a part of it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Something that cannot stand in a header.
    #[error("the key from {from} is empty or holds characters that a header cannot carry")]
    Unfit {
        /// The variable or file.
        from: String,
    },
}

impl Secret {
    /// A key; `from` names the variable or file that it stands in.
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

    /// The text with every occurrence of the key taken out: servers repeat it in their errors, also with most of it
    /// masked (`sk-abc...xyz`, `sk-ab****`).
    pub fn redact(&self, text: &str) -> String {
        let redacted = text.replace(&self.0, SHOWN);
        // As JSON and Rust's `Debug` write it.
        let escaped = self.0.replace('\\', "\\\\").replace('"', "\\\"");
        let redacted = if escaped == self.0 { redacted } else { redacted.replace(&escaped, SHOWN) };
        if MASKS.iter().any(|mask| redacted.contains(mask)) {
            self.without_masked(&redacted)
        } else {
            redacted
        }
    }

    /// The text without words that are the key with a part of it masked.
    fn without_masked(&self, text: &str) -> String {
        let ends_word = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;:=".contains(c);
        text.split_inclusive(ends_word)
            .map(|piece| {
                let word = piece.trim_end_matches(ends_word);
                let end = piece.get(word.len()..).unwrap_or("");
                if self.is_masked(word) { format!("{SHOWN}{end}") } else { piece.to_owned() }
            })
            .collect()
    }

    /// Whether what stands before or after a mask in `word` is a beginning or an end of the key.
    fn is_masked(&self, word: &str) -> bool {
        /// One character alone is no part of a key to speak of.
        const LEAST: usize = 2;
        let first = MASKS.iter().filter_map(|mask| Some((word.find(mask)?, *mask))).min_by_key(|(at, _)| *at);
        let Some((at, mask)) = first else { return false };
        let (head, tail) = word.split_at(at);
        let unmasked = |text: &str| text.trim_start_matches(mask).trim_start_matches(['*', '.']).to_owned();
        let tail = unmasked(tail);
        let tail = tail.trim_end_matches(['.', '!', '?', '\\']);
        (head.len() >= LEAST && self.0.starts_with(head)) || (tail.len() >= LEAST && self.0.ends_with(tail))
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
        for masked in ["sk-ver...", "sk-very-s***cret", "sk-***", "***cret.", "sk-\u{2026}ret", "****ecret"] {
            assert_eq!(secret.redact(&format!("Key={masked}, no")), "Key=[key], no", "{masked}");
        }
        for other in ["wait...", "**bold**", "s...", "sl-ver...", "..."] {
            assert_eq!(secret.redact(&format!("a ({other}) b")), format!("a ({other}) b"));
        }
        let error = Secret::new("two words", "`KEY`").unwrap_err();
        assert!(!error.to_string().contains("two words"));
    }
}
