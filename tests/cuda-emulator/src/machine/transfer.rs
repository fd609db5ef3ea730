//! Loads and stores.

use super::{
    code::{Address, Place, Space, Transfer},
    elements::{gather, scatter},
    engine::{Engine, Outcome, Stop, first, stop},
    memory::{Access, FaultKind, LOCAL_WINDOW, Memory, SHARED_WINDOW},
    registers::{FULL, LANES, fill, lanes},
    spaces::Kind,
    warp::Warp,
};

/// Where the lanes of a warp access memory.
#[derive(Clone, Copy)]
pub struct Reach<'a> {
    pub addresses: &'a [u64; LANES],
    /// Bytes for each lane.
    pub length: usize,
    pub active: u32,
    pub pattern: Pattern,
}

/// How the addresses of the lanes lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// All are the same.
    Same,
    /// All lanes are active, and each one's bytes follow those of the lane before.
    Row,
    Any,
}

impl<'a> Reach<'a> {
    #[inline(always)]
    pub fn new(addresses: &'a [u64; LANES], length: usize, active: u32) -> Self {
        let mut reach = Self { addresses, length, active, pattern: Pattern::Any };
        let [first, second, ..] = *addresses;
        let step = second.wrapping_sub(first);
        if active == FULL && (step == 0 || step == length as u64) {
            let mut expected = first;
            let regular = addresses.iter().all(|address| {
                let found = *address == expected;
                expected = expected.wrapping_add(step);
                found
            });
            if regular {
                reach.pattern = if step == 0 { Pattern::Same } else { Pattern::Row };
            }
        }
        reach
    }

    /// The same for one lane.
    pub fn only(mut self, lane: u32) -> Self {
        self.active = lane;
        self.pattern = Pattern::Any;
        self
    }

    /// Where a lane's bytes are in bytes that begin at an address.
    #[inline(always)]
    pub fn offset(&self, lane: usize, start: u64) -> usize {
        self.addresses[lane].wrapping_sub(start) as usize
    }

    /// Bytes of all lanes.
    fn bytes(&self) -> u64 {
        let lanes = if self.pattern == Pattern::Any { self.active.count_ones() as usize } else { LANES };
        (lanes * self.length) as u64
    }

    /// Lanes whose bytes are those of all lanes; two lanes stand for several with the same address.
    fn representatives(&self) -> u32 {
        if self.pattern == Pattern::Same { 0b11 } else { self.active }
    }
}

