//! Which statements of vLLM's start-up does the reader know, and what does each say?
//!
//! # Source
//! The logger calls of vLLM 0.6 to 0.33: `v1/core/kv_cache_utils.py` (since 0.33 also
//! `v1/core/kv_cache_planning.py`), `v1/worker/gpu_worker.py`, `v1/worker/cpu_worker.py`,
//! `platforms/interface.py`, `v1/engine/core.py`, `v1/metrics/loggers.py`, `entrypoints/`, `config/`.

use super::cursor::{self, Cursor, Hundredths, Short};
use super::python::{self, Value};
use super::{AutoFit, BlocksOverride, Concurrency, PaddingLine, Refusal, Tokens};

/// One thing that a log says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fact {
    Version(String),
    Model(String),
    Architecture(String),
    Flags(Vec<(String, Value)>, bool),
    Config(String, Vec<(String, Value)>),
    MaxModelLen(u64),
    MaxNumBatchedTokens(u64),
    Weights(Hundredths),
    Layout(String),
    AttentionBlockSize(u64),
    BackendBlockSize(u64),
    MambaCacheMode(String),
    MambaPagePadding(Hundredths),
    Padding(PaddingLine),
    FullAllocation,
    HybridOff,
    DraftGroupUnknown,
    AvailableMemory(Hundredths),
    Tokens(Tokens),
    TokensAndConcurrency(Tokens, Concurrency),
    Concurrency(Concurrency),
    Blocks(u64),
    Override(BlocksOverride),
    GroupBlockSizes(Vec<u64>),
    LcmBlockSize(u64),
    AutoFit(AutoFit),
    Refusal(Refusal),
}

