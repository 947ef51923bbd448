//! One interface over CPU, CUDA and HIP devices, found at run time.
//!
//! A device has one stream; what is put on it runs in order. Memory, events and graphs free themselves. A
//! kernel starts only through a [`Launch`], whose sizes [`crate::kernel`] has checked against its memory.

mod compiler;
pub mod conditions;
mod cpu;
mod discover;
mod driver;
mod dummy;
mod error;
mod gpu;
mod handle;
mod host;

use kernels::Kernel;

pub use compiler::{Compiler, Vendor, code_name};
pub use cpu::CpuDevice;
pub use discover::{Backend, Found, State, discover, open};
pub use dummy::DummyDevice;
pub use error::DeviceError;
pub use gpu::GpuDevice;
pub use handle::{Event, Graph, Memory, Pinned};

use crate::launch_limits::Limits;

/// What a device is.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// The backend it was found by.
    pub backend: Backend,
    /// The maker's name for it.
    pub name: String,
    /// What its kernels were compiled for: `x86-64-v4`, `sm_90`, `gfx950`.
    pub target: String,
    /// Cores, or multiprocessors.
    pub units: u32,
    /// Bytes of memory, where known.
    pub memory_bytes: Option<u64>,
    /// Bytes of the last cache before memory, where known.
    pub cache_bytes: Option<u64>,
    /// Bytes a second of memory by the data the driver gives (bus width x clock x 2), where known.
    pub peak_bytes_per_second: Option<f64>,
    /// What a launch may ask for.
    pub limits: Limits,
    /// Whether launches compute: not on the dummy.
    pub computes: bool,
}

/// A kernel with everything it needs: made by [`crate::kernel`] only.
#[derive(Debug, Clone)]
pub struct Launch {
    pub(crate) kernel: Kernel,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    pub(crate) words: Vec<u64>,
    pub(crate) held: Vec<Memory>,
    pub(crate) moved: Moved,
}

/// Bytes of memory that launches have to move, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

impl Moved {
    /// Both ways together.
    pub fn bytes(self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

impl std::iter::Sum for Moved {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, each| Self {
            read: sum.read.saturating_add(each.read),
            written: sum.written.saturating_add(each.written),
        })
    }
}

impl Launch {
    /// The kernel.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The launch with another number of threads a block, for kernels that take any: not the reads.
    #[must_use]
    pub fn with_threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Bytes of memory that the launch has to move.
    pub fn moved(&self) -> Moved {
        self.moved
    }
}

/// A device with one stream.
pub trait Device {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Memory on the device, zeroed, aligned to 64 bytes at least.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] with what was asked for, or the call that failed.
    fn allocate(&self, bytes: usize) -> Result<Memory, DeviceError>;

    /// Host memory that the device copies from without a detour, zeroed.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    fn pin(&self, bytes: usize) -> Result<Pinned, DeviceError>;

    /// Copies to `memory` from `offset` on, and waits.
    ///
    /// # Errors
    /// [`DeviceError::Range`] where it does not fit, or the call that failed.
    fn upload(&self, memory: &Memory, offset: usize, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies from `memory` from `offset` on, and waits for the stream.
    ///
    /// # Errors
    /// As [`Device::upload`].
    fn download(&self, memory: &Memory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError>;

    /// Puts a copy of the first `bytes` of `from` on the stream, without waiting.
    ///
    /// # Errors
    /// As [`Device::upload`].
    fn upload_pinned(&self, memory: &Memory, from: &Pinned, bytes: usize) -> Result<(), DeviceError>;

    /// Puts a kernel on the stream.
    ///
    /// # Errors
    /// [`DeviceError::Launch`] where the launch is beyond the device's limits, or the call that failed.
    fn launch(&self, launch: &Launch) -> Result<(), DeviceError>;

    /// Puts a mark on the stream.
    ///
    /// # Errors
    /// The call that failed.
    fn record(&self) -> Result<Event, DeviceError>;

    /// Nanoseconds between two marks; waits for the second.
    ///
    /// # Errors
    /// The call that failed, or [`DeviceError::Foreign`] for another device's marks.
    fn elapsed_ns(&self, from: &Event, to: &Event) -> Result<f64, DeviceError>;

    /// Waits until the stream is empty.
    ///
    /// # Errors
    /// The call that failed, also one that an earlier launch caused.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Makes the launches one graph.
    ///
    /// # Errors
    /// The call that failed.
    fn capture(&self, launches: &[Launch]) -> Result<Graph, DeviceError>;

    /// Puts a graph on the stream.
    ///
    /// # Errors
    /// The call that failed, or [`DeviceError::Foreign`] for another device's graph.
    fn replay(&self, graph: &Graph) -> Result<(), DeviceError>;
}
