//! The HIP wrapper against a mock of libamdhip64.so: all goes well, a symbol is missing, memory runs out, any
//! call fails, the device is lost half-way. Nothing leaks in any case.

#![expect(unsafe_code, reason = "calls the mock's own controls")]

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;

use executor::device::{Device, DeviceError, GpuDevice, Vendor};
use executor::kernel::probe;
use executor::launch_limits::LimitError;
use libloading::Library;
use tempfile::TempDir;

use super::conformance as suite;

/// A mock of its own for a test: globals are by file.
struct Mock {
    _folder: TempDir,
    path: PathBuf,
    library: Library,
}

impl Mock {
    fn new(flags: &[&str]) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("libamdhip64.so");
        let mut compiler = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()));
        compiler
            .args(["-std=c++20", "-O1", "-shared", "-fPIC", "-Wno-psabi", "-Wno-unknown-pragmas"])
            .args(flags);
        compiler.arg("-I").arg(here.join("../kernels/csrc"));
        compiler.arg(here.join("tests/device/hip_mock.cpp")).arg("-o").arg(&path);
        let done = compiler.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // SAFETY: the mock has no initialisers but those of its containers.
        let library = unsafe { Library::new(&path) }.unwrap();
        Self { _folder: folder, path, library }
    }

    fn open(&self) -> Result<GpuDevice, DeviceError> {
        GpuDevice::open_with(Vendor::Hip, 0, self.path.to_str().unwrap(), b"code")
    }

    fn fail(&self, call: &str, calls_before: c_int, code: c_int) {
        let name = CString::new(call).unwrap();
        // SAFETY: the mock's function has this type.
        unsafe {
            let set =
                self.library.get::<unsafe extern "C" fn(*const c_char, c_int, c_int)>("mock_fail").unwrap();
            set(name.as_ptr(), calls_before, code);
        }
    }

    fn live(&self) -> c_int {
        // SAFETY: the mock's function has this type.
        unsafe { self.library.get::<unsafe extern "C" fn() -> c_int>("mock_live").unwrap()() }
    }

    fn calls(&self, call: &str) -> c_int {
        let name = CString::new(call).unwrap();
        // SAFETY: the mock's function has this type.
        unsafe {
            self.library.get::<unsafe extern "C" fn(*const c_char) -> c_int>("mock_calls").unwrap()(
                name.as_ptr(),
            )
        }
    }
}

#[test]
fn the_whole_suite_passes_and_leaks_nothing() {
    let mock = Mock::new(&[]);
    {
        let device = mock.open().unwrap();
        let info = device.info();
        assert_eq!((info.name.as_str(), info.target.as_str()), ("AMD Instinct MI355X (mock)", "gfx950"));
        // 2.6 GHz, both edges, 1024 bytes wide.
        assert_eq!(info.peak_bytes_per_second, Some(2.6e9 * 2.0 * 1024.0));
        suite::memory_order_and_graphs(&device);
        for seed in 0..20 {
            suite::one_plan(&device, seed, false);
        }
        assert!(mock.live() > 0, "the mock counts");
    }
    assert_eq!(mock.live(), 0);
    assert!(mock.calls("hipModuleLaunchKernel") > 100);
}

#[test]
fn a_missing_library_and_a_missing_symbol_are_named() {
    let error = GpuDevice::open_with(Vendor::Hip, 0, "/nowhere/libamdhip64.so", b"").err().unwrap();
    assert!(error.to_string().starts_with("load any of /nowhere/libamdhip64.so: "), "{error}");
    let mock = Mock::new(&["-DMOCK_WITHOUT_GRAPHS"]);
    let error = mock.open().err().unwrap();
    let library = mock.path.to_str().unwrap().to_owned();
    assert_eq!(error, DeviceError::NoSymbol { symbol: "hipGraphLaunch".to_owned(), library });
    assert_eq!(mock.live(), 0);
}

#[test]
fn out_of_memory_says_what_was_asked_for_and_what_is_free() {
    let mock = Mock::new(&[]);
    {
        let device = mock.open().unwrap();
        let before = mock.live();
        let error = device.allocate(5 << 30).err().unwrap();
        assert_eq!(error, DeviceError::OutOfMemory { call: "hipMalloc", asked: 5 << 30, free: Some(12345) });
        assert_eq!(
            error.to_string(),
            "call `hipMalloc`: out of memory, 5368709120 bytes asked for, 12345 free"
        );
        mock.fail("hipHostMalloc", 0, 2);
        let error = device.pin(64).err().unwrap();
        assert_eq!(error, DeviceError::OutOfMemory { call: "hipHostMalloc", asked: 64, free: Some(12345) });
        assert_eq!(mock.live(), before);
        // The device works on.
        device.allocate(64).unwrap();
    }
    assert_eq!(mock.live(), 0);
}

