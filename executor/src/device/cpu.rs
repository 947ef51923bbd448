//! The CPU as a device: host memory, a stream that runs at once, kernels spread over threads.

#![expect(unsafe_code, reason = "hands out memory by address and calls the kernels")]

mod pool;

use std::alloc::{alloc_zeroed, dealloc};
use std::cell::Cell;
use std::rc::Rc;
use std::slice;
use std::time::Instant;

use kernels::cpu::Level;

use self::pool::Pool;
use super::dummy::layout;
use super::handle::{Mark, Owned, Owner, Recorded};
use super::{Backend, Device, DeviceError, DeviceInfo, Event, Graph, Launch, Memory, Pinned};
use crate::launch_limits::Limits;

/// Memory of the host that stands for a device's.
pub(super) struct Heap {
    used: Cell<usize>,
    limit: Option<usize>,
}

impl Heap {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { used: Cell::new(0), limit }
    }

    pub(super) fn used(&self) -> usize {
        self.used.get()
    }

    fn take(&self, call: &'static str, bytes: usize) -> Result<u64, DeviceError> {
        let free = self.limit.map(|limit| limit - self.used.get());
        let out_of_memory = || DeviceError::OutOfMemory {
            call,
            asked: u64::try_from(bytes).unwrap_or(u64::MAX),
            free: free.and_then(|free| u64::try_from(free).ok()),
        };
        if free.is_some_and(|free| bytes > free) {
            return Err(out_of_memory());
        }
        let Ok(layout) = layout(bytes) else { return Err(out_of_memory()) };
        // SAFETY: the layout's size is at least one.
        let place = unsafe { alloc_zeroed(layout) };
        if place.is_null() {
            return Err(out_of_memory());
        }
        self.used.set(self.used.get() + bytes);
        Ok(place.expose_provenance() as u64)
    }

    pub(super) fn allocate(heap: &Rc<Self>, call: &'static str, bytes: usize) -> Result<Memory, DeviceError> {
        let address = heap.take(call, bytes)?;
        Ok(Memory::new(Rc::clone(heap) as Rc<dyn Owner>, address, bytes))
    }

    pub(super) fn pin(heap: &Rc<Self>, call: &'static str, bytes: usize) -> Result<Pinned, DeviceError> {
        let address = heap.take(call, bytes)?;
        Ok(Pinned::new(Rc::clone(heap) as Rc<dyn Owner>, address, bytes))
    }

    pub(super) fn write(memory: &Memory, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        let to = place(memory.check(offset, from.len())?);
        // SAFETY: `check` has found the range inside memory that this module allocated and that `memory` keeps
        // alive; no reference to it exists, and launches have ended.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    pub(super) fn read(memory: &Memory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        let from = place(memory.check(offset, to.len())?);
        // SAFETY: as in `write`.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
        Ok(())
    }

    pub(super) fn write_pinned(memory: &Memory, from: &Pinned, bytes: usize) -> Result<(), DeviceError> {
        Self::write(memory, 0, pinned_bytes(from, bytes)?)
    }
}

/// The first bytes of pinned memory.
pub(super) fn pinned_bytes(pinned: &Pinned, bytes: usize) -> Result<&[u8], DeviceError> {
    if bytes > pinned.bytes() {
        return Err(DeviceError::Range { offset: 0, bytes, size: pinned.bytes() });
    }
    // SAFETY: pinned memory is host memory of that size, alive and unchanged while it is borrowed: it is written
    // through `Pinned::write` only, which borrows it mutably.
    Ok(unsafe { slice::from_raw_parts(place(pinned.address()), bytes) })
}

