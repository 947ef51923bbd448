//! Devices: the kernels against their references, and drivers that fail.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests: an error is a failure, and a missing device is said"
)]

#[macro_use]
#[path = "device/conformance.rs"]
mod conformance;
#[path = "device/compile.rs"]
mod compile;
#[path = "device/hip_mock.rs"]
mod hip_mock;
#[path = "device/random_plan.rs"]
mod random_plan;

use executor::device::{Backend, CpuDevice, DummyDevice, open};

conformance!(cpu, 64, Some(Box::new(CpuDevice::new(Some(2)))));
conformance!(cpu_base, 16, Some(Box::new(CpuDevice::at_level(Some(1), kernels::cpu::Level::Base))));
conformance!(cpu_v3, 16, Some(Box::new(CpuDevice::at_level(Some(1), kernels::cpu::Level::V3))));
conformance!(emulated_gpu, 3, Some(Box::new(CpuDevice::emulated())));
conformance!(dummy, 4, Some(Box::new(DummyDevice::new(1 << 30))));
conformance!(cuda, 64, gpu(Backend::Cuda));
conformance!(hip, 64, gpu(Backend::Hip));

/// The GPU, where there is one; says so where there is none.
fn gpu(backend: Backend) -> Option<Box<dyn executor::device::Device>> {
    match open(backend) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("not run on {backend}: failed to {error}");
            None
        }
    }
}
