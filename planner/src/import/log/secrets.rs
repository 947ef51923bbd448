//! What among a server's arguments is nobody else's to see: keys, tokens, passwords, and who logs in to a URL?
//!
//! Arguments are told by the words of their names, at any depth, since connectors and loaders take arguments of
//! their own. A text may hold more text: a URL, a header, a command, JSON.

use super::python::Value;

/// Words of a name whose value is left out unless it is a flag.
const ALWAYS: &[&str] = &[
    "password",
    "passwords",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "creds",
    "apikey",
    "apikeys",
    "keyfile",
];
/// Words that also name sizes and shapes, which are numbers.
const TEXT: &[&str] =
    &["key", "keys", "token", "tokens", "auth", "authorization", "bearer", "cookie", "signature", "sig"];
/// What stands in the place of a piece of a text.
const HIDDEN: &str = "***";

/// What a name says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Plain,
    /// It ends in a word such as `token`, so that even a number may be one.
    Text {
        last: bool,
    },
    Secret,
}

/// The words of `name`: `API_KEY`, `api-key` and `apiKey` are the same.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for c in name.chars() {
        if c.is_alphanumeric() {
            let begins = !before.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase());
            if begins {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    words
}

fn name(text: &str) -> Name {
    let words = words(text);
    let is = |list: &[&str], word: &String| list.contains(&word.as_str());
    if words.iter().any(|word| is(ALWAYS, word)) {
        return Name::Secret;
    }
    if words.iter().any(|word| is(TEXT, word)) {
        return Name::Text { last: words.last().is_some_and(|word| is(TEXT, word) && word != "tokens") };
    }
    Name::Plain
}

/// Whether a value holds words, rather than numbers and flags.
fn has_text(value: &Value) -> bool {
    match value {
        Value::None | Value::Bool(_) | Value::Int(_) => false,
        Value::Other(text) => text.parse::<f64>().is_err(),
        Value::Text(_) => true,
        Value::List(items) => items.iter().any(has_text),
        Value::Map(entries) => entries.iter().any(|(_, value)| has_text(value)),
    }
}

fn is_secret(key: &str, value: &Value) -> bool {
    match name(key) {
        Name::Plain => false,
        Name::Secret => !matches!(value, Value::None | Value::Bool(_)),
        Name::Text { last } => has_text(value) || (last && !matches!(value, Value::None | Value::Bool(_))),
    }
}

/// Takes secret entries out, and hides what the texts of the others hold.
pub(super) fn leave_out(entries: &mut Vec<(String, Value)>) {
    entries.retain(|(key, value)| !is_secret(key, value));
    for (_, value) in entries {
        clean(value);
    }
}

fn clean(value: &mut Value) {
    match value {
        Value::None | Value::Bool(_) | Value::Int(_) => {}
        Value::Text(text) | Value::Other(text) => hide(text),
        Value::List(items) => {
            let mut option = false;
            for item in items {
                // A command in pieces: `--api-key`, and what it is.
                if std::mem::take(&mut option)
                    && let Value::Text(text) = item
                {
                    HIDDEN.clone_into(text);
                }
                if let Value::Text(text) = item {
                    option = text.starts_with('-') && !text.contains('=') && name(text) != Name::Plain;
                }
                clean(item);
            }
        }
        Value::Map(entries) => leave_out(entries),
    }
}

/// Hides what a text tells: who logs in to a URL, and what follows the name of a secret.
pub(super) fn hide(text: &mut String) {
    if text.contains('@') {
        *text = without_login(text);
    }
    if text.contains([':', '=', '-', ' ', '_']) {
        *text = without_named(text);
    }
}

/// `redis://user:word@host` without what stands before the host.
fn without_login(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',')) {
        let (scheme, rest) = match piece.split_once("://") {
            Some((scheme, rest)) => (&piece[..scheme.len() + 3], rest),
            None => ("", piece),
        };
        let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        // What is no host yet, such as a word with a slash, still ends before the last `@`.
        let end = rest[..authority].rfind('@').or_else(|| {
            (!scheme.is_empty()).then(|| rest.split(['?', '#']).next().unwrap_or(rest).rfind('@')).flatten()
        });
        match end {
            Some(at)
                if (!scheme.is_empty() || rest[..at].contains(':'))
                    && !rest[at + 1..].starts_with("sha256:") =>
            {
                out.push_str(scheme);
                out.push_str(HIDDEN);
                out.push_str(&rest[at..]);
            }
            _ => out.push_str(piece),
        }
    }
    out
}

