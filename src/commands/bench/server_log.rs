//! What a result keeps of the server's log: its KV cache groups and the flags that it was started with.

use std::io::BufReader;
use std::path::Path;

use planner::import::log::{self, ServerLog, Value};
use serde_json::json;

use crate::failure::Failure;
use crate::input_file;

/// What a log says; it may be of any size.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(path: &Path) -> Result<ServerLog, Failure> {
    input_file::open(path).and_then(|file| log::read_from(BufReader::new(file))).map_err(|error| {
        Failure::new(format!("failed to read the server's log `{}`", path.display())).caused_by(error)
    })
}

/// How many KV cache groups the server made; `None` where the log does not tell.
pub(super) fn groups(log: &ServerLog) -> Option<usize> {
    match &log.group_block_sizes {
        Some(sizes) => Some(sizes.value.len()),
        // vLLM prints the sizes for two groups or more, the cache's size for any.
        None => (!log.tokens.is_empty()).then_some(1),
    }
}

/// The cache as a result file has it.
pub(super) fn kv_cache(log: &ServerLog) -> serde_json::Value {
    json!({
        "groups": groups(log),
        "group_block_sizes": log.group_block_sizes.as_ref().map_or(&[][..], |sizes| &sizes.value),
        "padding_layers": log.padding.iter().map(|found| found.value.layers).collect::<Vec<_>>(),
        "kv_cache_tokens": log.tokens.first().map(|found| found.value.tokens),
        "num_gpu_blocks": log.blocks.first().map(|found| found.value),
        "max_concurrency": log.concurrency.first()
            .and_then(|found| found.value.requests.to_string().parse::<f64>().ok()),
    })
}

/// The arguments that are not vLLM's defaults; secrets are left out by the log's reader.
pub(super) fn flags(log: &ServerLog) -> serde_json::Value {
    match &log.flags {
        None => serde_json::Value::Null,
        Some(flags) => entries(&flags.value),
    }
}

fn entries(entries: &[(String, Value)]) -> serde_json::Value {
    entries.iter().map(|(name, value)| (name.clone(), plain(value))).collect::<serde_json::Map<_, _>>().into()
}

fn plain(value: &Value) -> serde_json::Value {
    match value {
        Value::None => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Text(text) | Value::Other(text) => text.clone().into(),
        Value::List(items) => items.iter().map(plain).collect::<Vec<_>>().into(),
        Value::Map(map) => entries(map),
    }
}

#[cfg(test)]
mod tests {
    use planner::import::log::read;

    use super::*;

    #[test]
    fn several_groups_and_one() {
        let log = "INFO 12-02 [kv_cache_utils.py:1484] Add 1 padding layers, may waste at most 5.00%\n\
            (EngineCore pid=7) INFO [kv_cache_utils.py:853] kv cache group sizes (16, 16, 32)\n\
            INFO GPU KV cache size: 1,234,567 tokens\n\
            INFO Maximum concurrency for 4,096 tokens per request: 170.66x\n";
        let found = kv_cache(&read(log.as_bytes()));
        assert_eq!((&found["groups"], &found["group_block_sizes"]), (&3.into(), &json!([16, 16, 32])));
        assert_eq!((&found["padding_layers"], &found["kv_cache_tokens"]), (&json!([1]), &1_234_567.into()));
        assert_eq!(found["max_concurrency"], 170.66);
        let line = "INFO CPU KV cache size: 349,440 tokens, Maximum concurrency for 4,096 tokens per request: 85.31x";
        let found = kv_cache(&read(line.as_bytes()));
        assert_eq!((&found["groups"], &found["max_concurrency"]), (&1.into(), &85.31.into()));
        assert_eq!(groups(&read(b"nothing of the kind (, \xff")), None);
    }

    #[test]
    fn flags_without_secrets() {
        let log = "(APIServer pid=9) INFO 12-02 10:16:46 [api_utils.py:286] non-default args: \
            {'port': 8403, 'api_key': ['sesame'], 'enforce_eager': True, 'served_model_name': ['tiny']}\n";
        let found = flags(&read(log.as_bytes()));
        assert_eq!(found["served_model_name"], json!(["tiny"]));
        assert_eq!((&found["port"], &found["enforce_eager"]), (&8403.into(), &true.into()));
        assert!(!found.to_string().contains("sesame"));
    }
}
