//! Tests of flat checkpoints: saved values are restored, and every damage is detected.

use embedded_io::{ErrorKind, ErrorType, Read, Write};
use gradlet_core::runtime::checkpoint::{Contents, FlatCheckpoint};
use gradlet_core::runtime::checkpoint::{Entry, VERSION, write};
use gradlet_core::{Error, Session};
use gradlet_tests::flat::{arena, artifact, load, program, state, step};
use std::fs;
use std::path::Path;

/// End offsets of the first and the second copy of the header, in bytes.
const HEADER: [usize; 2] = [28, 56];
/// Size of both copies of an entry's head, in bytes.
const HEADS: usize = 32;

fn trained(steps: u32, with: impl FnOnce(&mut Session<'_, '_>)) {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    for number in 0..steps {
        step(&mut session, number).unwrap();
    }
    with(&mut session);
}

/// Returns a checkpoint after three steps, and the values in it.
fn saved(contents: Contents) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut result = (Vec::new(), Vec::new());
    trained(3, |session| {
        session.save(&mut result.0, contents).unwrap();
        result.1 = state(session);
    });
    result
}

fn initial() -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    trained(0, |session| values = state(session));
    values
}

#[test]
fn training_goes_on_where_it_was() {
    for contents in [Contents::Full, Contents::Changed] {
        let mut bytes = Vec::new();
        let (mut losses, mut values) = (Vec::new(), Vec::new());
        trained(3, |session| {
            session.save(&mut bytes, contents).unwrap();
            assert_eq!(session.checkpoint_len(contents) as usize, bytes.len());
            losses.extend((3..6).map(|number| step(session, number).unwrap()));
            values = state(session);
        });
        trained(9, |session| {
            bytes.extend(b"what follows is not read");
            let mut reader = &bytes[..];
            session.verify(&mut reader).unwrap();
            session.restore(&mut &bytes[..]).unwrap();
            assert_eq!(reader, b"what follows is not read");
            let again: Vec<f32> = (3..6).map(|number| step(session, number).unwrap()).collect();
            assert_eq!((again, state(session)), (losses, values));
        });
    }
}

#[test]
fn only_what_changed_is_saved() {
    let (full, _) = saved(Contents::Full);
    let full: Vec<Entry<'_>> = FlatCheckpoint::parse(&full).unwrap().entries().map(Result::unwrap).collect();
    let before = initial();
    assert_eq!(full.len(), before.len());
    let (changed, _) = saved(Contents::Changed);
    let changed: Vec<Entry<'_>> = FlatCheckpoint::parse(&changed).unwrap().entries().map(Result::unwrap).collect();
    let differs = |entry: &&Entry<'_>| entry.data != before[entry.variable as usize];
    assert_eq!(changed, full.iter().filter(differs).copied().collect::<Vec<_>>());
    assert!(!changed.is_empty() && changed.len() < full.len(), "{} of {}", changed.len(), full.len());
    trained(0, |session| assert_eq!(session.checkpoint_len(Contents::Changed) as usize, HEADER[1]));
}

#[test]
fn a_checkpoint_of_values_is_that_of_a_session() {
    let (full, values) = saved(Contents::Full);
    let read = FlatCheckpoint::parse(&full).unwrap();
    read.verify().unwrap();
    assert_eq!((read.artifact(), read.bytes()), (program().identity(), full.len() as u64));
    let entries: Vec<Entry<'_>> = read.entries().map(Result::unwrap).collect();
    assert!(entries.iter().all(|entry| entry.data == values[entry.variable as usize]));
    let mut bytes = Vec::new();
    write(&mut bytes, read.artifact(), entries.iter().copied()).unwrap();
    assert_eq!(bytes, full);
    let wrong = Entry { data: &[0], ..entries[1] };
    assert_eq!(write(&mut bytes, read.artifact(), [wrong].into_iter()), Err(Error::TensorType { index: 1 }));
    assert_eq!(write(&mut bytes, read.artifact(), [entries[1], entries[1]].into_iter()), Err(Error::NoSuchTensor { index: 1 }));
}

/// Returns the index of the variable whose entry contains byte `at`, or `None` if no entry contains it. The flag is true if the byte is in
/// one of the entry's heads.
fn place(bytes: &[u8], at: usize) -> Option<(u32, bool)> {
    let mut end = HEADER[1];
    FlatCheckpoint::parse(bytes).unwrap().entries().map(Result::unwrap).find_map(|entry| {
        let start = end;
        end += HEADS + 4 * entry.tensor_type.shape.rank() + entry.data.len() + 4;
        (start..end).contains(&at).then_some((entry.variable, at < start + HEADS))
    })
}

