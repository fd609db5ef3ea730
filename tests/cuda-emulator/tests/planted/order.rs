//! Mistakes with the order of work: streams, events and graphs.

use crate::session::{BYTES, COUNT, Outcome, Session, check, get};
use crate::{Program, Verdict};
use gradlet_cuda_emulator::driver::*;
use std::ffi::c_void;
use std::ptr::null_mut;

/// The programs.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("missing_synchronisation", missing_synchronisation),
    ("staging_reused", staging_reused),
    ("missing_event", missing_event),
    ("missing_dependency", missing_dependency),
    ("pageable_graph", pageable_graph),
    ("graph_after_unload", graph_after_unload),
];

fn missing_synchronisation(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (from, to) = (session.numbers()?, session.pinned()?);
    session.download(to, from)?;
    if !has_mistake {
        session.synchronise()?;
    }
    Ok(Verdict::of(to[9] == 9.0))
}

fn staging_reused(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (staging, to) = (session.pinned()?, session.allocate(BYTES)?);
    // SAFETY: the arguments are a place for the handle, and handles that the emulator checks.
    let event = get(|event| unsafe { cuEventCreate(event, 2) })?;
    staging.fill(1.0);
    session.upload(to, staging)?;
    // SAFETY: as above.
    unsafe {
        check(cuEventRecord(event, session.stream))?;
        if !has_mistake {
            check(cuEventSynchronize(event))?;
        }
    }
    staging.fill(2.0);
    Ok(Verdict::of(session.read(to)? == [1.0; COUNT]))
}

fn missing_event(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (from, middle, out) = (session.numbers()?, session.allocate(BYTES)?, session.allocate(BYTES)?);
    session.synchronise()?;
    // SAFETY: the arguments are places for the handles, and handles and ranges that the emulator checks.
    unsafe {
        let (other, event) = (get(|stream| cuStreamCreate(stream, 1))?, get(|event| cuEventCreate(event, 2))?);
        check(cuMemcpyDtoDAsync_v2(middle, from, BYTES, other))?;
        check(cuEventRecord(event, other))?;
        if !has_mistake {
            check(cuStreamWaitEvent(session.stream, event, 0))?;
        }
        check(cuMemcpyDtoDAsync_v2(out, middle, BYTES, session.stream))?;
    }
    Ok(Verdict::of(session.read(out)?[9] == 9.0))
}

/// Adds the kernel `copy` to a graph.
pub fn add_copy(function: Handle, graph: Handle, after: &[Handle], mut out: u64, mut from: u64) -> Outcome<Handle> {
    let mut count = COUNT as u32;
    let mut parameters: [*mut c_void; 3] = [(&raw mut out).cast(), (&raw mut from).cast(), (&raw mut count).cast()];
    let (grid, block) = ([4, 1, 1], [64, 1, 1]);
    let node = KernelNode { function, grid, block, shared_bytes: 0, parameters: parameters.as_mut_ptr(), extra: null_mut() };
    // SAFETY: the parameters are those of the kernel.
    get(|handle| unsafe { cuGraphAddKernelNode(handle, graph, after.as_ptr(), after.len(), &node) })
}

/// Instantiates and launches a graph.
pub fn launch(session: &Session, graph: Handle) -> Outcome<Handle> {
    // SAFETY: the arguments are a place for the handle, and handles that the emulator checks.
    unsafe {
        let executable = get(|executable| cuGraphInstantiateWithFlags(executable, graph, 0))?;
        check(cuGraphLaunch(executable, session.stream))?;
        Ok(executable)
    }
}

fn missing_dependency(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (from, middle, out) = (session.numbers()?, session.allocate(BYTES)?, session.allocate(BYTES)?);
    let function = session.copy_kernel()?;
    // SAFETY: the argument is a place for the handle.
    let graph = get(|graph| unsafe { cuGraphCreate(graph, 0) })?;
    let first = add_copy(function, graph, &[], middle, from)?;
    add_copy(function, graph, if has_mistake { &[] } else { std::slice::from_ref(&first) }, out, middle)?;
    launch(&session, graph)?;
    Ok(Verdict::of(session.read(out)?[9] == 9.0))
}

fn pageable_graph(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (pageable, pinned, to) = (vec![3.0f32; COUNT], session.pinned()?, session.allocate(BYTES)?);
    pinned.fill(3.0);
    let host = if has_mistake { pageable.as_ptr() } else { pinned.as_ptr() } as Handle;
    let copy = CopyNode {
        source: CopyEnd { memory_type: 1, host, ..CopyEnd::default() },
        destination: CopyEnd { memory_type: 2, device: to, ..CopyEnd::default() },
        width_in_bytes: BYTES,
        height: 1,
        depth: 1,
    };
    // SAFETY: the arguments are places for the handles, and a description that the emulator checks.
    unsafe {
        let graph = get(|graph| cuGraphCreate(graph, 0))?;
        get(|node| cuGraphAddMemcpyNode(node, graph, std::ptr::null(), 0, &copy, session.context))?;
        launch(&session, graph)?;
    }
    Ok(Verdict::of(session.read(to)? == [3.0; COUNT]))
}

fn graph_after_unload(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (from, out, module) = (session.numbers()?, session.allocate(BYTES)?, session.load(crate::session::GLOBAL)?);
    let function = session.function(module, "copy")?;
    // SAFETY: the arguments are a place for the handle, and handles that the emulator checks.
    unsafe {
        let graph = get(|graph| cuGraphCreate(graph, 0))?;
        add_copy(function, graph, &[], out, from)?;
        let executable = launch(&session, graph)?;
        session.synchronise()?;
        if has_mistake {
            check(cuModuleUnload(module))?;
        }
        check(cuGraphLaunch(executable, session.stream))?;
    }
    Ok(Verdict::of(session.read(out)?[9] == 9.0))
}