impl<M: Memory> Engine<'_, M> {
    /// The address of each lane. They are defined.
    #[inline(always)]
    pub fn addresses(warp: &Warp, address: &Address, active: u32, out: &mut [u64; LANES]) -> Outcome<()> {
        let defined = match address.base {
            Place::Nowhere => {
                out.fill(address.offset as u64);
                FULL
            }
            Place::Wide(base) => {
                let values = &warp.registers.wide.values[base as usize];
                fill(out, FULL, |lane| values[lane].wrapping_add(address.offset as u64));
                warp.registers.wide.defined[base as usize]
            }
            Place::Narrow(base) => {
                let values = &warp.registers.narrow.values[base as usize];
                fill(out, FULL, |lane| values[lane].wrapping_add(address.offset as u32).into());
                warp.registers.narrow.defined[base as usize]
            }
        };
        let undefined = active & !defined;
        if undefined != 0 {
            return stop(first(undefined), FaultKind::UninitialisedRegister, "the address depends on a value that was never written");
        }
        Ok(())
    }

    /// The lanes whose generic addresses lie in each space, and those addresses in their space.
    pub fn spaces(addresses: &[u64; LANES], active: u32) -> ([(Space, u32); 3], [u64; LANES]) {
        let within =
            |window: u64| lanes(active).filter(|lane| addresses[*lane] >> 56 == window >> 56).fold(0, |mask, lane| mask | 1 << lane);
        let (shared, local) = (within(SHARED_WINDOW), within(LOCAL_WINDOW));
        let bare =
            addresses.map(|address| if matches!(address >> 56 << 56, SHARED_WINDOW | LOCAL_WINDOW) { address << 8 >> 8 } else { address });
        ([(Space::Shared, shared), (Space::Local, local), (Space::Global, active & !shared & !local)], bare)
    }

    /// Checks that each address is a multiple of the access's size.
    #[inline(always)]
    pub fn aligned(reach: Reach<'_>) -> Outcome<()> {
        let Reach { addresses, length, active, pattern } = reach;
        let mut low = addresses[first(active)];
        if pattern == Pattern::Any {
            lanes(active).for_each(|lane| low |= addresses[lane]);
        }
        if low & (length as u64 - 1) == 0 {
            return Ok(());
        }
        let lane = lanes(active).find(|lane| addresses[*lane] & (length as u64 - 1) != 0).unwrap_or(0);
        stop(lane, FaultKind::Misaligned, format!("{length} bytes at {:#x}, which is no multiple of {length}", addresses[lane]))
    }

    /// Executes a load.
    pub fn load(&mut self, warp: &mut Warp, transfer: &Transfer, active: u32) -> Outcome<()> {
        let mut addresses = [0; LANES];
        Self::addresses(warp, &transfer.address, active, &mut addresses)?;
        if transfer.space != Space::Generic {
            return self.load_from(warp, transfer, transfer.space, &addresses, active);
        }
        let (spaces, addresses) = Self::spaces(&addresses, active);
        for (space, mask) in spaces.into_iter().filter(|(_, mask)| *mask != 0) {
            self.load_from(warp, transfer, space, &addresses, mask)?;
        }
        Ok(())
    }

    fn load_from(&mut self, warp: &mut Warp, transfer: &Transfer, space: Space, addresses: &[u64; LANES], active: u32) -> Outcome<()> {
        let length = usize::from(transfer.width) * usize::from(transfer.count);
        let reach = Reach::new(addresses, length, active);
        Self::aligned(reach)?;
        match space {
            Space::Global | Space::Constant | Space::Generic => self.load_global(warp, transfer, space, reach),
            Space::Shared => {
                self.check_shared(warp, reach, Kind::Read)?;
                gather(warp, transfer, &self.shared.bytes, 0, reach, &[FULL; 4]);
                Ok(())
            }
            Space::Local => {
                let offsets = local_offsets(warp, reach)?;
                let mut defined = [0; 4];
                for (element, defined) in defined.iter_mut().enumerate().take(transfer.count.into()) {
                    let width = usize::from(transfer.width);
                    for lane in lanes(active) {
                        let at = offsets[lane] as usize + element * width;
                        let all = warp.local.written[at..at + width].iter().all(|flag| *flag != 0);
                        *defined |= u32::from(all) << lane;
                    }
                }
                // The bytes are lent out of the warp while its registers are written.
                let bytes = std::mem::take(&mut warp.local.bytes);
                gather(warp, transfer, &bytes, 0, Reach { addresses: &offsets, pattern: Pattern::Any, ..reach }, &defined);
                warp.local.bytes = bytes;
                Ok(())
            }
            Space::Parameter => {
                let parameters = self.launch.parameters;
                for lane in lanes(reach.representatives()) {
                    if addresses[lane].checked_add(length as u64).is_none_or(|end| end > parameters.len() as u64) {
                        let text = format!("{length} bytes at {:#x} of {} bytes of parameters", addresses[lane], parameters.len());
                        return stop(lane, FaultKind::IllegalAddress, text);
                    }
                }
                gather(warp, transfer, parameters, 0, reach, &[FULL; 4]);
                Ok(())
            }
        }
    }

    /// Checks an access to shared memory, lane by lane.
    pub fn check_shared(&mut self, warp: &Warp, reach: Reach<'_>, kind: Kind) -> Outcome<()> {
        let mut moment = self.moment(warp, 0);
        let first = moment.thread;
        for lane in lanes(self.shared.access_quickly(reach.addresses, reach.representatives(), reach.length, moment, kind)) {
            moment.thread = first + lane as u16;
            self.shared.access(reach.addresses[lane], reach.length, &moment, kind).map_err(|fault| Box::new(Stop { lane, fault }))?;
        }
        Ok(())
    }

    /// Checks an access to device memory for races, if they are recorded: its kind, and whether it is strong.
    pub fn check_races(&mut self, warp: &Warp, addresses: &[u64; LANES], length: usize, active: u32, kind: (Kind, bool)) -> Outcome<()> {
        if self.races.is_some() {
            for lane in lanes(active) {
                let moment = self.moment(warp, lane);
                if let Some(races) = &mut self.races {
                    races.access(addresses[lane], length, &moment, kind.0, kind.1).map_err(|fault| Box::new(Stop { lane, fault }))?;
                }
            }
        }
        Ok(())
    }

    fn load_global(&mut self, warp: &mut Warp, transfer: &Transfer, space: Space, reach: Reach<'_>) -> Outcome<()> {
        let access = if space == Space::Constant { Access::ReadOnly } else { Access::Read };
        self.check_races(warp, reach.addresses, reach.length, reach.active, (Kind::Read, transfer.strong))?;
        let (low, span) = hull(reach);
        let Some(region) = self.memory.region(low, span, access) else {
            return self.lane_by_lane(reach, access, |engine, lane| engine.load_global(warp, transfer, space, reach.only(lane)));
        };
        if let Some(written) = region.written {
            // Most ranges are short and written everywhere.
            let unknown = span > 512 || has_zero(written);
            for lane in lanes(if unknown { reach.active } else { 0 }) {
                if has_zero(&written[reach.offset(lane, low)..][..reach.length]) {
                    let text = format!("the device memory at {:#x} is read, but nobody has written it", reach.addresses[lane]);
                    return stop(lane, FaultKind::UninitialisedGlobal, text);
                }
            }
        }
        gather(warp, transfer, region.bytes, low, reach, &[FULL; 4]);
        self.statistics.loaded += reach.bytes();
        Ok(())
    }

    /// After a refusal of the range of all lanes: asks for each lane's own.
    pub fn lane_by_lane(&mut self, reach: Reach<'_>, access: Access, mut f: impl FnMut(&mut Self, u32) -> Outcome<()>) -> Outcome<()> {
        for lane in lanes(reach.active) {
            if self.memory.region(reach.addresses[lane], reach.length, access).is_none() {
                let fault = self.memory.fault(reach.addresses[lane], reach.length, access);
                return Err(Box::new(Stop { lane, fault }));
            }
        }
        // A single lane that is refused has returned above.
        lanes(reach.active).try_for_each(|lane| f(self, 1 << lane))
    }

    /// Executes a store.
    pub fn store(&mut self, warp: &mut Warp, transfer: &Transfer, active: u32) -> Outcome<()> {
        let mut addresses = [0; LANES];
        Self::addresses(warp, &transfer.address, active, &mut addresses)?;
        if transfer.space != Space::Generic {
            return self.store_to(warp, transfer, transfer.space, &addresses, active);
        }
        let (spaces, addresses) = Self::spaces(&addresses, active);
        for (space, mask) in spaces.into_iter().filter(|(_, mask)| *mask != 0) {
            self.store_to(warp, transfer, space, &addresses, mask)?;
        }
        Ok(())
    }

    fn store_to(&mut self, warp: &mut Warp, transfer: &Transfer, space: Space, addresses: &[u64; LANES], active: u32) -> Outcome<()> {
        let length = usize::from(transfer.width) * usize::from(transfer.count);
        let reach = Reach::new(addresses, length, active);
        Self::aligned(reach)?;
        if space == Space::Local {
            let offsets = local_offsets(warp, reach)?;
            for (element, place) in transfer.places.iter().enumerate().take(transfer.count.into()) {
                let (width, defined) = (usize::from(transfer.width), defined(warp, *place));
                for lane in lanes(active) {
                    let at = offsets[lane] as usize + element * width;
                    warp.local.written[at..at + width].fill((defined >> lane & 1) as u8);
                }
            }
            let mut bytes = std::mem::take(&mut warp.local.bytes);
            scatter(warp, transfer, &mut bytes, 0, Reach { addresses: &offsets, pattern: Pattern::Any, ..reach });
            warp.local.bytes = bytes;
            return Ok(());
        }
        let undefined = active & !transfer.places.iter().take(transfer.count.into()).fold(FULL, |all, place| all & defined(warp, *place));
        if undefined != 0 {
            return stop(first(undefined), FaultKind::UninitialisedRegister, "the stored value depends on a value that was never written");
        }
        if space == Space::Shared {
            self.check_shared(warp, reach, Kind::Write)?;
            scatter(warp, transfer, &mut self.shared.bytes, 0, reach);
            return Ok(());
        }
        self.store_global(warp, transfer, reach)
    }

    fn store_global(&mut self, warp: &Warp, transfer: &Transfer, reach: Reach<'_>) -> Outcome<()> {
        self.check_races(warp, reach.addresses, reach.length, reach.active, (Kind::Write, transfer.strong))?;
        let (low, span) = hull(reach);
        let Some(region) = self.memory.region(low, span, Access::Write) else {
            return self.lane_by_lane(reach, Access::Write, |engine, lane| engine.store_global(warp, transfer, reach.only(lane)));
        };
        if let Some(written) = region.written {
            match reach.pattern {
                Pattern::Any => lanes(reach.active).for_each(|lane| written[reach.offset(lane, low)..][..reach.length].fill(1)),
                _ => written.fill(1),
            }
        }
        scatter(warp, transfer, region.bytes, low, reach);
        self.statistics.stored += reach.bytes();
        Ok(())
    }
}