#[test]
fn each_flipped_bit_is_found_and_the_rest_is_read() {
    let mut cases = 0;
    for contents in [Contents::Full, Contents::Changed] {
        let (bytes, values) = saved(contents);
        let before = initial();
        trained(9, |session| {
            for bit in 0..8 * bytes.len() {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let place = place(&bytes, bit / 8);
                let error = session.verify(&mut &damaged[..]).unwrap_err();
                assert_eq!(error, Error::Damaged { variable: place.map(|(variable, _)| variable) }, "bit {bit}");
                assert_eq!(session.restore(&mut &damaged[..]), Err(error.clone()), "bit {bit}");
                if place.is_some() {
                    assert_eq!(state(session), before, "bit {bit}");
                }
                // All other variables are read. A damaged head has a second copy.
                let mut lost = Vec::new();
                session.restore_readable(&mut &damaged[..], &mut |variable, error| lost.push((variable, error))).unwrap();
                let dead = place.filter(|(_, head)| !head).map(|(variable, _)| variable);
                assert_eq!(lost, dead.map(|variable| (variable, error.clone())).into_iter().collect::<Vec<_>>(), "bit {bit}");
                let expected =
                    |(index, value): (usize, &Vec<u8>)| if Some(index as u32) == dead { before[index].clone() } else { value.clone() };
                assert_eq!(state(session), values.iter().enumerate().map(expected).collect::<Vec<_>>(), "bit {bit}");
                // The same with the reader that needs no session.
                let read = FlatCheckpoint::parse(&damaged).unwrap();
                assert_eq!(read.verify(), Err(error.clone()), "bit {bit}");
                let entries: Vec<_> = read.entries().collect();
                let good = FlatCheckpoint::parse(&bytes).unwrap().entries().map(Result::unwrap);
                assert_eq!(entries.len(), good.clone().count());
                for (entry, good) in entries.into_iter().zip(good) {
                    assert_eq!(entry, if Some(good.variable) == dead { Err(error.clone()) } else { Ok(good) }, "bit {bit}");
                }
                assert!(!error.to_string().is_empty());
                cases += 1;
            }
        });
    }
    println!("{cases} flipped bits, each found");
}

#[test]
fn what_is_cut_short_is_refused() {
    let (bytes, values) = saved(Contents::Full);
    let before = initial();
    trained(9, |session| {
        for length in 0..bytes.len() {
            let cut = &bytes[..length];
            assert_eq!(session.verify(&mut &cut[..]), Err(Error::CutShort), "{length}");
            assert_eq!(session.restore(&mut &cut[..]), Err(Error::CutShort), "{length}");
            assert_eq!(session.restore_readable(&mut &cut[..], &mut |_, _| panic!("none is lost")), Err(Error::CutShort));
            match FlatCheckpoint::parse(cut) {
                Ok(read) => assert_eq!(read.verify(), Err(Error::CutShort), "{length}"),
                Err(error) => assert_eq!((error, length < HEADER[1]), (Error::CutShort, true)),
            }
        }
        // All variables before the last one are restored.
        let last = values.len() - 1;
        let expected: Vec<_> = values.iter().take(last).chain([&before[last]]).cloned().collect();
        let mut left = state(session);
        left[last].clone_from(&before[last]);
        assert_eq!(left, expected);
    });
}

/// Sets word number `word` in both copies of the header, and corrects their checksums.
fn with_header(bytes: &[u8], word: usize, value: u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
    let sum = gradlet_core::runtime::program::checksum(&bytes[..HEADER[0] - 4]);
    bytes[HEADER[0] - 4..HEADER[0]].copy_from_slice(&sum.to_le_bytes());
    bytes.copy_within(..HEADER[0], HEADER[0]);
    bytes
}

#[test]
fn headers_that_lie_are_refused() {
    let (bytes, values) = saved(Contents::Full);
    trained(3, |session| {
        let mut refused = |word, value, error| {
            let wrong = with_header(&bytes, word, value);
            assert_eq!(session.restore(&mut &wrong[..]), Err(error));
            assert!(FlatCheckpoint::parse(&wrong).and_then(|read| read.verify()).is_err() || [2, 3].contains(&word));
        };
        refused(0, 0, Error::NotACheckpoint);
        refused(1, 2, Error::CheckpointVersion { major: 2, minor: 0 });
        refused(1, 1 | 1 << 16, Error::CheckpointVersion { major: 1, minor: 1 });
        let own = program().identity();
        refused(2, 16, Error::OtherArtifact { checksum: own.checksum });
        refused(3, 16, Error::OtherArtifact { checksum: 16 });
        refused(5, 0, Error::Damaged { variable: None });
        assert_eq!(state(session), values);
        for count in [0, 1, u32::MAX] {
            let wrong = with_header(&bytes, 4, count);
            assert!(matches!(session.restore(&mut &wrong[..]), Err(Error::Damaged { .. } | Error::CutShort)));
        }
        for length in [HEADER[1] as u32, bytes.len() as u32 - 1, bytes.len() as u32 + 1, u32::MAX] {
            let wrong = with_header(&bytes, 5, length);
            assert!(matches!(session.restore(&mut &wrong[..]), Err(Error::Damaged { .. })));
            assert!(FlatCheckpoint::parse(&wrong).unwrap().verify().is_err());
        }
    });
}

