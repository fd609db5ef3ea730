//! Mistakes with allocations and copies.

use crate::session::{BYTES, COUNT, Outcome, Session, check, get};
use crate::{Program, Verdict};
use gradlet_cuda_emulator::driver::*;

/// The programs.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("use_after_free", use_after_free),
    ("freed_too_early", freed_too_early),
    ("freed_block", freed_block),
    ("next_block", next_block),
    ("uninitialised_global", uninitialised_global),
    ("fresh_memory", fresh_memory),
    ("null_pointer", null_pointer),
    ("host_pointer", host_pointer),
    ("unmapped_pointer", unmapped_pointer),
    ("other_device", other_device),
    ("double_free", double_free),
    ("inner_free", inner_free),
    ("wrong_free", wrong_free),
    ("upload_past_end", upload_past_end),
    ("download_past_end", download_past_end),
    ("copy_past_end", copy_past_end),
    ("pinned_past_end", pinned_past_end),
    ("overlapping_copy", overlapping_copy),
    ("misaligned_fill", misaligned_fill),
    ("out_of_memory", out_of_memory),
];

fn free(address: u64) -> Outcome {
    // SAFETY: the emulator checks the address.
    check(unsafe { cuMemFree_v2(address) })
}

/// Copies numbers by a kernel and checks them.
fn copy_from(session: &Session, from: u64) -> Outcome<Verdict> {
    let (function, out) = (session.copy_kernel()?, session.allocate(BYTES)?);
    session.launch(function, out, from)?;
    Ok(Verdict::of(session.read(out)?.iter().enumerate().all(|(index, &number)| number == index as f32)))
}

fn use_after_free(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let from = session.numbers()?;
    session.synchronise()?;
    if has_mistake {
        free(from)?;
    }
    copy_from(&session, from)
}

fn freed_too_early(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (function, from, out) = (session.copy_kernel()?, session.numbers()?, session.allocate(BYTES)?);
    session.synchronise()?;
    session.launch(function, out, from)?;
    if !has_mistake {
        session.synchronise()?;
    }
    free(from)?;
    session.synchronise()?;
    Ok(Verdict::Right)
}

fn freed_block(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let from = session.numbers()?;
    // SAFETY: the emulator checks the ranges.
    unsafe {
        if has_mistake {
            emulator_ban(from + 1020, 4);
        } else {
            emulator_ban(from, 4);
            emulator_unban(from, 4);
        }
    }
    copy_from(&session, from)
}

fn next_block(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (region, from, function) = (session.allocate(4 * BYTES)?, session.numbers()?, session.copy_kernel()?);
    let block = region + 512;
    // SAFETY: the emulator checks the ranges.
    unsafe {
        emulator_ban(region, 4 * BYTES as u64);
        emulator_poison(block, BYTES as u64);
    }
    session.launch(function, if has_mistake { block + 4 } else { block }, from)?;
    session.synchronise()?;
    Ok(Verdict::Right)
}

fn uninitialised_global(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("uninitialised=1")?;
    let from = session.numbers()?;
    if has_mistake {
        // SAFETY: the emulator checks the range.
        unsafe { emulator_poison(from + 8, 4) };
    }
    copy_from(&session, from)
}

fn fresh_memory(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let sum = session.allocate(BYTES)?;
    if !has_mistake {
        // SAFETY: the emulator checks the range.
        check(unsafe { cuMemsetD32Async(sum, 0, COUNT, session.stream) })?;
    }
    Ok(Verdict::of(session.read(sum)?.iter().all(|&number| number == 0.0)))
}

fn null_pointer(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let from = session.numbers()?;
    copy_from(&session, if has_mistake { 0 } else { from })
}

