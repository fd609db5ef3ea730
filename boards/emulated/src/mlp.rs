//! Training of an MLP on synthetic inputs. The host generates the same inputs.

use crate::console::{self, Arguments};
use crate::memory::{Painted, stack_high_water, stack_of};
use crate::{Failure, counter, file::File, load, scalar, session};
use gradlet_core::runtime::SignatureId;
use gradlet_core::{Kernel, Session};

const EXAMPLES: u32 = 8;
const CLASSES: u32 = 10;

/// Runs `infer` once, and `train` for the number of steps in the command line.
///
/// Writes every loss, then every variable, to the file that the command line names.
pub fn run(model: &[u8], kernels: &[&Kernel], arena: &mut Painted) -> Result<(), Failure> {
    let arguments = Arguments::new();
    let usage = Failure::Usage("STEPS FILE");
    let (Some(steps), Some(path)) = (arguments.number(1), arguments.get(2)) else { return Err(usage) };

    let (program, instructions) = counter::measure(|| load(model, kernels, &["infer", "train"]));
    let program = program?;
    console::report("instructions_load", instructions);
    console::report("arena_planned", program.arena_bytes() as u32);
    let (infer, train) = (program.signature("infer")?, program.signature("train")?);
    let mut session = session(&program, arena.bytes)?;
    let mut file = File::create(path)?;

    inputs(session.input_mut::<f32>(infer, 0)?, 0);
    let (result, instructions) = counter::measure(|| session.run(infer));
    result?;
    console::report("instructions_infer", instructions);

    inputs(session.input_mut::<f32>(infer, 0)?, 0);
    // Measuring a part paints the stack again, and the host keeps the highest figure.
    console::report("stack_high_water", stack_high_water());
    let (result, stack) = stack_of(|| session.run(infer));
    result?;
    console::report("stack_infer", stack);

    let (mut least, mut most, mut deepest) = (u32::MAX, 0, 0);
    for step in 0..steps {
        example(&mut session, train, step)?;
        let ((result, instructions), stack) = stack_of(|| counter::measure(|| session.run(train)));
        deepest = deepest.max(stack);
        result?;
        (least, most) = (least.min(instructions), most.max(instructions));
        file.write(&scalar(&session, train)?.to_le_bytes())?;
    }
    console::report("instructions_train_step", most);
    console::report("instructions_train_step_least", least);
    console::report("stack_train", deepest);
    for index in 0..session.variable_count() {
        file.write(session.variable(index)?)?;
    }
    console::report("arena_used", arena.used());
    if arena.canaries_whole() { Ok(()) } else { Err(Failure::Check("canaries")) }
}

/// Sets the inputs of `train` to the example of step `step`.
pub fn example(session: &mut Session<'_, '_>, train: SignatureId, step: u32) -> Result<(), Failure> {
    let example = step % EXAMPLES;
    inputs(session.input_mut::<f32>(train, 0)?, example);
    session.input_mut::<i32>(train, 1)?.fill((example % CLASSES) as i32);
    Ok(())
}

/// Fills `values` with numbers in [0, 1): the 16 high bits of a linear congruential generator whose seed is `example`.
pub fn inputs(values: &mut [f32], example: u32) {
    let mut state = example;
    for value in values {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *value = (state >> 16) as f32 / 65_536.0;
    }
}
