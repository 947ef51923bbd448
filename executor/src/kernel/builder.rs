//! The fills of metadata builders.

use kernels::{Kernel, args};

use super::ShapeError;
use super::shape::Draft;
use crate::device::{Launch, Memory};

/// Where a batch's requests stand.
#[derive(Debug, Clone)]
pub struct Requests {
    /// i32 [`num_reqs`].
    pub num_computed: Memory,
    /// i32 [`num_reqs`].
    pub query_lens: Memory,
    /// i32 [`num_reqs_padded` + 1].
    pub query_start_loc: Memory,
    /// i32 [`num_reqs_padded`].
    pub seq_lens: Memory,
    /// Requests.
    pub num_reqs: usize,
    /// Requests with padding.
    pub num_reqs_padded: usize,
}

/// Fills `query_start_loc` and `seq_lens`.
///
/// # Errors
/// [`ShapeError`].
pub fn sequence_starts(requests: &Requests) -> Result<Launch, ShapeError> {
    let kernel = Kernel::SequenceStarts;
    let mut d = Draft::new(kernel);
    let (n, padded) = (requests.num_reqs, requests.num_reqs_padded);
    d.need(n <= padded, "num_reqs", n, "at most `num_reqs_padded` wanted")?;
    let args = args::SequenceStarts {
        num_computed: d.array("num_computed", &requests.num_computed, &[n], 4)?,
        query_lens: d.array("query_lens", &requests.query_lens, &[n], 4)?,
        query_start_loc: d.array("query_start_loc", &requests.query_start_loc, &[padded + 1], 4)?,
        seq_lens: d.array("seq_lens", &requests.seq_lens, &[padded], 4)?,
        num_reqs: d.size("num_reqs", n)?,
        num_reqs_padded: d.size("num_reqs_padded", padded)?,
    };
    d.launch([1; 3], kernel.threads(), args.words(), [8 * n, 8 * padded])
}

/// The positions of the tokens, i64 [`max_num_tokens`], after [`sequence_starts`].
///
/// # Errors
/// [`ShapeError`].
pub fn positions(
    requests: &Requests,
    positions: &Memory,
    max_num_tokens: usize,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::Positions;
    let mut d = Draft::new(kernel);
    let n = requests.num_reqs;
    let args = args::Positions {
        num_computed: d.array("num_computed", &requests.num_computed, &[n], 4)?,
        query_start_loc: d.array("query_start_loc", &requests.query_start_loc, &[n + 1], 4)?,
        positions: d.array("positions", positions, &[max_num_tokens], 8)?,
        num_reqs: d.size("num_reqs", n)?,
        max_num_tokens: d.size("max_num_tokens", max_num_tokens)?,
    };
    d.launch([n, 1, 1], kernel.threads(), args.words(), [8 * n, 8 * max_num_tokens])
}

/// Which requests count as decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The longest query of a decode.
    pub decode_threshold: usize,
    /// Whether all decodes must have one length.
    pub require_uniform: bool,
    /// Whether short queries of requests that still prefill count as decodes.
    pub short_extends_are_decodes: bool,
}

/// Decodes, prefills and their tokens, i32 [4]; `is_prefilling` is i32 [`num_reqs`].
///
/// # Errors
/// [`ShapeError`].
pub fn decode_prefill_split(
    query_start_loc: &Memory,
    is_prefilling: &Memory,
    num_reqs: usize,
    rule: Rule,
    counts: &Memory,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::DecodePrefillSplit;
    let mut d = Draft::new(kernel);
    let args = args::Split {
        query_start_loc: d.array("query_start_loc", query_start_loc, &[num_reqs + 1], 4)?,
        is_prefilling: d.array("is_prefilling", is_prefilling, &[num_reqs], 4)?,
        counts: d.array("counts", counts, &[4], 4)?,
        num_reqs: d.size("num_reqs", num_reqs)?,
        decode_threshold: d.size("decode_threshold", rule.decode_threshold)?,
        require_uniform: i64::from(rule.require_uniform),
        short_extends_are_decodes: i64::from(rule.short_extends_are_decodes),
    };
    d.launch([1; 3], kernel.threads(), args.words(), [8 * num_reqs, 16])
}

/// Chunk indices i32 [`max_num_chunks`, 2] and chunk offsets i64 [`num_seqs` + 1] of linear attention.
///
/// # Errors
/// [`ShapeError`].
pub fn chunk_indices(
    cu_seqlens: &Memory,
    num_seqs: usize,
    chunk_size: usize,
    indices: &Memory,
    max_num_chunks: usize,
    offsets: &Memory,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::ChunkIndices;
    let mut d = Draft::new(kernel);
    d.need(chunk_size > 0, "chunk_size", chunk_size, "from 1 wanted")?;
    let args = args::ChunkIndices {
        cu_seqlens: d.array("cu_seqlens", cu_seqlens, &[num_seqs + 1], 4)?,
        chunk_indices: d.array("chunk_indices", indices, &[max_num_chunks, 2], 4)?,
        chunk_offsets: d.array("chunk_offsets", offsets, &[num_seqs + 1], 8)?,
        num_seqs: d.size("num_seqs", num_seqs)?,
        chunk_size: d.size("chunk_size", chunk_size)?,
        max_num_chunks: d.size("max_num_chunks", max_num_chunks)?,
    };
    d.launch([1; 3], kernel.threads(), args.words(), [4 * num_seqs, 8 * num_seqs + 8 * max_num_chunks])
}

/// A group of KDA layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct States {
    /// Ids a row of its table.
    pub stride: usize,
    /// Draft tokens: states beside the first.
    pub num_spec: usize,
    /// Tokens a block in cache mode `align`; `None` in mode `none`.
    pub block_size: Option<usize>,
}

/// State indices i32 [`num_reqs_padded`, 1 + `num_spec`] from the group's gathered table, whose first id is
/// `table_start` ids into `tables`.
///
/// # Errors
/// [`ShapeError`].
pub fn kda_state_indices(
    tables: &Memory,
    table_start: usize,
    requests: &Requests,
    states: States,
    indices: &Memory,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::KdaStateIndices;
    let mut d = Draft::new(kernel);
    let (n, padded, width) = (requests.num_reqs, requests.num_reqs_padded, states.num_spec + 1);
    let ids = n.checked_mul(states.stride).and_then(|ids| ids.checked_add(table_start)).unwrap_or(usize::MAX);
    let table = d.array("tables", tables, &[ids], 4)?;
    let args = args::StateIndices {
        table: table + u64::try_from(4 * table_start).unwrap_or(0),
        seq_lens: d.array("seq_lens", &requests.seq_lens, &[n], 4)?,
        indices: d.array("indices", indices, &[padded, width], 4)?,
        num_reqs: d.size("num_reqs", n)?,
        num_reqs_padded: d.size("num_reqs_padded", padded)?,
        stride: d.size("stride", states.stride)?,
        num_spec: d.size("num_spec", states.num_spec)?,
        block_size: d.size("block_size", states.block_size.unwrap_or(0))?,
    };
    d.launch([padded, 1, 1], kernel.threads(), args.words(), [4 * n + 4 * padded * width, 4 * padded * width])
}
