//! Trains the MLP 64-32-10. Reports instruction counts and memory, and writes the values that the host compares bit by bit.

#![no_std]
#![no_main]

use emulated::memory::Arena;
use emulated::{Failure, mlp};

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let mut arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    mlp::run(&MODEL.0, KERNELS, &mut arena)
}
