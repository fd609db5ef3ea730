//! A thousand and more resets at random instructions, in one run: in the middle of training steps, of saves, of restores and of starts.
//! The training gets inputs that are not finite and wrong labels, and slots get checkpoints of another artifact. A session that resumes
//! and a checkpoint that is restored must hold a whole step.

#![no_std]
#![no_main]

use core::task::Poll;
use cortex_m::peripheral::syst::SystClkSource;
use emulated::console::{self, Arguments};
use emulated::file::File;
use emulated::flash::Flash;
use emulated::{Failure, load, mlp};
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::program::checksum;
use gradlet_core::runtime::{Aligned, SignatureId, Slots};
use gradlet_core::{Error, Program, Session};

emulated::model!();

/// Range of the slots in flash, and their number.
const FLASH: core::ops::Range<u32> = 0..0x1_8000;
const SLOTS: u32 = 3;
/// Mean number of instructions between two resets.
const MEAN: u32 = 2_000_000;
/// Largest number of steps that [`Survivor`] has room for.
const STEPS: usize = 1 << 16;
/// Size of a checkpoint's optimizer state that counts the steps: Adam's iterations.
const COUNTER: usize = 8;

/// The memory that a reset leaves alone. QEMU's memory is zero at first.
#[repr(C, align(16))]
struct Survivor {
    resets: u32,
    random: u32,
    /// Sequence number of the last save that succeeded and was not discarded, or 0.
    committed: u32,
    tally: [u32; KEYS.len()],
    /// Checksum of the variables after each number of steps, or 0 if no run has got there.
    sums: [u32; STEPS],
    arena: Aligned<[u8; ARENA_BYTES]>,
    /// A copy of the artifact with another initial value, and the arena of its session.
    other: Aligned<[u8; MODEL.0.len()]>,
    other_arena: Aligned<[u8; ARENA_BYTES]>,
}

/// Place of the survivor: the board's PSRAM, after the flash and its counter.
const SURVIVOR: *mut Survivor = 0x2120_0000 as *mut Survivor;

/// Events, in the order of [`Survivor::tally`].
const KEYS: [&str; 12] = [
    "steps",
    "refused",
    "resumed",
    "unfinished",
    "restored",
    "initial",
    "saves",
    "sliced_saves",
    "foreign_saves",
    "older_restored",
    "discarded",
    "listed",
];

/// The arguments of [`Machine::count`].
#[derive(Clone, Copy)]
#[repr(usize)]
enum What {
    Step,
    Refused,
    Resumed,
    Unfinished,
    Restored,
    Initial,
    Save,
    SlicedSave,
    ForeignSave,
    OlderRestored,
    Discarded,
    Listed,
}

emulated::entry!(firmware);

#[cortex_m_rt::exception]
fn SysTick() {
    cortex_m::peripheral::SCB::sys_reset()
}

/// Starts the timer that resets the machine after a random number of instructions.
fn start_timer(random: u32) -> Result<(), Failure> {
    let mut timer = cortex_m::Peripherals::take().ok_or(Failure::Check("peripherals"))?.SYST;
    timer.set_clock_source(SystClkSource::Core);
    // A tick is 40 ns, an instruction 64 ns.
    timer.set_reload(random % (2 * MEAN) / 5 * 8 + 100);
    timer.clear_current();
    timer.enable_interrupt();
    timer.enable_counter();
    Ok(())
}

