//! Trains the TensorFlow handbook's MLP 784-100-10, on a machine with 1 MiB of RAM.

#![no_std]
#![no_main]

use mps2_an386::memory::Arena;
use mps2_an386::{Failure, mlp, run};

mps2_an386::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();

#[cortex_m_rt::entry]
fn main() -> ! {
    run(firmware)
}

fn firmware() -> Result<(), Failure> {
    let mut arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    mlp::run(&MODEL.0, KERNELS, &mut arena)
}
