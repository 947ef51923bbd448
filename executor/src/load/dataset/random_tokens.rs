//! Random prompts of exact token counts, with or without prefixes that requests share.
//!
//! # Source
//! vLLM 0.32 `benchmarks/datasets/datasets.py`: `RandomDataset` (a range ratio `r` draws lengths evenly from
//! `floor(n (1 - r))` to `ceil(n (1 + r))`), `PrefixRepetitionRandomDataset`. The tokens themselves are ours.

use std::ops::Range;

use super::DatasetError;
use crate::load::random::Random;
use crate::load::request::{PlannedRequest, Prompt};

/// Lengths of random requests, in tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomShape {
    /// Tokens of a prompt beside its prefix.
    pub input_len: u32,
    /// Tokens of an answer.
    pub output_len: u32,
    /// Tokens of the shared prefix; 0 for none.
    pub prefix_len: u32,
    /// How many prefixes there are; requests take them in turn.
    pub num_prefixes: u32,
    /// How far lengths vary, 0 to 1.
    pub range_ratio: f64,
    /// Token ids to draw from.
    pub ids: Range<u32>,
}

impl RandomShape {
    /// Draws `count` requests for a seed.
    ///
    /// # Errors
    /// When a prompt would be empty, or there are no token ids to draw from.
    pub fn draw(&self, count: usize, seed: u64, purpose: &str) -> Result<Vec<PlannedRequest>, DatasetError> {
        let inputs = spread(self.input_len, self.range_ratio);
        let outputs = spread(self.output_len, self.range_ratio);
        if self.ids.is_empty() || u64::from(self.prefix_len) + inputs.start == 0 {
            return Err(DatasetError::Lengths {
                input: u64::from(self.prefix_len) + inputs.start,
                most: u64::from(self.prefix_len) + inputs.end - 1,
                first: self.ids.start,
                last: self.ids.end,
            });
        }
        let mut prefixes = Random::new(seed, "prefixes");
        let prefixes: Vec<Vec<u32>> = (0..self.num_prefixes.max(1))
            .map(|_| tokens(&mut prefixes, u64::from(self.prefix_len), &self.ids))
            .collect();
        let mut random = Random::new(seed, purpose);
        let draw =
            |random: &mut Random, range: &Range<u64>| range.start + random.below(range.end - range.start);
        let requests = (0..count).map(|index| {
            let input = draw(&mut random, &inputs);
            let output = draw(&mut random, &outputs).max(1);
            let mut prompt = prefixes.get(index % prefixes.len()).cloned().unwrap_or_default();
            prompt.extend(tokens(&mut random, input, &self.ids));
            PlannedRequest {
                prompt_tokens: Some(prompt.len() as u64),
                prompt: Prompt::Tokens(prompt),
                output_tokens: u32::try_from(output).unwrap_or(u32::MAX),
                arrival: None,
            }
        });
        Ok(requests.collect())
    }
}

/// Random token ids.
pub(super) fn tokens(random: &mut Random, count: u64, ids: &Range<u32>) -> Vec<u32> {
    let width = u64::from(ids.end.saturating_sub(ids.start));
    (0..count).map(|_| ids.start + u32::try_from(random.below(width)).unwrap_or(0)).collect()
}

fn spread(length: u32, ratio: f64) -> Range<u64> {
    let whole = |value: f64| std::time::Duration::try_from_secs_f64(value).map_or(0, |value| value.as_secs());
    let length = f64::from(length);
    whole((length * (1.0 - ratio)).floor())..whole((length * (1.0 + ratio)).ceil()) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: RandomShape = RandomShape {
        input_len: 8,
        output_len: 4,
        prefix_len: 3,
        num_prefixes: 2,
        range_ratio: 0.5,
        ids: 10..20,
    };

    fn ids(request: &PlannedRequest) -> &[u32] {
        match &request.prompt {
            Prompt::Tokens(ids) => ids,
            other => panic!("no token ids: {other:?}"),
        }
    }

    #[test]
    fn lengths_ids_and_prefixes_are_as_asked() {
        let requests = SHAPE.draw(200, 1, "prompts").unwrap();
        let mut lengths = std::collections::BTreeSet::new();
        for (index, request) in requests.iter().enumerate() {
            assert_eq!(ids(request)[..3], ids(&requests[index % 2])[..3]);
            assert!(ids(request).iter().all(|id| (10..20).contains(id)));
            assert!((2..=6).contains(&request.output_tokens));
            lengths.insert(ids(request).len());
        }
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (7..=15).collect::<Vec<_>>());
        assert_ne!(ids(&requests[0])[..3], ids(&requests[1])[..3]);
        assert_eq!(requests, SHAPE.draw(200, 1, "prompts").unwrap());
        assert_ne!(requests, SHAPE.draw(200, 2, "prompts").unwrap());
        let exact = RandomShape { range_ratio: 0.0, ..SHAPE }.draw(5, 1, "prompts").unwrap();
        assert!(exact.iter().all(|request| ids(request).len() == 11 && request.output_tokens == 4));
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        let empty = RandomShape { input_len: 0, prefix_len: 0, ..SHAPE };
        assert!(matches!(empty.draw(1, 0, "prompts"), Err(DatasetError::Lengths { .. })));
        assert!(matches!(
            RandomShape { ids: 5..5, ..SHAPE }.draw(1, 0, "x"),
            Err(DatasetError::Lengths { .. })
        ));
    }
}
