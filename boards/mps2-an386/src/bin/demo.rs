//! Learns turned digits: first with the last layer only, then, from the start, with all weights. Saves these, restarts, and goes on.

#![no_std]
#![no_main]

use gradlet_core::{Contents, Program, Session, SignatureId, Slots};
use mps2_an386::console::{self, Arguments};
use mps2_an386::digits::{self, Digits};
use mps2_an386::file::File;
use mps2_an386::flash::{self, Flash};
use mps2_an386::memory::{Arena, Painted};
use mps2_an386::{Failure, counter, load, restart, run, scalar, session};

mps2_an386::model!();
mps2_an386::data!(DIGITS, "GRADLET_DIGITS", "digits.bin");

static ARENA: Arena<ARENA_BYTES> = Arena::new();
/// The range of flash for the slots.
const FLASH: core::ops::Range<u32> = 0..0x8_0000;

#[cortex_m_rt::entry]
fn main() -> ! {
    run(firmware)
}

fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let usage = Failure::Usage("EPOCHS COMPARED_STEPS FILE");
    let (Some(epochs), Some(compared), Some(path)) = (arguments.number(1), arguments.number(2), arguments.get(3)) else {
        return Err(usage);
    };
    let digits = Digits::read(&DIGITS.0).ok_or(Failure::Check("digits"))?;
    console::report("test_count", digits.test_count());
    let mut arena = ARENA.take().ok_or(Failure::Check("arena"))?;

    if flash::restarts() > 0 {
        let program = load(&MODEL.0, KERNELS, &["infer", "train"])?;
        return again(&program, &mut arena, &digits, &mut File::append(path)?);
    }
    let program = load(&MODEL.0, KERNELS, &["infer", "train_head"])?;
    head(&program, &mut arena, &digits, epochs)?;

    arena.paint();
    let program = load(&MODEL.0, KERNELS, &["infer", "train"])?;
    console::report("arena_planned", program.arena_bytes() as u32);
    let short = arena.bytes.get_mut(..program.arena_bytes() - 1).ok_or(Failure::Check("plan"))?;
    console::report("arena_short_refused", u32::from(Session::new(&program, short).is_err()));
    let mut log = Log { file: File::create(path)?, compared };
    all(&program, &mut arena, &digits, epochs, &mut log)?;
    drop(log);
    console::report("arena_used", arena.used());
    if arena.canaries_whole() { restart() } else { Err(Failure::Check("canaries")) }
}

/// Trains the last layer; its accuracy before and after.
fn head(program: &Program<'_>, arena: &mut Painted, digits: &Digits<'_>, epochs: u32) -> Result<(), Failure> {
    let (infer, train) = (program.signature("infer")?, program.signature("train_head")?);
    let mut session = session(program, arena.bytes)?;
    report("correct_before", "loss_before_millionths", &digits::score(&mut session, infer, digits)?);
    let trained = learn(&mut session, train, digits, epochs, |_, _| Ok(()))?;
    console::report("instructions_train_head_step", trained.instructions);
    report("correct_after_head", "loss_after_head_millionths", &digits::score(&mut session, infer, digits)?);
    Ok(())
}

/// Trains all weights, and logs what the host compares.
fn all(program: &Program<'_>, arena: &mut Painted, digits: &Digits<'_>, epochs: u32, log: &mut Log) -> Result<(), Failure> {
    let (infer, train) = (program.signature("infer")?, program.signature("train")?);
    let mut session = session(program, arena.bytes)?;
    let trained = learn(&mut session, train, digits, epochs, |session, step| log.step(session, train, step))?;
    console::report("device_steps", trained.steps);
    console::report("instructions_train_step", trained.instructions);
    let score = digits::score(&mut session, infer, digits)?;
    console::report("instructions_infer", score.instructions);
    report("correct_after", "loss_after_millionths", &score);
    Slots::new(Flash::new(None), FLASH, 2)?.save(&session, Contents::Changed)?;
    console::report("checkpoint_bytes", session.checkpoint_len(Contents::Changed));
    Ok(())
}

/// After the restart: the accuracy with what flash kept, and one more step.
fn again(program: &Program<'_>, arena: &mut Painted, digits: &Digits<'_>, file: &mut File) -> Result<(), Failure> {
    let (infer, train) = (program.signature("infer")?, program.signature("train")?);
    let mut session = session(program, arena.bytes)?;
    Slots::new(Flash::new(None), FLASH, 2)?.restore(&mut session)?.ok_or(Failure::Check("slots"))?;
    report("correct_restarted", "loss_restarted_millionths", &digits::score(&mut session, infer, digits)?);
    let (label, pixels) = digits.train().next().ok_or(Failure::Check("digits"))?;
    digits::set_picture(&mut session, train, pixels)?;
    digits::set_label(&mut session, train, label)?;
    session.run(train)?;
    file.write(&scalar(&session, train)?.to_le_bytes())
}

struct Trained {
    steps: u32,
    instructions: u32,
}

/// Runs `train` over the digits `epochs` times. `after` sees the session after each step, with the step's number from 1.
fn learn(
    session: &mut Session<'_, '_>,
    train: SignatureId,
    digits: &Digits<'_>,
    epochs: u32,
    mut after: impl FnMut(&Session<'_, '_>, u32) -> Result<(), Failure>,
) -> Result<Trained, Failure> {
    let mut trained = Trained { steps: 0, instructions: 0 };
    for _ in 0..epochs {
        for (label, pixels) in digits.train() {
            digits::set_picture(session, train, pixels)?;
            digits::set_label(session, train, label)?;
            let (result, instructions) = counter::measure(|| session.run(train));
            result?;
            trained.instructions = trained.instructions.max(instructions);
            trained.steps += 1;
            after(session, trained.steps)?;
        }
    }
    Ok(trained)
}

/// A file with the losses of the compared steps, then the variables after them, then the other losses.
struct Log {
    file: File,
    compared: u32,
}

impl Log {
    fn step(&mut self, session: &Session<'_, '_>, train: SignatureId, step: u32) -> Result<(), Failure> {
        self.file.write(&scalar(session, train)?.to_le_bytes())?;
        if step == self.compared {
            for index in 0..session.variable_count() {
                self.file.write(session.variable(index)?)?;
            }
        }
        Ok(())
    }
}

fn report(correct: &str, loss: &str, score: &digits::Score) {
    console::report(correct, score.correct);
    console::report(loss, score.loss_millionths);
}
