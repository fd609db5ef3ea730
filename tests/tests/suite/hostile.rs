//! 100,000 hostile runs of the executor: data that is not finite, wrong labels, resets of the device in the middle of a step, losses of
//! power during saves, and slots of another artifact. A restored slot always holds a whole finite step. With a second copy, so do the
//! variables, at any time.

use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::{Profile, Slots};
use gradlet_core::{Error, Program, Result, Session};
use gradlet_tests::flash::Flash;
use gradlet_tests::flat::{arena, artifact, kept_artifact, load, state};
use gradlet_tests::random::Random;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

type State = Vec<Vec<u8>>;
type Nor = Flash<4, 4, 512>;

const RUNS: usize = 100_000;
const COUNT: u32 = 3;
const RANGE: u32 = 3 * 4096;

/// Stops a run before instruction number `left`, as a reset of the device does.
struct Reset {
    left: u32,
}

impl Profile for Reset {
    fn begin(&mut self, _: u32) {
        match self.left {
            0 => resume_unwind(Box::new("reset")),
            _ => self.left -= 1,
        }
    }

    fn end(&mut self, _: u32) {}
}

/// A device with its memory and its flash.
struct Machine<'p> {
    program: &'p Program<'p>,
    keeps: bool,
    arena: AlignedBytes,
    flash: Nor,
    random: Random,
    /// The states that slots can hold: those that were saved, by sequence number.
    saved: HashMap<u32, Vec<State>>,
    /// The variables after the last whole step.
    good: State,
    tally: HashMap<&'static str, u32>,
}

/// True if every float of the variables is finite. Only the optimizer's iterations, of eight bytes, are no floats.
fn is_finite(state: &State) -> bool {
    let floats = state.iter().filter(|value| value.len() != 8).flat_map(|value| value.chunks_exact(4));
    floats.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).all(f32::is_finite)
}

impl Machine<'_> {
    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// Sets hostile or ordinary inputs.
    fn inputs(random: &mut Random, session: &mut Session<'_, '_>) -> Result<()> {
        let train = session.program().signature("train")?;
        let scale = random.pick(&[0.1, 0.1, 0.1, 1.0, 1e10, 1e25, 3e38]);
        let mut pixels = [0.0f32; 4];
        pixels.fill_with(|| (random.below(21) as f32 - 10.0) * 0.1 * scale);
        if random.below(4) == 0 {
            pixels[random.below(4)] = random.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN]);
        }
        session.set_input(train, 0, &pixels)?;
        session.set_input(train, 1, &[random.pick(&[0, 0, 0, 1, 1, 1, 2, -1, i32::MAX])])
    }

    fn step(&mut self) {
        let mut session = Session::resume(self.program, &mut self.arena).unwrap();
        Machine::inputs(&mut self.random, &mut session).unwrap();
        let train = self.program.signature("train").unwrap();
        let reset = self.random.below(6) == 0;
        let left = if reset { self.random.below(40) as u32 } else { u32::MAX };
        let outcome = catch_unwind(AssertUnwindSafe(|| session.run_profiled(train, &mut Reset { left })));
        let what = match outcome {
            Err(_) => {
                self.after_reset();
                "reset"
            }
            Ok(Ok(())) => {
                self.good = state(&session);
                "whole step"
            }
            Ok(Err(error)) => {
                assert!(matches!(error, Error::NotFinite { .. } | Error::IndexOutOfRange { .. }), "{error}");
                if session.save(&mut Vec::new(), Contents::Full).is_err() {
                    assert!(!self.keeps);
                    assert_eq!(session.run(train), Err(Error::Unfinished));
                    self.recover();
                    "unfinished step"
                } else {
                    assert!(state(&session) == self.good);
                    "refused step"
                }
            }
        };
        self.count(what);
    }

    /// Starts as a firmware does.
    fn after_reset(&mut self) {
        match Session::resume(self.program, &mut self.arena) {
            Ok(session) => assert!(state(&session) == self.good, "a session that resumes has the state from before the step"),
            Err(error) => {
                assert!(error == Error::Unfinished && !self.keeps);
                self.recover();
            }
        }
    }

    fn slots(flash: Nor) -> Slots<Nor> {
        Slots::new(flash, 0..RANGE, COUNT).unwrap()
    }

    /// Begins anew, and restores the newest slot.
    fn recover(&mut self) {
        let mut session = Session::new(self.program, &mut self.arena).unwrap();
        let found = Machine::slots(self.flash.clone()).restore(&mut session).unwrap();
        let restored = state(&session);
        if let Some(sequence) = found {
            assert!(self.saved[&sequence].contains(&restored), "slot {sequence} holds a state that was saved");
        }
        self.good = restored;
        self.count(if found.is_some() { "restored slot" } else { "no slot" });
    }

    fn save(&mut self) {
        let mut session = Session::resume(self.program, &mut self.arena).unwrap();
        if self.random.below(8) == 0 {
            let good = session.variable(0).unwrap().to_vec();
            session.variable_mut(0).unwrap()[..4].copy_from_slice(&f32::NAN.to_le_bytes());
            let refused = Machine::slots(self.flash.clone()).save(&session, Contents::Full);
            assert_eq!(refused, Err(Error::VariableNotFinite { variable: 0 }));
            session.variable_mut(0).unwrap().copy_from_slice(&good);
        }
        let contents = self.random.pick(&[Contents::Full, Contents::Changed]);
        let cut = self.random.below(2) == 0;
        self.flash.cut_at(if cut { self.random.below(600) } else { usize::MAX });
        let mut slots = Machine::slots(self.flash.clone());
        let highest = slots.list().map(|slot| slot.map_or(0, |slot| slot.sequence)).max().unwrap_or(0);
        self.saved.entry(highest + 1).or_default().push(state(&session));
        let saved = slots.save(&session, contents);
        assert!(saved == Ok(highest + 1) || cut, "{saved:?}");
        self.flash = slots.into_inner();
        self.flash.restart();
        self.count(if saved.is_ok() { "save" } else { "save that lost power" });
        if saved.is_err() {
            self.recover();
        }
    }

    fn foreign_save(&mut self, other: &mut Session<'_, '_>) {
        let mut slots = Machine::slots(self.flash.clone());
        slots.save(other, Contents::Full).unwrap();
        self.flash = slots.into_inner();
        self.flash.restart();
        self.count("foreign save");
    }
}

