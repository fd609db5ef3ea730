//! Tests of flash slots. The power fails at every operation of a save, and in the middle of each. A restore must find the
//! old state or the new one.

use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::Slots;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::{Error, Program, Session};
use gradlet_tests::flash::{Flash, Operation};
use gradlet_tests::flat::{arena, artifact, load, program, state, step};
use gradlet_tests::fuzz;
use gradlet_tests::random::Random;
use std::ops::Range;
use std::time::{Duration, Instant};

type State = Vec<Vec<u8>>;

/// Words with at most this many bits to clear are torn in every possible way.
const EXHAUSTIVE: usize = 8;
/// Number of random ways to tear other words: for a data word, and for a commit word.
const RANDOM: [usize; 2] = [8, 4096];

fn slots<const R: usize, const W: usize, const E: usize>(flash: Flash<R, W, E>, count: u32) -> Slots<Flash<R, W, E>> {
    let end = flash.bytes.len() as u32;
    Slots::new(flash, E as u32..end, count).unwrap()
}

/// Creates flash for `count` slots of `bytes` bytes, after one block that does not belong to the slots.
fn fresh<const R: usize, const W: usize, const E: usize>(count: usize, bytes: usize) -> Flash<R, W, E> {
    Flash::new(1 + count * bytes.div_ceil(E), 7)
}

/// Restores after a restart, to a session with other values. Returns the restored state, or `None` if there is no checkpoint.
fn restored<const R: usize, const W: usize, const E: usize>(flash: &Flash<R, W, E>, count: u32, arena: &mut AlignedBytes) -> Option<State> {
    let mut session = Session::new(program(), arena).unwrap();
    session.variable_mut(0).unwrap().fill(1);
    let sequence = slots(flash.clone(), count).restore(&mut session).unwrap();
    sequence.map(|_| state(&session))
}

/// Flash in which every slot was written, with the state in the newest slot, and the state of the next save.
struct Before<const R: usize, const W: usize, const E: usize> {
    flash: Flash<R, W, E>,
    old: State,
    new: State,
    count: u32,
    contents: Contents,
}

impl<const R: usize, const W: usize, const E: usize> Before<R, W, E> {
    fn new(count: u32, contents: Contents) -> Self {
        let mut arena = arena(program());
        let mut session = Session::new(program(), &mut arena).unwrap();
        let bytes = session.checkpoint_len(Contents::Full) as usize + 20usize.next_multiple_of(W) + W;
        let mut slots = slots(fresh::<R, W, E>(count as usize, bytes), count);
        for number in 0..=count {
            step(&mut session, number).unwrap();
            assert_eq!(slots.save(&session, contents), Ok(number + 1));
        }
        let old = state(&session);
        step(&mut session, count + 1).unwrap();
        let mut flash = slots.into_inner();
        flash.restart();
        Before { flash, old, new: state(&session), count, contents }
    }

    /// Saves `state`. The power fails instead of flash operation number `operation`, unless the save has fewer operations. Returns the
    /// flash.
    fn save(&self, flash: Flash<R, W, E>, operation: usize, state: &State) -> Flash<R, W, E> {
        let mut arena = arena(program());
        let mut session = Session::new(program(), &mut arena).unwrap();
        for (index, value) in state.iter().enumerate() {
            // A variable that no signature assigns is read-only.
            if let Ok(variable) = session.variable_mut(index) {
                variable.copy_from_slice(value);
            }
        }
        let mut flash = flash;
        flash.cut_at(operation);
        let mut slots = slots(flash, self.count);
        let saved = slots.save(&session, self.contents);
        let flash = slots.into_inner();
        assert_eq!(saved.is_ok(), flash.log.len() < operation, "{saved:?}");
        flash
    }

    /// Returns the flash operations (erases and writes) of a complete save, as the simulated flash recorded them.
    fn operations(&self) -> Vec<Operation> {
        self.save(self.flash.clone(), usize::MAX, &self.new).log
    }
}

