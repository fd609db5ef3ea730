//! Learns rotated digits. First it trains only the last layer. Then it starts again from the artifact's weights and trains all layers. It
//! saves the trained weights to flash, restarts, and continues the training with them. Meanwhile it reports its progress over the UART.

#![no_std]
#![no_main]

use emulated::console::{self, Arguments};
use emulated::digits::{self, Digits};
use emulated::file::File;
use emulated::flash::{self, Flash};
use emulated::memory::{Arena, Painted, stack_of};
use emulated::{Failure, counter, line, load, restart, scalar, session};
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::telemetry::Profiler;
use gradlet_core::runtime::{Aligned, Profile, SignatureId, Slots, Telemetry};
use gradlet_core::tensor::TensorView;
use gradlet_core::{DType, Program, Session, Shape, TensorType};

emulated::model!();
emulated::data!(DIGITS, "GRADLET_DIGITS", "digits.bin");

static ARENA: Arena<ARENA_BYTES> = Arena::new();
/// Buffer for frames that wait for the line. The per-op counts of a step need the most room, because they come all together.
static FRAMES: Arena<1024> = Arena::new();
/// Capacity of the profiler: the number of the artifact's instructions for which it can keep a count.
const COUNTED: usize = 96;
/// Range of the slots in flash.
const FLASH: core::ops::Range<u32> = 0..0x8_0000;

emulated::entry!(firmware);

/// Handler of the timer's interrupt, which occurs once for each byte on the line.
#[cortex_m_rt::exception]
fn SysTick() {
    line::tick();
}

fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let usage = Failure::Usage("EPOCHS COMPARED_STEPS FILE [BAUD]");
    let (Some(epochs), Some(compared), Some(path)) = (arguments.number(1), arguments.number(2), arguments.get(3)) else {
        return Err(usage);
    };
    let digits = Digits::read(&DIGITS.0).ok_or(Failure::Check("digits"))?;
    console::report("test_count", digits.test_count());
    let mut arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    line::open(arguments.number(4).unwrap_or(0), FRAMES.take().ok_or(Failure::Check("frames"))?.bytes);

    if flash::restarts() > 0 {
        let program = load(&MODEL.0, KERNELS, &["infer", "train"])?;
        hello(&program);
        again(&program, &mut arena, &digits, epochs, &mut File::append(path)?)?;
        console::report("dropped_restarted", line::drain());
        return Ok(());
    }
    let program = load(&MODEL.0, KERNELS, &["infer", "train_head"])?;
    hello(&program);
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
    console::report("dropped", line::drain());
    if arena.canaries_whole() { restart() } else { Err(Failure::Check("canaries")) }
}

/// Sends the first frame. Reports the RAM that telemetry takes, without its buffer.
fn hello(program: &Program<'_>) {
    line::tell(|telemetry| telemetry.hello("demo", "instructions", counter::HZ, Some(program.identity())));
    console::report("ram_telemetry", deepest(program) + line::BYTES as u32);
}

/// Sends one frame of each kind to a writer that discards it. Returns the largest stack use of these calls, in bytes.
fn deepest(program: &Program<'_>) -> u32 {
    let (mut buffer, mut counts, element) = ([0; 128], [0; 1], Aligned([0; 4]));
    let mut telemetry = Telemetry::new((), &mut buffer);
    let mut profiler = Profiler::new(|| 0, &mut counts);
    profiler.begin(0);
    profiler.end(0);
    let scalar = TensorType::new(DType::F32, Shape::SCALAR);
    let tensor = TensorView { tensor_type: &scalar, data: Some(&element.0) };
    let ((), hello) = stack_of(|| line::tell(|_| telemetry.hello("demo", "instructions", counter::HZ, Some(program.identity()))));
    let ((), number) = stack_of(|| line::tell(|_| telemetry.scalar("train/loss", 1, 1.0)));
    let ((), statistics) = stack_of(|| line::tell(|_| telemetry.statistics("train/loss", 1, &tensor)));
    let ((), progress) = stack_of(|| line::tell(|_| telemetry.progress(1, 1, 1)));
    let ((), counts) = stack_of(|| line::tell(|_| telemetry.counts("train", 1, &profiler)));
    hello.max(number).max(statistics).max(progress).max(counts)
}

/// Trains the last layer, and reports the accuracy before and after.
fn head(program: &Program<'_>, arena: &mut Painted, digits: &Digits<'_>, epochs: u32) -> Result<(), Failure> {
    let (infer, train) = (program.signature("infer")?, program.signature("train_head")?);
    let mut session = session(program, arena.bytes)?;
    let before = digits::score(&mut session, infer, digits)?;
    report("correct_before", "loss_before_millionths", &before);
    tell_score("infer/accuracy", 0, &before, digits);
    if let Some((_, pixels)) = digits.test().next().filter(|_| line::is_open()) {
        digits::set_picture(&mut session, infer, pixels)?;
        profile(&mut session, infer, "infer")?;
    }
    let learning = Learning { signature: train, name: "train_head", tag: "train_head/loss", epochs };
    let trained = learning.learn(&mut session, digits, |_, _| Ok(()))?;
    console::report("instructions_train_head_step", trained.instructions);
    let after = digits::score(&mut session, infer, digits)?;
    report("correct_after_head", "loss_after_head_millionths", &after);
    tell_score("train_head/accuracy", trained.steps, &after, digits);
    Ok(())
}