fn host_pointer(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("integrated=1")?;
    let numbers: Vec<f32> = (0..COUNT).map(|number| number as f32).collect();
    let mapped = session.pinned()?;
    mapped.copy_from_slice(&numbers);
    // SAFETY: the first argument is a place for the address.
    let address = get(|address| unsafe { cuMemHostGetDevicePointer_v2(address, mapped.as_ptr() as Handle, 0) })?;
    copy_from(&session, if has_mistake { numbers.as_ptr() as u64 } else { address })
}

fn unmapped_pointer(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("integrated=1")?;
    let pinned = session.host_memory(if has_mistake { 1 } else { 2 })?;
    pinned.iter_mut().enumerate().for_each(|(index, number)| *number = index as f32);
    copy_from(&session, pinned.as_ptr() as u64)
}

fn other_device(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("devices=2")?;
    // SAFETY: the argument is a place for the context.
    let other = get(|context| unsafe { cuDevicePrimaryCtxRetain(context, 1) })?;
    let own = session.numbers()?;
    // SAFETY: the context exists.
    check(unsafe { cuCtxSetCurrent(other) })?;
    let foreign = session.allocate(BYTES)?;
    // SAFETY: as above.
    check(unsafe { cuCtxSetCurrent(session.context) })?;
    copy_from(&session, if has_mistake { foreign } else { own })
}

fn double_free(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (one, other) = (session.allocate(BYTES)?, session.allocate(BYTES)?);
    free(one)?;
    free(if has_mistake { one } else { other })?;
    Ok(Verdict::Right)
}

fn inner_free(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    free(session.allocate(BYTES)? + if has_mistake { 512 } else { 0 })?;
    Ok(Verdict::Right)
}

fn wrong_free(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let pinned = session.pinned()?.as_ptr() as Handle;
    if has_mistake {
        free(pinned as u64)?;
    }
    // SAFETY: the emulator checks the pointer, and nothing uses it later.
    check(unsafe { cuMemFreeHost(pinned) })?;
    Ok(Verdict::Right)
}

fn upload_past_end(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let to = session.allocate(BYTES - usize::from(has_mistake))?;
    session.upload(to, &[0.0; COUNT])?;
    Ok(Verdict::Right)
}

fn download_past_end(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let from = session.allocate(BYTES + 4)?;
    session.read(from + if has_mistake { 8 } else { 4 })?;
    Ok(Verdict::Right)
}

fn copy_past_end(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (from, to) = (session.numbers()?, session.allocate(BYTES)?);
    // SAFETY: the emulator checks the ranges.
    check(unsafe { cuMemcpyDtoDAsync_v2(to + if has_mistake { 4 } else { 0 }, from, BYTES, session.stream) })?;
    Ok(Verdict::of(session.read(to)?[COUNT - 1] == (COUNT - 1) as f32))
}

fn pinned_past_end(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (from, to) = (session.numbers()?, session.pinned()?.as_ptr() as Handle);
    let to = to + if has_mistake { 4 } else { 0 };
    // SAFETY: the emulator checks the ranges.
    check(unsafe { cuMemcpyDtoHAsync_v2(to, from, BYTES, session.stream) })?;
    session.synchronise()?;
    Ok(Verdict::Right)
}

fn overlapping_copy(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let region = session.allocate(2 * BYTES)?;
    let to = region + if has_mistake { BYTES as u64 - 4 } else { BYTES as u64 };
    // SAFETY: the emulator checks the ranges.
    check(unsafe { cuMemcpyDtoDAsync_v2(to, region, BYTES, session.stream) })?;
    session.synchronise()?;
    Ok(Verdict::Right)
}

fn misaligned_fill(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let to = session.allocate(BYTES)? + if has_mistake { 2 } else { 4 };
    // SAFETY: the emulator checks the range.
    check(unsafe { cuMemsetD32Async(to, 0, 8, session.stream) })?;
    Ok(Verdict::Right)
}

fn out_of_memory(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("memory=65536")?;
    let first = session.allocate(40_000)?;
    if !has_mistake {
        free(first)?;
    }
    session.allocate(40_000)?;
    Ok(Verdict::Right)
}
