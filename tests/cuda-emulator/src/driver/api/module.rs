//! Modules: PTX that the driver compiles.

use crate::driver::block::Place;
use crate::driver::state::{Emulator, Handle, call_on_device, give};
use crate::driver::status::{Status, Stop};
use crate::ptx::{self, Function};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// Bytes of shared memory that a block may have, unless its function asks for more.
pub(crate) const MOST_SHARED: u32 = 48 << 10;

/// Attribute of a function: the bytes of dynamic shared memory that a launch may have.
const DYNAMIC_SHARED: i32 = 8;

/// A module.
pub(crate) struct Module {
    pub device: usize,
    code: ptx::Module,
    /// Addresses of its variables.
    variables: Vec<u64>,
}

/// A function of a module.
pub(crate) struct Loaded {
    pub device: usize,
    module: Handle,
    pub code: Arc<Function>,
    /// Bytes of dynamic shared memory that a launch may have.
    pub dynamic_shared: u32,
}

/// Compiles and loads a module from PTX with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_char,
    count: u32,
    options: *const i32,
    values: *mut *mut c_void,
) -> Status {
    call_on_device(|emulator, device| {
        if image.is_null() || (count > 0 && (options.is_null() || values.is_null())) {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller gives a text with a zero at its end.
        let image = unsafe { CStr::from_ptr(image) };
        let text = image.to_str().ok().filter(|text| text.contains(".version")).ok_or(Status::INVALID_IMAGE)?;
        let loaded = emulator.load(device, text);
        // SAFETY: the caller gives `count` options with their values.
        let logs = unsafe { Logs::new(count, options, values) };
        logs.write(loaded.as_ref().err().map_or("", |stop| &stop.text));
        give(module, loaded.map_err(|stop| emulator.refuse(stop))?)
    })
}

/// Unloads a module and its functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: Handle) -> Status {
    call_on_device(|emulator, device| {
        let found = emulator.modules.get(&module).is_some_and(|module| module.device == device);
        let unloaded = if found { emulator.modules.remove(&module) } else { None };
        let variables = unloaded.ok_or(Status::INVALID_HANDLE)?.variables;
        emulator.memory.free_all(|block| variables.contains(&block.address));
        emulator.functions.retain(|_, function| function.module != module);
        Ok(())
    })
}

/// Returns a function of a module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> Status {
    call_on_device(|emulator, device| {
        if name.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller gives a text with a zero at its end.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Status::NOT_FOUND)?;
        let found = emulator.modules.get(&module).filter(|module| module.device == device).ok_or(Status::INVALID_HANDLE)?;
        let code = found.code.function(name).ok_or(Status::NOT_FOUND)?;
        let known = emulator.functions.iter().find(|(_, known)| known.module == module && Arc::ptr_eq(&known.code, &code));
        let handle = known.map(|(&handle, _)| handle).unwrap_or_else(|| emulator.handle());
        let dynamic_shared = MOST_SHARED - code.shared_bytes();
        emulator.functions.entry(handle).or_insert(Loaded { device, module, code, dynamic_shared });
        give(function, handle)
    })
}

/// Returns an attribute of a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: Handle) -> Status {
    call_on_device(|emulator, device| {
        let loaded = emulator.functions.get(&function).filter(|function| function.device == device).ok_or(Status::INVALID_HANDLE)?;
        let code = &loaded.code;
        let found = match attribute {
            0 => 1024,
            1 => code.shared_bytes() as i32,
            // Constants and local memory, of which the interpreter has no limits.
            2 | 3 => 0,
            4 => code.registers() as i32,
            6 => emulator.configuration.capability as i32,
            DYNAMIC_SHARED => loaded.dynamic_shared as i32,
            _ => return Err(Status::INVALID_VALUE),
        };
        give(value, found)
    })
}

