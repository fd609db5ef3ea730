//! Tests of saves and restores in slices. They write the same words as whole ones, whatever the budgets, and the power fails after every
//! slice and at every word.

use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::{Loading, SignatureId, Slots};
use gradlet_core::{Error, Program, Result, Session, ops};
use gradlet_tests::flash::{Flash, Operation};
use gradlet_tests::flat::{arena, artifact, program, state, step};
use std::task::Poll;

type Nor = Flash<4, 8, 512>;
type State = Vec<Vec<u8>>;
/// Something that a program does with a session between two slices.
type Change<'c> = &'c dyn Fn(&mut Session<'_, '_>) -> Result<()>;

const BUDGETS: [u32; 6] = [0, 1, 300, 2000, 20_000, u32::MAX];
const RANGE: u32 = 3 * 4096;

fn slots(flash: Nor) -> Slots<Nor> {
    Slots::new(flash, 0..RANGE, 3).unwrap()
}

/// Saves in slices. Returns the number of slices.
fn save(slots: &mut Slots<Nor>, session: &Session<'_, '_>, contents: Contents, budget: u32) -> Result<u32> {
    slots.begin_save(session, contents)?;
    let mut slices = 1;
    while slots.advance_save(session, budget)?.is_pending() {
        slices += 1;
    }
    Ok(slices)
}

/// Restores in slices. Returns the sequence number.
fn restore(slots: &mut Slots<Nor>, session: &mut Session<'_, '_>, budget: u32) -> Result<Option<u32>> {
    slots.begin_restore(u32::MAX);
    loop {
        if let Poll::Ready(sequence) = slots.advance_restore(session, budget)? {
            return Ok(sequence);
        }
    }
}

/// Calls `check` with a session after four steps, the flash that holds the states after the first three, and the state after the third.
fn after_three_saves(check: &mut dyn FnMut(&mut Session<'_, '_>, &Nor, &State)) {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    let mut before = slots(Nor::new(RANGE as usize / 512, 5));
    for number in 1..=3 {
        step(&mut session, number).unwrap();
        assert_eq!(before.save(&session, Contents::Full), Ok(number));
    }
    let (mut flash, old) = (before.into_inner(), state(&session));
    flash.restart();
    step(&mut session, 4).unwrap();
    check(&mut session, &flash, &old);
}

/// Returns the state that a firmware finds after a restart.
fn found(flash: &Nor, budget: u32) -> State {
    let mut flash = flash.clone();
    flash.restart();
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    session.variable_mut(0).unwrap().fill(1);
    restore(&mut slots(flash), &mut session, budget).unwrap().unwrap();
    state(&session)
}

#[test]
fn slices_write_and_restore_what_a_whole_save_does() {
    after_three_saves(&mut |session, flash, _| {
        let new = state(session);
        for contents in [Contents::Full, Contents::Changed] {
            let mut whole = slots(flash.clone());
            assert_eq!(whole.save(session, contents), Ok(4));
            let whole = whole.into_inner();
            for budget in BUDGETS {
                let mut sliced = slots(flash.clone());
                let slices = save(&mut sliced, session, contents, budget).unwrap();
                let sliced = sliced.into_inner();
                assert!(sliced.log == whole.log && sliced.bytes == whole.bytes, "budget {budget}");
                assert!(if budget <= 300 { slices > 20 } else { slices < 200 }, "budget {budget}: {slices} slices");
                assert_eq!(found(&sliced, budget), new, "budget {budget}");
            }
        }
    });
}

#[test]
fn power_lost_after_any_slice_or_in_any_word_leaves_the_old_state_or_the_new() {
    after_three_saves(&mut |session, flash, old| {
        let new = state(session);
        for budget in BUDGETS {
            let (mut slices, mut done) = (0, false);
            while !done {
                slices += 1;
                let mut cut = slots(flash.clone());
                cut.begin_save(session, Contents::Full).unwrap();
                done = (0..slices).any(|_| cut.advance_save(session, budget).unwrap().is_ready());
                let cut = cut.into_inner();
                assert_eq!(found(&cut, 1000), if done { new.clone() } else { old.clone() }, "budget {budget}, {slices} slices");
            }
            // In every word: the flash is as after a whole save that is cut there.
            for operation in 0.. {
                let cut = |budget: Option<u32>| {
                    let mut flash = flash.clone();
                    flash.cut_at(operation);
                    let mut slots = slots(flash);
                    let saved = match budget {
                        None => slots.save(session, Contents::Full).map(drop),
                        Some(budget) => save(&mut slots, session, Contents::Full, budget).map(drop),
                    };
                    (saved, slots.into_inner())
                };
                let ((saved, sliced), (other, whole)) = (cut(Some(budget)), cut(None));
                assert_eq!(saved, other);
                assert!(sliced.bytes == whole.bytes, "budget {budget}, operation {operation}");
                if saved.is_ok() {
                    break;
                }
                assert!(found(&sliced, budget) == *old, "budget {budget}, operation {operation}");
            }
        }
    });
}

