//! Recorded workloads: Mooncake traces and the custom datasets of `vllm bench`.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::blocks::tokens::{Segment, mix};

/// A recorded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRequest {
    /// Arrival after the first one, nanoseconds.
    pub arrival_ns: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Small goes first.
    pub priority: i64,
    /// What is known of the prompt's content; the rest is the request's own.
    pub prompt: Vec<Segment>,
}

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// There is no line.
    #[error("the trace is empty")]
    Empty,
    /// A line is no JSON object, or breaks off.
    #[error("line {line} is no request: {source}")]
    Syntax {
        /// 1-based.
        line: usize,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// A line has neither a Mooncake request's fields nor a prompt.
    #[error("line {line} has neither `input_length` and `output_length` nor `prompt`")]
    Unknown {
        /// 1-based.
        line: usize,
    },
    /// A number is negative, too large or zero.
    #[error("line {line}, request {request}: {field} is {value}; it must be between {least} and 536870912")]
    Range {
        /// 1-based.
        line: usize,
        /// 0-based number of the request.
        request: usize,
        /// Which.
        field: &'static str,
        /// What was given.
        value: i64,
        /// The smallest that works.
        least: i64,
    },
}

/// Tokens that one Mooncake hash id stands for.
const MOONCAKE_BLOCK: u32 = 512;
/// Bytes of text that are taken for one token where no count is given.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens of text that are hashed at once.
const TEXT_BLOCK: u32 = 16;

#[derive(Deserialize)]
struct Mooncake {
    #[serde(default)]
    timestamp: i64,
    input_length: i64,
    output_length: i64,
    #[serde(default)]
    hash_ids: Vec<u64>,
    #[serde(default)]
    priority: i64,
}

/// Reads a trace, a JSON object a line, blank lines left out; `output` is the number of answer tokens where
/// a line gives none.
///
/// Mooncake lines have `timestamp` (milliseconds), `input_length`, `output_length` and `hash_ids` (one a
/// block of 512 tokens). `vllm bench` lines have `prompt` and perhaps `output_tokens` and `prompt_tokens`;
/// without the latter four bytes count as a token, and equal beginnings of text count as shared.
///
/// # Errors
/// [`TraceError`] names the line.
pub fn parse(text: &str, output: u32) -> Result<Vec<TraceRequest>, TraceError> {
    let mut requests = Vec::new();
    for (index, text) in text.lines().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        let line = index + 1;
        let syntax = |source| TraceError::Syntax { line, source };
        let value: Value = serde_json::from_str(text).map_err(syntax)?;
        let request = requests.len();
        if value.get("input_length").is_some() {
            let parsed: Mooncake = serde_json::from_value(value).map_err(syntax)?;
            requests.push(mooncake(&parsed, line, request)?);
        } else if let Some(prompt) = value.get("prompt").and_then(Value::as_str) {
            requests.push(custom(&value, prompt, output, line, request)?);
        } else {
            return Err(TraceError::Unknown { line });
        }
    }
    if requests.is_empty() {
        return Err(TraceError::Empty);
    }
    requests.sort_by_key(|request| request.arrival_ns);
    let first = requests[0].arrival_ns;
    for request in &mut requests {
        request.arrival_ns -= first;
    }
    Ok(requests)
}

fn range(
    value: i64,
    least: i64,
    field: &'static str,
    line: usize,
    request: usize,
) -> Result<u32, TraceError> {
    u32::try_from(value)
        .ok()
        .filter(|&number| i64::from(number) >= least && number <= 1 << 29)
        .ok_or(TraceError::Range { line, request, field, value, least })
}

fn mooncake(parsed: &Mooncake, line: usize, request: usize) -> Result<TraceRequest, TraceError> {
    let prompt_tokens = range(parsed.input_length, 0, "input_length", line, request)?;
    let output_tokens = range(parsed.output_length, 0, "output_length", line, request)?;
    let milliseconds = u64::try_from(parsed.timestamp).map_err(|_negative| TraceError::Range {
        line,
        request,
        field: "timestamp",
        value: parsed.timestamp,
        least: 0,
    })?;
    let mut prompt = Vec::with_capacity(parsed.hash_ids.len());
    let mut end = 0;
    for &id in &parsed.hash_ids {
        if end >= prompt_tokens {
            break;
        }
        end = (end + MOONCAKE_BLOCK).min(prompt_tokens);
        prompt.push(Segment { end, stream: mix(0x0A_0A, id) });
    }
    Ok(TraceRequest {
        arrival_ns: milliseconds.saturating_mul(1_000_000),
        prompt_tokens,
        output_tokens,
        priority: parsed.priority,
        prompt,
    })
}

fn custom(
    value: &Value,
    text: &str,
    output: u32,
    line: usize,
    request: usize,
) -> Result<TraceRequest, TraceError> {
    let number = |field: &'static str| match value.get(field).and_then(Value::as_i64) {
        Some(given) => range(given, 0, field, line, request).map(Some),
        None => Ok(None),
    };
    let estimate = u32::try_from(text.len().div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX);
    let prompt_tokens = number("prompt_tokens")?.unwrap_or(estimate);
    let output_tokens = number("output_tokens")?.unwrap_or(output);
    let seconds = value.get("timestamp").and_then(Value::as_u64).unwrap_or(0);
    let mut prompt = Vec::new();
    let mut end = 0;
    for chunk in text.as_bytes().chunks(BYTES_PER_TOKEN * TEXT_BLOCK as usize) {
        if end >= prompt_tokens {
            break;
        }
        end = (end + TEXT_BLOCK).min(prompt_tokens);
        let stream = chunk.iter().fold(0x7E57, |hash, &byte| mix(hash, u64::from(byte)));
        prompt.push(Segment { end, stream });
    }
    Ok(TraceRequest {
        arrival_ns: seconds.saturating_mul(1_000_000),
        prompt_tokens,
        output_tokens,
        priority: 0,
        prompt,
    })
}
