//! A device that keeps memory and order but computes nothing: for tests of what is around it.

use std::cell::RefCell;
use std::rc::Rc;

use kernels::Kernel;

use super::host::{self, Heap, OnHost};
use super::{Backend, DeviceInfo, Launch};

/// Counts launches.
pub struct DummyDevice {
    info: DeviceInfo,
    heap: Rc<Heap>,
    launched: RefCell<Vec<Kernel>>,
}

impl DummyDevice {
    /// A dummy with this much memory.
    pub fn new(memory_bytes: usize) -> Self {
        let mut info = host::info(Backend::Dummy, "dummy", 1);
        info.computes = false;
        // As a GPU has, so that the same launches pass.
        info.limits.threads = 1024;
        info.memory_bytes = u64::try_from(memory_bytes).ok();
        Self { info, heap: Heap::new(Some(memory_bytes)), launched: RefCell::new(Vec::new()) }
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

impl OnHost for DummyDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn heap(&self) -> &Rc<Heap> {
        &self.heap
    }

    fn threads(&self, launch: &Launch) -> u32 {
        launch.threads
    }

    fn run(&self, launch: &Launch) {
        self.launched.borrow_mut().push(launch.kernel);
    }
}
