//! The driver: loaded at run time, with errors in place of numbers.

pub(crate) mod api;
pub(crate) mod cublaslt;
pub(crate) mod tuning;

use api::{Api, Status};
use cublaslt::CublasLt;
use gradlet_core::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tuning::Tuning;

/// Names of the driver's library, in order of preference.
const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// The oldest driver that loads gradlet's PTX, as the driver counts versions: CUDA 11.4.
const OLDEST: c_int = 11_040;

/// Functions with which a driver that checks memory learns of the blocks that a device hands out and takes back: the address and the size.
type Notice = unsafe extern "C" fn(u64, u64);

/// NVIDIA's driver, loaded and initialised. Clones share it.
///
/// ```
/// match gradlet_cuda::Driver::load() {
///     Ok(driver) => println!("{driver} with {} GPUs", driver.gpus().map_or(0, |gpus| gpus.len())),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone)]
pub struct Driver(Arc<Loaded>);

struct Loaded {
    api: Api,
    version: c_int,
    /// True if the system has found the library by its name.
    is_installed: bool,
    /// The functions to call for a block that was handed out, for one that the host may fill at once, and for one that was taken back.
    notices: Option<[Notice; 3]>,
    tuning: Tuning,
    /// cuBLASLt, after its first use, if it is there.
    cublaslt: OnceLock<Option<CublasLt>>,
    /// The functions above are part of the library, which is therefore never closed before them.
    _library: Library,
}

impl Driver {
    /// Loads the driver that is installed.
    ///
    /// Fails if there is none, if it is older than CUDA 11.4, or if it finds no GPU.
    pub fn load() -> Result<Driver> {
        let mut reasons = Vec::new();
        for name in NAMES {
            // SAFETY: the driver's library may be loaded at any time; its initialisers have no requirements.
            match unsafe { Library::new(name) } {
                Ok(library) => {
                    // The library stays loaded: some drivers crash when they are closed after a failure.
                    // SAFETY: as above.
                    std::mem::forget(unsafe { Library::new(name) });
                    return Driver::new(library, name, true);
                }
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Error::message(format!("there is no NVIDIA driver: {}", reasons.join("; "))))
    }

    /// Loads the driver in the file `path`, like [`Driver::load`].
    ///
    /// # Safety
    ///
    /// The file is NVIDIA's driver, or a library with its functions.
    pub unsafe fn open(path: &Path) -> Result<Driver> {
        // SAFETY: as above, and the caller names a driver's library.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| Error::message(format!("{} is no NVIDIA driver: {error}", path.display())))?;
        Driver::new(library, &path.display().to_string(), false)
    }

    fn new(library: Library, name: &str, is_installed: bool) -> Result<Driver> {
        let missing = |symbol: &str| {
            Error::message(format!("the NVIDIA driver {name} has no {symbol}: gradlet needs a driver of CUDA 11.4 or later (version 470)"))
        };
        // SAFETY: the function has had this signature since CUDA 2.2.
        let driver_version = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> Status>(b"cuDriverGetVersion\0") };
        let mut version = 0;
        // SAFETY: the argument is a place for the version. The function needs no initialisation.
        let status = unsafe { driver_version.map_err(|_| missing("cuDriverGetVersion"))?(&mut version) };
        if status == 0 && version < OLDEST {
            let text = format!("the NVIDIA driver is of CUDA {}: gradlet needs CUDA 11.4 or later (driver 470)", Version(version));
            return Err(Error::message(text));
        }
        let api = Api::find(&library).map_err(missing)?;
        // SAFETY: only a driver that was made for gradlet's tests has these functions, with this signature.
        let notice = |symbol: &[u8]| unsafe { library.get::<Notice>(symbol).ok().map(|notice| *notice) };
        let notices = [notice(b"emulator_poison\0"), notice(b"emulator_unban\0"), notice(b"emulator_ban\0")];
        let notices = if let [Some(out), Some(shared), Some(back)] = notices { Some([out, shared, back]) } else { None };
        let (tuning, cublaslt) = (Tuning::default(), OnceLock::new());
        let driver = Driver(Arc::new(Loaded { api, version, is_installed, notices, tuning, cublaslt, _library: library }));
        // SAFETY: the flags must be 0.
        driver.check("cuInit", unsafe { (driver.api().init)(0) })?;
        Ok(driver)
    }

