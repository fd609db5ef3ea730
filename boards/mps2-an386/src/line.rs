//! Telemetry over the UART. Each tick of SysTick sends one byte, so training continues while frames are sent.
//!
//! On a real board, the UART's own interrupt calls [`Telemetry::poll`]. QEMU's UART sends every byte immediately, and
//! so has no such interrupt.

use crate::uart::{HZ, Uart};
use core::cell::RefCell;
use cortex_m::interrupt::{Mutex, free};
use cortex_m::peripheral::{SYST, syst::SystClkSource};
use gradlet_core::runtime::Telemetry;

static LINE: Mutex<RefCell<Option<Line>>> = Mutex::new(RefCell::new(None));

/// Bytes of RAM that the line takes, without the buffer for its frames.
pub const BYTES: usize = size_of_val(&LINE);

struct Line {
    telemetry: Telemetry<'static, Uart>,
    clock: SYST,
}

/// Opens the line at `baud` bits per second. At 0 the line stays closed, and nothing is sent. The firmware calls [`tick`] at each SysTick.
pub fn open(baud: u32, buffer: &'static mut [u8]) {
    let Some(mut clock) = cortex_m::Peripherals::take().map(|peripherals| peripherals.SYST).filter(|_| baud > 0) else { return };
    clock.set_clock_source(SystClkSource::Core);
    clock.set_reload(HZ / baud * 10 - 1);
    let telemetry = Telemetry::new(Uart::new(baud), buffer);
    free(|section| LINE.borrow(section).replace(Some(Line { telemetry, clock })));
}

/// Calls `something` with the telemetry, and starts the timer that sends the bytes. Does nothing if the line is closed.
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

/// Sends one byte of the buffered frames. Stops the timer when the buffer is empty.
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

/// Waits until all buffered frames are sent. Returns the total number of frames that were dropped, which is 0 if the line is closed.
pub fn drain() -> u32 {
    loop {
        let dropped = free(|section| {
            let mut line = LINE.borrow(section).borrow_mut();
            let Some(Line { telemetry, .. }) = &mut *line else { return Some(0) };
            if telemetry.is_empty() {
                let Ok(()) = telemetry.flush();
                return Some(telemetry.dropped());
            }
            // A tick that fires before this instruction also wakes it. Its handler runs after the critical section.
            cortex_m::asm::wfi();
            None
        });
        if let Some(dropped) = dropped {
            return dropped;
        }
    }
}
