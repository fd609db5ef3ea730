//! The firmware `empty` with checkpoints in streams and in flash. The difference of their sizes is the size of the checkpoint code.

#![no_std]
#![no_main]

use core::hint::black_box;
use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash};
use emulated::memory::Arena;
use emulated::{Failure, console, counter};
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::{Aligned, Slots};
use gradlet_core::{Kernel, Program, Session};

static ARENA: Arena<4096> = Arena::new();
static ARTIFACT: Aligned<[u8; 16]> = Aligned([0; 16]);
static KERNELS: [&Kernel; 0] = [];

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let (result, instructions) = counter::measure(|| infer(arena.bytes));
    console::report("refused", u32::from(result.is_err()));
    console::report("instructions", instructions);
    console::report("arena_used", arena.used());
    Ok(())
}

fn infer(arena: &mut [u8]) -> gradlet_core::Result<()> {
    let program = Program::load(black_box(&ARTIFACT.0), black_box(&KERNELS), &["infer"])?;
    let infer = program.signature("infer")?;
    let mut session = Session::new(&program, arena)?;
    black_box(session.input_mut::<f32>(infer, 0)?);
    session.run(infer)?;
    black_box(session.output::<f32>(infer, 0)?);
    let mut slots = Slots::new(Nothing, black_box(0..1 << 16), black_box(2))?;
    slots.restore(&mut session)?;
    slots.save(&session, black_box(Contents::Changed))?;
    session.save(&mut Nothing, black_box(Contents::Full))?;
    session.restore(&mut Nothing)
}

/// A driver whose functions do nothing. `black_box` hides this from the compiler, which therefore cannot remove the calls. The driver's own
/// size is negligible.
struct Nothing;

impl ErrorType for Nothing {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Nothing {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        black_box((offset, bytes));
        black_box(Ok(()))
    }

    fn capacity(&self) -> usize {
        black_box(1 << 20)
    }
}

impl NorFlash for Nothing {
    const WRITE_SIZE: usize = 8;
    const ERASE_SIZE: usize = 4096;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        black_box((from, to));
        black_box(Ok(()))
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        black_box((offset, bytes));
        black_box(Ok(()))
    }
}

impl embedded_io::ErrorType for Nothing {
    type Error = embedded_io::ErrorKind;
}

impl embedded_io::Write for Nothing {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, embedded_io::ErrorKind> {
        black_box(Ok(black_box(bytes).len()))
    }

    fn flush(&mut self) -> Result<(), embedded_io::ErrorKind> {
        Ok(())
    }
}

impl embedded_io::Read for Nothing {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, embedded_io::ErrorKind> {
        black_box(Ok(black_box(bytes).len()))
    }
}
