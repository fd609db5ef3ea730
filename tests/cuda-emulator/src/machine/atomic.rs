//! Atomic instructions: lane after lane.

use super::{
    code::{Atomic, Place, Space},
    engine::{Engine, Outcome, Stop, first, stop},
    memory::{Access, FaultKind, Memory},
    registers::{LANES, lanes},
    spaces::Kind,
    transfer::{Reach, defined},
    warp::Warp,
};

impl<M: Memory> Engine<'_, M> {
    /// Executes an atomic instruction.
    pub fn atomic(&mut self, warp: &mut Warp, atomic: &Atomic, active: u32) -> Outcome<()> {
        let mut addresses = [0; LANES];
        Self::addresses(warp, &atomic.address, active, &mut addresses)?;
        let undefined = active & !(defined(warp, atomic.a) & defined(warp, atomic.b));
        if undefined != 0 {
            return stop(first(undefined), FaultKind::UninitialisedRegister, "an operand depends on a value that was never written");
        }
        let (spaces, addresses) = match atomic.space {
            Space::Generic => Self::spaces(&addresses, active),
            space => ([(space, active), (space, 0), (space, 0)], addresses),
        };
        let length = usize::from(atomic.width);
        Self::aligned(Reach::new(&addresses, length, active))?;
        let mut old = [0; LANES];
        for (space, mask) in spaces.into_iter().filter(|(_, mask)| *mask != 0) {
            if space == Space::Local {
                return stop(first(mask), FaultKind::IllegalAddress, "an atomic access to local memory");
            }
            if space == Space::Global {
                self.check_races(warp, &addresses, length, mask, (Kind::Atomic, true))?;
            }
            for lane in lanes(mask) {
                let operands = (value(warp, atomic.a, lane), value(warp, atomic.b, lane));
                let result = if space == Space::Shared {
                    self.change_shared(warp, atomic, lane, addresses[lane], operands)
                } else {
                    self.change_global(atomic, lane, addresses[lane], operands)
                };
                old[lane] = result?;
            }
        }
        match atomic.old {
            Place::Narrow(register) => super::engine::merge(warp, register, old.map(|value| value as u32), active),
            Place::Wide(register) => {
                let mut out = warp.registers.wide.values[register as usize];
                lanes(active).for_each(|lane| out[lane] = old[lane]);
                warp.registers.wide.set(register, out, active, active);
            }
            Place::Nowhere => {}
        }
        Ok(())
    }

    fn change_shared(&mut self, warp: &Warp, atomic: &Atomic, lane: usize, address: u64, operands: (u64, u64)) -> Outcome<u64> {
        let length = usize::from(atomic.width);
        let moment = self.moment(warp, lane);
        self.shared.access(address, length, &moment, Kind::Atomic).map_err(|fault| Box::new(Stop { lane, fault }))?;
        Ok(change(&mut self.shared.bytes[address as usize..address as usize + length], atomic, operands))
    }

    fn change_global(&mut self, atomic: &Atomic, lane: usize, address: u64, operands: (u64, u64)) -> Outcome<u64> {
        let length = usize::from(atomic.width);
        let Some(region) = self.memory.region(address, length, Access::Atomic) else {
            let fault = self.memory.fault(address, length, Access::Atomic);
            return Err(Box::new(Stop { lane, fault }));
        };
        if region.written.is_some_and(|written| written.contains(&0)) {
            let text = format!("the device memory at {address:#x} is changed, but nobody has written it");
            return stop(lane, FaultKind::UninitialisedGlobal, text);
        }
        self.statistics.loaded += length as u64;
        self.statistics.stored += length as u64;
        Ok(change(region.bytes, atomic, operands))
    }
}

/// Changes a word and returns the old one.
fn change(bytes: &mut [u8], atomic: &Atomic, (a, b): (u64, u64)) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let old = u64::from_le_bytes(word);
    bytes.copy_from_slice(&(atomic.update)(old, a, b).to_le_bytes()[..bytes.len()]);
    old
}

fn value(warp: &Warp, place: Place, lane: usize) -> u64 {
    match place {
        Place::Narrow(register) => warp.registers.narrow.values[register as usize][lane].into(),
        Place::Wide(register) => warp.registers.wide.values[register as usize][lane],
        Place::Nowhere => 0,
    }
}
