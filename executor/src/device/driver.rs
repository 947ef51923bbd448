//! Which functions of libcuda or libamdhip64 are called, and under which names?
//!
//! The two drivers have the same shapes for all that is needed, so there is one table of functions and two
//! columns of names. The library is loaded at run time; a machine without it is one without such a device.

#![expect(unsafe_code, reason = "loads a driver's library and declares its functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::{DeviceError, Vendor};

/// An opaque handle or a device address.
pub(super) type Handle = u64;

type GetErrorNameCuda = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
type GetErrorNameHip = unsafe extern "C" fn(c_int) -> *const c_char;

macro_rules! functions {
    ($($field:ident : $cuda:literal / $hip:literal = fn($($arg:ty),*);)*) => {
        /// The functions of a driver.
        pub(super) struct Driver {
            pub(super) vendor: Vendor,
            $(pub(super) $field: Function<unsafe extern "C" fn($($arg),*) -> c_int>,)*
            error_name: ErrorName,
            // Last, so that it is closed after the functions are gone.
            _library: Library,
        }

        impl Driver {
            fn bind(vendor: Vendor, library: Library, path: &str) -> Result<Self, DeviceError> {
                let error_name = match vendor {
                    // SAFETY: the type is that of cuGetErrorName in the driver's documentation.
                    Vendor::Cuda => ErrorName::Cuda(unsafe { symbol(&library, path, "cuGetErrorName")? }),
                    // SAFETY: the type is that of hipGetErrorName in the runtime's documentation.
                    Vendor::Hip => ErrorName::Hip(unsafe { symbol(&library, path, "hipGetErrorName")? }),
                };
                Ok(Self {
                    vendor,
                    $($field: {
                        let name = match vendor { Vendor::Cuda => $cuda, Vendor::Hip => $hip };
                        // SAFETY: the type is that of the function of this name in both drivers' documentation:
                        // handles and addresses are eight bytes, enumerations are ints.
                        Function { call: unsafe { symbol(&library, path, name)? }, name }
                    },)*
                    error_name,
                    _library: library,
                })
            }
        }
    };
}

/// A function with its name, for errors.
pub(super) struct Function<F> {
    pub(super) call: F,
    pub(super) name: &'static str,
}

enum ErrorName {
    Cuda(GetErrorNameCuda),
    Hip(GetErrorNameHip),
}

functions! {
    init: "cuInit" / "hipInit" = fn(c_uint);
    device_count: "cuDeviceGetCount" / "hipGetDeviceCount" = fn(*mut c_int);
    device_get: "cuDeviceGet" / "hipDeviceGet" = fn(*mut c_int, c_int);
    device_name: "cuDeviceGetName" / "hipDeviceGetName" = fn(*mut c_char, c_int, c_int);
    device_total_mem: "cuDeviceTotalMem_v2" / "hipDeviceTotalMem" = fn(*mut usize, c_int);
    device_attribute: "cuDeviceGetAttribute" / "hipDeviceGetAttribute" = fn(*mut c_int, c_int, c_int);
    context_retain: "cuDevicePrimaryCtxRetain" / "hipDevicePrimaryCtxRetain" = fn(*mut Handle, c_int);
    context_release: "cuDevicePrimaryCtxRelease_v2" / "hipDevicePrimaryCtxRelease" = fn(c_int);
    context_set: "cuCtxSetCurrent" / "hipCtxSetCurrent" = fn(Handle);
    mem_info: "cuMemGetInfo_v2" / "hipMemGetInfo" = fn(*mut usize, *mut usize);
    mem_alloc: "cuMemAlloc_v2" / "hipMalloc" = fn(*mut Handle, usize);
    mem_free: "cuMemFree_v2" / "hipFree" = fn(Handle);
    host_alloc: "cuMemHostAlloc" / "hipHostMalloc" = fn(*mut Handle, usize, c_uint);
    host_free: "cuMemFreeHost" / "hipHostFree" = fn(Handle);
    copy_to_device: "cuMemcpyHtoDAsync_v2" / "hipMemcpyHtoDAsync" = fn(Handle, *const c_void, usize, Handle);
    copy_to_host: "cuMemcpyDtoHAsync_v2" / "hipMemcpyDtoHAsync" = fn(*mut c_void, Handle, usize, Handle);
    fill: "cuMemsetD8Async" / "hipMemsetD8Async" = fn(Handle, u8, usize, Handle);
    stream_create: "cuStreamCreate" / "hipStreamCreateWithFlags" = fn(*mut Handle, c_uint);
    stream_destroy: "cuStreamDestroy_v2" / "hipStreamDestroy" = fn(Handle);
    stream_synchronize: "cuStreamSynchronize" / "hipStreamSynchronize" = fn(Handle);
    event_create: "cuEventCreate" / "hipEventCreateWithFlags" = fn(*mut Handle, c_uint);
    event_record: "cuEventRecord" / "hipEventRecord" = fn(Handle, Handle);
    event_synchronize: "cuEventSynchronize" / "hipEventSynchronize" = fn(Handle);
    event_elapsed: "cuEventElapsedTime" / "hipEventElapsedTime" = fn(*mut f32, Handle, Handle);
    event_destroy: "cuEventDestroy_v2" / "hipEventDestroy" = fn(Handle);
    module_load: "cuModuleLoadData" / "hipModuleLoadData" = fn(*mut Handle, *const c_void);
    module_function: "cuModuleGetFunction" / "hipModuleGetFunction" = fn(*mut Handle, Handle, *const c_char);
    module_unload: "cuModuleUnload" / "hipModuleUnload" = fn(Handle);
    launch: "cuLaunchKernel" / "hipModuleLaunchKernel" = fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    capture_begin: "cuStreamBeginCapture_v2" / "hipStreamBeginCapture" = fn(Handle, c_int);
    capture_end: "cuStreamEndCapture" / "hipStreamEndCapture" = fn(Handle, *mut Handle);
    graph_instantiate: "cuGraphInstantiateWithFlags" / "hipGraphInstantiateWithFlags" = fn(*mut Handle, Handle, u64);
    graph_launch: "cuGraphLaunch" / "hipGraphLaunch" = fn(Handle, Handle);
    graph_executable_destroy: "cuGraphExecDestroy" / "hipGraphExecDestroy" = fn(Handle);
    graph_destroy: "cuGraphDestroy" / "hipGraphDestroy" = fn(Handle);
}

