//! Trains, saves to flash slots, and restarts after each save. After a restart, training continues from the newest complete checkpoint.
//! Every other save is in slices, and every checkpoint is restored a second time, in slices. The argument CUT is the number of a flash
//! operation. The power fails in the middle of this operation in the second save. Every loss is also sent over the UART.

#![no_std]
#![no_main]

use core::task::Poll;
use emulated::console::{self, Arguments};
use emulated::file::File;
use emulated::flash::{self, Flash};
use emulated::memory::{Arena, stack_of};
use emulated::uart::Uart;
use emulated::{Failure, board, counter, load, mlp, restart, scalar, session};
use gradlet_core::Session;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::{SignatureId, Slots, Telemetry};

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();
/// Range of the slots in flash.
const FLASH: core::ops::Range<u32> = 0x1000..0x1_f000;
/// Number of the save in which the power fails. Saves count from 1.
const CUT: u32 = 2;
/// Budget of a slice.
const SLICE: u32 = 20_000;

emulated::entry!(firmware);

/// Saves SAVES times, and trains with SIGNATURE for STEPS steps before each save, as the command line says. Writes the number and the loss
/// of every step to the file, then every variable.
fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let words = (arguments.text(1), arguments.number(2), arguments.number(3), arguments.get(4));
    let (Some(signature), Some(steps), Some(saves), Some(path)) = words else {
        return Err(Failure::Usage("SIGNATURE STEPS SAVES FILE [CUT]"));
    };
    let restarts = flash::restarts();
    let mut file = if restarts == 0 { File::create(path)? } else { File::append(path)? };

    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let program = load(&MODEL.0, KERNELS, &[signature])?;
    let train = program.signature(signature)?;
    let mut frames = [0; 128];
    let mut telemetry = Telemetry::new(Uart::unpaced(), &mut frames);
    telemetry.hello(board::NAME, "instructions", counter::HZ, Some(program.identity()));
    let mut session = session(&program, arena.bytes)?;
    let mut slots = Slots::new(Flash::default(), FLASH, 2)?;
    let ((restored, instructions), stack) = stack_of(|| counter::measure(|| slots.restore(&mut session)));
    let saved = restored?.unwrap_or(0);
    if saved > 0 {
        console::report("stack_restore", stack);
        console::report("instructions_restore", instructions);
        slots.begin_restore(u32::MAX);
        let restored = slices("slice_restore", || slots.advance_restore(&mut session, SLICE))?;
        (restored == Some(saved)).then_some(()).ok_or(Failure::Check("a restore in slices"))?;
    }
    if saved == saves {
        console::report("restarts", restarts);
        // The variables of other signatures are not loaded.
        return (0..session.variable_count()).flat_map(|index| session.variable(index)).try_for_each(|value| file.write(value));
    }
    for step in saved * steps..(saved + 1) * steps {
        let loss = learn(&mut session, train, step)?;
        telemetry.scalar("loss", step, loss);
        let Ok(()) = telemetry.poll();
        file.write_u32(step)?;
        file.write(&loss.to_le_bytes())?;
    }
    drop(file);
    if saved + 1 == CUT && restarts < CUT {
        flash::cut_at(arguments.number(5).unwrap_or(u32::MAX));
    }
    if saved % 2 == 0 {
        let ((sequence, instructions), stack) = stack_of(|| counter::measure(|| slots.save(&session, Contents::Changed)));
        sequence?;
        console::report("stack_save", stack);
        console::report("instructions_save", instructions);
    } else {
        slots.begin_save(&session, Contents::Changed)?;
        slices("slice_save", || slots.advance_save(&session, SLICE))?;
    }
    console::report("checkpoint_bytes", session.checkpoint_len(Contents::Changed));
    console::report("flash_operations", slots.into_inner().operations);
    restart()
}

/// Calls `advance` until it is ready. Reports the instructions of the longest call as `key`.
fn slices<T>(key: &str, mut advance: impl FnMut() -> gradlet_core::Result<Poll<T>>) -> Result<T, Failure> {
    let mut longest = 0;
    loop {
        let (outcome, instructions) = counter::measure(&mut advance);
        longest = instructions.max(longest);
        if let Poll::Ready(done) = outcome? {
            console::report(key, longest);
            return Ok(done);
        }
    }
}

fn learn(session: &mut Session<'_, '_>, train: SignatureId, step: u32) -> Result<f32, Failure> {
    mlp::example(session, train, step)?;
    session.run(train)?;
    scalar(session, train)
}
