//! Training steps on a device that refuses memory, or fails, at every place of the step.

use super::at_every_place;
use crate::cnn::{Bits, Cnn, bytes};
use gradlet_core::{Error, Result, ops};
use gradlet_tests::hiding::{Counts, Hiding};

/// State and loss of a training step on a CPU.
struct Reference {
    before: Bits,
    after: Bits,
    loss: Vec<u8>,
}

impl Reference {
    fn new() -> Result<Reference> {
        let cnn = Cnn::new(&ops::portable_cpu(), 1)?;
        let (before, (x, labels)) = (cnn.state(), cnn.batch(0)?);
        let loss = bytes(&cnn.step(&cnn.scope, &x, &labels)?);
        Ok(Reference { before, after: cnn.state(), loss })
    }
}

#[test]
fn a_refused_compiled_step_changes_nothing() -> Result<()> {
    let wanted = Reference::new()?;
    at_every_place(|hiding, place| {
        let cnn = Cnn::new(&hiding.device, 1)?;
        let (train, batch) = (cnn.compiled(), cnn.batch(0)?);
        hiding.refuse_after(Some(place));
        let (first, counts) = hiding.during(|| train.call(&cnn.scope, batch.clone()));
        hiding.refuse_after(None);
        let loss = match first {
            Ok(loss) => loss,
            Err(error) => {
                assert!(matches!(error.root(), Error::OutOfMemory(_)), "place {place}: {error}");
                assert!(cnn.state() == wanted.before, "place {place}: a variable changed");
                train.call(&cnn.scope, batch)?
            }
        };
        assert_eq!(bytes(&loss), wanted.loss, "place {place}");
        assert!(cnn.state() == wanted.after, "place {place}: the state after the step");
        Ok(counts.allocations > place)
    })
}

/// The caller holds the loss and the old values, so the second step needs memory for the new ones.
#[test]
fn a_refused_later_step_changes_nothing() -> Result<()> {
    let reference = Cnn::new(&ops::portable_cpu(), 1)?;
    for index in 0..2 {
        let (x, labels) = reference.batch(index)?;
        reference.step(&reference.scope, &x, &labels)?;
    }
    let wanted = reference.state();
    at_every_place(|hiding, place| {
        let cnn = Cnn::new(&hiding.device, 1)?;
        let train = cnn.compiled();
        let held = (train.call(&cnn.scope, cnn.batch(0)?)?, cnn.values());
        let (before, batch) = (cnn.state(), cnn.batch(1)?);
        hiding.refuse_after(Some(place));
        let (second, counts) = hiding.during(|| train.call(&cnn.scope, batch.clone()).map(drop));
        hiding.refuse_after(None);
        if let Err(error) = second {
            assert!(matches!(error.root(), Error::OutOfMemory(_)), "place {place}: {error}");
            assert!(cnn.state() == before, "place {place}: a variable changed");
            train.call(&cnn.scope, batch)?;
        }
        assert!(cnn.state() == wanted, "place {place}: the state after the step");
        assert!(held.1.iter().map(bytes).collect::<Bits>() == before, "place {place}: the values that are held");
        Ok(counts.allocations > place)
    })
}

/// Lets an eager step fail at every place. `fail` tells the device to fail, `count` returns the number of places so far, and `expected`
/// is true for the step's error.
fn an_eager_step_fails(fail: fn(&Hiding, Option<u64>), count: fn(&Counts) -> u64, expected: fn(&Error) -> bool) -> Result<()> {
    let wanted = Reference::new()?;
    at_every_place(|hiding, place| {
        let cnn = Cnn::new(&hiding.device, 1)?;
        let (x, labels) = cnn.batch(0)?;
        fail(hiding, Some(place));
        let (loss, counts) = hiding.during(|| cnn.step(&cnn.scope, &x, &labels));
        fail(hiding, None);
        let state = cnn.state();
        match loss {
            Ok(loss) => {
                assert_eq!(bytes(&loss), wanted.loss, "place {place}");
                assert!(state == wanted.after, "place {place}: the state after the step");
            }
            Err(error) => {
                assert!(expected(&error), "place {place}: {error}");
                let mut pairs = wanted.before.iter().zip(&wanted.after).zip(&state);
                assert!(pairs.all(|((old, new), own)| own == old || own == new), "place {place}: a variable is neither old nor new");
                cnn.step(&cnn.scope, &x, &labels)?;
            }
        }
        Ok(count(&counts) > place)
    })
}

#[test]
fn a_refused_eager_step_leaves_every_variable_whole() -> Result<()> {
    an_eager_step_fails(Hiding::refuse_after, |counts| counts.allocations, |error| matches!(error.root(), Error::OutOfMemory(_)))
}

#[test]
fn an_op_that_fails_leaves_every_variable_whole() -> Result<()> {
    an_eager_step_fails(Hiding::fail_after, |counts| counts.launches, |error| error.to_string().contains("was told to fail"))
}
