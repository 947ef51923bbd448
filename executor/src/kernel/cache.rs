//! Writes to the paged KV cache and reads from it.

use kernels::{Kernel, args};

use super::ShapeError;
use super::shape::Draft;
use crate::device::{Launch, Memory};
use crate::launch_limits::ReadShape;

/// A layer's part of the KV cache: where its rows lie, in bytes.
#[derive(Debug, Clone)]
pub struct Cache {
    /// The memory.
    pub memory: Memory,
    /// The layer's first byte in it.
    pub offset: usize,
    /// Blocks.
    pub num_blocks: usize,
    /// Tokens a block.
    pub block_size: usize,
    /// From a block to the next.
    pub block_stride: usize,
    /// From a token's key to its value; `None` where there is one row a token (MLA).
    pub value_offset: Option<usize>,
    /// From a token to the next.
    pub token_stride: usize,
    /// From a head to the next.
    pub head_stride: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements a head.
    pub head_size: usize,
    /// Whether elements are fp8; bf16 else.
    pub fp8: bool,
    /// What fp8 codes are multiplied by.
    pub scale: f32,
}

impl Cache {
    fn element(&self) -> usize {
        if self.fp8 { 1 } else { 2 }
    }

    /// Bytes of a token's rows.
    pub fn token_bytes(&self) -> usize {
        self.kv_heads * self.head_size * self.element() * if self.value_offset.is_some() { 2 } else { 1 }
    }

    /// The address of the cache, once its rows are known to lie inside.
    fn address(&self, d: &mut Draft) -> Result<u64, ShapeError> {
        let aligned = |n: usize| n.is_multiple_of(16);
        d.need(self.num_blocks > 0, "num_blocks", self.num_blocks, "from 1 wanted")?;
        d.need(self.block_size > 0, "block_size", self.block_size, "from 1 wanted")?;
        d.need(aligned(self.block_stride), "block_stride", self.block_stride, "a multiple of 16 wanted")?;
        d.need(aligned(self.token_stride), "token_stride", self.token_stride, "a multiple of 16 wanted")?;
        d.need(aligned(self.head_stride), "head_stride", self.head_stride, "a multiple of 16 wanted")?;
        d.need(aligned(self.offset), "offset", self.offset, "a multiple of 16 wanted")?;
        let value = self.value_offset.unwrap_or(0);
        d.need(aligned(value), "value_offset", value, "a multiple of 16 wanted")?;
        let head = self.head_size * self.element();
        d.need(head > 0 && aligned(head), "head_size", self.head_size, "a multiple of 16 bytes wanted")?;
        let steps = [
            (self.num_blocks, self.block_stride),
            (self.block_size, self.token_stride),
            (self.kv_heads, self.head_stride),
        ];
        let last = steps.iter().try_fold(value, |end, (count, stride)| {
            end.checked_add(count.saturating_sub(1).checked_mul(*stride)?)
        });
        let end =
            last.and_then(|last| last.checked_add(head)?.checked_add(self.offset)).unwrap_or(usize::MAX);
        Ok(d.array("cache", &self.memory, &[end], 1)? + u64::try_from(self.offset).unwrap_or(0))
    }
}

/// Writes keys and values, bf16 [tokens, heads, `head_size`] each, at the slots, i64 [tokens] from `first_slot`
/// on.
///
/// # Errors
/// [`ShapeError`]; a cache without values too.
pub fn kv_cache_write(
    cache: &Cache,
    key: &Memory,
    value: &Memory,
    slots: &Memory,
    first_slot: usize,
    num_tokens: usize,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::KvCacheWrite;
    let mut d = Draft::new(kernel);
    let value_offset = cache.value_offset.unwrap_or(0);
    d.need(cache.value_offset.is_some(), "value_offset", value_offset, "a cache with values wanted")?;
    let row = [num_tokens, cache.kv_heads, cache.head_size];
    let args = args::CacheWrite {
        key: d.array("key", key, &row, 2)?,
        value: d.array("value", value, &row, 2)?,
        slots: slots_from(&mut d, slots, first_slot, num_tokens)?,
        cache: cache.address(&mut d)?,
        num_tokens: d.size("num_tokens", num_tokens)?,
        num_heads: d.size("num_heads", cache.kv_heads)?,
        head_size: d.size("head_size", cache.head_size)?,
        block_size: d.size("block_size", cache.block_size)?,
        num_blocks: d.size("num_blocks", cache.num_blocks)?,
        block_stride: d.bytes("block_stride", cache.block_stride)?,
        value_offset: d.bytes("value_offset", value_offset)?,
        token_stride: d.bytes("token_stride", cache.token_stride)?,
        head_stride: d.bytes("head_stride", cache.head_stride)?,
        fp8: i64::from(cache.fp8),
        inverse_scale: f64::from(1.0 / cache.scale),
    };
    let moved = [num_tokens * (4 * cache.kv_heads * cache.head_size + 8), num_tokens * cache.token_bytes()];
    d.launch([num_tokens, 1, 1], kernel.threads(), args.words(), moved)
}

fn slots_from(d: &mut Draft, slots: &Memory, first: usize, tokens: usize) -> Result<u64, ShapeError> {
    let end = first.saturating_add(tokens);
    Ok(d.array("slots", slots, &[end], 8)? + u64::try_from(8 * first).unwrap_or(0))
}

