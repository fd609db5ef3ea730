//! Tests of a device that hides its memory, as a GPU does: it must give the bits of a CPU, and a failure must break nothing.

mod checkpoints;
pub mod control;
pub mod groups;
mod limits;
mod optimizers;
mod profile;
mod refusals;
mod training;

use gradlet_core::Result;
use gradlet_tests::hiding::Hiding;

/// Calls `attempt` with a new device and a place at which the device shall fail: 0, 1 and so on, until `attempt` returns false because the
/// device did not get to that place. After every attempt the device must be empty.
fn at_every_place(attempt: impl Fn(&Hiding, u64) -> Result<bool>) -> Result<()> {
    let mut place = 0;
    loop {
        let hiding = Hiding::new();
        let reached = attempt(&hiding, place).map_err(|error| error.context(format!("place {place}")))?;
        assert_eq!(hiding.live(), 0, "allocations leak at place {place}");
        if !reached {
            break;
        }
        place += 1;
    }
    assert!(place > 5, "{place} places");
    Ok(())
}
