//! The CPU as a device: kernels spread over threads, or the GPU's code with a thread for each of its threads.

#![expect(unsafe_code, reason = "calls the kernels")]

mod pool;

use std::rc::Rc;

use kernels::cpu::Level;

use self::pool::Pool;
use super::host::{self, Heap, OnHost};
use super::{Backend, DeviceInfo, Launch};

/// What runs the kernels.
enum Engine {
    Threads { level: Level, pool: Pool },
    Emulated,
}

/// The CPU.
pub struct CpuDevice {
    info: DeviceInfo,
    heap: Rc<Heap>,
    engine: Engine,
}

impl CpuDevice {
    /// The CPU with this many threads; `None` is one a core.
    pub fn new(threads: Option<usize>) -> Self {
        Self::at_level(threads, Level::best())
    }

    /// The CPU with the kernels of a lower level of its instruction set than its best, or of its best.
    pub fn at_level(threads: Option<usize>, level: Level) -> Self {
        let level = level.min(Level::best());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or(cores).max(1);
        Self {
            info: host::info(Backend::Cpu, level.name(), threads),
            heap: Heap::new(None),
            engine: Engine::Threads { level, pool: Pool::new(threads - 1) },
        }
    }

    /// The GPU's code with a thread for each GPU thread: slow, and what shows a missing barrier.
    pub fn emulated() -> Self {
        let mut info = host::info(Backend::Cpu, "emulated-gpu", 1);
        info.limits.threads = 1024;
        Self { info, heap: Heap::new(None), engine: Engine::Emulated }
    }

    /// Bytes allocated and not freed.
    pub fn bytes_used(&self) -> usize {
        self.heap.used()
    }
}

impl OnHost for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn heap(&self) -> &Rc<Heap> {
        &self.heap
    }

    /// A program has one thread, whatever a GPU would have.
    fn threads(&self, launch: &Launch) -> u32 {
        if matches!(self.engine, Engine::Emulated) { launch.threads } else { 1 }
    }

    fn run(&self, launch: &Launch) {
        match &self.engine {
            // SAFETY: a `Launch` holds the memory that its words point to, of the sizes that `crate::kernel` has
            // checked; it is this heap's, as the caller has found, so host memory of this process. Its programs
            // write apart, and nobody else writes before they have ended.
            Engine::Threads { level, pool } => unsafe { pool.run(*level, launch) },
            // SAFETY: the same, and the limits have bounded the threads.
            Engine::Emulated => unsafe {
                kernels::cpu::emulate(launch.kernel, &launch.words, launch.grid, launch.threads);
            },
        }
    }
}
