//! Contexts: each device has one, the primary context.

use crate::driver::state::{Emulator, Handle, call, call_on_device, current, give, set_current};
use crate::driver::status::{Outcome, Status};

/// Retains the context of a device, and creates it first if nobody has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) -> Status {
    call(|emulator| {
        let device = emulator.device(device)?;
        if let Some(fault) = emulator.devices[device].fault {
            return Err(fault);
        }
        let handle = match emulator.devices[device].context {
            Some(handle) => handle,
            None => emulator.create_context(device),
        };
        emulator.devices[device].retained += 1;
        give(context, handle)
    })
}

/// Releases the context of a device. The last release destroys it with all that belongs to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Status {
    call(|emulator| {
        let device = emulator.device(device)?;
        let retained = &mut emulator.devices[device].retained;
        *retained = retained.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
        if *retained == 0 {
            emulator.destroy_context(device);
        }
        emulator.devices[device].fault.map_or(Ok(()), Err)
    })
}

/// Makes a context the current one of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: Handle) -> Status {
    call(|emulator| {
        if context != 0 && emulator.device_of(context).is_none() {
            return Err(Status::INVALID_CONTEXT);
        }
        set_current(context);
        Ok(())
    })
}

/// Returns the current context of this thread, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> Status {
    call(|_| give(context, current()))
}

/// Waits for all work of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> Status {
    call_on_device(|emulator, device| {
        emulator.counts.synchronizations += 1;
        emulator.finish_device(device)
    })
}

impl Emulator {
    fn create_context(&mut self, device: usize) -> Handle {
        let (context, default_stream) = (self.handle(), self.add_stream(device, true));
        self.devices[device].context = Some(context);
        self.devices[device].default_stream = default_stream;
        context
    }

    fn destroy_context(&mut self, device: usize) {
        // Work that has not run is finished, as the driver does. Its faults stay.
        let _: Outcome = self.finish_device(device);
        self.streams.retain(|_, stream| stream.device != device);
        self.events.retain(|_, event| event.device != device);
        self.executables.retain(|_, executable| executable.device != device);
        self.modules.retain(|_, module| module.device != device);
        self.functions.retain(|_, function| function.device != device);
        self.imports.retain(|_, import| import.device != device);
        self.memory.peers.retain(|(from, to)| *from != device && *to != device);
        self.memory.free_all(|block| block.device == device);
        self.devices[device].context = None;
    }
}
