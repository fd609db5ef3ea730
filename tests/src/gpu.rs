//! GPUs for the tests: those of the emulator in `cuda-emulator/`, or a real one.
//!
//! Each [`Emulator`] is a copy of the emulator's library, so it has a state of its own. With `GRADLET_GPU=real` in the environment, tests
//! that need nothing of an emulator run on the first GPU of the machine: see [`device`].
//!
//! The emulator's own functions are those of a C library, so calls of them are `unsafe`.

#![allow(unsafe_code)]

use gradlet::config::{Context, Environment, LogicalOptions, Physical};
use gradlet::cuda::{self, Driver, Gpu, Nccl, Options};
use gradlet_core::{Device, Error, Result};
use gradlet_cuda_emulator::driver::Counts;
use gradlet_cuda_emulator::nccl::NcclCounts;
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tempfile::TempPath;

/// File of the emulator. Cargo builds it with the tests.
const LIBRARY: &str = "libgradlet_cuda_emulator.so";
/// Configuration of an emulator, unless a test needs another one: a GPU like that of a Jetson Orin, but with memory of its own. All checks
/// are on.
const USUAL: &str = "devices=1 memory=268435456 capability=87 driver=12040 terminated=1 uninitialised=1 global_races=1";

/// An emulator of NVIDIA's driver with its GPUs.
pub struct Emulator {
    library: Library,
    driver: Driver,
    file: TempPath,
}

impl Emulator {
    /// Starts an emulator with the usual GPU.
    pub fn new() -> Result<Emulator> {
        Emulator::with("")
    }

    /// Starts an emulator whose configuration `words` change, such as `memory=1048576`. The emulator's crate lists the words.
    pub fn with(words: &str) -> Result<Emulator> {
        let (file, library) = Emulator::library(words)?;
        let driver = open(&file)?;
        Ok(Emulator { library, driver, file })
    }

    /// Starts an emulator and returns the error of its driver. Panics if there is none.
    pub fn refused(words: &str) -> Error {
        let opened = Emulator::library(words).and_then(|(file, library)| open(&file).map(|driver| (driver, library, file)));
        opened.map(|(driver, ..)| driver).expect_err("the driver was loaded")
    }

