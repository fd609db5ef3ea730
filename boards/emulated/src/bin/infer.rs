//! Runs an imported model once on a pseudo-random input. Reports instruction counts and memory, and writes the outputs, which the host
//! compares byte by byte.

#![no_std]
#![no_main]

use emulated::console::{self, Arguments};
use emulated::file::File;
use emulated::memory::{Arena, stack_of};
use emulated::{Failure, counter, load, session};

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let path = arguments.get(1).ok_or(Failure::Usage("FILE"))?;
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let (program, instructions) = counter::measure(|| load(&MODEL.0, KERNELS, &["infer"]));
    let program = program?;
    console::report("instructions_load", instructions);
    console::report("arena_planned", program.arena_bytes() as u32);
    let infer = program.signature("infer")?;
    let mut session = session(&program, arena.bytes)?;
    // The high bytes of a linear congruential generator.
    let mut state = 1u32;
    for byte in session.input_bytes_mut(infer, 0)? {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    let ((result, instructions), stack) = stack_of(|| counter::measure(|| session.run(infer)));
    result?;
    console::report("instructions_infer", instructions);
    console::report("stack_infer", stack);
    File::create(path)?.write(session.output_bytes(infer, 0)?)?;
    console::report("arena_used", arena.used());
    if arena.canaries_whole() { Ok(()) } else { Err(Failure::Check("canaries")) }
}
