//! The smallest firmware that trains: it loads the signature `train` of the MLP 64-32-10, and reports the cost of a step.

#![no_std]
#![no_main]

use emulated::memory::Arena;
use emulated::{Failure, console, counter, mlp};
use gradlet_core::{Program, Session};

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();
const STEPS: u32 = 8;

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let (program, instructions) = counter::measure(|| Program::load(&MODEL.0, KERNELS, &["train"]));
    let program = program?;
    console::report("instructions_load", instructions);
    let train = program.signature("train")?;
    let mut session = Session::new(&program, arena.bytes)?;
    for step in 0..STEPS {
        mlp::example(&mut session, train, step)?;
        let (result, instructions) = counter::measure(|| session.run(train));
        result?;
        console::report("instructions_train_step", instructions);
    }
    Ok(())
}