/// Is reset RESETS times. Then writes to the file, for each number of steps that a run reached, the checksum of the variables.
fn firmware() -> Result<(), Failure> {
    let arguments = Arguments::new();
    let (Some(resets), Some(path)) = (arguments.number(1), arguments.get(2)) else { return Err(Failure::Usage("RESETS FILE")) };
    // SAFETY: the linker has no other use for this memory, and this is the only reference to it. Every byte is valid for every field.
    let Survivor { resets: done, random, committed, tally, sums, arena, other, other_arena } = unsafe { &mut *SURVIVOR };
    if *done >= resets {
        console::report("resets", *done);
        KEYS.iter().zip(&*tally).for_each(|(key, &count)| console::report(key, count));
        let mut file = File::create(path)?;
        return sums.iter().take_while(|&&sum| sum != 0).try_for_each(|&sum| file.write_u32(sum));
    }
    *done += 1;
    let mut random = Random { state: random };
    start_timer(random.next())?;
    let program = load(&MODEL.0, KERNELS, &["train", "set_learning_rate"])?;
    let resumed = Session::resume(&program, &mut arena.0).map(drop);
    // The first start finds no session. Afterwards, only a reset in the middle of a step or of a restore leaves none.
    let (mut session, fresh) = match resumed {
        Ok(()) => (Session::resume(&program, &mut arena.0)?, false),
        Err(Error::Unfinished) => (Session::new(&program, &mut arena.0)?, true),
        Err(error) => return Err(error.into()),
    };
    let slots = Slots::new(Flash::default(), FLASH, SLOTS)?;
    let mut machine = Machine { program: &program, slots, random, committed, tally, sums, other, other_arena };
    machine.count(if fresh { What::Unfinished } else { What::Resumed });
    if fresh {
        machine.restore(&mut session)?;
    }
    machine.check(&session)?;
    loop {
        machine.act(&mut session)?;
    }
}

/// Returns a copy of the artifact that differs in the last byte of its data, with the right checksum.
fn foreign(bytes: &mut Aligned<[u8; MODEL.0.len()]>) -> Result<Program<'_>, Failure> {
    bytes.0.copy_from_slice(&MODEL.0);
    if let Some(last) = bytes.0.last_mut() {
        *last ^= 1;
    }
    let sum = checksum(bytes.0.get(16..).unwrap_or_default()).to_le_bytes();
    bytes.0.get_mut(12..16).ok_or(Failure::Check("header"))?.copy_from_slice(&sum);
    load(&bytes.0, KERNELS, &["train", "set_learning_rate"])
}

/// A generator of random numbers, whose state survives a reset.
struct Random<'s> {
    state: &'s mut u32,
}

impl Random<'_> {
    fn next(&mut self) -> u32 {
        // Xorshift.
        let mut state = (*self.state).max(1);
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *self.state = state;
        state
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.next() >> 8) % end
    }
}

struct Machine<'s, 'p> {
    program: &'p Program<'p>,
    slots: Slots<Flash>,
    random: Random<'s>,
    committed: &'s mut u32,
    tally: &'s mut [u32; KEYS.len()],
    sums: &'s mut [u32; STEPS],
    other: &'s mut Aligned<[u8; MODEL.0.len()]>,
    other_arena: &'s mut Aligned<[u8; ARENA_BYTES]>,
}

impl Machine<'_, '_> {
    fn count(&mut self, what: What) {
        if let Some(count) = self.tally.get_mut(what as usize) {
            *count += 1;
        }
    }

    /// Does something at random.
    fn act(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        match self.random.below(32) {
            0..3 => self.save(session),
            3..6 => self.save_in_slices(session),
            6 => self.save_foreign(),
            7 => self.restore(session),
            8 => self.restore_older(session),
            9 if self.random.below(4) == 0 => self.discard(session),
            10 => self.list(session),
            11..16 => self.hostile_step(session),
            _ => self.step(session),
        }?;
        self.check(session)
    }

    /// Fails unless the variables are those after a whole number of steps.
    fn check(&mut self, session: &Session<'_, '_>) -> Result<(), Failure> {
        let (steps, sum) = summary(session)?;
        let known = self.sums.get_mut(steps as usize).ok_or(Failure::Check("too many steps"))?;
        if *known == 0 {
            // Only a run adds a number of steps, one at a time, and only the initial values have none.
            *known = sum;
        }
        if *known == sum { Ok(()) } else { Err(Failure::Check("the variables are not those of a whole step")) }
    }

    /// Trains for one step. The number of the step gives its inputs and its learning rate.
    fn step(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let (steps, _) = summary(session)?;
        let [train, set] = self.signatures()?;
        session.set_input(set, 0, &[rate(steps)])?;
        session.run(set)?;
        mlp::example(session, train, steps)?;
        match self.random.below(2) {
            0 => session.run(train)?,
            _ => {
                session.begin(train)?;
                while session.advance(20_000)?.is_pending() {}
            }
        }
        self.count(What::Step);
        let (after, _) = summary(session)?;
        if after == steps + 1 { Ok(()) } else { Err(Failure::Check("a step that does not count")) }
    }