/// Makes `RUNS` runs of a machine.
fn runs(keep_copy: bool, seed: u64) -> HashMap<&'static str, u32> {
    let program = load(&kept_artifact(0.01, keep_copy).unwrap(), &["infer", "train"]).unwrap();
    let other = load(&artifact(0.02).unwrap(), &["train"]).unwrap();
    let mut other_arena = arena(&other);
    let mut other = Session::new(&other, &mut other_arena).unwrap();
    let mut memory = arena(&program);
    let good = state(&Session::new(&program, &mut memory).unwrap());
    let flash = Nor::new(RANGE as usize / 512, seed);
    let mut machine = Machine {
        program: &program,
        keeps: keep_copy,
        arena: memory,
        flash,
        random: Random::new(seed),
        saved: HashMap::new(),
        good,
        tally: HashMap::new(),
    };
    for run in 0..RUNS / 2 {
        match machine.random.below(100) {
            0 => machine.save(),
            1 if machine.random.below(4) == 0 => machine.foreign_save(&mut other),
            2 => machine.recover(),
            _ => machine.step(),
        }
        if run % 64 == 0 {
            let session = Session::resume(&program, &mut machine.arena).unwrap();
            assert!(state(&session) == machine.good && is_finite(&machine.good));
        }
    }
    assert!(machine.saved.values().flatten().all(is_finite));
    machine.tally
}

#[test]
fn a_hundred_thousand_hostile_runs() {
    let start = Instant::now();
    for keep_copy in [false, true] {
        let tally = runs(keep_copy, 17);
        println!("second copy: {keep_copy}, {tally:?}, {:?}", start.elapsed());
        let seen = ["whole step", "refused step", "reset", "restored slot", "save", "save that lost power", "foreign save"];
        assert!(seen.iter().all(|what| tally.contains_key(what)), "{tally:?}");
        assert_eq!(tally.contains_key("unfinished step"), !keep_copy);
    }
}
