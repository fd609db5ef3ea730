//! Trains a model on the Raspberry Pi Pico 2, with a RISC-V core.

#![no_std]
#![no_main]

mod flash;
mod learn;
mod model;
mod sample;
mod slots;

use embassy_futures::block_on;
use flash::Flash;
use hal::Clock;
use hal::block::ImageDef;
use hal::fugit::RateExtU32;
use hal::uart::{DataBits, StopBits, UartConfig, UartPeripheral};
use rp235x_hal as hal;

/// Rounds of training after a start. A checkpoint follows each round.
const ROUNDS: u32 = 100;
/// Frequency of the board's crystal, in Hz.
const CRYSTAL: u32 = 12_000_000;

/// The block that the boot ROM looks for in the first 4K of the flash. The linker script of
/// `riscv-rt` puts this section directly behind the entry point.
#[unsafe(link_section = ".init.rust")]
#[used]
static IMAGE: ImageDef = ImageDef::secure_exe();

#[hal::entry]
fn main() -> ! {
    if let Some(chip) = hal::pac::Peripherals::take() {
        learn(chip);
    }
    loop {
        riscv::asm::wfi();
    }
}

/// Starts the clocks and the serial port, and trains. Returns early if a clock cannot be started.
fn learn(mut chip: hal::pac::Peripherals) {
    let mut watchdog = hal::Watchdog::new(chip.WATCHDOG);
    let clocks = hal::clocks::init_clocks_and_plls(
        CRYSTAL,
        chip.XOSC,
        chip.CLOCKS,
        chip.PLL_SYS,
        chip.PLL_USB,
        &mut chip.RESETS,
        &mut watchdog,
    );
    let Ok(clocks) = clocks else { return };
    let sio = hal::Sio::new(chip.SIO);
    let pins = hal::gpio::Pins::new(
        chip.IO_BANK0,
        chip.PADS_BANK0,
        sio.gpio_bank0,
        &mut chip.RESETS,
    );
    // The serial port of a debug probe, at 115,200 baud: pin GP0.
    let pins = (pins.gpio0.into_function(), pins.gpio1.into_function());
    let config = UartConfig::new(115_200.Hz(), DataBits::Eight, None, StopBits::One);
    let line = UartPeripheral::new(chip.UART0, pins, &mut chip.RESETS);
    if let Ok(line) = line.enable(config, clocks.peripheral_clock.freq()) {
        // An error went over the line.
        let _ = block_on(learn::learn(
            "pico2-riscv",
            Flash,
            slots::range(),
            line,
            ROUNDS,
        ));
    }
}

/// Restarts. The training goes on from the newest checkpoint.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    hal::reset()
}
