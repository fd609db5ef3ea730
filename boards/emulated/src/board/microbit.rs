//! The BBC micro:bit, with an nRF51822 (Cortex-M0): 256 KiB of flash, of which the firmware has half, and 16 KiB of RAM.

/// Frequency of the board's clock, in Hz.
pub const HZ: u32 = 16_000_000;
/// Ticks of [`CLOCK`] by which instructions are counted, and the instructions in that time: a tick is 62.5 ns, an instruction 64 ns.
pub const TICKS_AND_INSTRUCTIONS: [u32; 2] = [128, 125];
/// TIMER0.
pub const CLOCK: Timer = Timer(0x4000_8000);
/// The chip's UART.
pub const UART: Uart = Uart(0x4000_2000);
/// The second half of the flash.
pub const FLASH: Nvmc = Nvmc(0x2_0000);

/// Writes a register of the peripheral at `base`.
fn write(base: usize, offset: usize, value: u32) {
    // SAFETY: the callers pass registers of peripherals that nothing else uses.
    unsafe { ((base + offset) as *mut u32).write_volatile(value) };
}

/// Reads a register of the peripheral at `base`.
fn read(base: usize, offset: usize) -> u32 {
    // SAFETY: as in `write`.
    unsafe { ((base + offset) as *const u32).read_volatile() }
}

/// A timer of the nRF51.
pub struct Timer(usize);

impl Timer {
    const START: usize = 0;
    const CAPTURE: usize = 0x40;
    const BITMODE: usize = 0x508;
    const PRESCALER: usize = 0x510;
    const CC: usize = 0x540;

    /// Starts the timer, with 32 bits and at 16 MHz.
    pub fn start(&self) {
        write(self.0, Self::BITMODE, 3);
        write(self.0, Self::PRESCALER, 0);
        write(self.0, Self::START, 1);
    }

    /// Returns the number of ticks since the start. It wraps.
    #[inline]
    pub fn ticks(&self) -> u32 {
        write(self.0, Self::CAPTURE, 1);
        read(self.0, Self::CC)
    }
}

/// The UART of the nRF51.
pub struct Uart(usize);

impl Uart {
    const START: usize = 0x8;
    const SENT: usize = 0x11c;
    const ENABLE: usize = 0x500;
    const DATA: usize = 0x51c;

    /// Enables the UART: QEMU's sends at once.
    pub fn start(&self, _divider: u32) {
        write(self.0, Self::ENABLE, 4);
        write(self.0, Self::START, 1);
    }

    /// False: [`Uart::put`] waits until the byte is sent.
    pub fn is_full(&self) -> bool {
        false
    }

    /// Sends a byte.
    pub fn put(&self, byte: u8) {
        write(self.0, Self::SENT, 0);
        write(self.0, Self::DATA, byte.into());
        while read(self.0, Self::SENT) == 0 {}
    }
}

/// The controller of the nRF51's flash, with the address of the part that it may change.
pub struct Nvmc(usize);

impl Nvmc {
    const BASE: usize = 0x4001_e000;
    const READY: usize = 0x400;
    const CONFIG: usize = 0x504;
    const ERASE_PAGE: usize = 0x508;
    const PAGE: usize = 1024;

    /// Address of the first byte.
    pub fn begin(&self) -> *const u8 {
        self.0 as *const u8
    }

    /// Writes a word at offset `at`, a multiple of 4.
    ///
    /// # Safety
    ///
    /// The word is within the flash.
    pub unsafe fn write(&self, at: usize, word: u32) {
        self.change(1, || write(self.0, at, word));
    }

    /// Sets all bits of `bytes` bytes from offset `at`, both multiples of 1,024.
    ///
    /// # Safety
    ///
    /// The bytes are within the flash.
    pub unsafe fn erase(&self, at: usize, bytes: usize) {
        (at..at + bytes).step_by(Self::PAGE).for_each(|at| self.change(2, || write(Self::BASE, Self::ERASE_PAGE, (self.0 + at) as u32)));
    }

    /// Calls `act` while the controller allows writes (1) or erasures (2).
    fn change(&self, allowed: u32, act: impl FnOnce()) {
        write(Self::BASE, Self::CONFIG, allowed);
        act();
        while read(Self::BASE, Self::READY) == 0 {}
        write(Self::BASE, Self::CONFIG, 0);
    }
}
