//! JSON as people have it: what Python writes, and a byte order mark.

use std::borrow::Cow;

/// JSON as Python writes it: `Infinity`, `-Infinity` and `NaN` outside of strings become null.
pub fn python_json(text: &str) -> Cow<'_, str> {
    if !["Infinity", "NaN"].iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(character) = rest.chars().next() {
        let word =
            ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            out.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        let mut length = character.len_utf8();
        if character == '\\' && in_string {
            length += rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if character == '"' {
            in_string = !in_string;
        }
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// Parses a config. Nesting beyond 128 levels is an error.
///
/// # Errors
/// If the text is no JSON.
pub fn parse(text: &str) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_str(&python_json(text.trim_start_matches('\u{feff}')))
}
