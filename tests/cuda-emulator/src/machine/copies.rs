//! Asynchronous copies from device memory to shared memory: `cp.async`.
//!
//! The bytes are copied at once, but nobody may access them until the thread that began the copy has waited for it. At that time the thread
//! writes them, as far as races are concerned, so that other threads need a barrier after it.

use super::{
    code::AsyncCopy,
    engine::{Engine, Outcome, first, stop},
    memory::{Access, FaultKind, Memory},
    registers::{LANES, lanes},
    spaces::Kind,
    transfer::{Reach, has_zero, hull},
    warp::Warp,
};

/// The copies of a warp that nobody has waited for.
#[derive(Default)]
pub struct Copies {
    /// Groups of each lane.
    groups: [u32; LANES],
    pending: Vec<Pending>,
}

/// A copy of a lane.
struct Pending {
    lane: u8,
    length: u8,
    address: u32,
    /// Number of its group. The next one is not complete yet.
    group: u32,
}

impl<M: Memory> Engine<'_, M> {
    /// Begins copies.
    pub fn copy_async(&mut self, warp: &mut Warp, copy: &AsyncCopy, active: u32) -> Outcome<()> {
        let (mut to, mut from) = ([0; LANES], [0; LANES]);
        Self::addresses(warp, &copy.to, active, &mut to)?;
        Self::addresses(warp, &copy.from, active, &mut from)?;
        let length = usize::from(copy.length);
        let (target, source) = (Reach::new(&to, length, active), Reach::new(&from, length, active));
        Self::aligned(target)?;
        Self::aligned(source)?;
        let used = used(warp, copy, active)?;
        self.check_shared(warp, target, Kind::Write)?;
        if lanes(active).all(|lane| used[lane] == length) {
            self.fetch(warp, source, &to, length)?;
        } else {
            for lane in lanes(active) {
                self.shared.bytes[to[lane] as usize..][..length].fill(0);
                self.fetch(warp, source.only(1 << lane), &to, used[lane])?;
            }
        }
        for lane in lanes(active) {
            self.shared.take_off(to[lane], length, warp.thread(lane));
            let group = warp.copies.groups[lane];
            warp.copies.pending.push(Pending { lane: lane as u8, length: copy.length, address: to[lane] as u32, group });
        }
        Ok(())
    }

    /// Reads the first bytes of each lane from device memory into shared memory.
    fn fetch(&mut self, warp: &Warp, source: Reach<'_>, to: &[u64; LANES], bytes: usize) -> Outcome<()> {
        if bytes == 0 {
            return Ok(());
        }
        let source = Reach { length: bytes, ..source };
        self.check_races(warp, source.addresses, bytes, source.active, (Kind::Read, false))?;
        let (low, span) = hull(source);
        let Some(region) = self.memory.region(low, span, Access::Read) else {
            return self.lane_by_lane(source, Access::Read, |engine, lane| engine.fetch(warp, source.only(lane), to, bytes));
        };
        for lane in lanes(source.active) {
            let at = source.offset(lane, low);
            if region.written.as_ref().is_some_and(|written| has_zero(&written[at..][..bytes])) {
                let text = format!("the device memory at {:#x} is copied, but nobody has written it", source.addresses[lane]);
                return stop(lane, FaultKind::UninitialisedGlobal, text);
            }
            self.shared.bytes[to[lane] as usize..][..bytes].copy_from_slice(&region.bytes[at..][..bytes]);
        }
        self.statistics.loaded += (bytes * source.active.count_ones() as usize) as u64;
        Ok(())
    }

    /// Ends the copies of some lanes: all, or those of all groups but the last ones of a number.
    pub fn wait_copies(&mut self, warp: &mut Warp, groups: Option<u32>, active: u32) {
        let (now, shared, complete) = (self.clock, &mut self.shared, warp.copies.groups);
        warp.copies.pending.retain(|copy| {
            let lane = usize::from(copy.lane);
            let ends = active >> lane & 1 != 0 && groups.is_none_or(|left| copy.group.saturating_add(left) < complete[lane]);
            if ends {
                shared.land(copy.address.into(), copy.length.into(), now);
            }
            !ends
        });
    }

    /// Forgets the copies that nobody has waited for, when the block has ended.
    pub fn forget_copies(&mut self, warp: &mut Warp) {
        for copy in warp.copies.pending.drain(..) {
            self.shared.land(copy.address.into(), copy.length.into(), 0);
        }
        warp.copies.groups = [0; LANES];
    }
}

impl Copies {
    /// Makes a group of each lane's copies that are in none.
    pub fn commit(&mut self, active: u32) {
        lanes(active).for_each(|lane| self.groups[lane] += 1);
    }
}

/// The bytes that each lane reads.
fn used(warp: &Warp, copy: &AsyncCopy, active: u32) -> Outcome<[usize; LANES]> {
    let Some(register) = copy.used else { return Ok([copy.length.into(); LANES]) };
    let undefined = active & !warp.registers.narrow.defined[register as usize];
    if undefined != 0 {
        return stop(first(undefined), FaultKind::UninitialisedRegister, "the size of a copy depends on a value that was never written");
    }
    let sizes = warp.registers.narrow.values[register as usize].map(|size| size as usize);
    match lanes(active).find(|lane| sizes[*lane] > copy.length.into()) {
        Some(lane) => stop(lane, FaultKind::IllegalAddress, format!("a copy reads {} bytes and writes {}", sizes[lane], copy.length)),
        None => Ok(sizes),
    }
}
