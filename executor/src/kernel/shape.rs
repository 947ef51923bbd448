//! Does a memory hold the array that a kernel takes it for?

use kernels::Kernel;
use thiserror::Error;

use crate::device::{Launch, Memory, Moved};

/// A launch whose sizes do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A memory is smaller than its array.
    #[error("launch `{kernel}`: `{array}` needs {needed} bytes, its memory has {bytes}")]
    Small {
        /// The kernel.
        kernel: &'static str,
        /// The array.
        array: &'static str,
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        bytes: usize,
    },
    /// A size is zero, too large or not divisible where it must be.
    #[error("launch `{kernel}`: `{size}` is {value}, {wanted}")]
    Size {
        /// The kernel.
        kernel: &'static str,
        /// The size.
        size: &'static str,
        /// Its value.
        value: usize,
        /// What it should be.
        wanted: &'static str,
    },
}

/// A launch in the making.
pub(super) struct Draft {
    kernel: Kernel,
    held: Vec<Memory>,
}

impl Draft {
    pub(super) fn new(kernel: Kernel) -> Self {
        Self { kernel, held: Vec::new() }
    }

    /// The address of a memory that holds an array of `counts` multiplied, of elements of `size` bytes.
    pub(super) fn array(
        &mut self,
        array: &'static str,
        memory: &Memory,
        counts: &[usize],
        size: usize,
    ) -> Result<u64, ShapeError> {
        let needed = counts.iter().try_fold(size, |bytes, n| bytes.checked_mul(*n)).unwrap_or(usize::MAX);
        if needed > memory.bytes() {
            let (kernel, bytes) = (self.kernel.name(), memory.bytes());
            return Err(ShapeError::Small { kernel, array, needed, bytes });
        }
        self.held.push(memory.clone());
        Ok(memory.address())
    }

    /// An error unless a size is as it should be.
    pub(super) fn need(
        &self,
        holds: bool,
        size: &'static str,
        value: usize,
        wanted: &'static str,
    ) -> Result<(), ShapeError> {
        if holds { Ok(()) } else { Err(ShapeError::Size { kernel: self.kernel.name(), size, value, wanted }) }
    }

    /// A size as the kernels' i64; below 2^31, so that no product of two overflows there.
    pub(super) fn size(&self, size: &'static str, value: usize) -> Result<i64, ShapeError> {
        let small = i32::try_from(value).map(i64::from).ok();
        small.ok_or(ShapeError::Size { kernel: self.kernel.name(), size, value, wanted: "below 2^31 wanted" })
    }

    /// A count of bytes.
    pub(super) fn bytes(&self, size: &'static str, value: usize) -> Result<i64, ShapeError> {
        let fits = i64::try_from(value).ok();
        fits.ok_or(ShapeError::Size { kernel: self.kernel.name(), size, value, wanted: "below 2^63 wanted" })
    }

    /// The launch; `moved` is bytes read and bytes written.
    pub(super) fn launch(
        self,
        grid: [usize; 3],
        threads: u32,
        words: Vec<u64>,
        moved: [usize; 2],
    ) -> Result<Launch, ShapeError> {
        let axis = |value: usize| {
            let wanted = "from 1 to 2^32 - 1 wanted";
            let error = ShapeError::Size { kernel: self.kernel.name(), size: "grid", value, wanted };
            u32::try_from(value).ok().filter(|n| *n > 0).ok_or(error)
        };
        let grid = [axis(grid[0])?, axis(grid[1])?, axis(grid[2])?];
        let [read, written] = moved.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        let moved = Moved { read, written };
        Ok(Launch { kernel: self.kernel, grid, threads, words, held: self.held, moved })
    }
}