/// Sets an attribute of a function: the bytes of dynamic shared memory that its launches may have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) -> Status {
    call_on_device(|emulator, device| {
        let most = emulator.configuration.most_shared();
        let loaded = emulator.functions.get_mut(&function).filter(|function| function.device == device).ok_or(Status::INVALID_HANDLE)?;
        let own = loaded.code.shared_bytes();
        match u32::try_from(value).ok().filter(|value| attribute == DYNAMIC_SHARED && value.saturating_add(own) <= most) {
            Some(value) => {
                loaded.dynamic_shared = value;
                Ok(())
            }
            None => {
                let text = format!("InvalidValue: attribute {attribute} of a function: {value}, where a block has at most {most} bytes");
                Err(emulator.refuse(Stop::new(Status::INVALID_VALUE, text)))
            }
        }
    })
}

impl Emulator {
    fn load(&mut self, device: usize, text: &str) -> Result<Handle, Stop> {
        if self.triggers.module.take_if(|part| text.contains(part.as_str())).is_some() {
            return Err(Stop::new(Status::INVALID_PTX, "InvalidPtx: the control refuses this module"));
        }
        let newest = self.configuration.newest_ptx();
        Header::read(text).check(newest, self.configuration.capability)?;
        let invalid = |text: String| Stop::new(Status::INVALID_PTX, format!("InvalidPtx: {text}"));
        let mut code = ptx::Module::parse(text, newest).map_err(invalid)?;
        check_shared(&code).map_err(invalid)?;
        let variables = self.link(device, &mut code)?;
        let handle = self.handle();
        self.counts.modules += 1;
        self.modules.insert(handle, Module { device, code, variables });
        Ok(handle)
    }

    /// Allocates the variables of a module and writes their initial values.
    fn link(&mut self, device: usize, code: &mut ptx::Module) -> Result<Vec<u64>, Stop> {
        let mut addresses = HashMap::new();
        let full = |status| Stop::new(status, "OutOfMemory: the variables of a module");
        for variable in code.globals() {
            let place = Place::Module { constant: variable.constant };
            let address = self.memory.allocate(device, variable.bytes.len().max(1), place).map_err(full)?;
            addresses.insert(variable.name.clone(), address);
        }
        code.link(&addresses).map_err(|text| Stop::new(Status::INVALID_PTX, format!("InvalidPtx: {text}")))?;
        for variable in code.globals() {
            self.memory.write(device, addresses[&variable.name], variable.bytes.len())?.copy_from_slice(&variable.bytes);
        }
        Ok(addresses.into_values().collect())
    }
}

/// Checks the shared memory that the functions declare.
fn check_shared(code: &ptx::Module) -> Result<(), String> {
    let functions = code.entries().filter_map(|name| code.function(name));
    match functions.into_iter().find(|function| function.shared_bytes() > MOST_SHARED) {
        Some(function) => {
            let bytes = function.shared_bytes();
            Err(format!("entry function '{}' uses too much shared data ({bytes:#x} bytes, {MOST_SHARED:#x} max)", function.name()))
        }
        None => Ok(()),
    }
}

/// Demands of the first lines of PTX.
#[derive(Debug, PartialEq)]
struct Header {
    version: (u32, u32),
    /// The target, and the letter after it that ties code to an architecture (`a`) or a family (`f`).
    target: (u32, Option<char>),
}

impl Header {
    fn read(text: &str) -> Header {
        let directive = |name: &str| {
            let found = text.lines().map(str::trim).find_map(|line| line.strip_prefix(name));
            found.and_then(|rest| rest.split([',', ' ', '\t', '/']).find(|word| !word.is_empty())).unwrap_or_default()
        };
        let (major, minor) = directive(".version").split_once('.').unwrap_or_default();
        let target = directive(".target").trim_start_matches("sm_");
        let letter = target.chars().last().filter(char::is_ascii_alphabetic);
        let number = target.trim_end_matches(|end: char| end.is_ascii_alphabetic());
        Header { version: (major.parse().unwrap_or(0), minor.parse().unwrap_or(0)), target: (number.parse().unwrap_or(0), letter) }
    }