type Reader = fn(&mut Cursor<'_>, bool) -> Result<Fact, Short>;

/// The opening of each statement, at the start of a word, and who reads the rest.
///
/// The reader is also told whether the drawing of vLLM's name stands before the opening.
pub(super) const STATEMENTS: &[(&str, Reader)] = &[
    ("vLLM API server version ", |at, _| version(at)),
    ("vLLM server version ", |at, _| version(at)),
    ("version ", |at, logo| if logo { version(at) } else { Err(Short::Other) }),
    ("model ", |at, logo| if logo { model(at) } else { Err(Short::Other) }),
    ("non-default args: ", |at, _| flags(at)),
    ("args: Namespace(", |at, _| namespace(at)),
    ("Initializing a V1 LLM engine (v", |at, _| config(at)),
    ("Initializing an LLM engine (v", |at, _| config(at)),
    ("Initializing a V0 LLM engine (v", |at, _| config(at)),
    ("Resolved architecture: ", |at, _| at.word().map(|word| Fact::Architecture(word.to_owned()))),
    ("Using max model len ", |at, _| at.last_number().map(Fact::MaxModelLen)),
    ("Chunked prefill is enabled with max_num_batched_tokens=", |at, _| {
        at.last_number().map(Fact::MaxNumBatchedTokens)
    }),
    ("Model loading took ", |at, _| weights(at)),
    ("Loading model weights took ", |at, _| weights(at)),
    ("Using ", |at, _| layout(at)),
    ("Setting attention block size to ", |at, _| at.last_number().map(Fact::AttentionBlockSize)),
    ("Setting kv cache block size to ", |at, _| at.last_number().map(Fact::BackendBlockSize)),
    ("Mamba cache mode is set to '", |at, _| at.word().map(|mode| Fact::MambaCacheMode(mode.to_owned()))),
    ("Padding mamba page size by ", |at, _| {
        let percent = at.decimal()?;
        at.skip("%")?;
        Ok(Fact::MambaPagePadding(percent))
    }),
    ("Add ", |at, _| padding(at)),
    ("KV cache page sizes cannot be unified; treating sliding-window", |_, _| Ok(Fact::FullAllocation)),
    ("Hybrid KV cache manager is disabled for this hybrid model", |_, _| Ok(Fact::HybridOff)),
    ("Hybrid KV cache manager is disabled but", |_, _| {
        Ok(Fact::Refusal(Refusal {
            message: "the layers cannot be promoted to one type".to_owned(),
            ..Refusal::default()
        }))
    }),
    ("Speculative decoding (method=", |at, _| {
        at.skip_to(") is enabled but no KV cache group")?;
        Ok(Fact::DraftGroupUnknown)
    }),
    ("Available KV cache memory: ", |at, _| gib(at).map(Fact::AvailableMemory)),
    ("reserved ", |at, _| {
        let memory = gib(at)?;
        at.skip(" memory for KV Cache as specified")?;
        Ok(Fact::AvailableMemory(memory))
    }),
    ("Explicitly set (", |at, _| {
        let memory = at.decimal()?;
        at.skip("/")?;
        at.decimal()?;
        at.skip(") GiB for KV cache")?;
        Ok(Fact::AvailableMemory(memory))
    }),
    ("the rest of the memory reserved for KV Cache is ", |at, _| gib(at).map(Fact::AvailableMemory)),
    ("GPU KV cache size: ", |at, _| tokens(at, "GPU")),
    ("CPU KV cache size: ", |at, _| tokens(at, "CPU")),
    ("XPU KV cache size: ", |at, _| tokens(at, "XPU")),
    ("TPU KV cache size: ", |at, _| tokens(at, "TPU")),
    ("NPU KV cache size: ", |at, _| tokens(at, "NPU")),
    ("GPU + host KV cache size: ", |at, _| tokens(at, "GPU + host")),
    ("Maximum concurrency for ", |at, _| concurrency(at).map(Fact::Concurrency)),
    ("# GPU blocks: ", |at, _| at.last_number().map(Fact::Blocks)),
    ("# cuda blocks: ", |at, _| at.last_number().map(Fact::Blocks)),
    ("# rocm blocks: ", |at, _| at.last_number().map(Fact::Blocks)),
    ("# cpu blocks: ", |at, _| at.last_number().map(Fact::Blocks)),
    ("num_gpu_blocks is: ", |at, _| at.last_number().map(Fact::Blocks)),
    ("Overriding num_gpu_blocks=", |at, _| {
        let profiled_blocks = at.number()?;
        at.skip(" with num_gpu_blocks_override=")?;
        Ok(Fact::Override(BlocksOverride { profiled_blocks, blocks: at.last_number()? }))
    }),
    ("kv cache group sizes ", |at, _| sizes(at)),
    ("kv lcm block sizes ", |at, _| at.last_number().map(Fact::LcmBlockSize)),
    ("Auto-fit max_model_len: ", |at, _| auto_fit(at)),
    ("To serve at least one request with the model", |at, _| refusal(at)),
    ("The model's max seq len (", |at, _| refusal_by_tokens(at)),
    ("No available memory for the cache blocks", |_, _| {
        Ok(Fact::Refusal(Refusal {
            message: "no memory is available for cache blocks".to_owned(),
            ..Refusal::default()
        }))
    }),
    ("Cannot auto-fit max_model_len", |_, _| {
        Ok(Fact::Refusal(Refusal {
            message: "not even one token fits the available memory".to_owned(),
            ..Refusal::default()
        }))
    }),
    ("max_num_seqs (", |at, _| {
        let seqs = at.number()?;
        at.skip(") exceeds available Mamba cache blocks (")?;
        let blocks = at.number()?;
        at.skip(")")?;
        let message = format!("max_num_seqs is {seqs}, and the pool has {blocks} blocks for states");
        Ok(Fact::Refusal(Refusal { message, blocks: Some(blocks), ..Refusal::default() }))
    }),
];

/// Where the drawing of vLLM's name begins.
pub(super) fn logo(text: &str) -> Option<usize> {
    text.find(['█', '▄', '▀'])
}

fn version(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let word = at.word()?;
    let word = word.strip_prefix('v').unwrap_or(word);
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        Ok(Fact::Version(word.to_owned()))
    } else {
        Err(Short::Other)
    }
}

fn model(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let name = at.rest.trim();
    if name.is_empty() { Err(Short::Ended) } else { Ok(Fact::Model(name.to_owned())) }
}

fn flags(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let found = python::dictionary(at.rest).ok_or(Short::Other)?;
    Ok(Fact::Flags(found.entries, found.whole))
}

fn namespace(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    Ok(Fact::Flags(python::arguments(at.rest).entries, at.rest.trim_end().ends_with(')')))
}

fn config(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let version = at.skip_to(") with config: ").map_err(|_elsewhere| Short::Ended)?;
    Ok(Fact::Config(version.to_owned(), python::arguments(at.rest).entries))
}

fn weights(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let end = at.rest.find(' ').ok_or(Short::Ended)?;
    let (text, rest) = at.rest.split_at(end);
    // Four decimals in older versions.
    let cut = text.find('.').map_or(text.len(), |dot| text.len().min(dot + 3));
    let taken = text.get(..cut).and_then(Hundredths::parse).ok_or(Short::Other)?;
    at.rest = rest;
    if at.skip_if(" GiB") || at.skip_if(" GB") { Ok(Fact::Weights(taken)) } else { Err(Short::Other) }
}

fn layout(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let name = at.word().map_err(|_elsewhere| Short::Other)?;
    at.skip(" KV cache layout").map_err(|_elsewhere| Short::Other)?;
    Ok(Fact::Layout(name.to_owned()))
}

