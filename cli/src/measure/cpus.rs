//! The processors that QEMU runs for `--measure`, each on a board with much memory.

use crate::firmware;

/// A processor, and the board that QEMU emulates for it.
pub struct Cpu {
    /// The value of the option `--cpu`.
    pub of: firmware::Cpu,
    /// Name of the processor, as compilers have it.
    pub name: &'static str,
    /// Rust's name of the target.
    pub triple: &'static str,
    /// QEMU's name of the board.
    pub machine: &'static str,
    /// First addresses and bytes of the memory for code, for the model with its inputs, and for RAM.
    pub memory: [(u32, u32); 3],
    /// The board's clock.
    pub clock: Clock,
    /// Ticks of the clock, and the instructions that QEMU runs in that time. An instruction takes [`SHIFT`].
    pub ticks_and_instructions: [u64; 2],
}

/// A clock of a board, by the address of its registers.
pub enum Clock {
    /// A CMSDK timer.
    Timer(u32),
    /// A system counter.
    Counter(u32),
}

/// Nanoseconds of an instruction in QEMU, as a power of two.
pub const SHIFT: u32 = 6;

const KI: u32 = 1 << 10;
const MI: u32 = 1 << 20;

/// An MPS2 board. Its clock has 25 MHz: a tick is 40 ns, an instruction 64 ns.
const fn mps2(of: firmware::Cpu, name: &'static str, triple: &'static str, machine: &'static str) -> Cpu {
    let memory = [(0, 512 * KI), (512 * KI, 4 * MI - 512 * KI), (0x2000_0000, 4 * MI)];
    Cpu { of, name, triple, machine, memory, clock: Clock::Timer(0x4000_0000), ticks_and_instructions: [8, 5] }
}

/// All processors. A program for a Cortex-M0 runs on the board with a Cortex-M3: QEMU's only board with a Cortex-M0 has 16 KiB of RAM.
pub static CPUS: [Cpu; 6] = [
    mps2(firmware::Cpu::CortexM0, "cortex-m0", "thumbv6m-none-eabi", "mps2-an385"),
    mps2(firmware::Cpu::CortexM3, "cortex-m3", "thumbv7m-none-eabi", "mps2-an385"),
    mps2(firmware::Cpu::CortexM4, "cortex-m4", "thumbv7em-none-eabihf", "mps2-an386"),
    mps2(firmware::Cpu::CortexM7, "cortex-m7", "thumbv7em-none-eabihf", "mps2-an500"),
    Cpu {
        of: firmware::Cpu::CortexM33,
        name: "cortex-m33",
        triple: "thumbv8m.main-none-eabihf",
        machine: "mps2-an505",
        memory: [(0x1000_0000, 512 * KI), (0x1008_0000, 4 * MI - 512 * KI), (0x3800_0000, 4 * MI)],
        clock: Clock::Timer(0x5000_0000),
        // 20 MHz.
        ticks_and_instructions: [32, 25],
    },
    Cpu {
        of: firmware::Cpu::CortexM55,
        name: "cortex-m55",
        triple: "thumbv8m.main-none-eabihf",
        machine: "mps3-an547",
        memory: [(0, 512 * KI), (0x7100_0000, 16 * MI), (0x7000_0000, 16 * MI)],
        clock: Clock::Counter(0x5810_0000),
        // 32 MHz.
        ticks_and_instructions: [256, 125],
    },
];