    fn library(words: &str) -> Result<(TempPath, Library)> {
        let failed = |error: &dyn std::fmt::Display| Error::message(format!("the emulator: {error}"));
        let copy = tempfile::Builder::new().suffix(".so").tempfile().map_err(|error| failed(&error))?.into_temp_path();
        std::fs::copy(built()?, &copy).map_err(|error| failed(&error))?;
        // SAFETY: the emulator's library has no initialisers.
        let library = unsafe { Library::new(&*copy) }.map_err(|error| failed(&error))?;
        call(&library, b"emulator_configure\0", &format!("{USUAL} {words}"));
        Ok((copy, library))
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Returns the first GPU.
    pub fn gpu(&self) -> Result<Gpu> {
        self.driver.gpus()?.into_iter().next().ok_or_else(|| Error::message("there is no GPU"))
    }

    /// Creates a device on the first GPU.
    pub fn device(&self) -> Result<Device> {
        self.gpu()?.create("GPU:0", &options())
    }

    /// Creates a device on the first GPU with this memory limit.
    pub fn limited(&self, bytes: u64) -> Result<Device> {
        self.gpu()?.create("GPU:0", &Options { memory_limit: Some(bytes), ..options() })
    }

    /// Creates a context with the host's CPU and the GPUs.
    pub fn context(&self) -> Result<Context> {
        Ok(Context::portable(cuda::physical_devices(&self.driver, &options())?, &Environment::default()))
    }

    /// Returns the first GPU as a physical device in the place of a CPU.
    pub fn as_cpu(&self) -> Result<Arc<dyn Physical>> {
        let gpu = cuda::physical_devices(&self.driver, &options())?.into_iter().next();
        Ok(Arc::new(AsCpu(gpu.ok_or_else(|| Error::message("there is no GPU"))?)))
    }

    /// Tells the emulator to fail, such as `refuse-allocation-after 3`. The emulator's crate lists the commands.
    pub fn control(&self, command: &str) {
        call(&self.library, b"emulator_control\0", command);
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        // SAFETY: the function writes a structure of this form.
        unsafe {
            let read = self.library.get::<unsafe extern "C" fn(*mut Counts)>(b"emulator_counts\0").expect("the emulator counts");
            read(&mut counts);
        }
        counts
    }

    /// Opens the emulator's cuBLASLt for its driver.
    pub fn open_cublaslt(&self) -> Result<()> {
        open_cublaslt(&self.driver, &self.file)
    }

    /// Opens the emulator's NCCL.
    pub fn nccl(&self) -> Result<Nccl> {
        open_nccl(&self.file)
    }

    /// Tells the emulator's NCCL to fail, such as `ncclAllReduce 1`.
    pub fn fail_nccl(&self, words: &str) {
        call(&self.library, b"emulator_nccl_fail\0", words);
    }

    /// Returns the counts of the emulator's NCCL.
    pub fn nccl_counts(&self) -> NcclCounts {
        let mut counts = NcclCounts::default();
        // SAFETY: the function writes a structure of this form.
        unsafe {
            let read = self.library.get::<unsafe extern "C" fn(*mut NcclCounts) -> c_int>(b"emulator_nccl_counts\0");
            read.expect("the emulator has NCCL")(&mut counts);
        }
        counts
    }

    /// Creates communicators of the emulator's NCCL for GPUs, and returns NCCL's result.
    pub fn init_nccl(&self, gpus: &[c_int]) -> c_int {
        let mut communicators = vec![0usize; gpus.len()];
        // SAFETY: there are as many places as GPUs.
        unsafe {
            let init = self.library.get::<unsafe extern "C" fn(*mut usize, c_int, *const c_int) -> c_int>(b"ncclCommInitAll\0");
            init.expect("the emulator has NCCL")(communicators.as_mut_ptr(), gpus.len() as c_int, gpus.as_ptr())
        }
    }

    /// Calls `work` and returns its result with the counts of what it did.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> (R, Counts) {
        self.control("reset-counts");
        let result = work();
        (result, self.counts())
    }

    /// Returns a line for each kernel that has run: its name, its launches, its operations on floating-point numbers, the bytes that it
    /// loaded and stored, and the threads and the bytes of dynamic shared memory of a block.
    pub fn kernels(&self) -> Vec<String> {
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: the function writes at most the given number of bytes, and a zero at their end.
        unsafe {
            let read = self.library.get::<unsafe extern "C" fn(*mut c_char, usize) -> usize>(b"emulator_kernels\0");
            read.expect("the emulator counts kernels")(text.as_mut_ptr().cast(), text.len());
        }
        let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
        text.lines().map(String::from).collect()
    }

    /// Returns the description of the last fault, or an empty text.
    pub fn report(&self) -> String {
        // SAFETY: the function returns a text that ends with a zero, and stays until the next fault.
        unsafe {
            let read = self.library.get::<unsafe extern "C" fn() -> *const c_char>(b"emulator_report\0").expect("the emulator reports");
            CStr::from_ptr(read()).to_string_lossy().into_owned()
        }
    }
}

/// Loads the driver in the file `path`.
pub fn open(path: &Path) -> Result<Driver> {
    // SAFETY: the tests name the emulator, or a file that does not exist.
    unsafe { Driver::open(path) }
}

/// Loads cuBLASLt from the file `path` for `driver`.
pub fn open_cublaslt(driver: &Driver, path: &Path) -> Result<()> {
    // SAFETY: the tests name the emulator of the driver, or a file that is no cuBLASLt.
    unsafe { driver.open_cublaslt(path) }
}

