//! What does a vLLM server log say about the KV cache, whatever the version and the prefixes of its lines?
//!
//! # Source
//! `logger` calls of `vllm/v1/core/kv_cache_utils.py`, `vllm/v1/worker/gpu_worker.py`,
//! `vllm/platforms/interface.py`, `vllm/v1/engine/core.py` and `vllm/entrypoints/utils.py`, 0.9 to 0.33, and
//! of `vllm/worker/worker.py` before.

/// What a log gives; a later line of the same kind replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogFacts {
    /// The engine's version, as it states it.
    pub version: Option<String>,
    /// The model's path or name.
    pub model: Option<String>,
    /// Memory of the weights, GiB as printed.
    pub model_gib: Option<f64>,
    /// Memory for the KV cache, GiB as printed, a line a worker.
    pub available_gib: Vec<f64>,
    /// `GPU KV cache size`, tokens.
    pub kv_tokens: Option<u64>,
    /// `Maximum concurrency`, requests of [`Self::max_model_len`] tokens.
    pub max_concurrency: Option<f64>,
    /// Tokens of a request of the longest length.
    pub max_model_len: Option<u64>,
    /// Blocks of the pool.
    pub num_gpu_blocks: Option<u64>,
    /// Tokens of a block, group by group.
    pub group_block_sizes: Vec<u64>,
    /// Their least common multiple, tokens.
    pub lcm_block_size: Option<u64>,
    /// Lines of padding layers: how many, and the waste at most, per cent.
    pub padding: Vec<(u64, f64)>,
    /// The attention block after alignment to the states, tokens.
    pub attention_block_size: Option<u64>,
    /// Padding of the states' pages, per cent.
    pub mamba_padding_percent: Option<f64>,
    /// The block size that the platform chose, tokens.
    pub kv_block_size: Option<u64>,
    /// Flags and settings of the engine, as printed.
    pub settings: Vec<(String, String)>,
}

/// Names of settings that are kept from an engine's own lines.
const SETTINGS: &[&str] = &[
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "decode_context_parallel_size",
    "data_parallel_size",
    "max_seq_len",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "enable_prefix_caching",
    "mamba_cache_mode",
    "mamba_ssm_cache_dtype",
    "gpu_memory_utilization",
    "disable_hybrid_kv_cache_manager",
    "num_gpu_blocks_override",
    "num_speculative_tokens",
    "method",
];

/// Reads a log.
pub fn read(text: &str) -> LogFacts {
    let mut facts = LogFacts::default();
    for line in text.lines() {
        let line = plain(line);
        read_line(&line, &mut facts);
    }
    facts
}

/// The line without the sequences that colour it.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        if c != '\u{1b}' {
            out.push(c);
            continue;
        }
        if characters.peek() == Some(&'[') {
            characters.next();
            // Ends at the first letter.
            for c in characters.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        }
    }
    out
}

fn read_line(line: &str, facts: &mut LogFacts) {
    if let Some(rest) =
        after(line, &["Available KV cache memory:", "Available KV cache memory", "Available KV"])
    {
        if let Some(gib) = number(rest) {
            facts.available_gib.push(gib);
        }
    }
    let sizes = ["GPU KV cache size:", "GPU KV cache size", "CPU KV cache size:", "KV cache size:"];
    if let Some(rest) = after(line, &sizes) {
        facts.kv_tokens = count(rest).or(facts.kv_tokens);
    }
    if let Some(rest) = after(line, &["Maximum concurrency for"]) {
        facts.max_model_len = count(rest).or(facts.max_model_len);
        let value = rest.split_once("request:").or_else(|| rest.split_once(':')).and_then(|(_, v)| number(v));
        facts.max_concurrency = value.or(facts.max_concurrency);
    }
    if let Some(rest) = after(line, &["kv cache group sizes"]) {
        let listed = list(rest);
        if !listed.is_empty() {
            facts.group_block_sizes = listed;
        }
    }
    if let Some(rest) = after(line, &["kv lcm block sizes", "kv lcm block size"]) {
        facts.lcm_block_size = count(rest).or(facts.lcm_block_size);
    }
    if let Some(rest) = after(line, &["Add "]) {
        if let (true, Some(layers)) = (rest.contains("padding layer"), count(rest)) {
            let waste = after(rest, &["at most"])
                .and_then(number)
                .or_else(|| after(rest, &["padding layers", "padding layer"]).and_then(number));
            facts.padding.push((layers, waste.unwrap_or(0.0)));
        }
    }
    if let Some(rest) = after(line, &["Setting attention block size to"]) {
        facts.attention_block_size = count(rest).or(facts.attention_block_size);
    }
    if let Some(rest) = after(line, &["Setting kv cache block size to"]) {
        facts.kv_block_size = count(rest).or(facts.kv_block_size);
    }
    if let Some(rest) = after(line, &["Padding mamba page size by"]) {
        facts.mamba_padding_percent = number(rest).or(facts.mamba_padding_percent);
    }
    let blocks = [
        "num_gpu_blocks is:",
        "# GPU blocks:",
        "# cuda blocks:",
        "# CUDA blocks:",
        "GPU blocks:",
        "num_gpu_blocks=",
    ];
    if let Some(rest) = after(line, &blocks) {
        facts.num_gpu_blocks = count(rest).or(facts.num_gpu_blocks);
    }
    if let Some(rest) = after(line, &["Model loading took", "model weights take", "Model loading"]) {
        facts.model_gib = number(rest).or(facts.model_gib);
    }
    if let Some(rest) = after(line, &["LLM engine (v", "vLLM API server version", "vLLM server version"]) {
        let word: String =
            rest.trim_start().chars().take_while(|c| !c.is_whitespace() && *c != ')' && *c != ',').collect();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            facts.version = Some(word);
        }
    }
    if line.contains("with config:")
        || line.contains("non-default args:")
        || line.contains("args: Namespace(")
    {
        settings(line, facts);
    }
}