    /// Begins a step with data that it must refuse.
    fn hostile_step(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let [train, _] = self.signatures()?;
        let (steps, before) = summary(session)?;
        mlp::example(session, train, steps)?;
        if self.random.below(2) == 0 {
            let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN].get(self.random.below(4) as usize).copied();
            let input = session.input_mut::<f32>(train, 0)?;
            let at = self.random.below(input.len() as u32) as usize;
            *input.get_mut(at).ok_or(Failure::Check("input"))? = odd.unwrap_or(f32::NAN);
        } else {
            let label = [-1, 10, i32::MAX, i32::MIN].get(self.random.below(4) as usize).copied();
            session.input_mut::<i32>(train, 1)?.fill(label.unwrap_or(-1));
        }
        match session.run(train) {
            Err(Error::NotFinite { .. } | Error::IndexOutOfRange { .. }) => self.count(What::Refused),
            _ => return Err(Failure::Check("a hostile step that is not refused")),
        }
        if summary(session)? == (steps, before) { Ok(()) } else { Err(Failure::Check("a refused step that changes a variable")) }
    }

    fn signatures(&self) -> Result<[SignatureId; 2], Failure> {
        Ok([self.program.signature("train")?, self.program.signature("set_learning_rate")?])
    }

    fn save(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let contents = if self.random.below(2) == 0 { Contents::Full } else { Contents::Changed };
        *self.committed = self.slots.save(session, contents)?;
        self.count(What::Save);
        Ok(())
    }

    fn save_in_slices(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        self.slots.begin_save(session, Contents::Full)?;
        loop {
            if let Poll::Ready(sequence) = self.slots.advance_save(session, 20_000)? {
                *self.committed = sequence;
                self.count(What::SlicedSave);
                return Ok(());
            }
        }
    }

    /// Saves a checkpoint of the other artifact.
    fn save_foreign(&mut self) -> Result<(), Failure> {
        let program = foreign(self.other)?;
        let session = Session::new(&program, &mut self.other_arena.0)?;
        self.slots.save(&session, Contents::Full)?;
        self.count(What::ForeignSave);
        Ok(())
    }

    /// Restores the newest checkpoint. It is not older than the last that was saved.
    fn restore(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let found = if self.random.below(2) == 0 {
            self.slots.restore(session)?
        } else {
            self.slots.begin_restore(u32::MAX);
            loop {
                if let Poll::Ready(found) = self.slots.advance_restore(session, 20_000)? {
                    break found;
                }
            }
        };
        self.count(if found.is_some() { What::Restored } else { What::Initial });
        if found.unwrap_or(0) >= *self.committed { Ok(()) } else { Err(Failure::Check("a lost checkpoint")) }
    }

    fn restore_older(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let limit = self.committed.saturating_sub(1);
        if let Some(sequence) = self.slots.restore_up_to(session, limit)? {
            self.count(What::OlderRestored);
            (sequence <= limit).then_some(()).ok_or(Failure::Check("a checkpoint above the limit"))?;
        }
        Ok(())
    }

    fn discard(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        *self.committed = 0;
        if self.slots.discard_newest(session)?.is_some() {
            self.count(What::Discarded);
        }
        Ok(())
    }

    /// Lists the slots. The last checkpoint that was saved is among them, and whole.
    fn list(&mut self, session: &mut Session<'_, '_>) -> Result<(), Failure> {
        let (own, mut found) = (session.program().identity(), *self.committed == 0);
        for slot in self.slots.list() {
            let slot = slot?;
            found |= slot.sequence == *self.committed && slot.whole && slot.artifact == Some(own);
        }
        self.count(What::Listed);
        if found { Ok(()) } else { Err(Failure::Check("the list lacks a checkpoint")) }
    }
}

/// Learning rate of step `step`.
fn rate(step: u32) -> f32 {
    0.001 * (1 + step % 3) as f32
}

/// Returns the number of steps that the variables have seen, and the checksum of the variables. The learning rate is left out, because a
/// step begins with setting it.
fn summary(session: &Session<'_, '_>) -> Result<(u32, u32), Failure> {
    let (mut steps, mut sum) = (0, 1u32);
    for index in 0..session.variable_count() {
        let value = session.variable(index)?;
        match value.len() {
            COUNTER => steps = value.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
            4 => (),
            _ => sum = sum.rotate_left(1) ^ checksum(value),
        }
    }
    Ok((steps, sum))
}
