//! Mistakes with limits of devices, and with memory of the program and of other devices.

use crate::order::launch;
use crate::session::{BYTES, COUNT, Launch, Outcome, Session, check, get};
use crate::{Program, Verdict};
use gradlet_cuda_emulator::driver::*;
use std::fs::File;
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::ptr::null_mut;

/// The programs.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("shared_without_attribute", |has_mistake| dynamic(if has_mistake { None } else { Some(64 << 10) }, 64 << 10)),
    ("attribute_above_device", |has_mistake| dynamic(Some(if has_mistake { 164 << 10 } else { 163 << 10 }), 64 << 10)),
    ("graph_without_attribute", graph_without_attribute),
    ("dynamic_past_end", |has_mistake| dynamic(None, if has_mistake { 252 } else { 256 })),
    ("target_of_other_device", target_of_other_device),
    ("instruction_above_target", instruction_above_target),
    ("registered_twice", registered_twice),
    ("unregistered_too_early", unregistered_too_early),
    ("registered_not_mapped", registered_not_mapped),
    ("import_past_end", import_past_end),
    ("import_destroyed", import_destroyed),
    ("no_peer_access", no_peer_access),
    ("missing_peer_event", missing_peer_event),
];

const AMPERE: &str = include_str!("ampere.ptx");
const HOPPER: &str = include_str!("hopper.ptx");
/// Attribute of a function: bytes of dynamic shared memory.
const DYNAMIC_SHARED: i32 = 8;

/// Launches the kernel `dynamic` with some bytes of shared memory, for which its function asks or not.
fn dynamic(asks: Option<i32>, shared: u32) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (from, out) = (session.numbers()?, session.allocate(BYTES)?);
    let function = session.function(session.load(AMPERE)?, "dynamic")?;
    if let Some(bytes) = asks {
        // SAFETY: the emulator checks the handle.
        check(unsafe { cuFuncSetAttribute(function, DYNAMIC_SHARED, bytes) })?;
    }
    Launch { function, grid: [4, 1, 1], block: [64, 1, 1], shared, stream: session.stream }.submit(out, from)?;
    Ok(Verdict::of(session.read(out)?[9] == 41.0))
}

fn graph_without_attribute(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (mut from, mut out, mut count) = (session.numbers()?, session.allocate(BYTES)?, COUNT as u32);
    let function = session.function(session.load(AMPERE)?, "dynamic")?;
    let mut parameters = [(&raw mut out).cast(), (&raw mut from).cast(), (&raw mut count).cast()];
    let (grid, block, shared_bytes) = ([4, 1, 1], [64, 1, 1], 64 << 10);
    let node = KernelNode { function, grid, block, shared_bytes, parameters: parameters.as_mut_ptr(), extra: null_mut() };
    // SAFETY: the arguments are places for the handles, handles that the emulator checks, and the parameters of the kernel.
    unsafe {
        if !has_mistake {
            check(cuFuncSetAttribute(function, DYNAMIC_SHARED, 64 << 10))?;
        }
        let graph = get(|graph| cuGraphCreate(graph, 0))?;
        get(|handle| cuGraphAddKernelNode(handle, graph, std::ptr::null(), 0, &node))?;
        launch(&session, graph)?;
    }
    Ok(Verdict::of(session.read(out)?[9] == 41.0))
}

fn target_of_other_device(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new(if has_mistake { "capability=100" } else { "capability=90" })?;
    session.load(HOPPER)?;
    Ok(Verdict::Right)
}

fn instruction_above_target(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    session.load(&AMPERE.replace("sm_80", if has_mistake { "sm_75" } else { "sm_86" }))?;
    Ok(Verdict::Right)
}

/// Page-locks numbers of the program.
fn register(numbers: &mut [f32], flags: u32) -> Outcome {
    // SAFETY: the numbers exist until the emulator forgets them: before the program ends, or at the next reset, which does not use them.
    check(unsafe { cuMemHostRegister_v2(numbers.as_mut_ptr().cast(), size_of_val(numbers), flags) })
}

fn unregister(numbers: &mut [f32]) -> Outcome {
    // SAFETY: the emulator checks the pointer.
    check(unsafe { cuMemHostUnregister(numbers.as_mut_ptr().cast()) })
}

fn registered_twice(has_mistake: bool) -> Outcome<Verdict> {
    let _session = Session::new("")?;
    let mut numbers = vec![0.0; COUNT];
    let (first, second) = numbers.split_at_mut(COUNT / 2);
    register(first, 0)?;
    if has_mistake {
        register(first, 0)?;
    }
    register(second, 0)?;
    unregister(first)?;
    unregister(second)?;
    Ok(Verdict::Right)
}

fn unregistered_too_early(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (mut numbers, to) = (vec![1.0; COUNT], session.allocate(BYTES)?);
    register(&mut numbers, 0)?;
    session.upload(to, &numbers)?;
    if !has_mistake {
        session.synchronise()?;
    }
    unregister(&mut numbers)?;
    Ok(Verdict::of(session.read(to)? == numbers))
}

fn registered_not_mapped(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("integrated=1")?;
    let (mut numbers, out, function) = (vec![3.0; COUNT], session.allocate(BYTES)?, session.copy_kernel()?);
    register(&mut numbers, if has_mistake { 0 } else { 2 })?;
    session.launch(function, out, numbers.as_ptr() as u64)?;
    let found = session.read(out);
    let _: Outcome = unregister(&mut numbers);
    Ok(Verdict::of(found? == numbers))
}

