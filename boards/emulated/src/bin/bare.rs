//! The parts that every firmware has, without gradlet's executor. The size of `empty` minus the size of `bare` is the size of the executor
//! and the verifier.

#![no_std]
#![no_main]

use emulated::memory::Arena;
use emulated::{Failure, console, counter};

static ARENA: Arena<4096> = Arena::new();

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let (_, instructions) = counter::measure(|| cortex_m::asm::delay(2000));
    console::report("instructions", instructions);
    console::report("arena_used", arena.used());
    Ok(())
}
