//! Trains the TensorFlow handbook's MLP 784-100-10, on a machine with 1 MiB of RAM.

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
