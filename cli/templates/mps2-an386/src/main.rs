//! Trains a model on Arm's MPS2 board with a Cortex-M4F, which QEMU emulates. Restarts once, to
//! show that it still knows.

#![no_std]
#![no_main]

mod board;
mod learn;
mod model;
mod sample;

use board::{RamFlash, Uart};
use cortex_m::peripheral::SCB;
use embassy_futures::block_on;

/// Rounds of training after a start. A checkpoint follows each round.
const ROUNDS: u32 = 2;

#[cortex_m_rt::entry]
fn main() -> ! {
    let flash = RamFlash;
    match block_on(learn::learn(
        "mps2-an386",
        flash,
        0..RamFlash::BYTES,
        Uart::new(),
        ROUNDS,
    )) {
        Ok(true) => board::exit(true),
        Ok(false) => SCB::sys_reset(),
        Err(_) => board::exit(false),
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    board::exit(false)
}
