//! What can go wrong with a device, and at which call?

use thiserror::Error;

use crate::launch_limits::LimitError;

/// An error of a device, its driver or its compiler.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No library of this name could be loaded.
    #[error("load any of {}: {cause}", .tried.join(", "))]
    NoLibrary {
        /// The names that were tried.
        tried: Vec<String>,
        /// What the loader said of the last.
        cause: String,
    },
    /// The library is there, but not all of its functions.
    #[error("find the function `{symbol}` in `{library}`")]
    NoSymbol {
        /// The function.
        symbol: String,
        /// The library it was looked for in.
        library: String,
    },
    /// The driver finds no device.
    #[error("find a device: `{call}` counts none")]
    NoDevice {
        /// The call that counted.
        call: &'static str,
    },
    /// A call failed.
    #[error("call `{call}`: {name} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// Its result.
        code: i32,
        /// The result's name.
        name: String,
    },
    /// There is not enough memory.
    #[error("call `{call}`: out of memory, {asked} bytes asked for, {} free", .free.map_or("unknown".to_owned(), |f| f.to_string()))]
    OutOfMemory {
        /// The function.
        call: &'static str,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free, where the driver still answers.
        free: Option<u64>,
    },
    /// The device is gone, or its context broken for good.
    #[error("call `{call}`: the device is lost, {name} ({code}); nothing more can run on it in this process")]
    Lost {
        /// The function that noticed.
        call: &'static str,
        /// Its result.
        code: i32,
        /// The result's name.
        name: String,
    },
    /// A launch is beyond the device's limits.
    #[error("launch `{kernel}`")]
    Launch {
        /// The kernel.
        kernel: &'static str,
        /// The limit.
        #[source]
        cause: LimitError,
    },
    /// The kernels do not compile.
    #[error("compile the kernels for {target} with {compiler}: {log}")]
    Compile {
        /// The compiler.
        compiler: &'static str,
        /// The target.
        target: String,
        /// What it said.
        log: String,
    },
    /// A copy goes beyond its memory.
    #[error("copy {bytes} bytes at {offset} of a memory of {size}")]
    Range {
        /// First byte.
        offset: usize,
        /// Bytes to copy.
        bytes: usize,
        /// Bytes there are.
        size: usize,
    },
    /// A mark or graph of another device.
    #[error("use {what} of another device")]
    Foreign {
        /// What.
        what: &'static str,
    },
}
