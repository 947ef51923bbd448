//! How do the kernels become code for a GPU: by NVRTC, by hiprtc, or beforehand?

#![expect(unsafe_code, reason = "calls a compiler's library")]

use std::env;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::path::PathBuf;
use std::ptr::null;

use libloading::Library;

use super::DeviceError;
use super::driver::{load, symbol};

/// Whose GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// NVIDIA: libcuda and NVRTC.
    Cuda,
    /// AMD: libamdhip64 and libhiprtc.
    Hip,
}

impl Vendor {
    /// The names that the driver's library goes by.
    pub fn driver_names(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Cuda => &["libcuda.so.1", "libcuda.so"],
            Self::Hip => {
                &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"]
            }
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The names that the compiler's library goes by; the variable `K3PLAN_NVRTC` or `K3PLAN_HIPRTC` names
    /// another, before all others.
    pub fn compiler_names(self) -> Vec<String> {
        let (variable, names): (_, &[&str]) = match self {
            Self::Cuda => {
                let names =
                    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"];
                ("K3PLAN_NVRTC", names)
            }
            Self::Hip => {
                let names =
                    &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "/opt/rocm/lib/libhiprtc.so"];
                ("K3PLAN_HIPRTC", names)
            }
        };
        let named = env::var(variable).ok().filter(|name| !name.is_empty());
        named.into_iter().chain(names.iter().map(|name| (*name).to_owned())).collect()
    }

    /// The compiler's name for a compute capability; of AMD's the last digit, the stepping, is known for the two
    /// that are supported.
    pub(super) fn target(self, major: u32, minor: u32) -> String {
        match (self, major, minor) {
            (Self::Cuda, _, _) => format!("sm_{major}{minor}"),
            (Self::Hip, 9, 4) => "gfx942".to_owned(),
            (Self::Hip, 9, 5) => "gfx950".to_owned(),
            (Self::Hip, _, _) => format!("gfx{major}{minor:x}0"),
        }
    }
}

type Program = *mut std::ffi::c_void;

/// A run-time compiler. NVRTC and hiprtc have the same functions under two names.
pub struct Compiler {
    vendor: Vendor,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    code_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    code: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    _library: Library,
}

/// What compiling gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// A cubin or a code object.
    pub bytes: Vec<u8>,
    /// What the compiler said; NVRTC's holds registers and spills of each kernel.
    pub log: String,
}

impl Compiler {
    /// Loads the vendor's compiler.
    ///
    /// # Errors
    /// [`DeviceError::NoLibrary`] or [`DeviceError::NoSymbol`].
    pub fn load(vendor: Vendor) -> Result<Self, DeviceError> {
        Self::load_any(vendor, &vendor.compiler_names())
    }

    /// Loads the first of several libraries as the vendor's compiler.
    ///
    /// # Errors
    /// As [`Compiler::load`].
    pub fn load_any(vendor: Vendor, names: &[String]) -> Result<Self, DeviceError> {
        let (library, path) = load(names)?;
        let name = |short: &str| match (vendor, short) {
            (Vendor::Cuda, _) => format!("nvrtc{short}"),
            (Vendor::Hip, "GetCUBINSize") => "hiprtcGetCodeSize".to_owned(),
            (Vendor::Hip, "GetCUBIN") => "hiprtcGetCode".to_owned(),
            (Vendor::Hip, _) => format!("hiprtc{short}"),
        };
        // SAFETY: the types are those of the functions of these names in NVRTC's and hiprtc's documentation.
        unsafe {
            Ok(Self {
                vendor,
                create: symbol(&library, &path, &name("CreateProgram"))?,
                compile: symbol(&library, &path, &name("CompileProgram"))?,
                log_size: symbol(&library, &path, &name("GetProgramLogSize"))?,
                log: symbol(&library, &path, &name("GetProgramLog"))?,
                code_size: symbol(&library, &path, &name("GetCUBINSize"))?,
                code: symbol(&library, &path, &name("GetCUBIN"))?,
                destroy: symbol(&library, &path, &name("DestroyProgram"))?,
                error_string: symbol(&library, &path, &name("GetErrorString"))?,
                _library: library,
            })
        }
    }