impl Pinned {
    /// Writes from the start.
    ///
    /// # Errors
    /// [`DeviceError::Range`] where it does not fit.
    pub fn write(&mut self, from: &[u8]) -> Result<(), DeviceError> {
        if from.len() > self.bytes() {
            return Err(DeviceError::Range { offset: 0, bytes: from.len(), size: self.bytes() });
        }
        // SAFETY: host memory of that size, borrowed mutably.
        unsafe { place(self.address()).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }
}

fn place(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Owner for Heap {
    fn free(&self, owned: Owned, bytes: usize) {
        let (Owned::Memory(address) | Owned::Pinned(address)) = owned else { return };
        if let Ok(layout) = layout(bytes) {
            // SAFETY: `take` allocated it with the layout of the same size, and its last holder is gone.
            unsafe { dealloc(place(address), layout) };
            self.used.set(self.used.get() - bytes);
        }
    }
}

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
            info: host_info(Backend::Cpu, level.name(), threads),
            heap: Rc::new(Heap::new(None)),
            engine: Engine::Threads { level, pool: Pool::new(threads - 1) },
        }
    }

    /// The GPU's code with a thread for each GPU thread: slow, and what shows a missing barrier.
    pub fn emulated() -> Self {
        let mut info = host_info(Backend::Cpu, "emulated-gpu", 1);
        info.limits.threads = 1024;
        Self { info, heap: Rc::new(Heap::new(None)), engine: Engine::Emulated }
    }

    /// Bytes allocated and not freed.
    pub fn bytes_used(&self) -> usize {
        self.heap.used()
    }
}

pub(super) fn host_info(backend: Backend, target: &str, threads: usize) -> DeviceInfo {
    DeviceInfo {
        backend,
        name: super::conditions::processor_name(),
        target: target.to_owned(),
        units: u32::try_from(threads).unwrap_or(u32::MAX),
        memory_bytes: super::conditions::memory_bytes(),
        cache_bytes: super::conditions::cache_bytes(),
        peak_bytes_per_second: None,
        limits: Limits { threads: 1, grid: [u32::MAX; 3] },
        computes: true,
    }
}

pub(super) fn elapsed(from: &Event, to: &Event) -> Result<f64, DeviceError> {
    match (&from.0, &to.0) {
        (Mark::Host(from), Mark::Host(to)) => Ok(to.saturating_duration_since(*from).as_secs_f64() * 1e9),
        _ => Err(DeviceError::Foreign { what: "a mark" }),
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, DeviceError> {
        Heap::allocate(&self.heap, "alloc_zeroed", bytes)
    }

    fn pin(&self, bytes: usize) -> Result<Pinned, DeviceError> {
        Heap::pin(&self.heap, "alloc_zeroed", bytes)
    }

    fn upload(&self, memory: &Memory, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        Heap::write(memory.of(&self.heap)?, offset, from)
    }

    fn download(&self, memory: &Memory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        Heap::read(memory.of(&self.heap)?, offset, to)
    }

    fn upload_pinned(&self, memory: &Memory, from: &Pinned, bytes: usize) -> Result<(), DeviceError> {
        Heap::write_pinned(memory.of(&self.heap)?, from, bytes)
    }

    fn launch(&self, launch: &Launch) -> Result<(), DeviceError> {
        let kernel = launch.kernel.symbol();
        // On the CPU a program has one thread, whatever a GPU would have.
        let threads = if matches!(self.engine, Engine::Emulated) { launch.threads } else { 1 };
        self.info
            .limits
            .check(launch.grid, threads)
            .map_err(|cause| DeviceError::Launch { kernel, cause })?;
        launch.held.iter().try_for_each(|memory| memory.of(&self.heap).map(|_| ()))?;
        match &self.engine {
            // SAFETY: a `Launch` holds the memory that its words point to, of the sizes that `crate::kernel` has
            // checked; it is this heap's, as the line above has found, so host memory of this process. Its
            // programs write apart, and nobody else writes before they have ended.
            Engine::Threads { level, pool } => unsafe { pool.run(*level, launch) },
            // SAFETY: the same, and the limits have bounded the threads.
            Engine::Emulated => unsafe {
                kernels::cpu::emulate(launch.kernel, &launch.words, launch.grid, threads);
            },
        }
        Ok(())
    }

    fn record(&self) -> Result<Event, DeviceError> {
        Ok(Event(Mark::Host(Instant::now())))
    }

    fn elapsed_ns(&self, from: &Event, to: &Event) -> Result<f64, DeviceError> {
        elapsed(from, to)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn capture(&self, launches: &[Launch]) -> Result<Graph, DeviceError> {
        Ok(Graph(Recorded::Launches(launches.to_vec())))
    }

    fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        let Recorded::Launches(launches) = &graph.0 else {
            return Err(DeviceError::Foreign { what: "a graph" });
        };
        launches.iter().try_for_each(|launch| self.launch(launch))
    }
}
