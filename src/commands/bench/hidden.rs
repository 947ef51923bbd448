//! What of a command, a URL or a result may be shown: everything but keys.

use executor::load::secret::Secret;
use serde_json::Value;

/// Stands where a key stood.
const HIDDEN: &str = "[hidden]";

/// Whether a flag, a variable or a field of this name holds a key.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches(['"', '\'']);
    ["key", "secret", "password", "passwd"].iter().any(|word| name.contains(word))
        || name.ends_with("token")
        || name.ends_with("_auth")
}

/// A command's words in a row without keys: `--api-key KEY`, `--api-key=KEY`, `NAME_TOKEN=KEY`, `"api_key": "KEY"`,
/// `Bearer KEY` and `http://USER:PASSWORD@HOST`, as words of their own or inside one, as in `sh -c "..."`.
pub(super) fn without_keys<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut hide_next = false;
    let shown = words.map(|word| {
        // A word of its own may hold blanks and is still one value.
        if std::mem::take(&mut hide_next) {
            return HIDDEN.to_owned();
        }
        let (shown, open) = within(word);
        hide_next = open;
        shown
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// A word without keys, and whether the next one is a key.
fn within(word: &str) -> (String, bool) {
    let mut shown = String::new();
    let mut hide_next = false;
    let mut quote = None;
    for piece in word.split_inclusive(char::is_whitespace) {
        let bare = piece.trim_end();
        let space = piece.get(bare.len()..).unwrap_or("");
        if let Some(mark) = quote {
            if bare.ends_with(mark) {
                quote = None;
            }
        } else if bare.is_empty() {
        } else if std::mem::take(&mut hide_next) {
            quote = left_open(bare);
            shown.push_str(HIDDEN);
        } else {
            let (text, value) = one(bare);
            quote = value.and_then(left_open);
            hide_next = value.is_none() && announces(bare);
            shown.push_str(&text);
        }
        // Blanks inside a hidden value go with it.
        if quote.is_none() {
            shown.push_str(space);
        }
    }
    (shown, hide_next)
}

/// The quotation mark that a value begins with and does not end with.
fn left_open(value: &str) -> Option<char> {
    let mark = value.chars().next().filter(|mark| ['"', '\''].contains(mark))?;
    (value.len() == 1 || !value.ends_with(mark)).then_some(mark)
}

/// Whether a key follows after a blank.
fn announces(piece: &str) -> bool {
    let piece = piece.trim_matches(['"', '\'', '{', ',']);
    let name = piece.trim_end_matches([':', '"', '\'']);
    (is_secret(name) && (piece.starts_with('-') || piece.ends_with(':')))
        || ["bearer", "basic"].contains(&name.to_ascii_lowercase().as_str())
}

/// A piece without blanks: what is shown of it, and the value that is not.
fn one(piece: &str) -> (String, Option<&str>) {
    for (at, mark) in piece.char_indices().filter(|(_, c)| ['=', ':'].contains(c)) {
        let (name, value) = (piece.get(..at).unwrap_or(""), piece.get(at + 1..).unwrap_or(""));
        if is_secret(name) && !value.is_empty() && !value.starts_with("//") {
            return (format!("{name}{mark}{HIDDEN}"), Some(value));
        }
    }
    if let Some((scheme, rest)) = piece.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
        if let Some((_, host)) = authority.rsplit_once('@') {
            let path = rest.get(authority.len()..).unwrap_or("");
            return (format!("{scheme}://{HIDDEN}@{host}{path}"), None);
        }
    }
    (piece.to_owned(), None)
}

/// Takes a known key out of a text.
pub(super) fn redact(secret: Option<&Secret>, text: &mut String) {
    if let Some(secret) = secret {
        *text = secret.redact(text);
    }
}

/// Takes a known key out of every text of a JSON value, names included.
pub(super) fn redact_json(secret: Option<&Secret>, value: &mut Value) {
    let Some(known) = secret else { return };
    match value {
        Value::String(text) => *text = known.redact(text),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_json(secret, item)),
        Value::Object(map) => {
            let entries = std::mem::take(map).into_iter();
            *map = entries
                .map(|(name, mut value)| {
                    redact_json(secret, &mut value);
                    (known.redact(&name), value)
                })
                .collect();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_inside_words() {
        for (command, shown) in [
            (&["sh", "-c", "x --api-key sk-1 --port 8"][..], "sh -c x --api-key [hidden] --port 8"),
            (
                &["sh", "-c", "HF_TOKEN=sk-1 A=b x --api-key=sk-2"],
                "sh -c HF_TOKEN=[hidden] A=b x --api-key=[hidden]",
            ),
            (&["x --api-key 'sk-1 sk-2' -v"], "x --api-key [hidden] -v"),
            (&["MY_KEY=\"sk-1 sk-2\" x"], "MY_KEY=[hidden] x"),
            (&["curl -H 'Authorization: Bearer sk-1'"], "curl -H 'Authorization: Bearer [hidden]"),
            (&["--x", "{\"api_key\": \"sk-1\"}"], "--x {\"api_key\": [hidden]"),
            (&["--x", "{\"api_key\":\"sk-1\"}"], "--x {\"api_key\":[hidden]"),
            (&["--proxy", "http://u:sk-1@h/p"], "--proxy http://[hidden]@h/p"),
            (&["get", "http://h/?a=b&api_key=sk-1"], "get http://h/?a=b&api_key=[hidden]"),
            (&["--api-key", "sk 1", "--max-num-tokens", "7"], "--api-key [hidden] --max-num-tokens 7"),
            (&["--model", "org/monkey", "--port", "1"], "--model org/monkey --port 1"),
        ] {
            assert_eq!(without_keys(command.iter().copied()), shown);
        }
    }
}
