//! Updates of recurrent states.

use kernels::{Kernel, args};

use super::ShapeError;
use super::shape::Draft;
use crate::device::{Launch, Memory};

/// Bytes of a state that one program takes.
const PIECE: usize = 16 << 10;

/// A layer's recurrent states: where its pages lie, in bytes.
#[derive(Debug, Clone)]
pub struct StateCache {
    /// The memory.
    pub memory: Memory,
    /// The layer's first byte in it.
    pub offset: usize,
    /// Pages; page 0 is the null block.
    pub num_blocks: usize,
    /// From a page to the next.
    pub block_stride: usize,
    /// The convolution's state, first in a page.
    pub conv_bytes: usize,
    /// The recurrent state behind it.
    pub state_bytes: usize,
}

impl StateCache {
    fn address(&self, d: &mut Draft) -> Result<u64, ShapeError> {
        let sizes = [
            ("offset", self.offset),
            ("block_stride", self.block_stride),
            ("conv_bytes", self.conv_bytes),
            ("state_bytes", self.state_bytes),
        ];
        for (name, size) in sizes {
            d.need(size.is_multiple_of(16), name, size, "a multiple of 16 wanted")?;
        }
        d.need(self.num_blocks > 0, "num_blocks", self.num_blocks, "from 1 wanted")?;
        let end = (self.num_blocks - 1)
            .checked_mul(self.block_stride)
            .and_then(|last| last.checked_add(self.offset)?.checked_add(self.conv_bytes))
            .and_then(|end| end.checked_add(self.state_bytes));
        let start = d.array("cache", &self.memory, &[end.unwrap_or(usize::MAX)], 1)?;
        Ok(start + u64::try_from(self.offset).unwrap_or(0))
    }
}

/// The requests of an update.
#[derive(Debug, Clone)]
pub struct StateBatch {
    /// i32 [`num_reqs`, `width`]: the pages of each request.
    pub indices: Memory,
    /// Pages a request.
    pub width: usize,
    /// i32 [`num_reqs`]: tokens that the last step gave.
    pub accepted: Memory,
    /// i32 [`num_reqs` + 1].
    pub query_start_loc: Memory,
    /// Requests.
    pub num_reqs: usize,
    /// Recurrent states that are written, of all requests together, for the bytes moved.
    pub states_written: usize,
}

/// Reads each request's state and writes it back, a state a token.
///
/// # Errors
/// [`ShapeError`].
pub fn update(cache: &StateCache, batch: &StateBatch) -> Result<Launch, ShapeError> {
    let kernel = Kernel::StateUpdate;
    let mut d = Draft::new(kernel);
    let (n, width) = (batch.num_reqs, batch.width);
    d.need(width > 0, "width", width, "from 1 wanted")?;
    let pieces = cache.state_bytes.max(cache.conv_bytes).div_ceil(PIECE).max(1);
    let args = args::StateUpdate {
        cache: cache.address(&mut d)?,
        indices: d.array("indices", &batch.indices, &[n, width], 4)?,
        accepted: d.array("accepted", &batch.accepted, &[n], 4)?,
        query_start_loc: d.array("query_start_loc", &batch.query_start_loc, &[n + 1], 4)?,
        num_reqs: d.size("num_reqs", n)?,
        width: d.size("width", width)?,
        num_blocks: d.size("num_blocks", cache.num_blocks)?,
        block_stride: d.bytes("block_stride", cache.block_stride)?,
        conv_bytes: d.bytes("conv_bytes", cache.conv_bytes)?,
        state_bytes: d.bytes("state_bytes", cache.state_bytes)?,
        pieces: d.size("pieces", pieces)?,
    };
    let conv = n.saturating_mul(cache.conv_bytes);
    let read = conv.saturating_add(n.saturating_mul(cache.state_bytes));
    let written = conv.saturating_add(batch.states_written.saturating_mul(cache.state_bytes));
    d.launch([n, pieces, 1], kernel.threads(), args.words(), [read, written])
}
