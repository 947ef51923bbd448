//! What a device can do at best.

use kernels::{Kernel, args};

use super::ShapeError;
use super::shape::Draft;
use crate::device::{Launch, Memory};

/// A launch that does nothing.
///
/// # Errors
/// None.
pub fn noop() -> Result<Launch, ShapeError> {
    Draft::new(Kernel::Noop).launch([1; 3], Kernel::Noop.threads(), args::Noop { nothing: 0 }.words(), [0, 0])
}

/// Reads `bytes` of memory once, in `programs` pieces; `sums` [programs] u32 takes the sum of each.
///
/// # Errors
/// [`ShapeError`] where `bytes` is not a multiple of 64 or a memory is too small.
pub fn stream_read(
    from: &Memory,
    bytes: usize,
    sums: &Memory,
    programs: usize,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::StreamRead;
    let mut draft = Draft::new(kernel);
    draft.need(bytes.is_multiple_of(64), "bytes", bytes, "a multiple of 64 wanted")?;
    let args = args::StreamRead {
        from: draft.array("from", from, &[bytes], 1)?,
        sums: draft.array("sums", sums, &[programs], 4)?,
        bytes: draft.bytes("bytes", bytes)?,
        programs: draft.size("programs", programs)?,
    };
    draft.launch([programs, 1, 1], kernel.threads(), args.words(), [bytes, 0])
}

/// Writes `bytes` of memory once, in `programs` pieces, with a 32-bit value.
///
/// # Errors
/// [`ShapeError`] where `bytes` is not a multiple of 64 or the memory is too small.
pub fn stream_write(to: &Memory, bytes: usize, programs: usize, value: u32) -> Result<Launch, ShapeError> {
    let kernel = Kernel::StreamWrite;
    let mut draft = Draft::new(kernel);
    draft.need(bytes.is_multiple_of(64), "bytes", bytes, "a multiple of 64 wanted")?;
    let args = args::StreamWrite {
        to: draft.array("to", to, &[bytes], 1)?,
        bytes: draft.bytes("bytes", bytes)?,
        programs: draft.size("programs", programs)?,
        value: i64::from(value),
    };
    draft.launch([programs, 1, 1], kernel.threads(), args.words(), [0, bytes])
}
