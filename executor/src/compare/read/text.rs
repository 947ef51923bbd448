//! How is a result file's text cut into JSON documents?
//!
//! Python writes `NaN` and `Infinity` where JSON has no word for them; they are kept as strings here, so that
//! the figure that is not a number can be named. `vllm bench serve --append-result` and JSON Lines put
//! several documents into one file.

use std::borrow::Cow;

use planner::import::json::{Budget, MEMORY, replace_non_numbers};
use serde::de::{DeserializeSeed as _, IgnoredAny};

use super::ReadError;
use super::document::{Document, Whole};

pub(super) fn looks_like_json(text: &str) -> bool {
    matches!(text.trim_start().chars().next(), Some('{' | '['))
}

/// The JSON documents of a text, of which [`quote_non_numbers`] was asked, one after the other.
pub(super) fn documents(file: &str, text: &str) -> impl Iterator<Item = Result<Document, ReadError>> {
    let not_json = |error: &serde_json::Error, lines_before: usize| ReadError::NotJson {
        file: file.to_owned(),
        cause: plain_cause(error),
        line: lines_before + error.line(),
        column: error.column(),
    };
    // Where a document ends is asked first: only a stream tells, and it takes no seed.
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let mut ended = false;
    std::iter::from_fn(move || {
        let start = stream.byte_offset();
        let next = if ended { None } else { stream.next() }?;
        let document = next.map_err(|error| not_json(&error, 0)).and_then(|_| {
            let budget = Budget::new(MEMORY);
            let (before, after) = text.split_at(start);
            let own = after.get(..stream.byte_offset() - start).unwrap_or(after);
            Whole(&budget).deserialize(&mut serde_json::Deserializer::from_str(own)).map_err(|error| {
                if budget.is_exceeded() {
                    return ReadError::TooLarge { file: file.to_owned(), most_mib: MEMORY >> 20 };
                }
                not_json(&error, before.matches('\n').count())
            })
        });
        ended = document.is_err();
        Some(document)
    })
}

/// The parser's message without the place, which is told apart.
fn plain_cause(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.split(" at line ").next().unwrap_or(&message).to_owned()
}

/// Puts quotes around Python's words for what is no number.
pub(super) fn quote_non_numbers(text: &str) -> Cow<'_, str> {
    replace_non_numbers(text, |word| Cow::Owned(format!("\"{word}\"")))
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
        let quoted = quote_non_numbers(text);
        assert_eq!(quoted, r#"{"a": "NaN", "b": "NaN \" Infinity", "c": ["-Infinity", 1]}"#);
        let mut documents = documents("f", &quoted);
        let Some(Ok(Document::One(content))) = documents.next() else { panic!("no object") };
        assert_eq!(
            content.value,
            serde_json::json!({"a": "NaN", "b": "NaN \" Infinity", "c": ["-Infinity", 1]})
        );
        assert!(documents.next().is_none());
    }

    #[test]
    fn seeds_are_found_in_names() {
        assert_eq!(seed_in_name("a/4groups-seed2.json"), Some(2));
        assert_eq!(seed_in_name("seed_17_c8.json"), Some(17));
        assert_eq!(seed_in_name("seedless.json"), None);
    }
}