/// Finds a function.
///
/// # Safety
/// `F` is the type of the function of this name.
pub(super) unsafe fn symbol<F: Copy>(library: &Library, path: &str, name: &str) -> Result<F, DeviceError> {
    // SAFETY: as the caller promises.
    let found = unsafe { library.get::<F>(name) };
    let found = found
        .map_err(|_unnamed| DeviceError::NoSymbol { symbol: name.to_owned(), library: path.to_owned() })?;
    Ok(*found)
}

/// Loads the first of several libraries.
pub(super) fn load(names: &[String]) -> Result<(Library, String), DeviceError> {
    let mut cause = "no name was given".to_owned();
    for name in names {
        // SAFETY: a driver's library, or its stand-in in a test: its initialisers are trusted as the driver is.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((library, name.clone())),
            Err(error) => cause = error.to_string(),
        }
    }
    Err(DeviceError::NoLibrary { tried: names.to_vec(), cause })
}

impl Driver {
    /// Loads the vendor's driver, or the library at `path`.
    pub(super) fn load(vendor: Vendor, path: Option<&str>) -> Result<Self, DeviceError> {
        let names = match path {
            Some(path) => vec![path.to_owned()],
            None => vendor.driver_names(),
        };
        let (library, path) = load(&names)?;
        Self::bind(vendor, library, &path)
    }

    /// The name of a result.
    pub(super) fn error_name(&self, code: c_int) -> String {
        let name = match self.error_name {
            ErrorName::Cuda(call) => {
                let mut name = std::ptr::null();
                // SAFETY: `name` takes a pointer; it stays null for an unknown result.
                unsafe { call(code, &raw mut name) };
                name
            }
            // SAFETY: takes any number.
            ErrorName::Hip(call) => unsafe { call(code) },
        };
        if name.is_null() {
            return "an unknown error".to_owned();
        }
        // SAFETY: both drivers give a constant, zero-terminated string.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The error of a call's result, if it is one.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), DeviceError> {
        // The numbers are those of both drivers, HIP having taken CUDA's: 2 no memory, 100 no device; a device or
        // its context is gone for good after 46, 101, 201, 214 (ECC), 700 to 719 (a fault in a kernel), and 4.
        match code {
            0 => Ok(()),
            2 => Err(DeviceError::OutOfMemory { call, asked: 0, free: None }),
            100 => Err(DeviceError::NoDevice { call }),
            4 | 46 | 214 | 700 | 702 | 709 | 710 | 714..=719 | 999 => {
                Err(DeviceError::Lost { call, code, name: self.error_name(code) })
            }
            _ => Err(DeviceError::Call { call, code, name: self.error_name(code) }),
        }
    }
}