/// `api_key=word`, `"token": "word"`, `--hf-token word`, `Authorization: Bearer word` without the word; and words that
/// look like keys of known makers.
fn without_named(text: &str) -> String {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.find(part).unwrap_or(rest.len());
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        if is_key(word) {
            out.push_str(HIDDEN);
            continue;
        }
        out.push_str(word);
        let last = match name(word) {
            Name::Plain => continue,
            Name::Secret => true,
            Name::Text { last } => last,
        };
        if !last {
            continue;
        }
        let gap =
            after.find(|c: char| !matches!(c, '"' | '\'' | ' ' | ':' | '=' | '\\')).unwrap_or(after.len());
        let said = &after[..gap];
        let option = word.starts_with("--") && said == " ";
        if gap == after.len() || !(option || said.contains([':', '='])) {
            continue;
        }
        let value = &after[gap..];
        let ends = |c: char| matches!(c, '"' | '\'' | '&' | ',' | ';' | '\n' | '}' | ')' | ']');
        // A header's value is of several words.
        let end = if said.contains(':') || said.contains(['"', '\'']) {
            value.find(ends)
        } else {
            value.find(|c: char| ends(c) || c.is_whitespace())
        };
        let value = &value[..end.unwrap_or(value.len())];
        if value.is_empty() || value.parse::<f64>().is_ok() && name(word) != Name::Secret {
            continue;
        }
        out.push_str(said);
        out.push_str(HIDDEN);
        rest = &after[gap + value.len()..];
    }
    out
}

/// Whether a word is formed like a key of a maker that marks them.
fn is_key(word: &str) -> bool {
    ["sk-", "hf_", "ghp_", "nvapi-", "xoxb-", "AKIA"]
        .iter()
        .any(|mark| word.strip_prefix(mark).is_some_and(|rest| rest.len() >= 16 && !rest.contains('/')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::log::python;

    fn left(text: &str) -> String {
        let mut entries = python::dictionary(text).unwrap().entries;
        leave_out(&mut entries);
        format!("{entries:?}")
    }

    #[test]
    fn names_of_secrets_at_any_depth() {
        for name in [
            "api_key",
            "API_KEY",
            "api-key",
            "apiKey",
            "allowed_api_keys",
            "hf_token",
            "hf-token",
            "token",
            "aws_secret_access_key",
            "redis_password",
            "ssl_keyfile",
            "ssl_keyfile_password",
            "Authorization",
            "access_tokens",
            "db_credentials",
        ] {
            for text in [
                format!("{{'{name}': 'WORD', 'kept': 1}}"),
                format!("{{'a': {{'b': [{{'{name}': ['WORD']}}]}}, 'kept': 1}}"),
                format!("{{'a': Config(x={{'{name}': 'WORD'}}), 'kept': 1}}"),
            ] {
                let left = left(&text);
                assert!(!left.contains("WORD") && left.contains("kept"), "{text}: {left}");
            }
        }
    }

    #[test]
    fn sizes_and_flags_stay() {
        let text = "{'max_num_batched_tokens': 8192, 'num_speculative_tokens': 3, 'eos_token_id': 2, \
            'num_key_value_heads': 8, 'tokenizer': 'org/name', 'tokenizer_mode': 'auto', 'api_key': None, \
            'return_tokens_as_token_ids': True, 'eos_token_ids': [1, 2], 'keyword': 'x'}";
        let left = left(text);
        for kept in
            ["8192", "Int(3)", "Int(2)", "Int(8)", "org/name", "auto", "None", "Bool(true)", "keyword"]
        {
            assert!(left.contains(kept), "{kept}: {left}");
        }
    }

    #[test]
    fn texts_within_texts() {
        for (text, hidden) in [
            ("redis://u:WORD@h/0", "redis://***@h/0"),
            ("https://u:WORD@hf.co/m", "https://***@hf.co/m"),
            ("https://u:WO/RD@hf.co/m", "https://***@hf.co/m"),
            ("u:WORD@host", "***@host"),
            ("org/model", "org/model"),
            ("org/model@main", "org/model@main"),
            ("repo:tag@sha256:0f", "repo:tag@sha256:0f"),
            ("https://h/m?token=WORD&x=1", "https://h/m?token=***&x=1"),
            ("vllm serve --api-key WORD m", "vllm serve --api-key *** m"),
            ("Authorization: Bearer WORD", "Authorization: ***"),
            ("{\"hf_token\": \"WORD\", \"n\": 1}", "{\"hf_token\": \"***\", \"n\": 1}"),
            ("hf_abcdefghijklmnopqrst", "***"),
            ("max_tokens=16, key=3", "max_tokens=16, key=3"),
        ] {
            let mut found = text.to_owned();
            hide(&mut found);
            assert_eq!(found, hidden, "{text}");
        }
        assert!(!left("{'args': ['--api-key', 'WORD', 'x']}").contains("WORD"));
    }
}
