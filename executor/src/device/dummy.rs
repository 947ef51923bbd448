//! A device that keeps memory and order but computes nothing: for tests of what is around it.

use std::alloc::Layout;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use kernels::Kernel;

use super::cpu::{Heap, host_info};
use super::handle::{Mark, Recorded};
use super::{Backend, Device, DeviceError, DeviceInfo, Event, Graph, Launch, Memory, Pinned};

/// Counts launches.
pub struct DummyDevice {
    info: DeviceInfo,
    heap: Rc<Heap>,
    launched: RefCell<Vec<Kernel>>,
}

impl DummyDevice {
    /// A dummy with this much memory.
    pub fn new(memory_bytes: usize) -> Self {
        let mut info = host_info(Backend::Dummy, "dummy", 1);
        info.computes = false;
        // As a GPU has, so that the same launches pass.
        info.limits.threads = 1024;
        info.memory_bytes = u64::try_from(memory_bytes).ok();
        Self { info, heap: Rc::new(Heap::new(Some(memory_bytes))), launched: RefCell::new(Vec::new()) }
    }

    /// The kernels launched so far, in order.
    pub fn launched(&self) -> Vec<Kernel> {
        self.launched.borrow().clone()
    }

    /// Bytes allocated and not freed.
    pub fn bytes_used(&self) -> usize {
        self.heap.used()
    }
}

impl Device for DummyDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, DeviceError> {
        Heap::allocate(&self.heap, "allocate", bytes)
    }

    fn pin(&self, bytes: usize) -> Result<Pinned, DeviceError> {
        Heap::pin(&self.heap, "pin", bytes)
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
        self.info
            .limits
            .check(launch.grid, launch.threads)
            .map_err(|cause| DeviceError::Launch { kernel, cause })?;
        launch.held.iter().try_for_each(|memory| memory.of(&self.heap).map(|_| ()))?;
        self.launched.borrow_mut().push(launch.kernel);
        Ok(())
    }

    fn record(&self) -> Result<Event, DeviceError> {
        Ok(Event(Mark::Host(Instant::now())))
    }

    fn elapsed_ns(&self, from: &Event, to: &Event) -> Result<f64, DeviceError> {
        super::cpu::elapsed(from, to)
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

/// The alignment of host memory that stands for a device's.
pub(super) fn layout(bytes: usize) -> Result<Layout, std::alloc::LayoutError> {
    Layout::from_size_align(bytes.max(1), 4096)
}