#[test]
fn a_launch_that_fails_is_named_and_the_device_works_on() {
    let mock = Mock::new(&[]);
    {
        let device = mock.open().unwrap();
        let noop = probe::noop().unwrap();
        mock.fail("hipModuleLaunchKernel", 0, 9);
        let error = device.launch(&noop).unwrap_err();
        assert_eq!(error.to_string(), "call `hipModuleLaunchKernel`: hipErrorInvalidConfiguration (9)");
        device.launch(&noop).unwrap();
        let wide = probe::noop().unwrap().with_threads(1025);
        let cause = LimitError::Threads { asked: 1025, limit: 1024 };
        assert_eq!(device.launch(&wide), Err(DeviceError::Launch { kernel: "k3_noop", cause }));
        // A launch that fails while a graph is captured ends the capture.
        mock.fail("hipModuleLaunchKernel", 1, 9);
        assert!(device.capture(&[noop.clone(), noop.clone()]).is_err());
        device.replay(&device.capture(&[noop]).unwrap()).unwrap();
    }
    assert_eq!(mock.live(), 0);
}

/// All that a run does, call by call.
fn work(mock: &Mock) -> Result<(), DeviceError> {
    let device = mock.open()?;
    let memory = device.allocate(256)?;
    let sums = device.allocate(4)?;
    let mut pinned = device.pin(256)?;
    pinned.write(&[1; 256])?;
    device.upload_pinned(&memory, &pinned, 256)?;
    device.upload(&memory, 0, &[2; 16])?;
    let from = device.record()?;
    let read = probe::stream_read(&memory, 256, &sums, 1)
        .map_err(|_shape| DeviceError::Foreign { what: "a shape" })?;
    device.launch(&read)?;
    let graph = device.capture(&[read])?;
    device.replay(&graph)?;
    let to = device.record()?;
    device.elapsed_ns(&from, &to)?;
    let mut back = [0; 4];
    device.download(&sums, 0, &mut back)?;
    device.synchronize()
}

#[test]
fn any_call_may_fail_or_lose_the_device() {
    let mock = Mock::new(&[]);
    work(&mock).unwrap();
    assert_eq!(mock.live(), 0);
    let calls = [
        "hipInit",
        "hipGetDeviceCount",
        "hipDeviceGet",
        "hipDeviceGetName",
        "hipDeviceTotalMem",
        "hipDeviceGetAttribute",
        "hipDevicePrimaryCtxRetain",
        "hipCtxSetCurrent",
        "hipStreamCreateWithFlags",
        "hipModuleLoadData",
        "hipMalloc",
        "hipMemsetD8Async",
        "hipHostMalloc",
        "hipMemcpyHtoDAsync",
        "hipEventCreateWithFlags",
        "hipEventRecord",
        "hipModuleGetFunction",
        "hipModuleLaunchKernel",
        "hipStreamBeginCapture",
        "hipStreamEndCapture",
        "hipGraphInstantiateWithFlags",
        "hipGraphLaunch",
        "hipEventSynchronize",
        "hipEventElapsedTime",
        "hipMemcpyDtoHAsync",
        "hipStreamSynchronize",
    ];
    for call in calls {
        // Every time that the call comes, not only the first.
        let times = {
            let fresh = mock.calls(call);
            work(&mock).unwrap();
            mock.calls(call) - fresh
        };
        assert!(times > 0, "{call} is never called");
        // Of the attributes some are only for information.
        let most = if call == "hipDeviceGetAttribute" { 2 } else { 6 };
        for before in 0..times.min(most) {
            mock.fail(call, before, 1);
            let error = work(&mock).unwrap_err();
            let name = "hipErrorInvalidValue".to_owned();
            assert_eq!(error, DeviceError::Call { call, code: 1, name }, "call {before} of {call}");
            assert_eq!(mock.live(), 0, "call {before} of {call} leaks");
        }
    }
    // A lost device stays lost: each in its own library.
    for (call, before) in [("hipModuleLaunchKernel", 0), ("hipStreamSynchronize", 2), ("hipGraphLaunch", 0)] {
        let mock = Mock::new(&[]);
        mock.fail(call, before, 719);
        let error = work(&mock).unwrap_err();
        assert_eq!(error, DeviceError::Lost { call, code: 719, name: "hipErrorLaunchFailure".to_owned() });
        assert!(error.to_string().contains("the device is lost"));
        assert_eq!(mock.live(), 0, "losing the device in {call} leaks");
        assert!(matches!(work(&mock), Err(DeviceError::Lost { call: "hipInit", .. })));
    }
}
