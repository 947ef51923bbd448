//! A CUDA or HIP device through its driver.

#![expect(unsafe_code, reason = "calls a driver's functions")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::rc::Rc;

use kernels::Kernel;

use super::compiler::compile;
use super::driver::{Driver, Function, Handle};
use super::handle::{Mark, Owned, Owner, Recorded};
use super::host::pinned_bytes;
use super::{Backend, Device, DeviceError, DeviceInfo, Event, Graph, Launch, Memory, Pinned, Vendor};
use crate::launch_limits::Limits;

/// The stream does not wait for the default stream; the value is the same for both drivers.
const NON_BLOCKING: c_uint = 1;
/// Only this thread's calls are part of a capture.
const CAPTURE_THREAD_LOCAL: c_int = 1;

macro_rules! call {
    ($driver:expr, $function:ident ( $($arg:expr),* $(,)? )) => {{
        let Function { call, name } = &$driver.$function;
        // SAFETY: the arguments are of the documented kinds: out-pointers to places of this frame or of a longer
        // life, handles from the same driver, and addresses whose ranges the caller of the macro has checked.
        let code = unsafe { call($($arg),*) };
        $driver.check(name, code)
    }};
}

/// What all that a device owns needs to be freed.
struct Context {
    driver: Driver,
    ordinal: c_int,
    context: Handle,
    stream: Handle,
    module: Handle,
}

impl Context {
    fn enter(&self) -> Result<(), DeviceError> {
        call!(self.driver, context_set(self.context))
    }
}

impl Owner for Context {
    fn free(&self, owned: Owned, _bytes: usize) {
        let d = &self.driver;
        // An error here is that of a lost device: what it owned is gone with it.
        let _ = match owned {
            Owned::Memory(address) => call!(d, mem_free(address)),
            Owned::Pinned(address) => call!(d, host_free(address)),
            Owned::Event(event) => call!(d, event_destroy(event)),
            Owned::Graph { graph, executable } => {
                let first = call!(d, graph_executable_destroy(executable));
                call!(d, graph_destroy(graph)).and(first)
            }
        };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let d = &self.driver;
        if self.module != 0 {
            let _ = call!(d, module_unload(self.module));
        }
        if self.stream != 0 {
            let _ = call!(d, stream_destroy(self.stream));
        }
        let _ = call!(d, context_release(self.ordinal));
    }
}

/// A GPU.
pub struct GpuDevice {
    info: DeviceInfo,
    context: Rc<Context>,
    functions: RefCell<BTreeMap<Kernel, Handle>>,
}

fn attribute(driver: &Driver, device: c_int, cuda: c_int, hip: c_int) -> Result<u32, DeviceError> {
    let mut value = 0;
    let which = match driver.vendor {
        Vendor::Cuda => cuda,
        Vendor::Hip => hip,
    };
    call!(driver, device_attribute(&raw mut value, which, device))?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn describe(driver: &Driver, device: c_int) -> Result<DeviceInfo, DeviceError> {
    let mut name = [0; 256];
    call!(driver, device_name(name.as_mut_ptr(), 255, device))?;
    let bytes: Vec<u8> = name.iter().map(|c: &c_char| c.cast_unsigned()).take_while(|c| *c != 0).collect();
    let mut memory = 0;
    call!(driver, device_total_mem(&raw mut memory, device))?;
    // The numbers of CUdevice_attribute, and of hipDeviceAttribute_t since HIP 5.
    let ask = |cuda, hip| attribute(driver, device, cuda, hip);
    let (major, minor) = (ask(75, 23)?, ask(76, 61)?);
    let clock_khz = f64::from(ask(36, 60).unwrap_or(0));
    let bus_bits = f64::from(ask(37, 59).unwrap_or(0));
    let peak = clock_khz * 1e3 * bus_bits / 8.0 * 2.0;
    Ok(DeviceInfo {
        backend: driver.vendor.backend(),
        name: String::from_utf8_lossy(&bytes).into_owned(),
        target: driver.vendor.target(major, minor),
        units: ask(16, 63)?,
        memory_bytes: u64::try_from(memory).ok(),
        cache_bytes: ask(38, 19).ok().map(u64::from).filter(|bytes| *bytes > 0),
        peak_bytes_per_second: (peak > 0.0).then_some(peak),
        limits: Limits { threads: ask(1, 56)?, grid: [ask(5, 29)?, ask(6, 30)?, ask(7, 31)?] },
        computes: true,
    })
}

fn start(vendor: Vendor, library: Option<&str>) -> Result<(Driver, c_int), DeviceError> {
    let driver = Driver::load(vendor, library)?;
    call!(driver, init(0))?;
    let mut count = 0;
    call!(driver, device_count(&raw mut count))?;
    if count < 1 {
        return Err(DeviceError::NoDevice { call: driver.device_count.name });
    }
    Ok((driver, count))
}

/// The GPUs of a vendor, without opening them.
pub(super) fn list(vendor: Vendor) -> Result<Vec<DeviceInfo>, DeviceError> {
    let (driver, count) = start(vendor, None)?;
    let mut found = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        call!(driver, device_get(&raw mut device, ordinal))?;
        found.push(describe(&driver, device)?);
    }
    Ok(found)
}