/// Loads NCCL from the file `path`.
pub fn open_nccl(path: &Path) -> Result<Nccl> {
    // SAFETY: the tests name the emulator, which has NCCL's functions for its own GPUs, or a file that is no NCCL.
    unsafe { Nccl::open(path) }
}

/// A GPU in the place of a CPU.
struct AsCpu(Arc<dyn Physical>);

impl Physical for AsCpu {
    fn device_type(&self) -> &str {
        "CPU"
    }

    fn memory(&self) -> Option<u64> {
        self.0.memory()
    }

    fn create(&self, name: &str, options: &LogicalOptions) -> Result<Device> {
        self.0.create(name, options)
    }
}

/// Returns the settings of a device in tests: products and sums are rounded as on a CPU.
fn options() -> Options {
    Options { strict: true, host_kernels: gradlet::distribute::KERNELS, ..Options::default() }
}

fn call(library: &Library, function: &[u8], text: &str) {
    let text = CString::new(text).expect("a command has no zeros");
    // SAFETY: the function reads a text that ends with a zero.
    let status = unsafe {
        let function = library.get::<unsafe extern "C" fn(*const c_char) -> c_int>(function).expect("the emulator takes commands");
        function(text.as_ptr())
    };
    assert_eq!(status, 0, "the emulator does not know {text:?}");
}

/// Returns the path of the emulator, which is in the folder of this program or near it.
pub fn built() -> Result<PathBuf> {
    let program = std::env::current_exe().map_err(|error| Error::message(error.to_string()))?;
    let folders = program.ancestors().skip(1).take(2).flat_map(|folder| [folder.into(), folder.join("deps")]);
    let files = folders.map(|folder: PathBuf| folder.join(LIBRARY));
    // Cargo leaves older ones where the package itself was built once.
    let found = files.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file))).max().map(|(_, file)| file);
    found.ok_or_else(|| Error::message(format!("{LIBRARY} is not near {}: build gradlet-cuda-emulator", program.display())))
}

/// The GPU on which [`device`] creates devices.
enum Source {
    /// An emulator, with a device that keeps the compiled kernels.
    Emulated {
        emulator: Emulator,
        _keeps: Device,
    },
    Real(Gpu),
}

/// Creates a device on a GPU that all callers share: the emulator's, or with `GRADLET_GPU=real` the first one of this machine.
pub fn device() -> Result<Device> {
    create(&options())
}

/// Like [`device`], with the kernels that users have: they round in another order, and the tensor cores compute products of 16 bits.
pub fn fast_device() -> Result<Device> {
    create(&Options { strict: false, ..options() })
}

fn create(options: &Options) -> Result<Device> {
    static SOURCE: LazyLock<Mutex<Option<Arc<Source>>>> = LazyLock::new(Mutex::default);
    let mut source = SOURCE.lock().unwrap_or_else(PoisonError::into_inner);
    let broken = |source: &Arc<Source>| matches!(&**source, Source::Emulated { emulator, .. } if !emulator.report().is_empty());
    // A GPU that has failed once fails always.
    if source.as_ref().is_none_or(broken) {
        *source = Some(Arc::new(Source::new()?));
    }
    match source.as_deref() {
        Some(Source::Emulated { emulator, .. }) => emulator.gpu()?.create("GPU:0", options),
        Some(Source::Real(gpu)) => gpu.create("GPU:0", options),
        None => Err(Error::Internal),
    }
}

impl Source {
    fn new() -> Result<Source> {
        if std::env::var("GRADLET_GPU").is_ok_and(|which| which == "real") {
            let gpu = Driver::load()?.gpus()?.into_iter().next();
            return gpu.map(Source::Real).ok_or_else(|| Error::message("there is no GPU"));
        }
        let emulator = Emulator::new()?;
        Ok(Source::Emulated { _keeps: emulator.device()?, emulator })
    }
}