/// The rest of `line` after the first of `words` that occurs.
fn after<'a>(line: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| line.split_once(word).map(|(_, rest)| rest))
}

/// The first whole number, which may have commas.
fn count(text: &str) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let digits: String = text
        .get(start..)?
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',' || *c == '_')
        .filter(char::is_ascii_digit)
        .take(20)
        .collect();
    digits.parse().ok()
}

/// The first number.
fn number(text: &str) -> Option<f64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let digits: String = text
        .get(start..)?
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ','))
        .filter(|c| *c != ',')
        .take(30)
        .collect();
    digits.trim_end_matches('.').parse().ok().filter(|x: &f64| x.is_finite())
}

/// The numbers of `(a, b)` or `[a, b]`, where `a x7` stands for seven of them.
fn list(text: &str) -> Vec<u64> {
    let Some(start) = text.find(['(', '[']) else { return Vec::new() };
    let inner = text.get(start + 1..).unwrap_or_default();
    let inner = inner.split([')', ']']).next().unwrap_or_default();
    let mut sizes = Vec::new();
    for part in inner.split(',') {
        let Some(size) = count(part) else { continue };
        let times = part.split_once('x').and_then(|(_, n)| count(n)).unwrap_or(1).min(100_000);
        for _ in 0..times {
            if sizes.len() < 100_000 {
                sizes.push(size);
            }
        }
    }
    sizes
}

/// `name=value`, `'name': value` and `"name": value` of an engine's own line.
fn settings(line: &str, facts: &mut LogFacts) {
    for name in ["model"].iter().chain(SETTINGS) {
        let Some(value) = value_of(line, name) else { continue };
        if *name == "model" {
            facts.model = Some(value);
            continue;
        }
        facts.settings.retain(|(known, _)| known != name);
        facts.settings.push(((*name).to_owned(), value));
    }
}

fn value_of(line: &str, name: &str) -> Option<String> {
    let mut from = 0;
    while let Some(at) = line.get(from..)?.find(name) {
        let start = from + at;
        let end = start + name.len();
        from = end;
        let before = line.get(..start)?.chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = line.get(end..)?.trim_start_matches(['\'', '"']);
        let Some(rest) = rest.strip_prefix('=').or_else(|| rest.strip_prefix(':')) else { continue };
        let rest = rest.trim_start();
        let value = match rest.chars().next()? {
            quote @ ('\'' | '"') => rest.get(1..)?.split(quote).next()?.to_owned(),
            _ => rest.chars().take_while(|c| !matches!(c, ',' | ')' | '}' | ' ')).collect(),
        };
        return (!value.is_empty()).then_some(value);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{LogFacts, read};

    /// The wording of each version, with a process's prefix and colours.
    #[test]
    fn lines_of_all_versions() {
        let text = "\
\u{1b}[1;36m(EngineCore_DP0 pid=99)\u{1b}[0;0m INFO 11-06 07:21:17 [gpu_worker.py:280] Available KV cache memory: 46.80 GiB
INFO 11-06 07:21:17 [core.py:77] Initializing a V1 LLM engine (v0.32.0) with config: model='m/x', tensor_parallel_size=8, kv_cache_dtype=auto, dtype=torch.bfloat16, max_seq_len=4096, enable_prefix_caching=True
(EngineCore pid=1) INFO [kv_cache_utils.py:1708] GPU KV cache size: 5,747,892 tokens, Maximum concurrency for 262,144 tokens per request: 21.93x
INFO kv cache group sizes (262144, 262144, 4, 400)
INFO kv lcm block sizes 64
WARNING Add 3 padding layers, may waste at most 10.00% KV cache memory
INFO [interface.py] Setting attention block size to 2128 tokens to ensure that attention page size is >= mamba page size.
INFO Padding mamba page size by 0.88% to ensure that
INFO 05-01 [executor_base.py:112] # cuda blocks: 1,381, # CPU blocks: 0
INFO Model loading took 51.7891 GiB and 30 seconds
INFO non-default args: {'model': 'm/y', 'max_num_seqs': 16}";
        let expected = LogFacts {
            version: Some("0.32.0".to_owned()),
            model: Some("m/y".to_owned()),
            model_gib: Some(51.7891),
            available_gib: vec![46.8],
            kv_tokens: Some(5_747_892),
            max_concurrency: Some(21.93),
            max_model_len: Some(262_144),
            num_gpu_blocks: Some(1381),
            group_block_sizes: vec![262_144, 262_144, 4, 400],
            lcm_block_size: Some(64),
            padding: vec![(3, 10.0)],
            attention_block_size: Some(2128),
            mamba_padding_percent: Some(0.88),
            kv_block_size: None,
            settings: [
                ("tensor_parallel_size", "8"),
                ("max_seq_len", "4096"),
                ("kv_cache_dtype", "auto"),
                ("dtype", "torch.bfloat16"),
                ("enable_prefix_caching", "True"),
                ("max_num_seqs", "16"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        };
        assert_eq!(read(text), expected);
    }
}
