//! What the host does for the KV cache groups in a step, and whether the device waits for it.

use super::factors::{Factor, Factors};

/// What the host dispatches one by one, a step, over all groups.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Dispatch {
    /// Calls of metadata builders.
    pub builds: f64,
    /// Kernels and copies outside graphs.
    pub launches: f64,
}

/// Whether host work of a step can run while the device computes the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Metadata waits for what the step before it gave (drafts accepted, synchronous scheduling): all of it shows.
    Exposed,
    /// Async scheduling: it shows only where it takes longer than the device.
    Overlapped,
}

impl Dispatch {
    /// Host time, seconds.
    pub fn time(&self, factors: &Factors) -> f64 {
        (self.builds * factors.get(Factor::BuildUs) + self.launches * factors.get(Factor::LaunchUs)) * 1e-6
    }

    /// The part of it that lengthens a step whose other work takes `device` seconds.
    pub fn exposed(&self, factors: &Factors, exposure: Exposure, device: f64) -> f64 {
        let time = self.time(factors);
        match exposure {
            Exposure::Exposed => time,
            Exposure::Overlapped => (time - device).max(0.0),
        }
    }
}
