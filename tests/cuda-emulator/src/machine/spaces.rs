//! Memory that belongs to a block or to a thread, and the record of races on device memory.

use std::collections::HashMap;

use super::{
    memory::{Fault, FaultKind},
    registers::LANES,
    shadow::{Cell, Clash, Moment},
};

/// The shared memory of a block.
pub struct Shared {
    pub bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// A cell stands for 1 << shift bytes: a word where all accesses are words.
    shift: u32,
}

impl Shared {
    pub fn new(size: usize, bytewise: bool) -> Self {
        let shift = if bytewise { 0 } else { 2 };
        Self { bytes: vec![0; size], cells: vec![Cell::default(); size >> shift], shift }
    }

    /// Checks and notes an access whose alignment is checked.
    pub fn access(&mut self, address: u64, length: usize, moment: &Moment, kind: Kind) -> Result<(), Fault> {
        let inside = address.checked_add(length as u64).is_some_and(|end| end <= self.bytes.len() as u64);
        if !inside {
            return Err(Fault::new(
                FaultKind::SharedOutOfBounds,
                format!("{length} bytes at {address:#x} of shared memory, which has {} bytes", self.bytes.len()),
            ));
        }
        let first = address as usize >> self.shift;
        (first..first + (length >> self.shift).max(1)).try_for_each(|index| self.touch(index, moment, kind))
    }

    /// Notes loads or stores of lanes that need no more thought. Returns the lanes for which [`Shared::access`] has to be called.
    ///
    /// `moment` is that of lane 0.
    pub fn access_quickly(&mut self, addresses: &[u64; LANES], active: u32, length: usize, moment: Moment, kind: Kind) -> u32 {
        match kind {
            Kind::Read => self.quickly(addresses, active, length, moment, Cell::read_quickly),
            Kind::Write => self.quickly(addresses, active, length, moment, Cell::write_quickly),
            Kind::Atomic => active,
        }
    }

    #[inline(always)]
    fn quickly(
        &mut self,
        addresses: &[u64; LANES],
        active: u32,
        length: usize,
        moment: Moment,
        note: impl Fn(&mut Cell, &Moment) -> bool,
    ) -> u32 {
        let count = (length >> self.shift).max(1);
        let mut left = active;
        for (lane, address) in addresses.iter().enumerate() {
            let first = (address >> self.shift) as usize;
            let moment = Moment { thread: moment.thread + lane as u16, ..moment };
            if active >> lane & 1 != 0
                && let Some(cells) = self.cells.get_mut(first..first.wrapping_add(count))
                && cells.iter_mut().all(|cell| note(cell, &moment))
            {
                left &= !(1 << lane);
            }
        }
        left
    }

    /// Checks and notes an access to a cell.
    fn touch(&mut self, index: usize, moment: &Moment, kind: Kind) -> Result<(), Fault> {
        let cell = &mut self.cells[index];
        if kind != Kind::Write && !cell.is_written(moment) {
            return Err(uninitialised(index << self.shift));
        }
        let clash = if kind == Kind::Read { cell.read(moment, false) } else { cell.write(moment, kind == Kind::Atomic, false) };
        match clash {
            None => Ok(()),
            Some(clash) => Err(race(FaultKind::SharedRace, (index << self.shift) as u64, "shared memory", kind, clash, "")),
        }
    }
}

#[cold]
fn uninitialised(address: usize) -> Fault {
    Fault::new(FaultKind::UninitialisedShared, format!("the shared memory at {address:#x} is read, but the block has not written it"))
}

#[cold]
fn race(fault: FaultKind, address: u64, memory: &str, kind: Kind, clash: Clash, place: &str) -> Fault {
    let verb = match kind {
        Kind::Read => "reads",
        Kind::Write => "writes",
        Kind::Atomic => "changes",
    };
    let other = clash.thread.map_or("other threads".to_string(), |thread| format!("thread number {thread} of the block"));
    let earlier = if clash.wrote { "wrote" } else { "read" };
    Fault::new(fault, format!("it {verb} {memory} at {address:#x}, which {other}{place} {earlier} without a barrier since"))
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Atomic,
}

/// The local memory of a warp's threads: variables, and parameters of calls.
#[derive(Clone, Debug)]
pub struct Local {
    pub bytes: Vec<u8>,
    /// A flag per byte, not zero if the byte is defined.
    pub written: Vec<u8>,
    /// Bytes of a thread.
    pub size: usize,
}

impl Local {
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![0; size * LANES], written: vec![0; size * LANES], size }
    }

    /// Where a thread's bytes begin in those of the warp.
    pub fn offset(&self, lane: usize, address: u64, length: usize) -> Result<usize, Fault> {
        if address.checked_add(length as u64).is_none_or(|end| end > self.size as u64) {
            return Err(Fault::new(
                FaultKind::LocalOutOfBounds,
                format!("{length} bytes at {address:#x} of the thread's local memory, which has {} bytes", self.size),
            ));
        }
        Ok(lane * self.size + address as usize)
    }
}

/// The threads that accessed each byte of device memory in a launch.
#[derive(Default)]
pub struct Races {
    cells: HashMap<u64, Cell>,
    /// When each block began.
    pub begins: Vec<u32>,
}

impl Races {
    /// Checks and notes an access. A strong load, volatile or relaxed, does not race with atomic instructions.
    pub fn access(&mut self, address: u64, length: usize, moment: &Moment, kind: Kind, strong: bool) -> Result<(), Fault> {
        for address in (0..length as u64).map(|i| address.wrapping_add(i)) {
            let cell = self.cells.entry(address).or_default();
            let clash = match (kind, strong) {
                (Kind::Read, true) => cell.read_strongly(moment, true),
                (Kind::Read, false) => cell.read(moment, true),
                _ => cell.write(moment, kind == Kind::Atomic, true),
            };
            if let Some(clash) = clash {
                let block = self.begins.partition_point(|begin| *begin <= clash.time) - 1;
                let place = if clash.time < moment.begin { format!(" (block number {block})") } else { String::new() };
                return Err(race(FaultKind::GlobalRace, address, "device memory", kind, clash, &place));
            }
        }
        Ok(())
    }
}
