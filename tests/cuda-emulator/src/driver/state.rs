//! The state of an emulator, and how a call gets it.

use super::api::{Event, Executable, Graph, Import, Loaded, Module, Node};
use super::configuration::Configuration;
use super::counts::{Counts, KernelCounts, Triggers};
use super::memory::Memory;
use super::queue::Stream;
use super::status::{Outcome, Status, Stop};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A handle, as the driver gives it to the program. It is a number, never an address.
pub type Handle = usize;

/// Everything behind the driver's functions. One lock guards it, so a call runs alone.
#[derive(Default)]
pub(crate) struct Emulator {
    pub configuration: Configuration,
    /// True after `cuInit`.
    pub is_initialised: bool,
    pub devices: Vec<Device>,
    pub memory: Memory,
    pub streams: HashMap<Handle, Stream>,
    pub events: HashMap<Handle, Event>,
    pub modules: HashMap<Handle, Module>,
    pub functions: HashMap<Handle, Loaded>,
    pub graphs: HashMap<Handle, Graph>,
    pub nodes: HashMap<Handle, Node>,
    pub executables: HashMap<Handle, Executable>,
    pub imports: HashMap<Handle, Import>,
    pub counts: Counts,
    /// Counts of each kernel, by name.
    pub kernels: BTreeMap<String, KernelCounts>,
    pub triggers: Triggers,
    /// Text of the last fault.
    pub report: CString,
    /// Time in nanoseconds, which passes only when work runs.
    pub clock: u64,
    last_handle: Handle,
}

/// A device.
#[derive(Default)]
pub(crate) struct Device {
    /// Its primary context, while somebody retains it.
    pub context: Option<Handle>,
    /// Number of times that the context is retained.
    pub retained: usize,
    /// The stream of the handle 0.
    pub default_stream: Handle,
    /// The first fault.
    pub fault: Option<Status>,
}

/// Environment variable with properties, for a program that finds the emulator as its installed driver: see `emulator_configure`.
const PROPERTIES: &str = "GRADLET_CUDA_EMULATOR";

static EMULATOR: LazyLock<Mutex<Emulator>> = LazyLock::new(|| {
    let mut emulator = Emulator::default();
    if let Err(word) = emulator.configuration.set(&std::env::var(PROPERTIES).unwrap_or_default()) {
        eprintln!("CUDA emulator: {PROPERTIES}: {word} is no property");
        emulator.configuration.no_device = true;
    }
    Mutex::new(emulator)
});

thread_local! {
    /// The current context of this thread, or 0.
    static CURRENT: Cell<Handle> = const { Cell::new(0) };
}

/// Returns the emulator.
pub(crate) fn emulator() -> MutexGuard<'static, Emulator> {
    EMULATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the current context of this thread, or 0.
pub(crate) fn current() -> Handle {
    CURRENT.get()
}

/// Sets the current context of this thread.
pub(crate) fn set_current(context: Handle) {
    CURRENT.set(context);
}

/// Runs a call that needs no context.
pub(crate) fn call(body: impl FnOnce(&mut Emulator) -> Outcome) -> Status {
    let mut emulator = emulator();
    if !emulator.is_initialised {
        return Status::NOT_INITIALIZED;
    }
    body(&mut emulator).into()
}

/// Runs a call for the device of the current context.
pub(crate) fn call_on_device(body: impl FnOnce(&mut Emulator, usize) -> Outcome) -> Status {
    call(|emulator| {
        let device = emulator.current()?;
        if let Some(lost) = emulator.triggers.loss() {
            emulator.stop(device, Stop::new(lost, "DeviceLost: the device was lost, as the control asked"));
        }
        match emulator.devices[device].fault {
            Some(fault) => Err(fault),
            None => body(emulator, device),
        }
    })
}

impl Emulator {
    /// Creates a handle.
    pub(crate) fn handle(&mut self) -> Handle {
        self.last_handle += 16;
        self.last_handle
    }

    /// Forgets everything but the handles that were given, so that they stay invalid.
    pub(crate) fn reset(&mut self) {
        *self = Emulator { last_handle: self.last_handle, ..Emulator::default() };
    }

    /// Returns the device of the current context.
    pub(crate) fn current(&self) -> Outcome<usize> {
        match current() {
            0 => Err(Status::INVALID_CONTEXT),
            context => self.device_of(context).ok_or(Status::CONTEXT_IS_DESTROYED),
        }
    }

    /// Returns the device that has this context.
    pub(crate) fn device_of(&self, context: Handle) -> Option<usize> {
        self.devices.iter().position(|device| device.context == Some(context))
    }

    /// Ends a device's work with a fault, which stays.
    pub(crate) fn stop(&mut self, device: usize, stop: Stop) {
        if self.devices[device].fault.is_none() {
            self.devices[device].fault = Some(stop.status);
            self.report(&stop);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.clear();
        }
    }

    /// Keeps the text of a fault.
    pub(crate) fn report(&mut self, stop: &Stop) {
        eprintln!("CUDA emulator: {:?}: {}", stop.status, stop.text);
        self.report = CString::new(stop.text.replace('\0', " ")).unwrap_or_default();
    }

    /// Keeps the text of an error that a call returns, and returns its status.
    pub(crate) fn refuse(&mut self, stop: Stop) -> Status {
        self.report(&stop);
        stop.status
    }
}

/// Writes a result to where the caller wants it.
pub(crate) fn give<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller of the driver's function gives a place for a value of this type, or a null pointer.
    unsafe { place.write(value) };
    Ok(())
}
