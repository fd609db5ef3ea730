//! A sensor with an interrupt 1,000 times a second. The firmware must take its samples before the queue is full.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering};
use cortex_m::interrupt::{Mutex, free};
use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use heapless::Deque;

/// Ticks of the board's 25 MHz clock between two samples.
const TICKS: u32 = 25_000;

static QUEUE: Mutex<RefCell<Deque<f32, 2>>> = Mutex::new(RefCell::new(Deque::new()));
static SAMPLES: AtomicU32 = AtomicU32::new(0);
static LOST: AtomicU32 = AtomicU32::new(0);

/// Starts the sensor, whose interrupt is SysTick.
pub fn start(timer: &mut SYST) {
    timer.set_clock_source(SystClkSource::Core);
    timer.set_reload(TICKS - 1);
    timer.clear_current();
    timer.enable_interrupt();
    timer.enable_counter();
}

/// Stores a sample. A firmware with a sensor calls this from its handler of SysTick.
pub fn deliver() {
    let number = SAMPLES.fetch_add(1, Ordering::Relaxed);
    let sample = (number % 16) as f32 / 16.0;
    if free(|token| QUEUE.borrow(token).borrow_mut().push_back(sample)).is_err() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the oldest sample that was not taken yet.
pub fn take() -> Option<f32> {
    free(|token| QUEUE.borrow(token).borrow_mut().pop_front())
}

/// Returns the number of samples so far, and of those that found the queue full.
pub fn counts() -> (u32, u32) {
    (SAMPLES.load(Ordering::Relaxed), LOST.load(Ordering::Relaxed))
}
