//! What do the devices in host memory share? Memory by address, marks that are moments, graphs that are lists.

#![expect(unsafe_code, reason = "hands out memory by address")]

use std::alloc::{Layout, LayoutError, alloc, dealloc};
use std::cell::Cell;
use std::rc::Rc;
use std::slice;
use std::time::Instant;

use super::handle::{Mark, Owned, Owner, Recorded};
use super::{Backend, Device, DeviceError, DeviceInfo, Event, Graph, Launch, Memory, Pinned, conditions};
use crate::launch_limits::Limits;

/// The call that gives memory.
const ALLOCATE: &str = "alloc";
/// From so many bytes on memory is asked for in large pages: a step walks tables and caches in strides, a page each.
const LARGE_PAGE: usize = 2 << 20;

/// A device whose memory is the host's and whose stream runs at once.
pub(super) trait OnHost {
    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Its memory.
    fn heap(&self) -> &Rc<Heap>;

    /// Threads that a block of a launch has there.
    fn threads(&self, launch: &Launch) -> u32;

    /// Runs a launch that is within the limits and works on this heap's memory.
    fn run(&self, launch: &Launch);
}

impl<T: OnHost> Device for T {
    fn info(&self) -> &DeviceInfo {
        OnHost::info(self)
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, DeviceError> {
        let address = self.heap().take(bytes)?;
        Ok(Memory::new(Rc::clone(self.heap()) as Rc<dyn Owner>, address, bytes))
    }

    fn pin(&self, bytes: usize) -> Result<Pinned, DeviceError> {
        let address = self.heap().take(bytes)?;
        Ok(Pinned::new(Rc::clone(self.heap()) as Rc<dyn Owner>, address, bytes))
    }

    fn upload(&self, memory: &Memory, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        let to = place(memory.of(self.heap())?.check(offset, from.len())?);
        // SAFETY: `check` has found the range inside memory that this module allocated and that `memory` keeps
        // alive; no reference to it exists, and launches have ended.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    fn download(&self, memory: &Memory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        let from = place(memory.of(self.heap())?.check(offset, to.len())?);
        // SAFETY: as in `upload`.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
        Ok(())
    }

    fn upload_pinned(&self, memory: &Memory, from: &Pinned, bytes: usize) -> Result<(), DeviceError> {
        self.upload(memory, 0, pinned_bytes(from, bytes)?)
    }

    fn launch(&self, launch: &Launch) -> Result<(), DeviceError> {
        let kernel = launch.kernel.symbol();
        let limits = OnHost::info(self).limits;
        limits
            .check(launch.grid, self.threads(launch))
            .map_err(|cause| DeviceError::Launch { kernel, cause })?;
        launch.held.iter().try_for_each(|memory| memory.of(self.heap()).map(|_| ()))?;
        self.run(launch);
        Ok(())
    }

    fn record(&self) -> Result<Event, DeviceError> {
        Ok(Event(Mark::Host(Instant::now())))
    }

    fn elapsed_ns(&self, from: &Event, to: &Event) -> Result<f64, DeviceError> {
        match (&from.0, &to.0) {
            (Mark::Host(from), Mark::Host(to)) => Ok(to.saturating_duration_since(*from).as_secs_f64() * 1e9),
            _ => Err(DeviceError::Foreign { what: "a mark" }),
        }
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

/// What a device on the host is, without a limit of its own.
pub(super) fn info(backend: Backend, target: &str, threads: usize) -> DeviceInfo {
    DeviceInfo {
        backend,
        name: conditions::processor_name(),
        target: target.to_owned(),
        units: u32::try_from(threads).unwrap_or(u32::MAX),
        memory_bytes: conditions::memory_bytes(),
        cache_bytes: conditions::cache_bytes(),
        peak_bytes_per_second: None,
        limits: Limits { threads: 1, grid: [u32::MAX; 3] },
        computes: true,
    }
}

/// Memory of the host that stands for a device's.
pub(super) struct Heap {
    used: Cell<usize>,
    limit: Option<usize>,
}

impl Heap {
    pub(super) fn new(limit: Option<usize>) -> Rc<Self> {
        Rc::new(Self { used: Cell::new(0), limit })
    }

    /// Bytes handed out and not given back.
    pub(super) fn used(&self) -> usize {
        self.used.get()
    }

    fn take(&self, bytes: usize) -> Result<u64, DeviceError> {
        let free = self.limit.map(|limit| limit - self.used.get());
        let out_of_memory = || DeviceError::OutOfMemory {
            call: ALLOCATE,
            asked: u64::try_from(bytes).unwrap_or(u64::MAX),
            free: free.and_then(|free| u64::try_from(free).ok()),
        };
        if free.is_some_and(|free| bytes > free) {
            return Err(out_of_memory());
        }
        let Ok(layout) = layout(bytes) else { return Err(out_of_memory()) };
        // SAFETY: the layout's size is at least one.
        let place = unsafe { alloc(layout) };
        if place.is_null() {
            return Err(out_of_memory());
        }
        in_large_pages(place, layout.size());
        // SAFETY: memory of this size, which nobody else knows yet.
        unsafe { place.write_bytes(0, layout.size()) };
        self.used.set(self.used.get() + bytes);
        Ok(place.expose_provenance() as u64)
    }
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

/// Asks for large pages, before the memory is first touched; a system without them gives its usual ones.
#[cfg(target_os = "linux")]
fn in_large_pages(place: *mut u8, bytes: usize) {
    use nix::sys::mman::{MmapAdvise, madvise};
    let whole = bytes / LARGE_PAGE * LARGE_PAGE;
    if let Some(start) = std::ptr::NonNull::new(place.cast::<std::ffi::c_void>()).filter(|_| whole > 0) {
        // SAFETY: the range is this allocation's, which starts at a large page; the advice changes no content.
        let _ = unsafe { madvise(start, whole, MmapAdvise::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn in_large_pages(_place: *mut u8, _bytes: usize) {}

/// Pages of the host: what a device aligns to at least.
fn layout(bytes: usize) -> Result<Layout, LayoutError> {
    Layout::from_size_align(bytes.max(1), if bytes >= LARGE_PAGE { LARGE_PAGE } else { 4096 })
}