impl GpuDevice {
    /// Opens a GPU and loads the kernels, compiled by the vendor's run-time compiler, or beforehand.
    ///
    /// # Errors
    /// What is missing: the library, a function of it, the device, the compiler; or the call that failed.
    pub fn open(vendor: Vendor, ordinal: u32) -> Result<Self, DeviceError> {
        Self::with(vendor, ordinal, None, |target| compile(vendor, target))
    }

    /// Opens a GPU through the library at `library`, with code that is compiled already.
    ///
    /// # Errors
    /// As [`GpuDevice::open`].
    pub fn open_with(vendor: Vendor, ordinal: u32, library: &str, code: &[u8]) -> Result<Self, DeviceError> {
        Self::with(vendor, ordinal, Some(library), |_| Ok(code.to_vec()))
    }

    fn with(
        vendor: Vendor,
        ordinal: u32,
        library: Option<&str>,
        code: impl FnOnce(&str) -> Result<Vec<u8>, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let (driver, _) = start(vendor, library)?;
        let mut device = 0;
        call!(driver, device_get(&raw mut device, c_int::try_from(ordinal).unwrap_or(c_int::MAX)))?;
        let info = describe(&driver, device)?;
        let code = code(&info.target)?;
        let mut handle = 0;
        call!(driver, context_retain(&raw mut handle, device))?;
        // From here on the context gives back what the next calls have got.
        let mut context = Context { driver, ordinal: device, context: handle, stream: 0, module: 0 };
        context.enter()?;
        let mut stream = 0;
        call!(context.driver, stream_create(&raw mut stream, NON_BLOCKING))?;
        context.stream = stream;
        let mut module = 0;
        call!(context.driver, module_load(&raw mut module, code.as_ptr().cast::<c_void>()))?;
        context.module = module;
        Ok(Self { info, context: Rc::new(context), functions: RefCell::default() })
    }

    fn driver(&self) -> Result<&Driver, DeviceError> {
        self.context.enter()?;
        Ok(&self.context.driver)
    }

    fn owner(&self) -> Rc<dyn Owner> {
        Rc::clone(&self.context) as Rc<dyn Owner>
    }

    fn function(&self, kernel: Kernel) -> Result<Handle, DeviceError> {
        if let Some(function) = self.functions.borrow().get(&kernel) {
            return Ok(*function);
        }
        let driver = self.driver()?;
        let name = CString::new(kernel.symbol()).unwrap_or_default();
        let mut function = 0;
        call!(driver, module_function(&raw mut function, self.context.module, name.as_ptr()))?;
        self.functions.borrow_mut().insert(kernel, function);
        Ok(function)
    }

    /// An out-of-memory error with what was asked for and what is free.
    fn explain(&self, error: DeviceError, bytes: usize) -> DeviceError {
        let DeviceError::OutOfMemory { call, .. } = error else { return error };
        let (mut free, mut total) = (0, 0);
        let known = call!(self.context.driver, mem_info(&raw mut free, &raw mut total)).is_ok();
        let as_u64 = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        DeviceError::OutOfMemory { call, asked: as_u64(bytes), free: known.then(|| as_u64(free)) }
    }
}

