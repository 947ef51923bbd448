//! Who frees memory, events and graphs, and when? The last that holds them.

use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use super::{DeviceError, Launch};

/// What a device has to free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owned {
    Memory(u64),
    Pinned(u64),
    Event(u64),
    Graph { graph: u64, executable: u64 },
}

/// A device's part that outlives what it owns.
pub(crate) trait Owner {
    /// Frees; there is nobody to tell of an error.
    fn free(&self, owned: Owned, bytes: usize);
}

struct Held {
    owner: Rc<dyn Owner>,
    owned: Owned,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.owner.free(self.owned, self.bytes);
    }
}

/// Memory on a device; clones are the same memory.
#[derive(Clone)]
pub struct Memory {
    held: Rc<Held>,
    address: u64,
}

impl Memory {
    pub(crate) fn new(owner: Rc<dyn Owner>, address: u64, bytes: usize) -> Self {
        Self { held: Rc::new(Held { owner, owned: Owned::Memory(address), bytes }), address }
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.held.bytes
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// An error unless the memory is this owner's.
    pub(crate) fn of<T: Owner>(&self, owner: &Rc<T>) -> Result<&Self, DeviceError> {
        let ours = Rc::as_ptr(owner).cast::<()>();
        let theirs = Rc::as_ptr(&self.held.owner).cast::<()>();
        if ours == theirs { Ok(self) } else { Err(DeviceError::Foreign { what: "memory" }) }
    }

    pub(crate) fn check(&self, offset: usize, bytes: usize) -> Result<u64, DeviceError> {
        let size = self.bytes();
        if offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(DeviceError::Range { offset, bytes, size });
        }
        Ok(self.address + u64::try_from(offset).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes())
    }
}

/// Host memory for copies to the device.
pub struct Pinned {
    held: Held,
    address: u64,
}

impl Pinned {
    pub(crate) fn new(owner: Rc<dyn Owner>, address: u64, bytes: usize) -> Self {
        Self { held: Held { owner, owned: Owned::Pinned(address), bytes }, address }
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.held.bytes
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

/// A mark on a stream.
pub struct Event(pub(crate) Mark);

pub(crate) enum Mark {
    Host(Instant),
    Device { handle: u64, _held: EventHeld },
}

pub(crate) struct EventHeld {
    _held: Held,
}

impl Event {
    pub(crate) fn device(owner: Rc<dyn Owner>, handle: u64) -> Self {
        let held = EventHeld { _held: Held { owner, owned: Owned::Event(handle), bytes: 0 } };
        Self(Mark::Device { handle, _held: held })
    }
}

/// Launches that start as one.
pub struct Graph(pub(crate) Recorded);

pub(crate) enum Recorded {
    /// On the host: the launches themselves.
    Launches(Vec<Launch>),
    /// On a GPU: the executable graph, and the memory that it works on.
    Device { executable: u64, _held: GraphHeld, _memory: Vec<Memory> },
}

pub(crate) struct GraphHeld {
    _held: Held,
}

impl Graph {
    pub(crate) fn device(owner: Rc<dyn Owner>, graph: u64, executable: u64, memory: Vec<Memory>) -> Self {
        let owned = Owned::Graph { graph, executable };
        let held = GraphHeld { _held: Held { owner, owned, bytes: 0 } };
        Self(Recorded::Device { executable, _held: held, _memory: memory })
    }
}
