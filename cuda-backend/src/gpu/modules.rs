//! The kernels that the driver has compiled for a GPU.

use crate::driver::Driver;
use crate::driver::api::Handle;
use crate::ptx::Code;
use gradlet_core::{Error, Result};
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// Kernels by their code: those of devices that contract, and those of strict ones. Each kernel is a module of its own, so the driver
/// compiles only what a program uses.
#[derive(Default)]
pub(crate) struct Modules {
    compiled: Mutex<[HashMap<Code, Compiled>; 2]>,
}

/// A kernel, with the module that it belongs to.
#[derive(Clone, Copy)]
struct Compiled {
    module: Handle,
    function: Function,
}

/// A kernel that can be launched while its context exists.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub Handle);

// SAFETY: handles of modules and functions are numbers for the driver, which any thread may use.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Options of the driver's compiler, as it numbers them.
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;

impl Modules {
    /// Returns a kernel. The driver compiles it if this is its first use, which takes some milliseconds, unless it finds it in its own
    /// cache on disk.
    ///
    /// `strict` keeps the compiler from contracting products and sums. `shared` is the size of the dynamic shared memory of its blocks, the
    /// same in all launches of the kernel. Fails with the compiler's log if the driver refuses the kernel.
    pub(crate) fn function(&self, driver: &Driver, code: &Code, strict: bool, shared: u32) -> Result<Function> {
        let mut both = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = &mut both[usize::from(strict)];
        if let Some(found) = compiled.get(code) {
            return Ok(found.function);
        }
        let (text, entry) = code.ptx(!strict)?;
        let module = load(driver, &text, &entry)?;
        let (name, mut function) = (c_string(&entry)?, std::ptr::null_mut());
        // SAFETY: the first argument is a place for the handle, and the name ends with a zero.
        let status = unsafe { (driver.api().function)(&mut function, module, name.as_ptr()) };
        let found = driver.check("cuModuleGetFunction", status);
        if let Err(error) = found.and_then(|()| allow_shared(driver, function, shared)) {
            // SAFETY: nothing uses the module.
            unsafe { (driver.api().unload_module)(module) };
            return Err(error);
        }
        let function = Function(function);
        compiled.insert(code.clone(), Compiled { module, function });
        Ok(function)
    }

    /// Unloads all kernels. Their context is current.
    pub(crate) fn unload(&self, driver: &Driver) {
        let mut both = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, compiled) in both.iter_mut().flat_map(HashMap::drain) {
            // SAFETY: no device of the context exists any more, so nothing uses the module.
            unsafe { (driver.api().unload_module)(compiled.module) };
        }
    }
}

/// Compiles and loads a text of PTX.
fn load(driver: &Driver, text: &str, entry: &str) -> Result<Handle> {
    let (text, mut log, mut module) = (c_string(text)?, vec![0u8; 8192], std::ptr::null_mut());
    let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
    let api = driver.api();
    // SAFETY: the text ends with a zero, and there are two options with their values. The log has the size that they state.
    let status = unsafe { (api.load_module)(&mut module, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
    driver.check("cuModuleLoadDataEx", status).map_err(|error| {
        let said = log.split(|&byte| byte == 0).next().unwrap_or_default();
        let said = String::from_utf8_lossy(said);
        error.context(format!("the driver refuses the kernel {entry}: {}", said.trim()))
    })?;
    Ok(module)
}

/// Allows a kernel this much dynamic shared memory. Without that, it may have the least that every GPU has.
fn allow_shared(driver: &Driver, function: Handle, shared: u32) -> Result<()> {
    const EVERYWHERE: u32 = 48 << 10;
    const MAX_DYNAMIC_SHARED: c_int = 8;
    if shared <= EVERYWHERE {
        return Ok(());
    }
    // SAFETY: the function exists.
    driver.check("cuFuncSetAttribute", unsafe { (driver.api().set_attribute)(function, MAX_DYNAMIC_SHARED, shared as c_int) })
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Internal)
}
