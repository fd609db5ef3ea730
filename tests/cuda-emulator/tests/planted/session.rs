//! A program that uses the emulated driver. One runs at a time.

use gradlet_cuda_emulator::driver::*;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of elements and of threads that the planted kernels have.
pub const COUNT: usize = 256;
/// Bytes of these elements.
pub const BYTES: usize = 4 * COUNT;

/// Result of a call.
pub type Outcome<T = ()> = Result<T, Status>;

static PROGRAM: Mutex<()> = Mutex::new(());

thread_local! {
    /// The emulator's report at the end of this thread's last program.
    static REPORT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The right to use the emulator, which only one program has at a time.
pub struct Turn {
    _guard: MutexGuard<'static, ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // SAFETY: the text is valid until the next fault, and this is the only program.
        let report = unsafe { CStr::from_ptr(emulator_report()) };
        REPORT.set(report.to_string_lossy().into_owned());
    }
}

/// A program with a context of device 0 and a stream in it.
pub struct Session {
    pub context: Handle,
    pub stream: Handle,
    _turn: Turn,
}

/// Turns the status of a call into a result.
pub fn check(status: Status) -> Outcome {
    if status == Status::SUCCESS { Ok(()) } else { Err(status) }
}

/// Returns what a call writes to the place that it is given.
pub fn get<T: Default>(call: impl FnOnce(*mut T) -> Status) -> Outcome<T> {
    let mut value = T::default();
    check(call(&mut value))?;
    Ok(value)
}

/// Returns a text with a zero at its end.
pub fn c_string(text: &str) -> CString {
    CString::new(text).expect("a text without zeros")
}

/// Returns the first word of the report of this thread's last program, or an empty text.
pub fn report() -> String {
    REPORT.with_borrow(|report| report.split(':').next().unwrap_or_default().to_string())
}

/// Asks the emulator for a failure.
pub fn control(words: &str) -> Outcome {
    // SAFETY: the text ends with a zero.
    check(unsafe { emulator_control(c_string(words).as_ptr()) })
}

/// Returns the emulator's counts.
pub fn counts() -> Counts {
    // SAFETY: the argument is a place for the counts.
    get(|counts| unsafe { emulator_counts(counts) }).expect("counts")
}

/// Resets the emulator and sets its properties, for a program that has not begun.
pub fn prepare(words: &str) -> Turn {
    let turn = Turn { _guard: PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) };
    // SAFETY: no other program runs.
    unsafe { emulator_reset() };
    // SAFETY: the text ends with a zero.
    check(unsafe { emulator_configure(c_string(words).as_ptr()) }).expect("known properties");
    turn
}

impl Session {
    /// Begins a program on an emulator with these properties.
    pub fn new(words: &str) -> Outcome<Session> {
        let turn = prepare(words);
        // SAFETY: the arguments are places for the results.
        unsafe {
            check(cuInit(0))?;
            let context = get(|context| cuDevicePrimaryCtxRetain(context, 0))?;
            check(cuCtxSetCurrent(context))?;
            let stream = get(|stream| cuStreamCreate(stream, 1))?;
            Ok(Session { context, stream, _turn: turn })
        }
    }

    /// Allocates memory of the device.
    pub fn allocate(&self, bytes: usize) -> Outcome<u64> {
        // SAFETY: the argument is a place for the address.
        get(|address| unsafe { cuMemAlloc_v2(address, bytes) })
    }