/// Returns possible contents of a word after an interrupted write: `before`, with only some of the bits cleared that `wanted` clears.
/// `last` is true for the commit word, for which there are more of them.
fn torn_words(before: &[u8], wanted: &[u8], last: bool, random: &mut Random) -> Vec<Vec<u8>> {
    let bits: Vec<usize> = (0..8 * before.len()).filter(|bit| (before[bit / 8] & !wanted[bit / 8]) >> (bit % 8) & 1 == 1).collect();
    let cleared = |which: &mut dyn FnMut(usize) -> bool| {
        let mut word = before.to_vec();
        bits.iter().enumerate().filter(|(nth, _)| which(*nth)).for_each(|(_, bit)| word[bit / 8] &= !(1 << (bit % 8)));
        word
    };
    if bits.len() <= if last { 2 * EXHAUSTIVE } else { EXHAUSTIVE } {
        return (0..1usize << bits.len()).map(|subset| cleared(&mut |nth| subset >> nth & 1 == 1)).collect();
    }
    let mut words = Vec::new();
    for bit in 0..bits.len() {
        words.extend([
            cleared(&mut |nth| nth == bit),
            cleared(&mut |nth| nth != bit),
            cleared(&mut |nth| nth < bit),
            cleared(&mut |nth| nth >= bit),
        ]);
    }
    words.extend((0..RANDOM[usize::from(last)]).map(|_| cleared(&mut |_| random.coin())));
    // Words that are almost complete are the most likely ones to be mistaken for complete.
    words.extend((0..RANDOM[usize::from(last)]).map(|_| cleared(&mut |_| random.below(16) > 0)));
    words
}

/// Returns possible contents of the block at `at` after an interrupted erase, which can leave any bytes.
fn torn_blocks(image: &[u8], size: usize, at: usize, random: &mut Random) -> Vec<Vec<u8>> {
    let old = &image[at..at + size];
    let mut blocks = vec![vec![0xff; size], vec![0; size], old.to_vec()];
    blocks.extend((1..8).map(|eighth| [&old[..size * eighth / 8], &vec![0xff; size - size * eighth / 8][..]].concat()));
    blocks.extend((1..8).map(|eighth| [&vec![0xff; size * eighth / 8][..], &old[size * eighth / 8..]].concat()));
    blocks.extend((0..8).map(|_| (0..size).map(|_| random.bits() as u8).collect()));
    blocks.extend((0..8).map(|_| old.iter().map(|byte| byte | random.bits() as u8).collect()));
    // The contents of the other blocks, including the newest slot's.
    blocks.extend((0..image.len() / size).map(|block| image[block * size..][..size].to_vec()));
    blocks
}

#[derive(Default, Debug)]
struct Tally {
    old: u64,
    new: u64,
    again: u64,
}