fn padding(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let layers = at.number()?;
    at.skip(" padding layers, may waste at most ")?;
    let percent = at.decimal()?;
    at.skip("%")?;
    Ok(Fact::Padding(PaddingLine { layers, percent }))
}

/// `46.80 GiB`, `35.00GiB`.
fn gib(at: &mut Cursor<'_>) -> Result<Hundredths, Short> {
    let memory = at.decimal()?;
    at.skip_if(" ");
    at.skip("GiB")?;
    Ok(memory)
}

fn tokens(at: &mut Cursor<'_>, device: &'static str) -> Result<Fact, Short> {
    let tokens = at.number()?;
    at.skip(" tokens")?;
    let tokens = Tokens { device, tokens };
    if at.skip_if(", Maximum concurrency for ") {
        return Ok(Fact::TokensAndConcurrency(tokens, concurrency(at)?));
    }
    // The one line of newer versions, cut.
    if !at.rest.is_empty() && ", Maximum concurrency for ".starts_with(at.rest) {
        return Err(Short::Ended);
    }
    Ok(Fact::Tokens(tokens))
}

fn concurrency(at: &mut Cursor<'_>) -> Result<Concurrency, Short> {
    let max_model_len = at.number()?;
    at.skip(" tokens")?;
    if !at.skip_if(" per request") && !at.rest.starts_with(':') {
        return Err(if " per request".starts_with(at.rest) { Short::Ended } else { Short::Other });
    }
    at.skip(": ")?;
    let requests = at.decimal()?;
    at.skip("x")?;
    Ok(Concurrency { max_model_len, requests })
}

fn sizes(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let close = if at.skip_if("[") {
        "]"
    } else {
        at.skip("(")?;
        ")"
    };
    let inside = at.skip_to(close)?;
    let sizes: Result<Vec<u64>, Short> =
        inside.split(',').map(str::trim).filter(|size| !size.is_empty()).map(cursor::whole).collect();
    sizes.map(Fact::GroupBlockSizes)
}

fn auto_fit(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    if at.skip_if("reduced from ") {
        let from = at.number()?;
        at.skip(" to ")?;
        let to = at.number()?;
        at.skip(" to fit in ")?;
        return Ok(Fact::AutoFit(AutoFit { derived: from, fitted: to, memory: fitted_memory(at)? }));
    }
    if at.skip_if("full model context length ") {
        let derived = at.number()?;
        at.skip(" fits in ")?;
        // The memory came with 0.33.
        let memory = fitted_memory(at).unwrap_or(None);
        return Ok(Fact::AutoFit(AutoFit { derived, fitted: derived, memory }));
    }
    if at.skip_if("attention-free model, using derived max_model_len=") {
        let derived = at.last_number()?;
        return Ok(Fact::AutoFit(AutoFit { derived, fitted: derived, memory: None }));
    }
    Err(if at.rest.is_empty() { Short::Ended } else { Short::Other })
}

fn fitted_memory(at: &mut Cursor<'_>) -> Result<Option<Hundredths>, Short> {
    at.skip_to("memory (")?;
    gib(at).map(Some)
}

fn refusal(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    at.skip_to(" max seq len (")?;
    let asked = at.number()?;
    at.skip("), (")?;
    let needed = gib(at)?;
    at.skip(" KV cache is needed, which is larger than the available KV cache memory (")?;
    let available = gib(at)?;
    at.skip(")")?;
    // Without this sentence nothing fits; a text that ends before it says nothing of it.
    let estimated = match at.skip_to("estimated maximum model length is ") {
        Ok(_) => Some(at.number()?),
        Err(_) if at.near().contains("Try increasing") => Some(0),
        Err(short) => return Err(short),
    };
    Ok(Fact::Refusal(Refusal {
        message: format!("a request of {asked} tokens needs {needed} GiB, and {available} GiB are available"),
        max_model_len: Some(asked),
        needed: Some(needed),
        available: Some(available),
        estimated_max_model_len: estimated,
        ..Refusal::default()
    }))
}

/// Up to 0.8.
fn refusal_by_tokens(at: &mut Cursor<'_>) -> Result<Fact, Short> {
    let asked = at.number()?;
    at.skip(") is larger than the maximum number of tokens that can be stored in KV cache (")?;
    let tokens = at.number()?;
    at.skip(")")?;
    Ok(Fact::Refusal(Refusal {
        message: format!(
            "a request of {asked} tokens is longer than the {tokens} tokens that the cache holds"
        ),
        max_model_len: Some(asked),
        estimated_max_model_len: Some(tokens),
        ..Refusal::default()
    }))
}
