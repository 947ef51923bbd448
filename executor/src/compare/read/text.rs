//! How is a result file's text cut into JSON documents?
//!
//! Python writes `NaN` and `Infinity` where JSON has no word for them; they are kept as strings here, so that
//! the figure that is not a number can be named. `vllm bench serve --append-result` and JSON Lines put
//! several documents into one file.

use serde_json::Value;

use super::ReadError;

pub(super) fn looks_like_json(text: &str) -> bool {
    matches!(text.trim_start().chars().next(), Some('{' | '['))
}

/// All JSON documents in the text.
pub(super) fn documents(file: &str, text: &str) -> Result<Vec<Value>, ReadError> {
    let quoted = quote_non_numbers(text);
    let mut documents = Vec::new();
    for document in serde_json::Deserializer::from_str(&quoted).into_iter::<Value>() {
        documents.push(document.map_err(|error| ReadError::NotJson {
            file: file.to_owned(),
            cause: plain_cause(&error),
            line: error.line(),
            column: error.column(),
        })?);
    }
    Ok(documents)
}

/// The parser's message without the place, which is told apart.
fn plain_cause(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.split(" at line ").next().unwrap_or(&message).to_owned()
}

/// Puts quotes around Python's words for what is no number.
fn quote_non_numbers(text: &str) -> String {
    const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    if !WORDS.iter().any(|word| text.contains(word)) {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 16);
    let mut in_string = false;
    let mut escaped = false;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = character == '\\' && !escaped;
        } else if let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
            quoted.push('"');
            quoted.push_str(word);
            quoted.push('"');
            rest = rest.get(word.len()..).unwrap_or("");
            continue;
        } else {
            in_string = character == '"';
        }
        quoted.push(character);
        rest = rest.get(character.len_utf8()..).unwrap_or("");
    }
    quoted
}

/// The number after `seed` in a file's name, as in `seed2`, `seed-2`, `seed_2`, `seed=2`.
pub(super) fn seed_in_name(file: &str) -> Option<u64> {
    let name = file.rsplit(['/', '\\']).next()?.to_ascii_lowercase();
    let (_, after) = name.rsplit_once("seed")?;
    let after = after.strip_prefix(['-', '_', '=']).unwrap_or(after);
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_inside_strings_stay() {
        let text = r#"{"a": NaN, "b": "NaN \" Infinity", "c": [-Infinity, 1]}"#;
        let documents = documents("f", text).unwrap();
        assert_eq!(
            documents,
            [serde_json::json!({"a": "NaN", "b": "NaN \" Infinity", "c": ["-Infinity", 1]})]
        );
    }

    #[test]
    fn seeds_are_found_in_names() {
        assert_eq!(seed_in_name("a/4groups-seed2.json"), Some(2));
        assert_eq!(seed_in_name("seed_17_c8.json"), Some(17));
        assert_eq!(seed_in_name("seedless.json"), None);
    }
}
