//! Mistakes with modules.

use crate::session::{BYTES, GLOBAL, Outcome, Session, check, control};
use crate::{Program, Verdict};
use gradlet_cuda_emulator::driver::*;

/// The programs.
pub const PROGRAMS: &[(&str, Program)] = &[
    ("launch_after_unload", launch_after_unload),
    ("unloaded_too_early", unloaded_too_early),
    ("ptx_too_new", |has_mistake| load("driver=11040", ".version 7.4", if has_mistake { ".version 8.4" } else { ".version 7.0" })),
    ("target_above_device", |has_mistake| load("capability=72", "sm_70", if has_mistake { "sm_90" } else { "sm_72" })),
    ("unknown_instruction", |has_mistake| load("", "st.global.f32", if has_mistake { "frobnicate.f32" } else { "st.global.f32" })),
    ("unknown_kernel", unknown_kernel),
    ("module_refused", module_refused),
];

fn unload(module: Handle) -> Outcome {
    // SAFETY: the emulator checks the handle.
    check(unsafe { cuModuleUnload(module) })
}

fn launch_after_unload(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (module, from, out) = (session.load(GLOBAL)?, session.numbers()?, session.allocate(BYTES)?);
    let function = session.function(module, "copy")?;
    if has_mistake {
        unload(module)?;
    }
    session.launch(function, out, from)?;
    session.synchronise()?;
    Ok(Verdict::Right)
}

fn unloaded_too_early(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    let (module, from, out) = (session.load(GLOBAL)?, session.numbers()?, session.allocate(BYTES)?);
    session.launch(session.function(module, "copy")?, out, from)?;
    if !has_mistake {
        session.synchronise()?;
    }
    unload(module)?;
    session.synchronise()?;
    Ok(Verdict::Right)
}

/// Loads the module `global` with a change.
fn load(words: &str, before: &str, after: &str) -> Outcome<Verdict> {
    let session = Session::new(words)?;
    session.load(&GLOBAL.replace(before, after))?;
    Ok(Verdict::Right)
}

fn unknown_kernel(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    session.function(session.load(GLOBAL)?, if has_mistake { "cop" } else { "copy" })?;
    Ok(Verdict::Right)
}

fn module_refused(has_mistake: bool) -> Outcome<Verdict> {
    let session = Session::new("")?;
    control(if has_mistake { "refuse-module misaligned_f64" } else { "refuse-module softmax" })?;
    session.load(GLOBAL)?;
    Ok(Verdict::Right)
}