#[test]
fn a_slice_erases_one_block_at_most() {
    after_three_saves(&mut |session, flash, _| {
        let mut slots = slots(flash.clone());
        slots.begin_save(session, Contents::Full).unwrap();
        let (mut erased, mut slices) = (0, 0);
        loop {
            let done = slots.advance_save(session, u32::MAX).unwrap().is_ready();
            let flash = slots.into_inner();
            let erases = flash.log.iter().filter(|operation| matches!(operation, Operation::Erase(_))).count();
            assert!(erases <= erased + 1);
            if done {
                assert!(erases > 1 && slices >= erases);
                return;
            }
            // The slots were given back, so this save begins again.
            (erased, slices) = (erases, slices + 1);
            let mut flash = flash;
            flash.restart();
            slots = self::slots(flash);
            slots.begin_save(session, Contents::Full).unwrap();
            for _ in 0..slices {
                assert!(slots.advance_save(session, u32::MAX).unwrap().is_pending());
            }
        }
    });
}

#[test]
fn a_session_that_changes_interrupts_a_save_and_an_inference_does_not() {
    after_three_saves(&mut |session, flash, old| {
        let infer = program().signature("infer").unwrap();
        let changes: [(bool, Change<'_>); 6] = [
            (false, &|session| session.run(infer)),
            (false, &|session| session.begin(infer).map(|()| drop(session.advance(0)))),
            (true, &|session| step(session, 9).map(drop)),
            (true, &|session| session.variable_mut(0).map(drop)),
            (true, &|session| {
                session.reset();
                Ok(())
            }),
            (true, &|session| session.restore(&mut &checkpoint(session)[..])),
        ];
        for (interrupts, change) in changes {
            for slices in [0, 1, 3, 20] {
                let mut slots = slots(flash.clone());
                let new = state(session);
                slots.begin_save(session, Contents::Full).unwrap();
                (0..slices).for_each(|_| assert!(slots.advance_save(session, 300).unwrap().is_pending()));
                change(session).unwrap();
                let next = slots.advance_save(session, 300);
                assert_eq!(next, if interrupts { Err(Error::Interrupted) } else { Ok(Poll::Pending) });
                if interrupts {
                    assert_eq!(slots.advance_save(session, 300), Err(Error::Interrupted), "the save is over");
                    assert_eq!(found(&slots.into_inner(), 300), *old);
                    session.restore(&mut &checkpoint(session)[..]).unwrap();
                } else {
                    while slots.advance_save(session, 300).unwrap().is_pending() {}
                    assert_eq!(found(&slots.into_inner(), 300), new);
                }
            }
        }
    });
}

fn checkpoint(session: &Session<'_, '_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.save(&mut bytes, Contents::Full).unwrap();
    bytes
}

#[test]
fn other_methods_abandon_what_is_in_progress() {
    after_three_saves(&mut |session, flash, old| {
        let mut slots = slots(flash.clone());
        assert_eq!(slots.advance_save(session, 0), Err(Error::Interrupted), "no save was begun");
        assert_eq!(slots.advance_restore(session, 0), Err(Error::Interrupted), "no restore was begun");
        slots.begin_save(session, Contents::Full).unwrap();
        assert_eq!(slots.advance_restore(session, 0), Err(Error::Interrupted));
        slots.begin_restore(u32::MAX);
        assert_eq!(slots.advance_save(session, 0), Err(Error::Interrupted));
        for slices in [1, 5, 30] {
            slots.begin_save(session, Contents::Full).unwrap();
            (0..slices).for_each(|_| assert!(slots.advance_save(session, 300).unwrap().is_pending()));
            assert_eq!(slots.list().filter(|slot| slot.as_ref().unwrap().whole).count(), if slices < 30 { 3 } else { 2 });
            assert_eq!(slots.advance_save(session, 300), Err(Error::Interrupted));
        }
        assert_eq!(slots.restore(session), Ok(Some(3)));
        assert_eq!(state(session), *old);
    });
}

#[test]
fn a_restore_in_slices_leaves_the_session_unfinished_until_it_is_done() {
    after_three_saves(&mut |session, flash, old| {
        let train: SignatureId = program().signature("train").unwrap();
        let new = state(session);
        for budget in [0, 300, 2000] {
            let (mut unchanged, mut unfinished) = (0, 0);
            let mut slots = slots(flash.clone());
            slots.begin_restore(u32::MAX);
            while slots.advance_restore(session, budget).unwrap().is_pending() {
                if session.save(&mut Vec::new(), Contents::Full).is_ok() {
                    assert!(state(session) == new, "no variable changes before all bytes are checked");
                    unchanged += 1;
                } else {
                    assert_eq!(session.run(train), Err(Error::Unfinished));
                    assert_eq!(slots.begin_save(session, Contents::Full), Err(Error::Unfinished));
                    unfinished += 1;
                }
            }
            assert!(unchanged > 2 && unfinished > 2, "budget {budget}: {unchanged}, {unfinished}");
            assert!(state(session) == *old);
            session.restore(&mut &bytes(&new)[..]).unwrap();
        }

        // A reset of the session in the middle.
        let mut slots = slots(flash.clone());
        slots.begin_restore(u32::MAX);
        while session.save(&mut Vec::new(), Contents::Full).is_ok() {
            assert!(slots.advance_restore(session, 300).unwrap().is_pending());
        }
        session.reset();
        let initial = state(session);
        assert_eq!(slots.advance_restore(session, 300), Err(Error::Interrupted));
        assert!(state(session) == initial);
        assert_eq!(restore(&mut slots, session, 300), Ok(Some(3)));
        assert!(state(session) == *old);
    });
}

/// Returns a checkpoint of a session with the state `state`.
fn bytes(state: &State) -> Vec<u8> {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    for (index, value) in state.iter().enumerate() {
        if let Ok(variable) = session.variable_mut(index) {
            variable.copy_from_slice(value);
        }
    }
    checkpoint(&session)
}

#[test]
fn damage_is_found_before_a_variable_changes() {
    after_three_saves(&mut |session, flash, _| {
        let new = state(session);
        for byte in (32..700).step_by(7) {
            let mut flash = flash.clone();
            (0..3).for_each(|slot| flash.bytes[slot * 4096 + byte] ^= 1);
            let mut slots = slots(flash);
            assert_eq!(restore(&mut slots, session, 300), Err(Error::Damaged { variable: None }), "byte {byte}");
            assert!(state(session) == new && session.save(&mut Vec::new(), Contents::Full).is_ok());
        }
    });
}

#[test]
fn a_load_in_slices_fails_and_succeeds_as_a_whole_one_does() {
    let mut bytes = AlignedBytes::from(&artifact(0.01).unwrap()[..]);
    for damaged in [false, true] {
        if damaged {
            bytes[200] ^= 1;
        }
        let whole = Program::load(&bytes, ops::KERNELS, &["train"]).map(|program| program.identity());
        assert_eq!(whole.is_err(), damaged);
        for budget in BUDGETS {
            // Also without a slice, and before the last one.
            for most in [0, 3, usize::MAX] {
                let mut loading = Loading::new(&bytes, ops::KERNELS).unwrap();
                let ready = (0..most).find(|_| loading.advance(budget).is_ready());
                assert!(if most == usize::MAX { ready.is_some() } else { ready.is_none() || budget >= 20_000 });
                assert_eq!(loading.finish(&["train"]).map(|program| program.identity()), whole);
            }
        }
    }
    assert_eq!(Loading::new(&bytes[..50], ops::KERNELS).map(drop).unwrap_err().code(), 13);
}

#[test]
fn a_save_goes_on_with_a_resumed_session_unless_the_variables_changed() {
    let mut arena = arena(program());
    let mut other = gradlet_tests::flat::arena(program());
    let mut twin = Session::new(program(), &mut other).unwrap();
    step(&mut twin, 0).unwrap();
    let mut session = Session::new(program(), &mut arena).unwrap();
    step(&mut session, 0).unwrap();
    let mut slots = slots(Nor::new(RANGE as usize / 512, 5));
    slots.begin_save(&session, Contents::Full).unwrap();
    assert!(slots.advance_save(&session, 300).unwrap().is_pending());
    let saved = state(&session);
    // The second session is another one with the same values, in other memory.
    assert_eq!(slots.advance_save(&twin, 300), Err(Error::Interrupted));
    for trains in [false, true] {
        let session = Session::resume(program(), &mut arena).unwrap();
        slots.begin_save(&session, Contents::Full).unwrap();
        assert!(slots.advance_save(&session, 300).unwrap().is_pending());
        if trains {
            let mut session = Session::resume(program(), &mut arena).unwrap();
            step(&mut session, 1).unwrap();
        }
        let session = Session::resume(program(), &mut arena).unwrap();
        let next = slots.advance_save(&session, u32::MAX);
        assert_eq!(next.is_err(), trains, "{next:?}");
        if !trains {
            while slots.advance_save(&session, 300).unwrap().is_pending() {}
        }
    }
    assert_eq!(found(&slots.into_inner(), 300), saved);
}
