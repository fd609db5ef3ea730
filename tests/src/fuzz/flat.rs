//! Arbitrary bytes as a flat checkpoint, and as flash with slots. They must be read or refused. A later save to the same flash must
//! succeed.

use crate::flash::Flash;
use crate::flat::{arena, program, state, step};
use gradlet_core::runtime::Slots;
use gradlet_core::runtime::checkpoint::{Contents, FlatCheckpoint};
use gradlet_core::{Error, Session};

const SLOTS: u32 = 3;
const SLOT: usize = 2048;

/// Reads the bytes after the first: as a checkpoint if the first byte is even, and as flash if it is odd. Returns the error if they are
/// refused.
pub fn read(data: &[u8]) -> Result<(), Error> {
    let Some((choice, rest)) = data.split_first() else { return Err(Error::CutShort) };
    if choice & 1 == 0 { checkpoint(rest) } else { flash(rest) }
}

fn checkpoint(bytes: &[u8]) -> Result<(), Error> {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena)?;
    let before = state(&session);
    step(&mut session, 0)?;
    let changed = state(&session);
    let verified = session.verify(&mut &bytes[..]);
    assert_eq!(state(&session), changed);
    let restored = session.restore(&mut &bytes[..]);
    assert_eq!(verified, restored);
    if restored.is_err() {
        assert!([&before, &changed].contains(&&state(&session)));
    }
    let readable = session.restore_readable(&mut &bytes[..], &mut |_, error| assert!(!error.to_string().is_empty()));
    assert!(readable.is_ok() || restored.is_err());
    let parsed = FlatCheckpoint::parse(bytes);
    if let Ok(parsed) = parsed {
        let (entries, verified) = (parsed.entries().count(), parsed.verify());
        assert!(entries <= bytes.len() && (verified.is_ok() || restored.is_err()));
    }
    if let Err(error) = &restored {
        assert!(!error.to_string().is_empty());
    }
    restored
}

fn flash(bytes: &[u8]) -> Result<(), Error> {
    let mut image = vec![0xff; SLOTS as usize * SLOT];
    image.iter_mut().zip(bytes).for_each(|(byte, given)| *byte = *given);
    let flash = Flash::<4, 8, 512>::holding(image);
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena)?;
    let mut slots = Slots::new(flash, 0..SLOTS * SLOT as u32, SLOTS)?;
    let restored = slots.restore(&mut session);
    step(&mut session, 0)?;
    let saved = state(&session);
    match slots.save(&session, Contents::Full) {
        Ok(sequence) => {
            session.reset();
            assert_eq!(slots.restore(&mut session), Ok(Some(sequence)));
            assert_eq!(state(&session), saved);
        }
        // The sequence number is the largest one, so a save has no next number.
        Err(error) => assert_eq!(error, Error::TooLarge),
    }
    restored.map(drop)
}

/// Returns checkpoints and flash images to damage.
pub fn samples() -> Result<Vec<Vec<u8>>, Error> {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena)?;
    let mut slots = Slots::new(Flash::<4, 8, 512>::new(SLOTS as usize * SLOT / 512, 1), 0..SLOTS * SLOT as u32, SLOTS)?;
    let mut samples = Vec::new();
    for contents in [Contents::Full, Contents::Changed] {
        step(&mut session, 1)?;
        let mut bytes = vec![0];
        session.save(&mut bytes, contents)?;
        samples.push(bytes);
        slots.save(&session, contents)?;
    }
    samples.push([&[1], &slots.into_inner().bytes[..]].concat());
    Ok(samples)
}