#[test]
fn another_artifacts_checkpoint_is_refused() {
    let other = load(&artifact(0.02).unwrap(), &["train"]).unwrap();
    assert_eq!(other.identity().length, program().identity().length);
    let (bytes, _) = saved(Contents::Changed);
    let mut arena = arena(&other);
    let mut session = Session::new(&other, &mut arena).unwrap();
    let before = state(&session);
    let own = program().identity();
    let error = Error::OtherArtifact { checksum: own.checksum };
    assert_eq!(session.restore(&mut &bytes[..]), Err(error.clone()));
    assert_eq!(session.restore_readable(&mut &bytes[..], &mut |_, _| ()), Err(error));
    assert_eq!(state(&session), before);
}

#[test]
fn what_lies_in_flash_is_not_changed() {
    let program = load(&artifact(0.01).unwrap(), &["infer"]).unwrap();
    let mut arena = arena(&program);
    let mut session = Session::new(&program, &mut arena).unwrap();
    let (bytes, _) = saved(Contents::Changed);
    let first = FlatCheckpoint::parse(&bytes).unwrap().entries().next().unwrap().unwrap().variable;
    assert_eq!(session.restore(&mut &bytes[..]), Err(Error::InFlash { variable: first }));
    // A restore of values that are equal to the initial values in flash is allowed.
    let mut untrained = Vec::new();
    trained(0, |session| session.save(&mut untrained, Contents::Full).unwrap());
    session.restore(&mut &untrained[..]).unwrap();
}

/// Checkpoints of all released format versions are read. The current version is written with the same bytes.
#[test]
fn frozen_checkpoints_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/flat");
    let program = load(&fs::read(folder.join("mlp.grdl")).unwrap(), &["infer", "train"]).unwrap();
    let mut arena = arena(&program);
    let mut session = Session::new(&program, &mut arena).unwrap();
    let mut states = Vec::new();
    for minor in 0..=VERSION.1 {
        for (name, contents) in [("full", Contents::Full), ("changed", Contents::Changed)] {
            let frozen = fs::read(folder.join(format!("{name}-{}.{minor}.grdc", VERSION.0))).unwrap();
            FlatCheckpoint::parse(&frozen).unwrap().verify().unwrap();
            session.restore(&mut &frozen[..]).unwrap();
            let mut bytes = Vec::new();
            session.save(&mut bytes, contents).unwrap();
            assert!(minor < VERSION.1 || bytes == frozen, "{name}");
            states.push(state(&session));
        }
    }
    session.reset();
    assert!(states.iter().all(|restored| *restored == states[0]) && states[0] != state(&session));
}

/// A stream that transfers one byte at a time, and fails after a number of bytes.
struct Trickle(Vec<u8>, usize);

impl ErrorType for Trickle {
    type Error = ErrorKind;
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        self.1 = self.1.checked_sub(1).ok_or(ErrorKind::BrokenPipe)?;
        self.0.push(bytes[0]);
        Ok(1)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

impl Read for Trickle {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ErrorKind> {
        self.1 = self.1.checked_sub(1).ok_or(ErrorKind::TimedOut)?;
        bytes[0] = self.0.remove(0);
        Ok(1)
    }
}

#[test]
fn readers_and_writers_may_break() {
    let (bytes, values) = saved(Contents::Changed);
    trained(3, |session| {
        let mut whole = Trickle(Vec::new(), bytes.len());
        session.save(&mut whole, Contents::Changed).unwrap();
        assert_eq!(whole.0, bytes);
        for length in 0..bytes.len() {
            let error = session.save(&mut Trickle(Vec::new(), length), Contents::Changed);
            assert_eq!(error, Err(Error::Io { kind: ErrorKind::BrokenPipe }));
        }
    });
    let before = initial();
    trained(9, |session| {
        session.restore(&mut Trickle(bytes.clone(), bytes.len())).unwrap();
        assert_eq!(state(session), values);
        for length in HEADER[1]..bytes.len() {
            let error = session.restore(&mut Trickle(bytes.clone(), length));
            assert_eq!((error, state(session)), (Err(Error::Io { kind: ErrorKind::TimedOut }), before.clone()));
        }
    });
}