    /// Allocates page-locked memory that kernels may use, of `COUNT` numbers.
    pub fn pinned(&self) -> Outcome<&'static mut [f32]> {
        self.host_memory(3)
    }

    /// Allocates page-locked memory of `COUNT` numbers.
    pub fn host_memory(&self, flags: u32) -> Outcome<&'static mut [f32]> {
        // SAFETY: the argument is a place for the pointer.
        let pointer = get(|pointer| unsafe { cuMemHostAlloc(pointer, BYTES, flags) })?;
        // SAFETY: the memory has this size, and exists until the emulator is reset.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer as *mut f32, COUNT) })
    }

    /// Allocates numbers from 0 up.
    pub fn numbers(&self) -> Outcome<u64> {
        let (address, numbers) = (self.allocate(BYTES)?, (0..COUNT).map(|number| number as f32).collect::<Vec<f32>>());
        self.upload(address, &numbers)?;
        Ok(address)
    }

    /// Submits an upload.
    pub fn upload(&self, to: u64, from: &[f32]) -> Outcome {
        // SAFETY: the source has this size.
        check(unsafe { cuMemcpyHtoDAsync_v2(to, from.as_ptr() as Handle, size_of_val(from), self.stream) })
    }

    /// Submits a download.
    pub fn download(&self, to: &mut [f32], from: u64) -> Outcome {
        // SAFETY: the destination has this size.
        check(unsafe { cuMemcpyDtoHAsync_v2(to.as_mut_ptr() as Handle, from, size_of_val(to), self.stream) })
    }

    /// Returns `COUNT` numbers of the device.
    pub fn read(&self, from: u64) -> Outcome<Vec<f32>> {
        let mut numbers = vec![0.0; COUNT];
        self.download(&mut numbers, from)?;
        Ok(numbers)
    }

    /// Loads a module.
    pub fn load(&self, ptx: &str) -> Outcome<Handle> {
        let text = c_string(ptx);
        // SAFETY: the first argument is a place for the module, and the text ends with a zero.
        get(|module| unsafe { cuModuleLoadDataEx(module, text.as_ptr(), 0, std::ptr::null(), null_mut()) })
    }

    /// Returns a function of a module.
    pub fn function(&self, module: Handle, name: &str) -> Outcome<Handle> {
        let name = c_string(name);
        // SAFETY: the first argument is a place for the function, and the name ends with a zero.
        get(|function| unsafe { cuModuleGetFunction(function, module, name.as_ptr()) })
    }

    /// Loads the module `global` and returns its kernel `copy`.
    pub fn copy_kernel(&self) -> Outcome<Handle> {
        self.function(self.load(GLOBAL)?, "copy")
    }

    /// Submits a planted kernel with the grid that all have.
    pub fn launch(&self, function: Handle, out: u64, from: u64) -> Outcome {
        Launch { function, grid: [4, 1, 1], block: [64, 1, 1], shared: 0, stream: self.stream }.submit(out, from)
    }

    /// Waits for the stream.
    pub fn synchronise(&self) -> Outcome {
        // SAFETY: the call has no requirements.
        check(unsafe { cuStreamSynchronize(self.stream) })
    }
}

/// The module `global`.
pub const GLOBAL: &str = include_str!("global.ptx");

/// A launch of a planted kernel.
pub struct Launch {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: Handle,
}

impl Launch {
    /// Submits the launch.
    pub fn submit(&self, mut out: u64, mut from: u64) -> Outcome {
        let mut count = COUNT as u32;
        self.submit_with(&mut [(&raw mut out).cast(), (&raw mut from).cast(), (&raw mut count).cast(), null_mut()])
    }

    /// Submits the launch with these addresses of parameters.
    pub fn submit_with(&self, parameters: &mut [*mut c_void]) -> Outcome {
        self.call(parameters.as_mut_ptr(), null_mut())
    }

    /// Submits the launch with a buffer of parameters.
    pub fn submit_buffer(&self, buffer: &[u64], mut bytes: usize) -> Outcome {
        let size = (&raw mut bytes).cast();
        self.call(
            null_mut(),
            [without_provenance_mut(1), buffer.as_ptr() as *mut c_void, without_provenance_mut(2), size, null_mut()].as_mut_ptr(),
        )
    }

    fn call(&self, parameters: *mut *mut c_void, extra: *mut *mut c_void) -> Outcome {
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (self.grid, self.block);
        // SAFETY: the parameters are addresses of numbers, which have at least the sizes of the kernels' types.
        check(unsafe {
            cuLaunchKernel(self.function, grid_x, grid_y, grid_z, block_x, block_y, block_z, self.shared, self.stream, parameters, extra)
        })
    }
}
