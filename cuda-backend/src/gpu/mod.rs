//! GPUs: what is known of them, and their contexts.

pub(crate) mod ahead;
pub(crate) mod cublaslt;
pub(crate) mod foreign;
pub(crate) mod modules;
pub(crate) mod region;
mod reuse;
pub(crate) mod stream;
pub(crate) mod workspace;

use crate::driver::Driver;
use crate::driver::api::Handle;
use crate::lower::TensorCores;
use cublaslt::Multiplier;
use gradlet_core::{Error, Result};
use modules::Modules;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// The smallest compute capability for which gradlet's PTX is made: that of Volta and of a Jetson Xavier.
const LEAST: (i32, i32) = (7, 0);

/// Attributes of a device, as the driver numbers them.
const MULTIPROCESSORS: c_int = 16;
const INTEGRATED: c_int = 18;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
/// The most shared memory of a block, if the kernel asks for it.
const SHARED: c_int = 97;

/// A GPU that the driver has found.
///
/// A GPU becomes one or more devices: see [`Gpu::create`].
#[derive(Clone)]
pub struct Gpu {
    driver: Driver,
    ordinal: c_int,
    name: String,
    capability: (i32, i32),
    memory: u64,
    is_integrated: bool,
    multiprocessors: u32,
    /// The most shared memory that a block may have, in bytes.
    shared: u32,
    /// The context that the devices of this GPU share.
    context: Arc<Mutex<Weak<Context>>>,
}

impl Driver {
    /// Returns the GPUs, in the driver's order. The driver obeys the environment variable `CUDA_VISIBLE_DEVICES`.
    pub fn gpus(&self) -> Result<Vec<Gpu>> {
        let mut count = 0;
        // SAFETY: the argument is a place for the number.
        self.check("cuDeviceGetCount", unsafe { (self.api().device_count)(&mut count) })?;
        (0..count).map(|ordinal| Gpu::new(self, ordinal)).collect()
    }
}

impl Gpu {
    fn new(driver: &Driver, ordinal: c_int) -> Result<Gpu> {
        let (api, mut device, mut memory, mut name) = (driver.api(), 0, 0, [0u8; 256]);
        // SAFETY: the first arguments are places for the results.
        driver.check("cuDeviceGet", unsafe { (api.device)(&mut device, ordinal) })?;
        // SAFETY: as above.
        driver.check("cuDeviceTotalMem", unsafe { (api.device_memory)(&mut memory, device) })?;
        // SAFETY: the driver writes at most the given number of bytes.
        driver.check("cuDeviceGetName", unsafe { (api.device_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) })?;
        let attribute = |number: c_int| {
            let mut value = 0;
            // SAFETY: the first argument is a place for the value.
            driver.check("cuDeviceGetAttribute", unsafe { (api.device_attribute)(&mut value, number, device) })?;
            Ok(value)
        };
        let name = CStr::from_bytes_until_nul(&name).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned());
        let (capability, is_integrated) = ((attribute(MAJOR)?, attribute(MINOR)?), attribute(INTEGRATED)? != 0);
        let [multiprocessors, shared] = [attribute(MULTIPROCESSORS)? as u32, attribute(SHARED)? as u32];
        let (driver, memory, context) = (driver.clone(), memory as u64, Arc::default());
        Ok(Gpu { driver, ordinal: device, name, capability, memory, is_integrated, multiprocessors, shared, context })
    }

    /// Returns the name of the product, such as `Orin`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the compute capability, such as `(8, 7)`.
    pub fn compute_capability(&self) -> (i32, i32) {
        self.capability
    }

    /// Returns the size of the memory in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// True if gradlet has kernels for the GPU: its compute capability is 7.0 or higher.
    pub fn is_supported(&self) -> bool {
        self.capability >= LEAST
    }

    /// True if the GPU and the CPU share their memory, as on a Jetson.
    pub fn is_integrated(&self) -> bool {
        self.is_integrated
    }

    /// Returns the number of multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Returns the most shared memory that a block of threads may have, in bytes.
    pub(crate) fn shared(&self) -> u32 {
        self.shared
    }

    /// Returns the GPU's context, which is created for its first device. It ends with its last one.
    ///
    /// Fails if the GPU is too old.
    pub(crate) fn context(&self) -> Result<Arc<Context>> {
        if !self.is_supported() {
            let ((major, minor), (least, _)) = (self.capability, LEAST);
            let text = format!("{} has compute capability {major}.{minor}: gradlet needs {least}.0 or later", self.name);
            return Err(Error::message(text));
        }
        let mut shared = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = shared.upgrade() {
            return Ok(context);
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the first argument is a place for the handle.
        self.driver.check("cuDevicePrimaryCtxRetain", unsafe { (self.driver.api().retain_context)(&mut handle, self.ordinal) })?;
        let (driver, gpu, memory, is_integrated) = (self.driver.clone(), self.ordinal, self.memory, self.is_integrated);
        let (modules, tensor_cores) = (Modules::default(), OnceLock::new());
        let (multiplier, multiplier_is_right) = (OnceLock::new(), OnceLock::new());
        let context =
            Arc::new(Context { driver, gpu, handle, memory, is_integrated, modules, tensor_cores, multiplier, multiplier_is_right });
        *shared = Arc::downgrade(&context);
        Ok(context)
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        write!(f, "{}, compute capability {major}.{minor}, {} MiB", self.name, self.memory >> 20)
    }
}

