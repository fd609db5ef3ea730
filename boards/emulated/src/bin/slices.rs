//! Runs a model in slices, beside a sensor with an interrupt 1,000 times a second and a watchdog.
//!
//! First it compares runs in slices with whole runs, and measures both. Then it trains while it takes the sensor's samples between slices.
//! With the word `whole` at the end of the command line, it trains in whole runs instead, which starves the watchdog.

#![no_std]
#![no_main]

use core::hint::black_box;
use cortex_m::Peripherals;
use emulated::console::{self, Arguments};
use emulated::memory::Arena;
use emulated::{Failure, counter, load, mlp, sensor, session, watchdog};
use gradlet_core::runtime::SignatureId;
use gradlet_core::{Program, Session};
use static_cell::StaticCell;

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();
static OTHER_ARENA: Arena<ARENA_BYTES> = Arena::new();
static PROGRAM: StaticCell<Program<'static>> = StaticCell::new();
static SESSION: StaticCell<Session<'static, 'static>> = StaticCell::new();

/// Instructions of a slice.
const BUDGET: u32 = 20_000;

emulated::entry!(firmware);

#[cortex_m_rt::exception]
fn SysTick() {
    sensor::deliver();
}

#[cortex_m_rt::exception]
unsafe fn NonMaskableInt() -> ! {
    watchdog::bark()
}

fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let Some(steps) = arguments.number(1) else { return Err(Failure::Usage("STEPS [whole]")) };
    let (arena, other) = ARENA.take().zip(OTHER_ARENA.take()).ok_or(Failure::Check("arena"))?;
    let program = PROGRAM.init(load(&MODEL.0, KERNELS, &["infer", "train"])?);
    let mut whole = session(program, other.bytes)?;
    let sliced = SESSION.init(session(program, arena.bytes)?);
    for (signature, names) in [("infer", INFER), ("train", TRAIN)] {
        compare(&mut whole, sliced, program.signature(signature)?, names)?;
    }
    let train = program.signature("train")?;
    let in_slices = arguments.get(2) != Some(b"whole");
    beside_a_sensor(sliced, train, steps, in_slices)?;
    for step in 1..=steps {
        mlp::example(&mut whole, train, step)?;
        whole.run(train)?;
    }
    same(&whole, sliced, train)
}

/// Keys of the figures of a signature: instructions of a whole run, of all slices, and of the longest slice.
type Names = [&'static str; 3];
const INFER: Names = ["instructions_infer", "instructions_infer_slices", "longest_slice_infer"];
const TRAIN: Names = ["instructions_train_step", "instructions_train_step_slices", "longest_slice_train"];

/// Runs `signature` as a whole in one session and in slices in the other, and reports the instructions.
fn compare(whole: &mut Session<'_, '_>, sliced: &mut Session<'_, '_>, signature: SignatureId, names: Names) -> Result<(), Failure> {
    set_inputs(whole, signature)?;
    set_inputs(sliced, signature)?;
    let (result, instructions) = counter::measure(|| whole.run(signature));
    result?;
    let (mut all, mut longest) = (0, 0);
    sliced.begin(signature)?;
    loop {
        let (outcome, instructions) = counter::measure(|| sliced.advance(black_box(BUDGET)));
        (all, longest) = (all + instructions, instructions.max(longest));
        if outcome?.is_ready() {
            break;
        }
    }
    for (name, figure) in names.into_iter().zip([instructions, all, longest]) {
        console::report(name, figure);
    }
    same(whole, sliced, signature)
}

fn set_inputs(session: &mut Session<'_, '_>, signature: SignatureId) -> Result<(), Failure> {
    mlp::inputs(session.input_mut::<f32>(signature, 0)?, 0);
    if let Ok(labels) = session.input_mut::<i32>(signature, 1) {
        labels.fill(0);
    }
    Ok(())
}

/// Fails if an output of `signature` or a variable differs between the sessions.
fn same(one: &Session<'_, '_>, other: &Session<'_, '_>, signature: SignatureId) -> Result<(), Failure> {
    let mut same = one.output_bytes(signature, 0)? == other.output_bytes(signature, 0)?;
    for index in 0..one.variable_count() {
        same &= one.variable(index)? == other.variable(index)?;
    }
    if same { Ok(()) } else { Err(Failure::Check("bits")) }
}

/// Trains while the sensor and the watchdog run. The watchdog is fed between slices.
fn beside_a_sensor(session: &mut Session<'_, '_>, train: SignatureId, steps: u32, in_slices: bool) -> Result<(), Failure> {
    let mut timer = Peripherals::take().ok_or(Failure::Check("peripherals"))?.SYST;
    sensor::start(&mut timer);
    watchdog::start();
    let (mut taken, mut sum) = (0, 0.0);
    for step in 1..=steps {
        mlp::example(session, train, step)?;
        session.begin(train)?;
        loop {
            let outcome = session.advance(if in_slices { BUDGET } else { u32::MAX })?;
            watchdog::feed();
            while let Some(sample) = sensor::take() {
                (taken, sum) = (taken + 1, sum + sample);
            }
            if outcome.is_ready() {
                break;
            }
        }
    }
    watchdog::stop();
    timer.disable_interrupt();
    black_box(sum);
    let (samples, lost) = sensor::counts();
    console::report("samples", samples);
    console::report("samples_taken", taken);
    console::report("samples_lost", lost);
    Ok(())
}
