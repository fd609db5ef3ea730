//! Trains a model on the Raspberry Pi Pico 2, with an Arm core.

#![no_std]
#![no_main]

mod learn;
mod model;
mod sample;
mod slots;
mod wait;

use cortex_m::peripheral::SCB;
use embassy_executor::Spawner;
use embassy_rp::flash::{Async, Flash};
use embassy_rp::uart::{self, UartTx};
use embassy_rp::{bind_interrupts, dma, peripherals};
use wait::Wait;

/// Rounds of training after a start. A checkpoint follows each round.
const ROUNDS: u32 = 100;
/// Bytes of the board's flash.
const FLASH_BYTES: usize = 4 << 20;

bind_interrupts!(struct Interrupts {
    DMA_IRQ_0 => dma::InterruptHandler<peripherals::DMA_CH0>;
});

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    let chip = embassy_rp::init(Default::default());
    // The serial port of a debug probe, at 115,200 baud: pin GP0.
    let line = UartTx::new_blocking(chip.UART0, chip.PIN_0, uart::Config::default());
    // The driver erases and writes from RAM, with interrupts off and the other core paused: a
    // sector of 4K takes about 50 ms. The program in flash goes on afterwards. It reads by DMA.
    // `Wait` suits any async driver. This one could do without: see `Flash::new_blocking`.
    let flash = Flash::<_, Async, FLASH_BYTES>::new(chip.FLASH, chip.DMA_CH0, Interrupts);
    // An error went over the line.
    let _ = learn::learn("pico2", Wait(flash), slots::range(), line, ROUNDS).await;
}

/// Restarts. The training goes on from the newest checkpoint.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    SCB::sys_reset()
}
