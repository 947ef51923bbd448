//! Which KV cache groups a server made, as far as its start-up log tells.
//!
//! # Source
//! vLLM `v1/core/kv_cache_utils.py` (`kv_cache_planning.py` from 0.33): `kv cache group sizes` holds each group's
//! block size and is only printed for two groups or more; `KV cache size` is printed for any.

use serde::Serialize;

/// What the log says of the KV cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GroupLog {
    /// Block size of each group in tokens; empty for one group, which vLLM does not print.
    pub group_block_sizes: Vec<u64>,
    /// How many groups; `None` where the log does not tell.
    pub groups: Option<usize>,
    /// Counts of padding layers, a number for each line.
    pub padding_layers: Vec<u64>,
    /// The size of the KV cache that is printed, in tokens.
    pub kv_cache_tokens: Option<u64>,
    /// The concurrency that is printed.
    pub max_concurrency: Option<f64>,
}

impl GroupLog {
    /// Reads a log; of lines that are repeated, as each worker or start prints them, the last set counts.
    pub fn read(log: &str) -> Self {
        let mut found = Self::default();
        for line in log.lines() {
            if let Some(rest) = after(line, "kv cache group sizes ") {
                let digits = rest.trim_start_matches(['(', '[']).split([')', ']']).next().unwrap_or("");
                let sizes = digits.split(',').map(str::trim).filter(|size| !size.is_empty());
                if let Ok(sizes) = sizes.map(str::parse).collect::<Result<Vec<u64>, _>>() {
                    found.groups = Some(sizes.len());
                    found.group_block_sizes = sizes;
                }
            } else if let Some(rest) = after(line, "Add ")
                && rest.contains(" padding layers")
            {
                found.padding_layers.extend(number(rest));
            }
            // `GPU KV cache size` or `CPU KV cache size`, which 0.32 prints on one line with the concurrency.
            if let Some(rest) = after(line, " KV cache size: ") {
                found.kv_cache_tokens = number(rest);
            }
            if let Some(rest) = after(line, "Maximum concurrency for ") {
                let factor = rest.rsplit(' ').next().and_then(|text| text.trim_end_matches('x').parse().ok());
                found.max_concurrency = factor;
            }
        }
        if found.groups.is_none() && found.kv_cache_tokens.is_some() {
            found.groups = Some(1);
        }
        found
    }
}

fn after<'l>(line: &'l str, words: &str) -> Option<&'l str> {
    line.find(words).and_then(|at| line.get(at + words.len()..))
}

fn number(text: &str) -> Option<u64> {
    let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_groups_and_one() {
        let log = "INFO 12-02 [kv_cache_utils.py:1484] Add 1 padding layers, may waste at most 5.00%\n\
            (EngineCore pid=7) INFO [kv_cache_utils.py:853] kv cache group sizes (16, 16, 32)\n\
            INFO GPU KV cache size: 1,234,567 tokens\n\
            INFO Maximum concurrency for 4,096 tokens per request: 170.66x\n";
        let found = GroupLog::read(log);
        assert_eq!((found.groups, found.group_block_sizes.as_slice()), (Some(3), [16, 16, 32].as_slice()));
        assert_eq!(
            (found.padding_layers.as_slice(), found.kv_cache_tokens),
            ([1].as_slice(), Some(1_234_567))
        );
        assert_eq!(found.max_concurrency, Some(170.66));
        let line = "INFO CPU KV cache size: 349,440 tokens, Maximum concurrency for 4,096 tokens per request: 85.31x";
        let found = GroupLog::read(line);
        assert_eq!(
            (found.groups, found.kv_cache_tokens, found.max_concurrency),
            (Some(1), Some(349_440), Some(85.31))
        );
        assert_eq!(GroupLog::read("INFO GPU KV cache size: 12 tokens").groups, Some(1));
        assert_eq!(GroupLog::read("nothing of the kind (, \u{e9}").groups, None);
    }
}