/// Makes the power fail at each operation and within each. After the restart, makes it fail again during the next save.
fn lose_power<const R: usize, const W: usize, const E: usize>(count: u32, contents: Contents, tally: &mut Tally) {
    let before = Before::<R, W, E>::new(count, contents);
    let mut random = Random::new(3);
    let mut arena = arena(program());
    let operations = before.operations();
    let mut flash = before.flash.clone();
    let mut check = |flash: &Flash<R, W, E>, what: &str| {
        let found = restored(flash, count, &mut arena).unwrap_or_else(|| panic!("{what}: no checkpoint was restored"));
        *if found == before.old {
            &mut tally.old
        } else if found == before.new {
            &mut tally.new
        } else {
            panic!("{what}: the restored state is neither the old one nor the new one")
        } += 1;
        found
    };
    for (nth, operation) in operations.iter().enumerate() {
        let last = nth + 1 == operations.len();
        let what = format!("flash {R}-{W}-{E}, {count} slots, operation {nth} of {}", operations.len());
        let (at, torn) = match operation {
            Operation::Program(at, word) => (*at, torn_words(&flash.bytes[*at..at + W], word, last, &mut random)),
            Operation::Erase(at) => (*at, torn_blocks(&flash.bytes, E, *at, &mut random)),
        };
        let whole = flash.clone();
        for bytes in &torn {
            flash.tear(at, bytes);
            let found = check(&flash, &what);
            // Only the last operation commits the new state, and only if it completes.
            assert_eq!(found == before.new, last && bytes.iter().all(|&byte| byte == 0), "{what}");
        }
        // The flash that is simulated here must equal the flash after a save that is cut at this operation.
        let cut = before.save(before.flash.clone(), nth, &before.new);
        assert_eq!(cut.bytes, whole.bytes, "{what}");
        check(&whole, &what);
        flash = whole;
        flash.apply(operation).unwrap();
    }
    assert_eq!(check(&flash, "a whole save"), before.new);

    // The power fails twice: here, and in the save after the restart.
    let places = [0, 1, operations.len() / 2, operations.len() - 2, operations.len() - 1];
    for first in places {
        let mut flash = before.save(before.flash.clone(), first, &before.new);
        let at = match &operations[first] {
            Operation::Program(at, _) => (*at, W),
            Operation::Erase(at) => (*at, E),
        };
        let half = flash.bytes[at.0..at.0 + at.1].iter().map(|byte| byte & 0x5a).collect::<Vec<_>>();
        flash.restart();
        flash.tear(at.0, &half);
        let found = restored(&flash, count, &mut arena).unwrap();
        assert_eq!(found, before.old);
        let again = before.save(flash.clone(), usize::MAX, &before.new);
        assert_eq!(restored(&again, count, &mut arena), Some(before.new.clone()));
        for second in 0..again.log.len() {
            let mut cut = before.save(flash.clone(), second, &before.new);
            cut.restart();
            assert_eq!(restored(&cut, count, &mut arena).as_ref(), Some(&before.old), "{first}, then {second}");
            tally.again += 1;
        }
    }
}

#[test]
fn power_lost_anywhere_leaves_the_old_state_or_the_new() {
    let start = Instant::now();
    let mut tally = Tally::default();
    lose_power::<1, 1, 64>(2, Contents::Changed, &mut tally);
    lose_power::<1, 2, 4096>(2, Contents::Changed, &mut tally);
    lose_power::<4, 4, 512>(2, Contents::Full, &mut tally);
    lose_power::<4, 4, 4096>(3, Contents::Changed, &mut tally);
    lose_power::<1, 8, 2048>(2, Contents::Changed, &mut tally);
    lose_power::<16, 16, 256>(5, Contents::Full, &mut tally);
    lose_power::<64, 4, 64>(4, Contents::Changed, &mut tally);
    lose_power::<32, 32, 8192>(2, Contents::Changed, &mut tally);
    println!(
        "{} losses of power: {} left the old state, {} the new one; {} more during the save after a loss; {:?}",
        tally.old + tally.new + tally.again,
        tally.old,
        tally.new,
        tally.again,
        start.elapsed()
    );
}

#[test]
fn slots_wear_evenly() {
    for count in [2, 3, 5] {
        let mut arena = arena(program());
        let mut session = Session::new(program(), &mut arena).unwrap();
        let mut flash = slots(fresh::<4, 8, 512>(count, 2048), count as u32);
        for number in 0..1000 {
            if number % 10 == 0 {
                step(&mut session, number).unwrap();
            }
            assert_eq!(flash.save(&session, Contents::Full), Ok(number + 1));
        }
        // The block before the slots must not change.
        let flash = flash.into_inner();
        assert_eq!(flash.erases[0], 0);
        let used: Vec<u32> = flash.erases[1..].iter().copied().filter(|&erases| erases > 0).collect();
        let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
        println!("{count} slots, 1000 saves: {least} to {most} erases of a block");
        assert!(most - least <= 1 && used.len() >= count);
    }
}

