//! Telemetry over the UART, a byte at each tick of SysTick: so training goes on while frames leave.
//!
//! On a board of yours, the UART's own interrupt calls [`Telemetry::poll`]; QEMU's has no bytes that wait, and so nothing to tell.

use crate::uart::{HZ, Uart};
use core::cell::RefCell;
use cortex_m::interrupt::{Mutex, free};
use cortex_m::peripheral::{SYST, syst::SystClkSource};
use gradlet_core::Telemetry;

static LINE: Mutex<RefCell<Option<Line>>> = Mutex::new(RefCell::new(None));

/// The bytes that it takes, beside the buffer.
pub const BYTES: usize = size_of_val(&LINE);

struct Line {
    telemetry: Telemetry<'static, Uart>,
    clock: SYST,
}

/// Opens the line at so many bits a second; at 0 nothing is ever sent. The firmware calls [`tick`] at each SysTick.
pub fn open(baud: u32, buffer: &'static mut [u8]) {
    let Some(mut clock) = cortex_m::Peripherals::take().map(|peripherals| peripherals.SYST).filter(|_| baud > 0) else { return };
    clock.set_clock_source(SystClkSource::Core);
    clock.set_reload(HZ / baud * 10 - 1);
    let telemetry = Telemetry::new(Uart::new(baud), buffer);
    free(|section| LINE.borrow(section).replace(Some(Line { telemetry, clock })));
}

/// Sends something.
pub fn tell(something: impl FnOnce(&mut Telemetry<'static, Uart>)) {
    free(|section| {
        if let Some(Line { telemetry, clock }) = &mut *LINE.borrow(section).borrow_mut() {
            something(telemetry);
            if !clock.is_interrupt_enabled() {
                clock.clear_current();
                clock.enable_counter();
                clock.enable_interrupt();
            }
        }
    });
}

/// Sends a byte. The clock rests while there is none.
pub fn tick() {
    free(|section| {
        if let Some(Line { telemetry, clock }) = &mut *LINE.borrow(section).borrow_mut() {
            telemetry.writer_mut().tick();
            let Ok(()) = telemetry.poll();
            if telemetry.is_empty() {
                clock.disable_interrupt();
                clock.disable_counter();
            }
        }
    });
}

/// True if the line is open.
pub fn is_open() -> bool {
    free(|section| LINE.borrow(section).borrow().is_some())
}

/// Waits until all was sent. Gives how many frames were dropped.
pub fn drain() -> u32 {
    loop {
        let dropped = free(|section| {
            let mut line = LINE.borrow(section).borrow_mut();
            let Some(Line { telemetry, .. }) = &mut *line else { return Some(0) };
            if telemetry.is_empty() {
                let Ok(()) = telemetry.flush();
                return Some(telemetry.dropped());
            }
            // A tick that comes before this wakes it too: it waits for the end of the section.
            cortex_m::asm::wfi();
            None
        });
        if let Some(dropped) = dropped {
            return dropped;
        }
    }
}