/// Where a value is defined.
pub fn defined(warp: &Warp, place: Place) -> u32 {
    match place {
        Place::Narrow(register) => warp.registers.narrow.defined[register as usize],
        Place::Wide(register) => warp.registers.wide.defined[register as usize],
        Place::Nowhere => FULL,
    }
}

/// The smallest range with all lanes' bytes: where it begins, and its length.
#[inline(always)]
pub fn hull(reach: Reach<'_>) -> (u64, usize) {
    let (mut low, mut high) = (u64::MAX, 0);
    match reach.pattern {
        Pattern::Same => return (reach.addresses[0], reach.length),
        Pattern::Row => return (reach.addresses[0], reach.length * LANES),
        Pattern::Any => {
            for lane in lanes(reach.active) {
                low = low.min(reach.addresses[lane]);
                high = high.max(reach.addresses[lane]);
            }
        }
    }
    (low, usize::try_from(high - low).unwrap_or(usize::MAX).saturating_add(reach.length))
}

/// Whether one of the bytes is zero.
#[inline(always)]
pub fn has_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<4>();
    let zeros = |word: u32| word.wrapping_sub(0x0101_0101) & !word & 0x8080_8080;
    words.iter().fold(0, |found, word| found | zeros(u32::from_ne_bytes(*word))) != 0 || rest.contains(&0)
}

/// Where each lane's bytes are in those of the warp.
fn local_offsets(warp: &Warp, reach: Reach<'_>) -> Outcome<[u64; LANES]> {
    let mut offsets = [0; LANES];
    for lane in lanes(reach.active) {
        offsets[lane] =
            warp.local.offset(lane, reach.addresses[lane], reach.length).map_err(|fault| Box::new(Stop { lane, fault }))? as u64;
    }
    Ok(offsets)
}