/// Imports a file of `COUNT` numbers and maps some bytes of it. Returns the import and the address.
fn import(bytes: u64) -> Outcome<(Handle, u64)> {
    let path = std::env::temp_dir().join(format!("gradlet-import-{}", std::process::id()));
    let mut file = File::create_new(&path).expect("a file");
    (0..COUNT).for_each(|number| file.write_all(&(number as f32).to_le_bytes()).expect("a disk with room"));
    let file = File::options().read(true).write(true).open(&path).expect("the file");
    std::fs::remove_file(path).expect("the file");
    let handle = ExternalHandle { file: file.into_raw_fd(), ..ExternalHandle::default() };
    let memory = ExternalMemory { kind: 1, handle, size: BYTES as u64, ..ExternalMemory::default() };
    // SAFETY: the arguments are places for the results, and descriptions; the file is given away.
    unsafe {
        let import = get(|import| cuImportExternalMemory(import, &memory))?;
        let buffer = ExternalBuffer { size: bytes, ..ExternalBuffer::default() };
        Ok((import, get(|address| cuExternalMemoryGetMappedBuffer(address, import, &buffer))?))
    }
}

fn import_past_end(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (_, address) = import(BYTES as u64 + 4 * u64::from(has_mistake))?;
    Ok(Verdict::of(session.read(address)?[9] == 9.0))
}

fn import_destroyed(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let ((memory, address), out, function) = (import(BYTES as u64)?, session.allocate(BYTES)?, session.copy_kernel()?);
    let destroy = || {
        // SAFETY: the emulator checks the handle.
        check(unsafe { cuDestroyExternalMemory(memory) })
    };
    if has_mistake {
        destroy()?;
    }
    session.launch(function, out, address)?;
    let found = session.read(out)?;
    destroy()?;
    // SAFETY: the emulator checks the address.
    check(unsafe { cuMemFree_v2(address) })?;
    Ok(Verdict::of(found[9] == 9.0))
}

/// Begins a program with two devices. Returns the context of the second one, its stream and numbers in its memory.
fn second_device() -> Outcome<(Session, Handle, Handle, u64)> {
    let session = Session::new("devices=2")?;
    // SAFETY: the arguments are places for the handles, and handles that the emulator checks.
    unsafe {
        let context = get(|context| cuDevicePrimaryCtxRetain(context, 1))?;
        check(cuCtxSetCurrent(context))?;
        let stream = get(|stream| cuStreamCreate(stream, 1))?;
        let numbers = get(|address| cuMemAlloc_v2(address, BYTES))?;
        check(cuMemsetD32Async(numbers, 9f32.to_bits(), COUNT, stream))?;
        check(cuCtxSetCurrent(session.context))?;
        Ok((session, context, stream, numbers))
    }
}

fn no_peer_access(has_mistake: bool) -> Outcome<Verdict> {
    let (session, context, stream, numbers) = second_device()?;
    let (out, function) = (session.allocate(BYTES)?, session.copy_kernel()?);
    // SAFETY: the arguments are handles that the emulator checks.
    unsafe {
        check(cuCtxSetCurrent(context))?;
        check(cuStreamSynchronize(stream))?;
        check(cuCtxSetCurrent(session.context))?;
        if !has_mistake {
            assert_eq!(get(|can| cuDeviceCanAccessPeer(can, 0, 1)), Ok(1));
            check(cuCtxEnablePeerAccess(context, 0))?;
        }
    }
    session.launch(function, out, numbers)?;
    Ok(Verdict::of(session.read(out)? == [9.0; COUNT]))
}

fn missing_peer_event(has_mistake: bool) -> Outcome<Verdict> {
    let (session, context, stream, numbers) = second_device()?;
    let to = session.allocate(BYTES)?;
    // SAFETY: the arguments are places for the handles, and handles and ranges that the emulator checks.
    unsafe {
        check(cuCtxSetCurrent(context))?;
        let event = get(|event| cuEventCreate(event, 2))?;
        check(cuEventRecord(event, stream))?;
        check(cuCtxSetCurrent(session.context))?;
        if !has_mistake {
            check(cuStreamWaitEvent(session.stream, event, 0))?;
        }
        check(cuMemcpyPeerAsync(to, session.context, numbers, context, BYTES, session.stream))?;
    }
    Ok(Verdict::of(session.read(to)? == [9.0; COUNT]))
}

#[test]
fn kernels_are_counted() {
    let session = Session::new("").unwrap();
    let (from, out) = (session.numbers().unwrap(), session.allocate(BYTES).unwrap());
    let function = session.copy_kernel().unwrap();
    session.launch(function, out, from).unwrap();
    session.launch(function, out, from).unwrap();
    session.synchronise().unwrap();
    let mut text = vec![0u8; 64];
    // SAFETY: the buffer has this size.
    let needed = unsafe { emulator_kernels(text.as_mut_ptr().cast(), text.len()) };
    assert_eq!(String::from_utf8_lossy(&text[..needed - 1]), format!("copy 2 0 {} {} 64 0\n", 2 * BYTES, 2 * BYTES));
    crate::session::control("reset-counts").unwrap();
    // SAFETY: a buffer without room gets nothing.
    assert_eq!(unsafe { emulator_kernels(null_mut(), 0) }, 1);
}
