//! Trains a model on the Nucleo-F446RE.

#![no_std]
#![no_main]

mod learn;
mod model;
mod sample;
mod slots;

use cortex_m::peripheral::SCB;
use embassy_executor::Spawner;
use embassy_stm32::flash::Flash;
use embassy_stm32::rcc::{
    AHBPrescaler, APBPrescaler, Hse, HseMode, Pll, PllMul, PllPDiv, PllPreDiv, PllSource, Sysclk,
};
use embassy_stm32::time::Hertz;
use embassy_stm32::usart::{self, UartTx};

/// Rounds of training after a start. A checkpoint follows each round.
const ROUNDS: u32 = 100;

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    let chip = embassy_stm32::init(clocks());
    // The debugger's serial port, at 115,200 baud: pin PA2.
    let Ok(line) = UartTx::new_blocking(chip.USART2, chip.PA2, usart::Config::default()) else {
        return;
    };
    // The driver's erase block is the largest sector, 128K. While it is erased (about a second),
    // the processor waits for its next instruction from flash, interrupts included.
    let flash = Flash::new_blocking(chip.FLASH);
    // An error went over the line.
    let _ = learn::learn("nucleo-f446re", flash, slots::range(), line, ROUNDS).await;
}

/// Returns the settings for 168 MHz, from the debugger's clock of 8 MHz.
fn clocks() -> embassy_stm32::Config {
    let mut config = embassy_stm32::Config::default();
    config.rcc.hse = Some(Hse {
        freq: Hertz(8_000_000),
        mode: HseMode::Bypass,
    });
    config.rcc.pll_src = PllSource::HSE;
    config.rcc.pll = Some(Pll {
        prediv: PllPreDiv::DIV4,
        mul: PllMul::MUL168,
        divp: Some(PllPDiv::DIV2),
        divq: None,
        divr: None,
    });
    config.rcc.ahb_pre = AHBPrescaler::DIV1;
    config.rcc.apb1_pre = APBPrescaler::DIV4;
    config.rcc.apb2_pre = APBPrescaler::DIV2;
    config.rcc.sys = Sysclk::PLL1_P;
    config
}

/// Restarts. The training goes on from the newest checkpoint.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    SCB::sys_reset()
}
