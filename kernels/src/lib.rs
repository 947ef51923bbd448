//! The device work of a step as single-source kernels, and a plain Rust reference for each.
//!
//! The sources in `csrc/` include no header, so that one string compiles under NVRTC, hiprtc, clang for amdgcn
//! and, as plain C++, for the CPU. [`registry`] numbers the kernels, [`args`] lays out what each takes,
//! [`source`] is the string, [`cpu`] runs them here, [`reference`] says what each must give.

pub mod args;
pub mod cpu;
pub mod reference;
pub mod registry;
pub mod source;

pub use registry::Kernel;
