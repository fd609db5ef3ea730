//! Measures the executor's overhead for an instruction of the artifact, without its kernel.
//!
//! The model has four pairs of signatures. In each pair, the long one runs the same elementwise op 64 times more than the short one, on one
//! element. `short` and `long` are chains. `loop_short` and `loop_long` run the op in a loop. `count_short` and `count_long` run it in a
//! loop that counts and compares. `branch_short` and `branch_long` run each op in a branch of its own.

#![no_std]
#![no_main]

use core::hint::black_box;
use emulated::memory::Arena;
use emulated::{Failure, console, counter, load, session};
use gradlet_core::custom_op::{Call, MAX_INPUTS, Slice};
use gradlet_core::runtime::{Aligned, SignatureId};
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{Kernel, Session, Shape, TensorType};

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();
static ONE: Aligned<[u8; 4]> = Aligned(1f32.to_le_bytes());
const MORE: u32 = 64;
const SIGNATURES: [&str; 8] = ["short", "long", "loop_short", "loop_long", "count_short", "count_long", "branch_short", "branch_long"];

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let program = load(&MODEL.0, KERNELS, &SIGNATURES)?;
    let mut session = session(&program, arena.bytes)?;
    let mut of = |name: &str| instructions(&mut session, program.signature(name)?);
    let (short, long) = (of("short")?, of("long")?);
    let turns = of("loop_long")? - of("loop_short")?;
    let counted = of("count_long")? - of("count_short")?;
    let branches = of("branch_long")? - of("branch_short")?;
    // Without the cost of the op in each iteration or branch.
    console::report("instructions_iteration", turns.saturating_sub(long - short) / MORE);
    console::report("instructions_counted_iteration", counted.saturating_sub(long - short) / MORE);
    console::report("instructions_branch", branches.saturating_sub(long - short) / MORE);
    let kernel = KERNELS.first().ok_or(Failure::Check("kernels"))?;
    let alone = kernel_alone(kernel)?;
    console::report("instructions_short", short);
    console::report("instructions_long", long);
    console::report("instructions_kernels", alone);
    console::report("instructions_dispatch", (long - short).saturating_sub(alone) / MORE);
    Ok(())
}

fn instructions(session: &mut Session<'_, '_>, signature: SignatureId) -> Result<u32, Failure> {
    session.input_mut::<f32>(signature, 0)?.fill(1.0);
    let (result, instructions) = counter::measure(|| session.run(signature));
    result?;
    Ok(instructions)
}

/// Counts the instructions of 64 direct calls of the kernel, without the executor. The kernel works in place: its first input is in the
/// memory of its output.
fn kernel_alone(kernel: &Kernel) -> Result<u32, Failure> {
    let (tensor_type, mut value) = (&TensorType::new(kernel.dtype, Shape::new(&[1])?), Aligned(1f32.to_le_bytes()));
    let mut inputs = [TensorView { tensor_type, data: Some(&ONE.0) }; MAX_INPUTS];
    inputs[0].data = None;
    let inputs = inputs.get(..usize::from(kernel.def.inputs.0)).unwrap_or(&[]);
    let mut outputs = [TensorViewMut { tensor_type, data: &mut value.0 }];
    let mut call = Call { attributes: &[], inputs, outputs: &mut outputs, slice: &mut Slice::all() };
    let kernel = black_box(kernel);
    let (result, instructions) = counter::measure(|| (0..MORE).try_for_each(|_| (kernel.run)(&mut call)));
    result?;
    Ok(instructions)
}
