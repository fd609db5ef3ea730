//! Learns with the model that it was built with, then receives another one "over the air": it writes the model to a bank of flash, verifies
//! it there, and restarts. The new model keeps the values of the variables that fit, and learns on. A model that is damaged, that needs
//! kernels that are not linked, or that needs more memory is refused, and the old one goes on.

#![no_std]
#![no_main]

use emulated::banks::Banks;
use emulated::console::{self, Arguments};
use emulated::file::File;
use emulated::flash::{self, Flash};
use emulated::memory::Arena;
use emulated::{Failure, mlp, restart, scalar};
use gradlet_core::runtime::Slots;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::{Program, Session};

emulated::model!();

/// Memory for this model, and for a larger one that replaces it.
const ARENA_MOST: usize = ARENA_BYTES + 4096;
static ARENA: Arena<ARENA_MOST> = Arena::new();
/// Range of the checkpoints in flash.
const CHECKPOINTS: core::ops::Range<u32> = 0x1000..0x1_f000;

emulated::entry!(firmware);

/// Trains with the newest model for STEPS steps and saves. If this is the model that the firmware was built with, takes the file NEW for
/// the next model, and restarts with it. The power fails in operation CUT of the flash while the new model arrives, but only once.
fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let words = (arguments.get(1), arguments.number(2), arguments.get(3));
    let (Some(new), Some(steps), Some(log)) = words else { return Err(Failure::Usage("NEW STEPS FILE [CUT]")) };
    let restarts = flash::restarts();
    let mut log = if restarts == 0 { File::create(log)? } else { File::append(log)? };

    let mut banks = Banks::new(Flash::default());
    // A model was verified before its record was written. But another firmware may have taken it, with other kernels or more memory.
    let newest = banks.newest_first().find_map(|stored| Some((load(stored.model).ok()?, Some(stored))));
    let (program, running) = newest.map_or_else(|| Ok((load(&MODEL.0)?, None)), Ok::<_, Failure>)?;
    let train = program.signature("train")?;
    let arena = ARENA.take().ok_or(Failure::Check("arena"))?;
    let mut session = Session::new(&program, arena.bytes)?;
    let mut slots = Slots::new(Flash::default(), CHECKPOINTS, 2)?;
    if slots.restore(&mut session)?.is_none() && running.is_some() {
        let old = Program::load(&MODEL.0, &[], &[])?;
        let kept = slots.restore_other(&mut session, &old)?;
        console::report("kept_checkpoint", kept.unwrap_or(0));
    }
    for step in 0..steps {
        mlp::example(&mut session, train, step)?;
        session.run(train)?;
        log.write(&scalar(&session, train)?.to_le_bytes())?;
    }
    slots.save(&session, Contents::Changed)?;
    if running.is_some() {
        return finish(&session, &mut log);
    }
    if restarts == 0 {
        flash::cut_at(arguments.number(4).unwrap_or(u32::MAX));
    }
    let mut air = File::open(new)?;
    let length = air.bytes();
    let next = |piece: &mut [u8]| air.read(piece)?.then_some(()).ok_or(Failure::File);
    match banks.replace(None, length, next, |model| load(model).map(drop)) {
        Ok(()) => restart(),
        Err(Failure::Core(why, _) | Failure::Check(why)) => {
            console::text("refused", why);
            finish(&session, &mut log)
        }
        Err(other) => Err(other),
    }
}

/// Loads a model, and refuses one that needs more memory than the firmware has.
fn load(model: &'static [u8]) -> Result<Program<'static>, Failure> {
    let program = emulated::load(model, KERNELS, &["train"])?;
    if program.arena_bytes() > ARENA_MOST {
        return Err(Failure::Check("the model needs more memory than there is"));
    }
    Ok(program)
}

/// Writes the variables to the log.
fn finish(session: &Session<'_, '_>, log: &mut File) -> Result<(), Failure> {
    (0..session.variable_count()).try_for_each(|index| log.write(session.variable(index)?))
}