/// Context of a GPU: what the driver keeps for this process.
pub(crate) struct Context {
    driver: Driver,
    gpu: c_int,
    handle: Handle,
    memory: u64,
    is_integrated: bool,
    /// The kernels that the driver has compiled.
    pub modules: Modules,
    /// The kernels on tensor cores that have shown on the GPU that they are right.
    pub tensor_cores: OnceLock<TensorCores>,
    /// cuBLASLt, after its first use, if it is there.
    multiplier: OnceLock<Option<Multiplier>>,
    /// True if cuBLASLt has shown on the GPU that it is right.
    pub multiplier_is_right: OnceLock<bool>,
}

// SAFETY: a context may be used by several threads at the same time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the driver's number of the GPU.
    pub(crate) fn gpu(&self) -> c_int {
        self.gpu
    }

    /// Returns the driver, without making this context current.
    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Returns cuBLASLt for this context, which is current, if it is there.
    pub(crate) fn multiplier(&self) -> Option<&Multiplier> {
        self.multiplier.get_or_init(|| Multiplier::new(&self.driver)).as_ref()
    }

    /// Returns the size of the GPU's memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the number of bytes that an allocation can get. The driver of an integrated GPU counts the memory in which the system caches
    /// files as used, although the system gives it to whoever needs it.
    pub(crate) fn available(&self) -> Result<u64> {
        let (driver, mut free, mut total) = (self.enter()?, 0, 0);
        // SAFETY: the arguments are places for the results.
        driver.check("cuMemGetInfo", unsafe { (driver.api().memory_info)(&mut free, &mut total) })?;
        let system = if self.is_integrated { system_memory().unwrap_or(0) } else { 0 };
        Ok((free as u64).max(system).min(self.memory))
    }

    /// Makes the context current for this thread, and returns the driver, whose next calls belong to it.
    pub(crate) fn enter(&self) -> Result<&Driver> {
        // SAFETY: the context exists as long as this value.
        self.driver.check("cuCtxSetCurrent", unsafe { (self.driver.api().set_current)(self.handle) })?;
        Ok(&self.driver)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            self.multiplier.take();
            self.modules.unload(&self.driver);
        }
        // SAFETY: the context was retained once. A failure leaves it to the end of the process. No context is current afterwards.
        unsafe {
            (self.driver.api().release_context)(self.gpu);
            (self.driver.api().set_current)(std::ptr::null_mut());
        }
    }
}

/// Returns the memory that programs can get from the system, in bytes, if it says so.
fn system_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
