//! Memory of other devices.

use crate::driver::state::{Handle, call, call_on_device, give};
use crate::driver::status::{Outcome, Status};
use crate::driver::work::{Copy, Source, Target, Work};

/// Returns whether a device can use another one's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> Status {
    call(|emulator| {
        let (device, peer) = (emulator.device(device)?, emulator.device(peer)?);
        give(can, i32::from(device != peer && emulator.configuration.peers))
    })
}

/// Lets the current device use the memory of another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxEnablePeerAccess(context: Handle, flags: u32) -> Status {
    call_on_device(|emulator, device| {
        let peer = emulator.device_of(context).ok_or(Status::INVALID_CONTEXT)?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        if peer == device || !emulator.configuration.peers {
            return Err(Status::PEER_ACCESS_UNSUPPORTED);
        }
        if emulator.memory.peers.insert((device, peer)) { Ok(()) } else { Err(Status::PEER_ACCESS_ALREADY_ENABLED) }
    })
}

/// Copies between devices. It needs no access of one to the other's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> Status {
    call_on_device(|emulator, device| {
        let stream = emulator.stream(device, stream)?;
        let device_of = |context| emulator.device_of(context).ok_or(Status::INVALID_CONTEXT);
        let (target, source) = (device_of(to_context)?, device_of(from_context)?);
        if bytes == 0 {
            return Ok(());
        }
        let checked: Outcome = emulator.check(source, from, bytes).and_then(|()| emulator.check(target, to, bytes));
        checked?;
        emulator.counts.device_copies += 1;
        let copy = Copy { from: Source::Peer(source, from), to: Target::Peer(target, to), bytes };
        emulator.submit(stream, Work::Copy(copy)).map(drop)
    })
}
