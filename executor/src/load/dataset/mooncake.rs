//! Mooncake's traces: when each request came, its lengths, and which blocks of 512 tokens it shares with others.
//!
//! # Source
//! Qin et al., "Mooncake: A KVCache-centric Disaggregated Architecture for LLM Serving" (2024), its trace format:
//! `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (one for each 512 tokens of the prompt).

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use super::DatasetError;
use super::file::lines;
use super::random_tokens::tokens;
use crate::load::random::Random;
use crate::load::request::{PlannedRequest, Prompt};

const BLOCK_TOKENS: u64 = 512;

#[derive(Deserialize)]
struct Entry {
    timestamp: f64,
    input_length: u64,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

/// The first `count` requests of the trace's text. Equal hash ids give equal tokens; what no hash id covers is
/// the request's own.
///
/// # Errors
/// When a line is not of the format, or there is none.
pub fn read(
    path: &Path,
    text: &str,
    count: usize,
    seed: u64,
    ids: &Range<u32>,
) -> Result<Vec<PlannedRequest>, DatasetError> {
    let mut requests = Vec::new();
    for (number, line) in lines(text).take(count) {
        let entry_error =
            |reason: String| DatasetError::Entry { path: path.to_owned(), entry: number, reason };
        let entry: Entry = serde_json::from_str(line).map_err(|error| entry_error(error.to_string()))?;
        if entry.input_length == 0 || !entry.timestamp.is_finite() || ids.is_empty() {
            return Err(entry_error("it has no input, no time or no token ids to draw from".to_owned()));
        }
        let mut prompt = Vec::new();
        for block in entry.hash_ids {
            let left = entry.input_length.saturating_sub(prompt.len() as u64);
            let mut random = Random::new(seed.wrapping_add(block), "mooncake block");
            prompt.extend(tokens(&mut random, left.min(BLOCK_TOKENS), ids));
        }
        let left = entry.input_length.saturating_sub(prompt.len() as u64);
        prompt.extend(tokens(&mut Random::new(seed.wrapping_add(number as u64), "mooncake own"), left, ids));
        requests.push(PlannedRequest {
            prompt: Prompt::Tokens(prompt),
            prompt_tokens: Some(entry.input_length),
            output_tokens: entry.output_length.max(1),
            arrival: Some(entry.timestamp / 1000.0),
        });
    }
    if requests.is_empty() { Err(DatasetError::Empty { path: path.to_owned() }) } else { Ok(requests) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hashes_give_equal_blocks() {
        let text = "{\"timestamp\": 500, \"input_length\": 1100, \"output_length\": 3, \"hash_ids\": [7, 8, 9]}\n\n\
            {\"timestamp\": 1500, \"input_length\": 600, \"output_length\": 0, \"hash_ids\": [7]}\n";
        let requests = read(Path::new("t.jsonl"), text, 10, 1, &(0..1000)).unwrap();
        let ids = |index: usize| match &requests[index].prompt {
            Prompt::Tokens(ids) => ids.clone(),
            other => panic!("no token ids: {other:?}"),
        };
        assert_eq!((ids(0).len(), ids(1).len()), (1100, 600));
        assert_eq!(ids(0)[..512], ids(1)[..512]);
        assert_ne!(ids(0)[512..600], ids(1)[512..600]);
        assert_eq!((requests[1].arrival, requests[1].output_tokens), (Some(1.5), 1));
        assert!(matches!(
            read(Path::new("t"), "{}", 1, 0, &(0..9)),
            Err(DatasetError::Entry { entry: 1, .. })
        ));
    }
}