/// Writes latents, bf16 [tokens, `head_size` - `rope_size`], and rotary parts, bf16 [tokens, `rope_size`].
///
/// # Errors
/// [`ShapeError`].
pub fn mla_cache_write(
    cache: &Cache,
    latent: &Memory,
    rope: &Memory,
    rope_size: usize,
    slots: &Memory,
    first_slot: usize,
    num_tokens: usize,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::MlaCacheWrite;
    let mut d = Draft::new(kernel);
    d.need(cache.kv_heads == 1, "kv_heads", cache.kv_heads, "1 wanted")?;
    d.need(rope_size <= cache.head_size, "rope_size", rope_size, "at most `head_size` wanted")?;
    let latent_size = cache.head_size.saturating_sub(rope_size);
    let args = args::MlaWrite {
        latent: d.array("latent", latent, &[num_tokens, latent_size], 2)?,
        rope: d.array("rope", rope, &[num_tokens, rope_size], 2)?,
        slots: slots_from(&mut d, slots, first_slot, num_tokens)?,
        cache: cache.address(&mut d)?,
        num_tokens: d.size("num_tokens", num_tokens)?,
        latent_size: d.size("latent_size", latent_size)?,
        rope_size: d.size("rope_size", rope_size)?,
        block_size: d.size("block_size", cache.block_size)?,
        num_blocks: d.size("num_blocks", cache.num_blocks)?,
        block_stride: d.bytes("block_stride", cache.block_stride)?,
        token_stride: d.bytes("token_stride", cache.token_stride)?,
        fp8: i64::from(cache.fp8),
        inverse_scale: f64::from(1.0 / cache.scale),
    };
    let moved = [num_tokens * (2 * cache.head_size + 8), num_tokens * cache.token_bytes()];
    d.launch([num_tokens, 1, 1], kernel.threads(), args.words(), moved)
}

/// Which tokens a read takes.
#[derive(Debug, Clone)]
pub struct Batch {
    /// i32 gathered block tables of all groups.
    pub tables: Memory,
    /// Where the group's table starts in it.
    pub table_start: usize,
    /// Ids a row of the group's table.
    pub stride: usize,
    /// i32 [`num_reqs`].
    pub seq_lens: Memory,
    /// Requests.
    pub num_reqs: usize,
    /// The last tokens of each request that are read; `None` is all.
    pub window: Option<usize>,
    /// Tokens that are read of all requests together, for the bytes moved.
    pub num_tokens: usize,
}

/// Reads the rows of a batch: f32 `sums` [requests, parts, keys (and values), heads, `head_size`].
///
/// # Errors
/// [`ShapeError`].
pub fn read(cache: &Cache, batch: &Batch, shape: ReadShape, sums: &Memory) -> Result<Launch, ShapeError> {
    let values = cache.value_offset.is_some();
    let kernel = match (values, cache.fp8) {
        (true, false) => Kernel::GqaReadBf16,
        (true, true) => Kernel::GqaReadFp8,
        (false, false) => Kernel::MlaReadBf16,
        (false, true) => Kernel::MlaReadFp8,
    };
    let mut d = Draft::new(kernel);
    let (splits, workers) = (to_usize(shape.splits), to_usize(shape.workers));
    let parts = splits * workers;
    let ids = batch.num_reqs.checked_mul(batch.stride).and_then(|n| n.checked_add(batch.table_start));
    let table = d.array("tables", &batch.tables, &[ids.unwrap_or(usize::MAX)], 4)?;
    let rows = if values { 2 } else { 1 };
    let args = args::Read {
        cache: cache.address(&mut d)?,
        table: table + u64::try_from(4 * batch.table_start).unwrap_or(0),
        seq_lens: d.array("seq_lens", &batch.seq_lens, &[batch.num_reqs], 4)?,
        sums: d.array("sums", sums, &[batch.num_reqs, parts, rows, cache.kv_heads, cache.head_size], 4)?,
        num_reqs: d.size("num_reqs", batch.num_reqs)?,
        stride: d.size("stride", batch.stride)?,
        num_blocks: d.size("num_blocks", cache.num_blocks)?,
        block_size: d.size("block_size", cache.block_size)?,
        kv_heads: d.size("kv_heads", cache.kv_heads)?,
        head_size: d.size("head_size", cache.head_size)?,
        splits: d.size("splits", splits)?,
        workers: d.size("workers", workers)?,
        window: d.size("window", batch.window.unwrap_or(0))?,
        block_stride: d.bytes("block_stride", cache.block_stride)?,
        value_offset: d.bytes("value_offset", cache.value_offset.unwrap_or(0))?,
        token_stride: d.bytes("token_stride", cache.token_stride)?,
        head_stride: d.bytes("head_stride", cache.head_stride)?,
        scale: f64::from(if cache.fp8 { cache.scale } else { 1.0 }),
    };
    let bytes = batch.num_tokens * cache.token_bytes();
    d.launch([batch.num_reqs, splits, 1], shape.threads, args.words(), [bytes, 0])
}

/// Adds the parts: f32 `out` [rows, `row_size`] from `sums` [rows, parts, `row_size`].
///
/// # Errors
/// [`ShapeError`].
pub fn combine(
    sums: &Memory,
    rows: usize,
    parts: usize,
    row_size: usize,
    out: &Memory,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::ReadCombine;
    let mut d = Draft::new(kernel);
    let args = args::Combine {
        sums: d.array("sums", sums, &[rows, parts, row_size], 4)?,
        out: d.array("out", out, &[rows, row_size], 4)?,
        rows: d.size("rows", rows)?,
        parts: d.size("parts", parts)?,
        row_size: d.size("row_size", row_size)?,
    };
    d.launch([rows, 1, 1], kernel.threads(), args.words(), [4 * rows * parts * row_size, 4 * rows * row_size])
}

fn to_usize(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
