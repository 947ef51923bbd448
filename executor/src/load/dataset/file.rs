//! One's own requests, a JSON object a line.
//!
//! `prompt` (text), `prompt_token_ids` or `messages`; `output_tokens` (as vLLM's custom data set), `timestamp` in
//! milliseconds for a load that follows the file's own times. Other fields are refused.

use std::path::Path;

use serde::Deserialize;

use super::{CountTokens, DatasetError};
use crate::load::request::{PlannedRequest, Prompt};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    prompt: Option<String>,
    prompt_token_ids: Option<Vec<u32>>,
    messages: Option<serde_json::Value>,
    output_tokens: Option<u32>,
    timestamp: Option<f64>,
}

/// The lines that hold something, with their numbers from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty())
}

/// Reads `count` requests from the file's text, going through it again when it holds fewer. `output_len` is for
/// lines that give none.
///
/// # Errors
/// When a line is not of the format, or there is none.
pub fn read(
    path: &Path,
    text: &str,
    count: usize,
    output_len: Option<u32>,
    counter: &mut dyn CountTokens,
) -> Result<Vec<PlannedRequest>, DatasetError> {
    let mut requests: Vec<PlannedRequest> = Vec::new();
    for (number, line) in lines(text).take(count) {
        let entry_error =
            |reason: String| DatasetError::Entry { path: path.to_owned(), entry: number, reason };
        let entry: Entry = serde_json::from_str(line).map_err(|error| entry_error(error.to_string()))?;
        let (prompt, prompt_tokens) = match (entry.prompt, entry.prompt_token_ids, entry.messages) {
            (Some(text), None, None) => {
                let tokens = counter.count(&text);
                (Prompt::Text(text), Some(tokens))
            }
            (None, Some(ids), None) if !ids.is_empty() => {
                let tokens = ids.len() as u64;
                (Prompt::Tokens(ids), Some(tokens))
            }
            (None, None, Some(messages)) if messages.is_array() => (Prompt::Messages(messages), None),
            _ => {
                let reason = "it needs one of `prompt`, `prompt_token_ids` and `messages`";
                return Err(entry_error(reason.to_owned()));
            }
        };
        let output_tokens =
            entry.output_tokens.or(output_len).filter(|count| *count > 0).ok_or_else(|| {
                entry_error("it gives no `output_tokens`, and no length was given for all".to_owned())
            })?;
        let arrival = entry.timestamp.filter(|time| time.is_finite()).map(|time| time / 1000.0);
        requests.push(PlannedRequest { prompt, prompt_tokens, output_tokens, arrival });
    }
    if requests.is_empty() {
        return Err(DatasetError::Empty { path: path.to_owned() });
    }
    let have = requests.len();
    if requests.iter().all(|request| request.arrival.is_none()) {
        for index in have..count {
            requests.push(requests[index % have].clone());
        }
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::super::GuessTokens;
    use super::*;

    #[test]
    fn the_three_kinds_of_prompt() {
        let text = "{\"prompt\": \"eight by\", \"output_tokens\": 5}\n{\"prompt_token_ids\": [1, 2]}\n\
            {\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n";
        let requests = read(Path::new("c"), text, 4, Some(9), &mut GuessTokens).unwrap();
        assert_eq!(requests.iter().map(|r| r.output_tokens).collect::<Vec<_>>(), [5, 9, 9, 5]);
        assert_eq!(
            requests.iter().map(|r| r.prompt_tokens).collect::<Vec<_>>(),
            [Some(2), Some(2), None, Some(2)]
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        for line in [
            "{\"output_tokens\": 5}",
            "{\"prompt\": \"x\", \"tokens\": 5}",
            "{\"prompt\": \"x\"}",
            "nonsense",
        ] {
            let text = format!("{{\"prompt\": \"x\", \"output_tokens\": 5}}\n{line}\n");
            let error = read(Path::new("c"), &text, 9, None, &mut GuessTokens).unwrap_err();
            assert!(matches!(error, DatasetError::Entry { entry: 2, .. }), "{error}");
        }
    }
}
