//! Which devices are there, and why is one not usable?

use std::fmt;

use super::compiler::Compiler;
use super::{CpuDevice, Device, DeviceError, DeviceInfo, DummyDevice, GpuDevice, Vendor, gpu};

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// This machine's processor.
    Cpu,
    /// NVIDIA's GPUs.
    Cuda,
    /// AMD's GPUs.
    Hip,
    /// Memory and order without computing.
    Dummy,
}

impl Backend {
    /// All that a person can choose.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Cuda, Self::Hip, Self::Dummy];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::Dummy => "dummy",
        }
    }

    /// What it needs to be usable.
    pub fn needs(self) -> &'static str {
        match self {
            Self::Cpu => "nothing: the kernels are compiled in",
            Self::Cuda => {
                "NVIDIA's driver (libcuda.so.1) and NVRTC (libnvrtc.so.12 or .13, or the file in K3PLAN_NVRTC), or \
                 kernels compiled before in K3PLAN_KERNELS"
            }
            Self::Hip => {
                "AMD's driver with ROCm 6 or 7 (libamdhip64.so) and hiprtc (libhiprtc.so, or the file in \
                 K3PLAN_HIPRTC), or kernels compiled before in K3PLAN_KERNELS"
            }
            Self::Dummy => "nothing: it computes nothing either",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a backend can be used.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// These devices are there.
    Usable(Vec<DeviceInfo>),
    /// Devices may be there, but something is missing.
    Unusable {
        /// The devices that the driver shows.
        devices: Vec<DeviceInfo>,
        /// What is missing.
        why: DeviceError,
    },
}

/// A backend and its state.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The backend.
    pub backend: Backend,
    /// Its state.
    pub state: State,
}

/// Looks for all backends. Opens no GPU.
pub fn discover() -> Vec<Found> {
    let state = |backend| match backend {
        Backend::Cpu => State::Usable(vec![CpuDevice::new(None).info().clone()]),
        Backend::Dummy => State::Usable(vec![DummyDevice::new(DUMMY_BYTES).info().clone()]),
        Backend::Cuda => gpu_state(Vendor::Cuda),
        Backend::Hip => gpu_state(Vendor::Hip),
    };
    Backend::ALL.into_iter().map(|backend| Found { backend, state: state(backend) }).collect()
}

const DUMMY_BYTES: usize = 16 << 30;

fn gpu_state(vendor: Vendor) -> State {
    match gpu::list(vendor) {
        Err(why) => State::Unusable { devices: Vec::new(), why },
        Ok(devices) => {
            let compiled = devices.iter().all(|d| super::compiler::compiled_before(&d.target).is_some());
            match Compiler::load(vendor) {
                Err(why) if !compiled => State::Unusable { devices, why },
                _ => State::Usable(devices),
            }
        }
    }
}

/// Opens the first device of a backend.
///
/// # Errors
/// What is missing, or the call that failed.
pub fn open(backend: Backend) -> Result<Box<dyn Device>, DeviceError> {
    Ok(match backend {
        Backend::Cpu => Box::new(CpuDevice::new(None)),
        Backend::Dummy => Box::new(DummyDevice::new(DUMMY_BYTES)),
        Backend::Cuda => Box::new(GpuDevice::open(Vendor::Cuda, 0)?),
        Backend::Hip => Box::new(GpuDevice::open(Vendor::Hip, 0)?),
    })
}
