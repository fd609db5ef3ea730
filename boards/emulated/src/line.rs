//! Telemetry over the UART. Each tick of SysTick sends one byte, so training continues while frames are sent.
//!
//! On a real board, the UART's own interrupt calls [`Telemetry::poll`]. QEMU's UART sends every byte immediately, and
//! so has no such interrupt.

use crate::board::HZ;
use crate::uart::Uart;
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

/// Calls `f` with the line in a critical section. Returns `None` if `f` of an outer call has the line, and calls nothing.
fn with<R>(f: impl FnOnce(&mut Option<Line>) -> R) -> Option<R> {
    free(|section| LINE.borrow(section).try_borrow_mut().ok().map(|mut line| f(&mut line)))
}

/// Opens the line at `baud` bits per second. At 0 the line stays closed, and nothing is sent. The firmware calls [`tick`] at each SysTick.
pub fn open(baud: u32, buffer: &'static mut [u8]) {
    let Some(mut clock) = cortex_m::Peripherals::take().map(|peripherals| peripherals.SYST).filter(|_| baud > 0) else { return };
    clock.set_clock_source(SystClkSource::Core);
    clock.set_reload(HZ / baud * 10 - 1);
    let telemetry = Telemetry::new(Uart::new(baud), buffer);
    with(|line| *line = Some(Line { telemetry, clock }));
}

/// Calls `something` with the telemetry, and starts the timer that sends the bytes. Does nothing if the line is closed.
pub fn tell(something: impl FnOnce(&mut Telemetry<'static, Uart>)) {
    with(|line| {
        if let Some(Line { telemetry, clock }) = line {
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
    with(|line| {
        if let Some(Line { telemetry, clock }) = line {
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
    with(|line| line.is_some()).unwrap_or(false)
}

/// Waits until all buffered frames are sent. Returns the total number of frames that were dropped, which is 0 if the line is closed.
pub fn drain() -> u32 {
    loop {
        let dropped = with(|line| {
            let Some(Line { telemetry, .. }) = line else { return Some(0) };
            if telemetry.is_empty() {
                let Ok(()) = telemetry.flush();
                return Some(telemetry.dropped());
            }
            // A tick that fires before this instruction also wakes it. Its handler runs after the critical section.
            cortex_m::asm::wfi();
            None
        });
        if let Some(dropped) = dropped.unwrap_or(Some(0)) {
            return dropped;
        }
    }
}
