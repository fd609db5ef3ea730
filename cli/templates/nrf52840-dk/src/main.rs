//! Trains a model on the nRF52840-DK.

#![no_std]
#![no_main]

mod learn;
mod model;
mod sample;
mod slots;

use cortex_m::peripheral::SCB;
use embassy_executor::Spawner;
use embassy_nrf::config::HfclkSource;
use embassy_nrf::nvmc::Nvmc;
use embassy_nrf::uarte::{self, UarteTx};
use embassy_nrf::{bind_interrupts, peripherals};
use gradlet_core::runtime::embedded_io::{ErrorType, Write};

/// Rounds of training after a start. A checkpoint follows each round.
const ROUNDS: u32 = 100;

bind_interrupts!(struct Interrupts {
    UARTE0 => uarte::InterruptHandler<peripherals::UARTE0>;
});

/// The debugger's serial port, at 115,200 baud: pin P0.06.
struct Line(UarteTx<'static>);

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    let mut config = embassy_nrf::config::Config::default();
    // The internal oscillator is not exact enough for a serial port.
    config.hfclk_source = HfclkSource::ExternalXtal;
    let chip = embassy_nrf::init(config);
    let line = UarteTx::new(
        chip.UARTE0,
        Interrupts,
        chip.P0_06,
        uarte::Config::default(),
    );
    // While a page is erased (85 ms) or a word written, the processor waits for its next
    // instruction from flash, interrupts included.
    let flash = Nvmc::new(chip.NVMC);
    // An error went over the line.
    let _ = learn::learn("nrf52840-dk", flash, slots::range(), Line(line), ROUNDS).await;
}

impl ErrorType for Line {
    type Error = uarte::Error;
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, uarte::Error> {
        self.0.blocking_write(bytes).map(|()| bytes.len())
    }

    /// Does nothing: each write waits for its last byte.
    fn flush(&mut self) -> Result<(), uarte::Error> {
        Ok(())
    }
}

/// Restarts. The training goes on from the newest checkpoint.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    SCB::sys_reset()
}
