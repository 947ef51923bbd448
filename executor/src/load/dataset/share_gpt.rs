//! Conversations as ShareGPT's file holds them: the first turn is the prompt, the second gives the length.
//!
//! # Source
//! vLLM 0.32 `benchmarks/datasets/datasets.py`, `ShareGPTDataset`: entries with fewer than two turns are left
//! out, as are those shorter than 4 or longer than 1024 tokens, or 2048 with the answer.

use std::path::Path;

use serde::Deserialize;

use super::{CountTokens, DatasetError};
use crate::load::random::Random;
use crate::load::request::{PlannedRequest, Prompt};

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    #[serde(default)]
    value: String,
}

/// Draws `count` conversations from the file's text, in an order that the seed decides; with fewer in the file,
/// it is gone through again. `output_len` stands in for the answers' own lengths.
///
/// # Errors
/// When the text is no list of conversations, or none can be used.
pub fn draw(
    path: &Path,
    text: &str,
    count: usize,
    seed: u64,
    output_len: Option<u32>,
    counter: &mut dyn CountTokens,
) -> Result<Vec<PlannedRequest>, DatasetError> {
    let entries: Vec<Entry> = serde_json::from_str(text).map_err(|error| DatasetError::Entry {
        path: path.to_owned(),
        entry: 1,
        reason: error.to_string(),
    })?;
    let mut entries: Vec<Entry> =
        entries.into_iter().filter(|entry| entry.conversations.len() >= 2).collect();
    let mut random = Random::new(seed, "sharegpt");
    for last in (1..entries.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap_or(0);
        entries.swap(last, other);
    }
    let mut requests: Vec<PlannedRequest> = Vec::new();
    for entry in &entries {
        if requests.len() >= count {
            break;
        }
        let [question, answer, ..] = entry.conversations.as_slice() else { continue };
        let input = counter.count(&question.value);
        let output = output_len.map_or_else(|| counter.count(&answer.value), u64::from);
        let answer_fits = output_len.is_some() || (output >= 4 && input + output <= 2048);
        if !(4..=1024).contains(&input) || !answer_fits {
            continue;
        }
        requests.push(PlannedRequest {
            prompt: Prompt::Text(question.value.clone()),
            prompt_tokens: Some(input),
            output_tokens: u32::try_from(output).unwrap_or(u32::MAX),
            arrival: None,
        });
    }
    if requests.is_empty() {
        return Err(DatasetError::Empty { path: path.to_owned() });
    }
    let have = requests.len();
    for index in have..count {
        requests.push(requests[index % have].clone());
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::super::GuessTokens;
    use super::*;

    #[test]
    fn two_turns_of_fitting_length_are_drawn() {
        let text = serde_json::json!([
            {"conversations": [{"value": "a".repeat(40)}, {"value": "b".repeat(80)}]},
            {"conversations": [{"value": "only one turn of text"}]},
            {"conversations": [{"value": "short"}, {"value": "b".repeat(80)}]},
            {"conversations": [{"value": "c".repeat(44)}, {"value": "d".repeat(84)}]},
            {"id": "none"}
        ])
        .to_string();
        let path = Path::new("s.json");
        let requests = draw(path, &text, 3, 1, None, &mut GuessTokens).unwrap();
        let mut lengths: Vec<_> =
            requests.iter().map(|r| (r.prompt_tokens.unwrap(), r.output_tokens)).collect();
        assert_eq!(lengths[0], lengths[2]);
        lengths.truncate(2);
        lengths.sort_unstable();
        assert_eq!(lengths, [(10, 20), (11, 21)]);
        let fixed = draw(path, &text, 2, 1, Some(7), &mut GuessTokens).unwrap();
        assert!(fixed.iter().all(|request| request.output_tokens == 7));
        assert!(matches!(draw(path, "[]", 1, 0, None, &mut GuessTokens), Err(DatasetError::Empty { .. })));
        assert!(matches!(draw(path, "{", 1, 0, None, &mut GuessTokens), Err(DatasetError::Entry { .. })));
    }
}
