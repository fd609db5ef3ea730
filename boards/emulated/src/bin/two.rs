//! Two models in one firmware, which learn in turn. They share scratch memory, and each keeps its variables.

#![no_std]
#![no_main]

use emulated::console::{self, Arguments};
use emulated::file::File;
use emulated::memory::Arena;
use emulated::{Failure, load, mlp, scalar};
use gradlet_core::{Program, Session};

emulated::model!();
use exported::{KEPT_BYTES, SCRATCH_BYTES};

mod second {
    include!(concat!(emulated::folder!(), "/second.rs"));
}
emulated::data!(SECOND, "GRADLET_SECOND", "second.grdl");

const SHARED: usize = if SCRATCH_BYTES > second::SCRATCH_BYTES { SCRATCH_BYTES } else { second::SCRATCH_BYTES };
static SCRATCH: Arena<SHARED> = Arena::new();
static FIRST_KEPT: Arena<KEPT_BYTES> = Arena::new();
static SECOND_KEPT: Arena<{ second::KEPT_BYTES }> = Arena::new();

emulated::entry!(firmware);

/// Trains each model for STEPS steps, in turn. Writes each loss to the file, then the variables of both models.
fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let (Some(steps), Some(path)) = (arguments.number(1), arguments.get(2)) else { return Err(Failure::Usage("STEPS FILE")) };
    let mut file = File::create(path)?;
    let programs = [load(&MODEL.0, KERNELS, &["train"])?, load(&SECOND.0, second::KERNELS, &["train"])?];
    let scratch = SCRATCH.take().ok_or(Failure::Check("arena"))?.bytes;
    let (first, other) = FIRST_KEPT.take().zip(SECOND_KEPT.take()).ok_or(Failure::Check("arena"))?;
    let mut models = programs.iter().zip([first.bytes, other.bytes]);
    let (Some(mut first), Some(mut other)) = (models.next(), models.next()) else { return Err(Failure::Check("models")) };
    for (program, kept) in [&mut first, &mut other] {
        Session::new_in(program, scratch, kept)?;
    }
    for step in 0..steps {
        for (program, kept) in [&mut first, &mut other] {
            let mut session = Session::resume_in(program, scratch, kept)?;
            learn(program, &mut session, step, &mut file)?;
        }
    }
    console::report("shared", SHARED as u32);
    for (program, kept) in [&mut first, &mut other] {
        let session = Session::resume_in(program, scratch, kept)?;
        (0..session.variable_count()).try_for_each(|index| file.write(session.variable(index)?))?;
    }
    Ok(())
}

/// Runs a training step, and writes its loss.
fn learn(program: &Program<'_>, session: &mut Session<'_, '_>, step: u32, file: &mut File) -> Result<(), Failure> {
    let train = program.signature("train")?;
    mlp::example(session, train, step)?;
    session.run(train)?;
    file.write(&scalar(session, train)?.to_le_bytes())
}