/// Trains all weights, and logs the values that the host compares.
fn all(program: &Program<'_>, arena: &mut Painted, digits: &Digits<'_>, epochs: u32, log: &mut Log) -> Result<(), Failure> {
    let (infer, train) = (program.signature("infer")?, program.signature("train")?);
    let mut session = session(program, arena.bytes)?;
    let learning = Learning { signature: train, name: "train", tag: "train/loss", epochs };
    let trained = learning.learn(&mut session, digits, |session, step| log.step(session, train, step))?;
    console::report("device_steps", trained.steps);
    console::report("instructions_train_step", trained.instructions);
    console::report("instructions_told_step", trained.mean_told);
    let score = digits::score(&mut session, infer, digits)?;
    console::report("instructions_infer", score.instructions);
    report("correct_after", "loss_after_millionths", &score);
    tell_score("train/accuracy", trained.steps, &score, digits);
    Slots::new(Flash::default(), FLASH, 2)?.save(&session, Contents::Changed)?;
    console::report("checkpoint_bytes", session.checkpoint_len(Contents::Changed));
    Ok(())
}

/// Runs after the restart: restores the checkpoint from flash, reports the accuracy, and does one more training step.
fn again(program: &Program<'_>, arena: &mut Painted, digits: &Digits<'_>, epochs: u32, file: &mut File) -> Result<(), Failure> {
    let (infer, train) = (program.signature("infer")?, program.signature("train")?);
    let mut session = session(program, arena.bytes)?;
    Slots::new(Flash::default(), FLASH, 2)?.restore(&mut session)?.ok_or(Failure::Check("slots"))?;
    let score = digits::score(&mut session, infer, digits)?;
    report("correct_restarted", "loss_restarted_millionths", &score);
    // The checkpoint has no step number, but it is saved only after the last step.
    let step = epochs * digits.train().count() as u32 + 1;
    tell_score("train/accuracy", step, &score, digits);
    let (label, pixels) = digits.train().next().ok_or(Failure::Check("digits"))?;
    digits::set_picture(&mut session, train, pixels)?;
    digits::set_label(&mut session, train, label)?;
    session.run(train)?;
    let loss = scalar(&session, train)?;
    line::tell(|telemetry| telemetry.scalar("train/loss", step, loss));
    file.write(&loss.to_le_bytes())
}

/// A training run with one signature.
struct Learning {
    signature: SignatureId,
    name: &'static str,
    /// Tag of the run's losses in TensorBoard.
    tag: &'static str,
    epochs: u32,
}

struct Trained {
    steps: u32,
    /// Largest instruction count of a step, without telemetry. Excludes the profiled first step.
    instructions: u32,
    /// Mean instruction count of a step, with its telemetry and the interrupts of the line. Excludes the profiled first step.
    mean_told: u32,
}

impl Learning {
    /// Trains on all digits for `epochs` epochs. Calls `after` after each step, with the session and the step's number, counted from 1.
    /// Returns the number of steps and their instruction counts.
    fn learn(
        &self,
        session: &mut Session<'_, '_>,
        digits: &Digits<'_>,
        mut after: impl FnMut(&Session<'_, '_>, u32) -> Result<(), Failure>,
    ) -> Result<Trained, Failure> {
        let (mut trained, mut told) = (Trained { steps: 0, instructions: 0, mean_told: 0 }, 0u64);
        let count = digits.train().count() as u32;
        for epoch in 0..self.epochs {
            for (of_epoch, (label, pixels)) in (1..).zip(digits.train()) {
                digits::set_picture(session, self.signature, pixels)?;
                digits::set_label(session, self.signature, label)?;
                trained.steps += 1;
                let (step, profiled) = (trained.steps, trained.steps == 1 && line::is_open());
                let (result, instructions) = counter::measure(|| {
                    let (result, instructions) = counter::measure(|| match profiled {
                        true => profile(session, self.signature, self.name),
                        false => Ok(session.run(self.signature)?),
                    });
                    result?;
                    let loss = scalar(session, self.signature)?;
                    line::tell(|telemetry| {
                        telemetry.scalar(self.tag, step, loss);
                        telemetry.progress(of_epoch, count, epoch);
                    });
                    Ok::<_, Failure>(instructions)
                });
                let alone = result?;
                if !profiled {
                    trained.instructions = trained.instructions.max(alone);
                    told += u64::from(instructions);
                }
                after(session, step)?;
            }
        }
        trained.mean_told = (told as f32 / (trained.steps.max(2) - u32::from(line::is_open())) as f32) as u32;
        Ok(trained)
    }
}

/// Runs a signature, and sends the instruction count of each of its ops.
fn profile(session: &mut Session<'_, '_>, signature: SignatureId, name: &str) -> Result<(), Failure> {
    let mut counts = [0; COUNTED];
    let mut profiler = Profiler::new(counter::clock(), &mut counts);
    profiler.run(session, signature)?;
    line::tell(|telemetry| telemetry.counts(name, 1, &profiler));
    Ok(())
}

fn tell_score(tag: &str, step: u32, score: &digits::Score, digits: &Digits<'_>) {
    line::tell(|telemetry| telemetry.scalar(tag, step, score.correct as f32 / digits.test_count() as f32));
}

/// A file with the losses of the first `compared` steps, then the variables after these steps, then the remaining losses.
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