/// If the newest slot is damaged, the previous one is restored, and the next save does not erase it.
#[test]
fn damage_falls_back() {
    let mut before = Before::<1, 4, 4096>::new(2, Contents::Full);
    let mut arena = arena(program());
    let newest =
        before.operations().iter().find_map(|operation| if let Operation::Erase(at) = operation { Some(8192 + 4096 - at) } else { None });
    let (slot, original) = (newest.unwrap(), before.flash.bytes.clone());
    for byte in 0..1100 {
        before.flash.bytes[slot + byte] ^= 4;
        let found = restored(&before.flash, 2, &mut arena).unwrap();
        if byte < original[slot..slot + 4096].iter().rposition(|&byte| byte != 0xff).unwrap() {
            assert_ne!(found, before.old, "byte {byte}");
            let cut = before.save(before.flash.clone(), 3, &before.new);
            assert_eq!(
                restored(
                    &{
                        let mut cut = cut;
                        cut.restart();
                        cut
                    },
                    2,
                    &mut arena
                ),
                Some(found),
                "byte {byte}"
            );
        }
        before.flash.bytes.copy_from_slice(&original);
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_erased() {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    step(&mut session, 0).unwrap();
    let needed = session.checkpoint_len(Contents::Full) + 32;
    let mut slots = Slots::new(Flash::<1, 8, 64>::new(32, 1), 0..2048, 4).unwrap();
    assert_eq!(slots.save(&session, Contents::Full), Err(Error::SlotTooSmall { needed, got: 512 }));
    assert!(slots.into_inner().log.is_empty());

    let divide = |range, count| Slots::new(Flash::<4, 8, 512>::new(8, 1), range, count).map(drop);
    for (range, count) in
        [(0..4096, 1), (0..4096, 0), (0..512, 2), (256..4096, 2), (0..4608, 2), (0..0, 2), (Range { start: 512, end: 0 }, 2)]
    {
        assert_eq!(divide(range.clone(), count), Err(Error::Slots), "{range:?}, {count}");
    }
    assert_eq!(divide(512..4096, 7), Ok(()));
    assert_eq!(Slots::new(Flash::<1, 128, 512>::new(8, 1), 0..4096, 2).map(drop), Err(Error::Slots));
    assert!(Slots::<_, 128>::with_buffer(Flash::<1, 128, 512>::new(8, 1), 0..4096, 2).is_ok());
}

#[test]
fn flash_without_a_checkpoint_leaves_the_session_alone() {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    step(&mut session, 0).unwrap();
    let before = state(&session);
    for byte in [0, 0xff, 0x5a] {
        let mut flash = Flash::<1, 4, 512>::new(8, 1);
        flash.bytes.fill(byte);
        assert_eq!(Slots::new(flash, 0..4096, 2).unwrap().restore(&mut session), Ok(None));
        assert_eq!(state(&session), before);
    }
}

/// The artifact of another model with the same variables.
fn other() -> Program<'static> {
    load(&artifact(0.02).unwrap(), &["train"]).unwrap()
}

#[test]
fn slots_of_other_artifacts_are_left_out_and_erased_last() {
    let other = other();
    let mut arenas = [arena(program()), arena(&other)];
    let [own, theirs] = &mut arenas;
    let mut session = Session::new(program(), own).unwrap();
    let mut another = Session::new(&other, theirs).unwrap();
    let mut slots = Slots::new(Flash::<1, 4, 4096>::new(3, 1), 0..3 * 4096, 3).unwrap();
    let listed = |slots: &mut Slots<Flash<1, 4, 4096>>| {
        let slots: Vec<_> = slots.list().map(|slot| slot.unwrap()).collect();
        assert!(slots.iter().all(|slot| slot.whole && slot.bytes > 0));
        slots.iter().map(|slot| (slot.sequence, slot.artifact == Some(program().identity()))).collect::<Vec<_>>()
    };
    assert_eq!(slots.save(&session, Contents::Full), Ok(1));
    step(&mut another, 0).unwrap();
    let theirs = state(&another);
    // The slots of another artifact are no checkpoint, and no error.
    assert_eq!(slots.restore(&mut another), Ok(None));
    assert!(state(&another) == theirs);
    assert_eq!(slots.save(&another, Contents::Full), Ok(2));
    assert_eq!(slots.restore(&mut session), Ok(Some(1)), "a newer slot of another artifact does not hide ours");
    for number in 3..10 {
        step(&mut session, number).unwrap();
        assert_eq!(slots.save(&session, Contents::Full), Ok(number));
        assert_eq!(slots.restore(&mut another), Ok(Some(2)), "theirs is not erased while there is another slot");
        assert!(state(&another) == theirs);
    }
    assert_eq!(listed(&mut slots), [(8, true), (2, false), (9, true)]);
    // Theirs, ours, ours: the other artifact takes our older slot, and then its own.
    assert_eq!(slots.save(&another, Contents::Full), Ok(10));
    assert_eq!(listed(&mut slots), [(10, false), (2, false), (9, true)]);
    assert_eq!(slots.save(&another, Contents::Full), Ok(11));
    assert_eq!(listed(&mut slots), [(10, false), (11, false), (9, true)]);
    assert_eq!(slots.restore(&mut session), Ok(Some(9)));
    // Two slots, both of another artifact.
    let mut slots = Slots::new(Flash::<1, 4, 4096>::new(2, 1), 0..8192, 2).unwrap();
    assert_eq!([slots.save(&another, Contents::Full), slots.save(&another, Contents::Full)], [Ok(1), Ok(2)]);
    assert_eq!(slots.save(&session, Contents::Full), Ok(3));
    assert_eq!(slots.restore(&mut another), Ok(Some(2)), "the older one was erased");
    assert_eq!(slots.restore(&mut session), Ok(Some(3)));
}

#[test]
fn older_slots_are_restored_and_the_newest_is_discarded() {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    let mut slots = Slots::new(Flash::<4, 8, 512>::new(24, 1), 0..12288, 3).unwrap();
    assert_eq!(slots.discard_newest(&session), Ok(None));
    let mut states = vec![state(&session)];
    for number in 1..=4 {
        step(&mut session, number).unwrap();
        assert_eq!(slots.save(&session, Contents::Changed), Ok(number));
        states.push(state(&session));
    }
    for (limit, found) in [(u32::MAX, Some(4)), (4, Some(4)), (3, Some(3)), (2, Some(2)), (1, None), (0, None)] {
        assert_eq!(slots.restore_up_to(&mut session, limit), Ok(found));
        assert!(found.is_none_or(|found| state(&session) == states[found as usize]));
    }
    assert_eq!(slots.discard_newest(&session), Ok(Some(4)));
    assert_eq!(slots.restore(&mut session), Ok(Some(3)));
    assert!(state(&session) == states[3]);
    assert_eq!(slots.save(&session, Contents::Changed), Ok(4));
    assert_eq!(slots.list().map(|slot| slot.unwrap().sequence).collect::<Vec<_>>().len(), 3);

    // The power fails during the erase: the checkpoint is discarded or whole.
    let flash = slots.into_inner();
    let mut random = Random::new(9);
    for torn in torn_blocks(&flash.bytes, 512, 0, &mut random) {
        for block in [0, 8, 16] {
            let mut torn_flash = flash.clone();
            torn_flash.tear(block * 512, &torn);
            let mut slots = Slots::new(torn_flash, 0..12288, 3).unwrap();
            let found = slots.restore(&mut session).unwrap().unwrap();
            assert!((3..=4).contains(&found));
            assert!(found == 3 || state(&session) == states[3]);
        }
    }
}

#[test]
fn an_unreadable_slot_hides_no_whole_one() {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    let slots = Slots::new(Flash::<1, 4, 4096>::new(2, 1), 0..8192, 2).unwrap();
    let io = Err(Error::Io { kind: embedded_io::ErrorKind::Other });
    let mut flash = slots.into_inner();
    flash.unreadable = 4096..4097;
    let mut slots = Slots::new(flash, 0..8192, 2).unwrap();
    assert_eq!(slots.restore(&mut session), io, "nothing is whole, and one slot could not be read");
    for number in [1, 2] {
        step(&mut session, number).unwrap();
        slots.save(&session, Contents::Full).ok();
    }
    let mut flash = slots.into_inner();
    flash.unreadable = 0..0;
    let mut slots = Slots::new(flash, 0..8192, 2).unwrap();
    while slots.save(&session, Contents::Full).unwrap() < 4 {}
    let flash = slots.into_inner();
    let newest = usize::from(flash.erases[1] >= flash.erases[0]);
    for place in [0, 20, 60, 400] {
        for slot in [0, 1] {
            let mut flash = flash.clone();
            flash.unreadable = slot * 4096 + place..slot * 4096 + place + 1;
            let mut slots = Slots::new(flash, 0..8192, 2).unwrap();
            let wanted = if slot == newest { 3 } else { 4 };
            assert_eq!(slots.restore(&mut session), Ok(Some(wanted)), "slot {slot}, byte {place}");
            assert_eq!(slots.list().filter(Result::is_err).count(), 1);
        }
        let mut flash = flash.clone();
        flash.unreadable = place..4097 + place;
        assert_eq!(Slots::new(flash, 0..8192, 2).unwrap().restore(&mut session), io);
    }
}

#[test]
fn a_worn_record_is_not_committed() {
    let mut arena = arena(program());
    let session = Session::new(program(), &mut arena).unwrap();
    for byte in [0, 4, 9, 13, 17, 30, 400] {
        let mut flash = Flash::<1, 4, 4096>::new(2, 1);
        flash.worn = Some(byte);
        let mut slots = Slots::new(flash, 0..8192, 2).unwrap();
        let saved = slots.save(&session, Contents::Full);
        // A byte that has the bit anyway is as it was written.
        match saved {
            Ok(1) => assert_eq!(slots.restore(&mut Session::new(program(), &mut self::arena(program())).unwrap()), Ok(Some(1))),
            ref other => assert_eq!(*other, Err(Error::Worn { slot: 0 })),
        }
        let flash = slots.into_inner();
        assert!(saved.is_ok() || flash.bytes[20..24] == [0xff; 4], "the commit word is not written after byte {byte} failed");
    }
}

/// A model is replaced: the variables that both artifacts have, with one type, keep their values.
#[test]
fn variables_survive_another_model() {
    let old = other();
    let mut arenas = [arena(program()), arena(&old)];
    let [own, theirs] = &mut arenas;
    let mut session = Session::new(program(), own).unwrap();
    let mut before = Session::new(&old, theirs).unwrap();
    (0..3).for_each(|number| step(&mut before, number).map(drop).unwrap());
    let bytes = AlignedBytes::from(&artifact(0.02).unwrap()[..]);
    let bare = Program::load(&bytes, &[], &[]).unwrap();
    let mut checkpoint = Vec::new();
    before.save(&mut checkpoint, Contents::Changed).unwrap();
    session.restore_other(&bare, &mut &checkpoint[..]).unwrap();
    assert!(state(&session)[..4] == state(&before)[..4]);
    assert_eq!(session.restore_other(program(), &mut &checkpoint[..]).unwrap_err().code(), 25);
    checkpoint[200] ^= 1;
    assert_eq!(session.restore_other(&bare, &mut &checkpoint[..]).unwrap_err().code(), 26);
    let mut slots = Slots::new(Flash::<1, 4, 4096>::new(2, 1), 0..8192, 2).unwrap();
    assert_eq!(slots.restore_other(&mut session, &bare), Ok(None));
    slots.save(&before, Contents::Full).unwrap();
    assert_eq!(slots.restore_other(&mut session, &bare), Ok(Some(1)));
    assert!(state(&session)[..4] == state(&before)[..4]);
}

#[test]
fn arbitrary_checkpoints_and_flash_are_read_or_refused() {
    let samples = fuzz::flat::samples().unwrap();
    assert!(samples.iter().all(|sample| fuzz::flat::read(sample).is_ok()));
    let mut random = Random::new(11);
    let mut refused = 0;
    for round in 0..20_000 {
        let mut bytes = random.pick(&samples.iter().collect::<Vec<_>>()).clone();
        for _ in 0..=random.below(4) {
            let at = 1 + random.below(bytes.len() - 1);
            match random.below(4) {
                0 => bytes[at] = random.bits() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes.truncate(at.max(2)),
                _ => {
                    let end = (at + random.below(64)).min(bytes.len());
                    let value = random.pick(&[0, 0xff]);
                    bytes[at..end].fill(value);
                }
            }
        }
        let begin = Instant::now();
        refused += u32::from(fuzz::flat::read(&bytes).is_err());
        assert!(begin.elapsed() < Duration::from_secs(5), "round {round}");
    }
    println!("20000 damaged checkpoints and flash images, {refused} refused");
    assert!(refused > 1000);
}
