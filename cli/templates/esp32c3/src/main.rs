//! Trains a model on a board with an ESP32-C3.

#![no_std]
#![no_main]

mod learn;
mod model;
mod sample;

use core::ops::Range;
use embassy_futures::block_on;
use esp_bootloader_esp_idf::partitions::{self, PARTITION_TABLE_MAX_LEN};
use esp_hal::clock::CpuClock;
use esp_hal::uart::{self, Uart};
use esp_storage::FlashStorage;

esp_bootloader_esp_idf::esp_app_desc!();

/// Rounds of training after a start. A checkpoint follows each round.
const ROUNDS: u32 = 100;
/// Name of the checkpoints' partition in `partitions.csv`.
const PARTITION: &str = "slots";

#[esp_hal::main]
fn main() -> ! {
    let chip = esp_hal::init(esp_hal::Config::default().with_cpu_clock(CpuClock::max()));
    // The serial port of the board's USB connector, at 115,200 baud: GPIO21.
    if let Ok(line) = Uart::new(chip.UART0, uart::Config::default()) {
        let line = line.with_tx(chip.GPIO21);
        // The driver erases and writes by the ROM's functions, with interrupts off: a sector of 4K
        // takes about 50 ms.
        let mut flash = FlashStorage::new(chip.FLASH);
        // Without the partition there is no range for slots, which is an error on the line.
        let slots = slots(&mut flash).unwrap_or(0..0);
        let _ = block_on(learn::learn("esp32c3", flash, slots, line, ROUNDS));
    }
    loop {
        core::hint::spin_loop();
    }
}

/// Returns the bytes of the checkpoints' partition in flash.
fn slots(flash: &mut FlashStorage<'_>) -> Option<Range<u32>> {
    let mut bytes = [0; PARTITION_TABLE_MAX_LEN];
    let table = partitions::read_partition_table(flash, &mut bytes).ok()?;
    let slots = table
        .iter()
        .find(|entry| entry.label_as_str() == PARTITION)?;
    Some(slots.offset()..slots.offset() + slots.len())
}

/// Restarts. The training goes on from the newest checkpoint.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    esp_hal::system::software_reset()
}