    /// The compiler's name.
    pub fn name(&self) -> &'static str {
        match self.vendor {
            Vendor::Cuda => "NVRTC",
            Vendor::Hip => "hiprtc",
        }
    }

    /// Compiles the kernels for a target: `sm_90`, `gfx950`.
    ///
    /// # Errors
    /// [`DeviceError::Compile`] with the compiler's log.
    pub fn compile(&self, target: &str) -> Result<Code, DeviceError> {
        let options = match self.vendor {
            Vendor::Cuda => {
                vec![
                    format!("--gpu-architecture={target}"),
                    "--std=c++17".into(),
                    "--ptxas-options=-v".into(),
                ]
            }
            Vendor::Hip => vec![format!("--offload-arch={target}"), "-std=c++20".into(), "-O3".into()],
        };
        let text = |text: String| CString::new(text).unwrap_or_default();
        let (source, file) = (text(kernels::source::gpu()), text("k3plan-kernels".to_owned()));
        let options: Vec<CString> = options.into_iter().map(text).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the strings and the place for the program live during the call.
        let code =
            unsafe { (self.create)(&raw mut program, source.as_ptr(), file.as_ptr(), 0, null(), null()) };
        self.check(code, target, "")?;
        let count = c_int::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: a program that was just made, and `count` strings.
        let compiled = unsafe { (self.compile)(program, count, pointers.as_ptr()) };
        let log = String::from_utf8_lossy(&self.get(program, self.log_size, self.log)).into_owned();
        let log = log.trim_end_matches(['\0', '\n']).to_owned();
        let bytes = if compiled == 0 { self.get(program, self.code_size, self.code) } else { Vec::new() };
        // SAFETY: the program is used no more.
        unsafe { (self.destroy)(&raw mut program) };
        self.check(compiled, target, &log)?;
        Ok(Code { bytes, log })
    }

    fn get(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Vec<u8> {
        let mut bytes = 0;
        // SAFETY: a live program and a place for the size.
        if unsafe { size(program, &raw mut bytes) } != 0 {
            return Vec::new();
        }
        let mut buffer = vec![0_u8; bytes];
        // SAFETY: a live program and a buffer of the size that it asked for.
        let code = unsafe { get(program, buffer.as_mut_ptr().cast::<c_char>()) };
        if code == 0 { buffer } else { Vec::new() }
    }

    fn check(&self, code: c_int, target: &str, log: &str) -> Result<(), DeviceError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: gives a constant string for any number.
        let name = unsafe { (self.error_string)(code) };
        let said = if name.is_null() {
            format!("error {code}")
        } else {
            // SAFETY: a constant, zero-terminated string.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        let log = if log.is_empty() { said } else { format!("{said}\n{log}") };
        Err(DeviceError::Compile { compiler: self.name(), target: target.to_owned(), log })
    }
}

/// The file name of code that is compiled beforehand: it changes with the kernels' text.
pub fn code_name(target: &str) -> String {
    format!("k3plan-{:016x}.{target}.bin", kernels::source::fingerprint())
}

/// Code compiled beforehand: in the folder `K3PLAN_KERNELS`, or in `kernels/` beside the program.
pub(super) fn compiled_before(target: &str) -> Option<Vec<u8>> {
    let named = env::var_os("K3PLAN_KERNELS").map(PathBuf::from);
    let beside = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("kernels")));
    named.into_iter().chain(beside).find_map(|folder| fs::read(folder.join(code_name(target))).ok())
}

/// The code for a target, compiled now or before.
pub(super) fn compile(vendor: Vendor, target: &str) -> Result<Vec<u8>, DeviceError> {
    match compiled_before(target) {
        Some(code) => Ok(code),
        None => Ok(Compiler::load(vendor)?.compile(target)?.bytes),
    }
}
