//! Mistakes with launches, handles and contexts, and failures of the device.

use crate::session::{BYTES, COUNT, Launch, Outcome, Session, check, control, get, prepare};
use crate::{Program, Verdict};
use gradlet_cuda_emulator::driver::*;
use std::ptr::null_mut;

/// The programs.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("too_many_threads", |has_mistake| launch([1, 1, 1], if has_mistake { [33, 32, 1] } else { [32, 2, 1] }, 0)),
    ("grid_too_large", |has_mistake| launch(if has_mistake { [1, 65_536, 1] } else { [1, 4, 1] }, [64, 1, 1], 0)),
    ("empty_grid", |has_mistake| launch(if has_mistake { [0, 1, 1] } else { [1, 1, 1] }, [64, 1, 1], 0)),
    ("too_much_shared", |has_mistake| launch([4, 1, 1], [64, 1, 1], 49_152 + u32::from(has_mistake))),
    ("missing_parameter", missing_parameter),
    ("excess_parameter", excess_parameter),
    ("parameter_size", parameter_size),
    ("stale_stream", stale_stream),
    ("stale_event", stale_event),
    ("stream_of_other_context", stream_of_other_context),
    ("no_context", no_context),
    ("released_context", released_context),
    ("sticky_error", sticky_error),
    ("device_lost", device_lost),
    ("launch_failed", launch_failed),
    ("allocation_refused", allocation_refused),
    ("no_device", no_device),
    ("not_initialised", not_initialised),
];

/// Launches the kernel `copy` with this grid, blocks and dynamic shared memory.
fn launch(grid: [u32; 3], block: [u32; 3], shared: u32) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (function, from, out) = (session.copy_kernel()?, session.numbers()?, session.allocate(BYTES)?);
    Launch { function, grid, block, shared, stream: session.stream }.submit(out, from)?;
    session.synchronise()?;
    Ok(Verdict::Right)
}

/// Prepares a launch of the kernel `copy` and submits it by `submit`, which also gets the values of the parameters.
fn launch_with(words: &str, submit: impl FnOnce(&Launch, [u64; 3]) -> Outcome) -> Outcome<Verdict> {
    let session = Session::new(words)?;
    let (function, from, out) = (session.copy_kernel()?, session.numbers()?, session.allocate(BYTES)?);
    let launch = Launch { function, grid: [4, 1, 1], block: [64, 1, 1], shared: 0, stream: session.stream };
    submit(&launch, [out, from, COUNT as u64])?;
    Ok(Verdict::of(session.read(out)?[9] == 9.0))
}

fn missing_parameter(has_mistake: bool) -> Outcome<Verdict> {
    launch_with("terminated=1", |launch, mut values| {
        let [out, from, count] = values.each_mut().map(|value| (&raw mut *value).cast());
        launch.submit_with(&mut [out, from, if has_mistake { null_mut() } else { count }, null_mut()])
    })
}

fn excess_parameter(has_mistake: bool) -> Outcome<Verdict> {
    launch_with("terminated=1", |launch, mut values| {
        let [out, from, count] = values.each_mut().map(|value| (&raw mut *value).cast());
        launch.submit_with(&mut [out, from, count, if has_mistake { count } else { null_mut() }, null_mut()])
    })
}

fn parameter_size(has_mistake: bool) -> Outcome<Verdict> {
    launch_with("", |launch, values| launch.submit_buffer(&values, if has_mistake { 16 } else { 20 }))
}

fn stale_stream(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    if has_mistake {
        // SAFETY: the emulator checks the handle.
        check(unsafe { cuStreamDestroy_v2(session.stream) })?;
    }
    session.synchronise()?;
    Ok(Verdict::Right)
}

fn stale_event(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    // SAFETY: the arguments are a place for the handle, and handles that the emulator checks.
    unsafe {
        let event = get(|event| cuEventCreate(event, 0))?;
        if has_mistake {
            check(cuEventDestroy_v2(event))?;
        }
        check(cuEventRecord(event, session.stream))?;
    }
    Ok(Verdict::Right)
}

fn stream_of_other_context(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("devices=2")?;
    let (function, from, out) = (session.copy_kernel()?, session.numbers()?, session.allocate(BYTES)?);
    // SAFETY: the arguments are places for the handles, and handles that the emulator checks.
    let foreign = unsafe {
        let other = get(|context| cuDevicePrimaryCtxRetain(context, 1))?;
        check(cuCtxSetCurrent(other))?;
        let foreign = get(|stream| cuStreamCreate(stream, 0))?;
        check(cuCtxSetCurrent(session.context))?;
        foreign
    };
    let stream = if has_mistake { foreign } else { session.stream };
    Launch { function, grid: [4, 1, 1], block: [64, 1, 1], shared: 0, stream }.submit(out, from)?;
    Ok(Verdict::of(session.read(out)?[9] == 9.0))
}

fn no_context(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let context = session.context;
    let call = move || -> Outcome {
        if !has_mistake {
            // SAFETY: the context exists.
            check(unsafe { cuCtxSetCurrent(context) })?;
        }
        // SAFETY: the call has no requirements.
        check(unsafe { cuCtxSynchronize() })
    };
    std::thread::spawn(call).join().expect("a thread that does not panic")?;
    Ok(Verdict::Right)
}

fn released_context(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    // SAFETY: the first argument is a place for the handle.
    unsafe {
        get(|context| cuDevicePrimaryCtxRetain(context, 0))?;
        for _ in 0..1 + u32::from(has_mistake) {
            check(cuDevicePrimaryCtxRelease_v2(0))?;
        }
    }
    session.allocate(BYTES)?;
    Ok(Verdict::Right)
}

fn sticky_error(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (function, from, out) = (session.copy_kernel()?, session.numbers()?, session.allocate(BYTES)?);
    session.launch(function, out, if has_mistake { 64 } else { from })?;
    let _: Outcome = session.synchronise();
    session.allocate(BYTES)?;
    Ok(Verdict::Right)
}

fn device_lost(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    control("lose-device-after 2")?;
    session.allocate(BYTES)?;
    session.allocate(BYTES)?;
    if has_mistake {
        let lost = session.allocate(BYTES);
        assert_eq!(lost, Err(Status::DEVICE_UNAVAILABLE));
        session.synchronise()?;
    }
    Ok(Verdict::Right)
}

fn launch_failed(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (function, from, out) = (session.copy_kernel()?, session.numbers()?, session.allocate(BYTES)?);
    control("fail-launch-after 1")?;
    session.launch(function, out, from)?;
    if has_mistake {
        assert_eq!(session.launch(function, out, from), Err(Status::LAUNCH_FAILED));
    }
    session.synchronise()?;
    Ok(Verdict::Right)
}

fn allocation_refused(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    control("refuse-allocation-after 2")?;
    let count = if has_mistake { 3 } else { 2 };
    (0..count).try_for_each(|_| session.allocate(BYTES).map(drop))?;
    Ok(Verdict::Right)
}

fn no_device(has_mistake: bool) -> Outcome<Verdict> {
    let words = if has_mistake { "no_device=1" } else { "" };
    let _turn = prepare(words);
    // SAFETY: the call has no requirements.
    check(unsafe { cuInit(0) })?;
    Ok(Verdict::Right)
}

fn not_initialised(has_mistake: bool) -> Outcome<Verdict> {
    let _turn = prepare("");
    // SAFETY: the argument is a place for the number.
    unsafe {
        if !has_mistake {
            check(cuInit(0))?;
        }
        get(|count| cuDeviceGetCount(count))?;
    }
    Ok(Verdict::Right)
}
