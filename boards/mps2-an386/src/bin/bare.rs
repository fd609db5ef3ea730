//! The parts that every firmware has, without gradlet's executor. The size of `empty` minus the size of `bare` is the size of the executor
//! and the verifier.

#![no_std]
#![no_main]

use mps2_an386::memory::Arena;
use mps2_an386::{Failure, console, counter, run};

static ARENA: Arena<4096> = Arena::new();

#[cortex_m_rt::entry]
fn main() -> ! {
    run(firmware)
}

fn firmware() -> Result<(), Failure> {
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let (_, instructions) = counter::measure(|| cortex_m::asm::delay(2000));
    console::report("instructions", instructions);
    console::report("arena_used", arena.used());
    Ok(())
}
