//! The firmware `empty` with telemetry. The difference of their sizes is the size of telemetry.
//!
//! It calls neither `Telemetry::format` and `Telemetry::said`, which format numbers, nor `Profiler::run`, which compiles the executor a
//! second time. The linker includes their code only in firmwares that call them.

#![no_std]
#![no_main]

use core::hint::black_box;
use emulated::memory::Arena;
use emulated::{Failure, console, counter};
use gradlet_core::runtime::telemetry::Profiler;
use gradlet_core::runtime::{Aligned, Telemetry};
use gradlet_core::tensor::TensorView;
use gradlet_core::{DType, Kernel, Program, Session, Shape, TensorType};

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
    let _ = tell(&mut Telemetry::new(Nothing, black_box(&mut [0; 16])));
    Ok(())
}

fn infer(arena: &mut [u8]) -> gradlet_core::Result<()> {
    let program = Program::load(black_box(&ARTIFACT.0), black_box(&KERNELS), &["infer"])?;
    let infer = program.signature("infer")?;
    let mut session = Session::new(&program, arena)?;
    black_box(session.input_mut::<f32>(infer, 0)?);
    session.run(infer)?;
    black_box(session.output::<f32>(infer, 0)?);
    Ok(())
}

#[inline(never)]
fn tell(telemetry: &mut Telemetry<'_, Nothing>) -> Result<(), embedded_io::ErrorKind> {
    let (text, step, dtype) = black_box(("text", 1, DType::F32));
    telemetry.hello(text, text, step, None);
    telemetry.scalar(text, step, 1.0);
    let (tensor_type, data) = (TensorType::new(dtype, Shape::SCALAR), Aligned([0; 16]));
    telemetry.statistics(text, step, &TensorView { tensor_type: &tensor_type, data: Some(&data.0) });
    telemetry.poll()?;
    telemetry.text(text, step, text);
    telemetry.progress(step, step, step);
    let mut counts = [0; 2];
    telemetry.counts(text, step, black_box(&Profiler::new(|| 1, &mut counts)));
    telemetry.flush()
}

/// A driver whose functions do nothing. `black_box` hides this from the compiler, which therefore cannot remove the calls. The driver's own
/// size is negligible.
struct Nothing;

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

impl embedded_io::WriteReady for Nothing {
    fn write_ready(&mut self) -> Result<bool, embedded_io::ErrorKind> {
        black_box(Ok(true))
    }
}