    /// Returns the times that devices with [`Options::tune`](crate::Options::tune) have measured and those that were added, for a file.
    ///
    /// It has a line for each plan of each op, with the GPU, the op, the kernel with its blocks, and the time in nanoseconds.
    ///
    /// ```no_run
    /// use gradlet_cuda::{Driver, Options};
    /// let driver = Driver::load()?;
    /// let device = driver.gpus()?[0].create("GPU:0", &Options { tune: true, ..Options::default() })?;
    /// // After all functions have run once:
    /// std::fs::write("tuning.txt", driver.tuning())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tuning(&self) -> String {
        self.0.tuning.text()
    }

    /// Adds times from a text of [`Driver::tuning`]. The devices of this driver then compute an op by its fastest plan, also without
    /// [`Options::tune`](crate::Options::tune). Times of other GPUs, shapes and kernels stay unused. A device chooses once for each op and
    /// its shapes, so add the times before its first op.
    ///
    /// Fails with the number of a damaged line, and then adds nothing.
    ///
    /// ```no_run
    /// # let driver = gradlet_cuda::Driver::load()?;
    /// driver.add_tuning(&std::fs::read_to_string("tuning.txt")?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_tuning(&self, text: &str) -> Result<()> {
        self.0.tuning.add(text)
    }

    /// Loads cuBLASLt from the file `path`, for devices that choose between plans: see [`Options::tune`](crate::Options::tune). Without
    /// this call, they use the one that is installed, if the driver is.
    ///
    /// Fails if the file is no cuBLASLt, or if the driver has looked for one already.
    ///
    /// # Safety
    ///
    /// The file is NVIDIA's cuBLASLt, or a library with its functions, for this driver.
    pub unsafe fn open_cublaslt(&self, path: &Path) -> Result<()> {
        // SAFETY: as above.
        let library = unsafe { CublasLt::open(path) }?;
        let late = |_| Error::message(format!("{} comes too late: open cuBLASLt before the first op", path.display()));
        self.0.cublaslt.set(Some(library)).map_err(late)
    }

    /// Returns cuBLASLt, if it is there.
    pub(crate) fn cublaslt(&self) -> Option<&CublasLt> {
        self.0.cublaslt.get_or_init(|| if self.is_installed() { CublasLt::load() } else { None }).as_ref()
    }

    /// Returns the times of plans.
    pub(crate) fn times(&self) -> &Tuning {
        &self.0.tuning
    }

    /// True if this is the driver that is installed, not one that was named by its path.
    pub(crate) fn is_installed(&self) -> bool {
        self.0.is_installed
    }

    pub(crate) fn api(&self) -> &Api {
        &self.0.api
    }

    /// Turns the status of a call of `function` into a result.
    pub(crate) fn check(&self, function: &str, status: Status) -> Result<()> {
        if status == 0 { Ok(()) } else { Err(Error::message(self.text(function, status))) }
    }

    #[cold]
    fn text(&self, function: &str, status: Status) -> String {
        let read = |call: unsafe extern "C" fn(Status, *mut *const std::ffi::c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: the second argument is a place for a pointer to a static text with a zero at its end, or for a null pointer.
            let found = unsafe { call(status, &mut text) == 0 && !text.is_null() };
            // SAFETY: see above.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = read(self.api().error_name).unwrap_or_else(|| format!("error {status}"));
        let meaning = read(self.api().error_string).unwrap_or_else(|| "the driver does not know this error".into());
        format!("{function} failed with {name}: {meaning}")
    }

    /// Tells a driver that checks memory that the `bytes` bytes at `address` now belong to the program.
    pub(crate) fn handed_out(&self, address: u64, bytes: u64) {
        if let Some([handed_out, ..]) = self.0.notices {
            // SAFETY: the range is part of an allocation of this driver.
            unsafe { handed_out(address, bytes) }
        }
    }

    /// Does the same for memory that the host may fill before the device has done its work so far.
    pub(crate) fn shared_out(&self, address: u64, bytes: u64) {
        if let Some([_, shared, _]) = self.0.notices {
            // SAFETY: as above.
            unsafe { shared(address, bytes) }
        }
    }

    /// Tells a driver that checks memory that the `bytes` bytes at `address` are not the program's any more.
    pub(crate) fn taken_back(&self, address: u64, bytes: u64) {
        if let Some([.., taken_back]) = self.0.notices {
            // SAFETY: the range is part of an allocation of this driver.
            unsafe { taken_back(address, bytes) }
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVIDIA driver of CUDA {}", Version(self.0.version))
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A version as the driver counts it: 12040 is 12.4.
struct Version(c_int);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}