    /// Checks that the driver knows the version and the device the target.
    fn check(&self, newest: (u32, u32), capability: u32) -> Result<(), Stop> {
        let ((major, minor), (target, letter)) = (self.version, self.target);
        if self.version > newest {
            let text = format!("Unsupported .version {major}.{minor}; current version is '{}.{}'", newest.0, newest.1);
            return Err(Stop::new(Status::UNSUPPORTED_PTX_VERSION, format!("UnsupportedPtxVersion: {text}")));
        }
        let fits = match letter {
            Some('a') => capability == target,
            Some(_) => capability >= target && capability / 10 == target / 10,
            None => capability >= target,
        };
        if !fits {
            let letter = letter.map(String::from).unwrap_or_default();
            let text = format!("NoBinaryForGpu: code for sm_{target}{letter} does not run on sm_{capability}");
            return Err(Stop::new(Status::NO_BINARY_FOR_GPU, text));
        }
        Ok(())
    }
}

/// Where the caller wants the compiler's messages.
#[derive(Default)]
struct Logs {
    information: Log,
    errors: Log,
}

/// A buffer, and where the number of bytes that were written to it goes.
struct Log {
    buffer: *mut c_char,
    size: usize,
    written: *mut *mut c_void,
}

impl Default for Log {
    fn default() -> Self {
        Log { buffer: std::ptr::null_mut(), size: 0, written: std::ptr::null_mut() }
    }
}

impl Logs {
    /// Reads the options.
    ///
    /// # Safety
    ///
    /// There are `count` options and values.
    unsafe fn new(count: u32, options: *const i32, values: *mut *mut c_void) -> Logs {
        let mut logs = Logs::default();
        for index in 0..count as usize {
            // SAFETY: the caller guarantees that these exist.
            let (option, slot) = unsafe { (*options.add(index), values.add(index)) };
            // SAFETY: as above.
            let value = unsafe { *slot };
            match option {
                3 => logs.information.buffer = value.cast(),
                4 => (logs.information.size, logs.information.written) = (value as usize, slot),
                5 => logs.errors.buffer = value.cast(),
                6 => (logs.errors.size, logs.errors.written) = (value as usize, slot),
                _ => {}
            }
        }
        logs
    }

    fn write(self, errors: &str) {
        self.information.write("");
        self.errors.write(errors);
    }
}

impl Log {
    /// Writes a text, cut to the size of the buffer.
    fn write(self, text: &str) {
        let bytes = text.len().min(self.size.saturating_sub(1));
        if !self.buffer.is_null() && self.size > 0 {
            // SAFETY: the caller has given a buffer of this size, and a zero has room after the text.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.buffer, bytes);
                self.buffer.add(bytes).write(0);
            }
        }
        if !self.written.is_null() {
            // SAFETY: this is the place of the option's value.
            unsafe { self.written.write((if bytes > 0 { bytes + 1 } else { 0 }) as *mut c_void) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_checked() {
        let header = Header::read("//\n// .version 9.9\n.version 8.4 // newest\n.target sm_90a, debug\n");
        assert_eq!(header, Header { version: (8, 4), target: (90, Some('a')) });
        let check = |target, capability, newest| {
            let header = Header { version: (8, 4), target };
            header.check(newest, capability).map_err(|stop| stop.status)
        };
        assert_eq!(check((90, Some('a')), 90, (8, 4)), Ok(()));
        assert_eq!(check((90, Some('a')), 100, (8, 4)), Err(Status::NO_BINARY_FOR_GPU));
        assert_eq!(check((100, Some('f')), 103, (8, 4)), Ok(()));
        assert_eq!(check((70, None), 87, (8, 4)), Ok(()));
        assert_eq!(check((90, None), 87, (8, 4)), Err(Status::NO_BINARY_FOR_GPU));
        assert_eq!(check((70, None), 87, (7, 4)), Err(Status::UNSUPPORTED_PTX_VERSION));
    }
}
