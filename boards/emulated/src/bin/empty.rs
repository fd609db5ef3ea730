//! The executor and the verifier without kernels. The size of this firmware minus the size of `bare` is theirs.

#![no_std]
#![no_main]

use core::hint::black_box;
use emulated::memory::Arena;
use emulated::{Failure, console, counter};
use gradlet_core::runtime::Aligned;
use gradlet_core::{Kernel, Program, Session};

static ARENA: Arena<4096> = Arena::new();
static ARTIFACT: Aligned<[u8; 16]> = Aligned([0; 16]);
static KERNELS: [&Kernel; 0] = [];

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let (result, instructions) = counter::measure(|| infer(arena.bytes));
    console::report("refused", u32::from(result.is_err()));
    console::report("instructions", instructions);
    console::report("arena_used", arena.used());
    Ok(())
}

fn infer(arena: &mut [u8]) -> gradlet_core::Result<()> {
    let program = Program::load(black_box(&ARTIFACT.0), black_box(&KERNELS), &["infer"])?;
    let infer = program.signature("infer")?;
    let mut session = Session::new(&program, arena)?;
    black_box(session.input_mut::<f32>(infer, 0)?);
    session.run(infer)?;
    black_box(session.output::<f32>(infer, 0)?);
    Ok(())
}