impl Device for GpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize) -> Result<Memory, DeviceError> {
        let driver = self.driver()?;
        let mut address = 0;
        call!(driver, mem_alloc(&raw mut address, bytes.max(1)))
            .map_err(|error| self.explain(error, bytes))?;
        let memory = Memory::new(self.owner(), address, bytes);
        call!(driver, fill(address, 0, bytes.max(1), self.context.stream))?;
        call!(driver, stream_synchronize(self.context.stream))?;
        Ok(memory)
    }

    fn pin(&self, bytes: usize) -> Result<Pinned, DeviceError> {
        let driver = self.driver()?;
        let mut address = 0;
        call!(driver, host_alloc(&raw mut address, bytes.max(1), 0))
            .map_err(|error| self.explain(error, bytes))?;
        let mut pinned = Pinned::new(self.owner(), address, bytes);
        pinned.write(&vec![0; bytes])?;
        Ok(pinned)
    }

    fn upload(&self, memory: &Memory, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        let address = memory.of(&self.context)?.check(offset, from.len())?;
        let driver = self.driver()?;
        // `from` lives until the copy has ended.
        call!(
            driver,
            copy_to_device(address, from.as_ptr().cast::<c_void>(), from.len(), self.context.stream)
        )?;
        call!(driver, stream_synchronize(self.context.stream))
    }

    fn download(&self, memory: &Memory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        let address = memory.of(&self.context)?.check(offset, to.len())?;
        let driver = self.driver()?;
        // `to` lives until the copy has ended.
        call!(
            driver,
            copy_to_host(to.as_mut_ptr().cast::<c_void>(), address, to.len(), self.context.stream)
        )?;
        call!(driver, stream_synchronize(self.context.stream))
    }

    fn upload_pinned(&self, memory: &Memory, from: &Pinned, bytes: usize) -> Result<(), DeviceError> {
        let address = memory.of(&self.context)?.check(0, bytes)?;
        let from = pinned_bytes(from, bytes)?;
        let driver = self.driver()?;
        // Freeing pinned memory waits for the copies from it, in both drivers.
        call!(driver, copy_to_device(address, from.as_ptr().cast::<c_void>(), bytes, self.context.stream))
    }

    fn launch(&self, launch: &Launch) -> Result<(), DeviceError> {
        let kernel = launch.kernel.symbol();
        self.info
            .limits
            .check(launch.grid, launch.threads)
            .map_err(|cause| DeviceError::Launch { kernel, cause })?;
        launch.held.iter().try_for_each(|memory| memory.of(&self.context).map(|_| ()))?;
        let function = self.function(launch.kernel)?;
        let driver = self.driver()?;
        // The one parameter is the kernel's struct; the driver copies it before it returns.
        let mut words = launch.words.clone();
        let mut parameters = [words.as_mut_ptr().cast::<c_void>()];
        let [gx, gy, gz] = launch.grid;
        call!(
            driver,
            launch(
                function,
                gx,
                gy,
                gz,
                launch.threads,
                1,
                1,
                0,
                self.context.stream,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        )
    }

    fn record(&self) -> Result<Event, DeviceError> {
        let driver = self.driver()?;
        let mut handle = 0;
        call!(driver, event_create(&raw mut handle, 0))?;
        let event = Event::device(self.owner(), handle);
        call!(driver, event_record(handle, self.context.stream))?;
        Ok(event)
    }

    fn elapsed_ns(&self, from: &Event, to: &Event) -> Result<f64, DeviceError> {
        let (Mark::Device { handle: from, .. }, Mark::Device { handle: to, .. }) = (&from.0, &to.0) else {
            return Err(DeviceError::Foreign { what: "a mark" });
        };
        let driver = self.driver()?;
        call!(driver, event_synchronize(*to))?;
        let mut milliseconds = 0.0;
        call!(driver, event_elapsed(&raw mut milliseconds, *from, *to))?;
        Ok(f64::from(milliseconds) * 1e6)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let driver = self.driver()?;
        call!(driver, stream_synchronize(self.context.stream))
    }

    fn capture(&self, launches: &[Launch]) -> Result<Graph, DeviceError> {
        // Functions are looked up before: a capture allows little else.
        for launch in launches {
            self.function(launch.kernel)?;
        }
        let driver = self.driver()?;
        call!(driver, capture_begin(self.context.stream, CAPTURE_THREAD_LOCAL))?;
        let put = launches.iter().try_for_each(|launch| self.launch(launch));
        let mut graph = 0;
        let ended = call!(driver, capture_end(self.context.stream, &raw mut graph));
        let mut executable = 0;
        let made =
            put.and(ended).and_then(|()| call!(driver, graph_instantiate(&raw mut executable, graph, 0)));
        if let Err(error) = made {
            if graph != 0 {
                let _ = call!(driver, graph_destroy(graph));
            }
            return Err(error);
        }
        let memory = launches.iter().flat_map(|launch| launch.held.iter().cloned()).collect();
        Ok(Graph::device(self.owner(), graph, executable, memory))
    }

    fn replay(&self, graph: &Graph) -> Result<(), DeviceError> {
        let Recorded::Device { executable, .. } = &graph.0 else {
            return Err(DeviceError::Foreign { what: "a graph" });
        };
        let driver = self.driver()?;
        call!(driver, graph_launch(*executable, self.context.stream))
    }
}

impl Vendor {
    pub(super) fn backend(self) -> Backend {
        match self {
            Self::Cuda => Backend::Cuda,
            Self::Hip => Backend::Hip,
        }
    }
}
