//! Memory that belongs to a block or to a thread.

use super::{
    memory::{Fault, FaultKind},
    registers::LANES,
    shadow::{Cell, Clash, Moment, Reader},
};

/// The shared memory of a block.
pub struct Shared {
    pub bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// A cell stands for 1 << shift bytes: a word where all accesses are words.
    shift: u32,
    /// For each cell and warp, the last loads. Empty unless the kernel has barriers of some warps.
    readers: Vec<Reader>,
    warps: usize,
    /// For each row of 16 bytes, the matrix products on their way that read it.
    products: Vec<u16>,
    /// How many rows they read together.
    product_rows: usize,
}

/// Bytes of a row of a matrix that a product reads.
pub const ROW: usize = 16;

impl Shared {
    /// `warps`: the warps of a block, if the kernel has barriers of some warps; else 0.
    pub fn new(size: usize, bytewise: bool, warps: usize) -> Self {
        let shift = if bytewise { 0 } else { 2 };
        let cells = vec![Cell::default(); size >> shift];
        let (readers, products) = (vec![Reader::default(); cells.len() * warps], vec![0; size.div_ceil(ROW)]);
        Self { bytes: vec![0; size], cells, shift, readers, warps, products, product_rows: 0 }
    }

    /// Checks and notes an access whose alignment is checked.
    pub fn access(&mut self, address: u64, length: usize, moment: &Moment<'_>, kind: Kind) -> Result<(), Fault> {
        let inside = address.checked_add(length as u64).is_some_and(|end| end <= self.bytes.len() as u64);
        if !inside {
            return Err(Fault::new(
                FaultKind::SharedOutOfBounds,
                format!("{length} bytes at {address:#x} of shared memory, which has {} bytes", self.bytes.len()),
            ));
        }
        if kind != Kind::Read && self.product_rows > 0 && self.products[address as usize / ROW] > 0 {
            let text = format!("it writes shared memory at {address:#x}, which a matrix product on its way still reads");
            return Err(Fault::new(FaultKind::InFlight, text));
        }
        self.cells_of(address, length).try_for_each(|index| self.touch(index, moment, kind))
    }

    /// The cells of a range that is inside.
    fn cells_of(&self, address: u64, length: usize) -> std::ops::Range<usize> {
        let first = address as usize >> self.shift;
        first..first + (length >> self.shift).max(1)
    }

    /// Begins the write of a copy, after the check of its access.
    pub fn take_off(&mut self, address: u64, length: usize, thread: u16) {
        let cells = self.cells_of(address, length);
        self.cells[cells].iter_mut().for_each(|cell| cell.take_off(thread));
    }

    /// Ends the write of a copy at a time; at time 0, as if there had been none.
    pub fn land(&mut self, address: u64, length: usize, time: u32) {
        let cells = self.cells_of(address, length);
        self.cells[cells].iter_mut().for_each(|cell| cell.land(time));
    }

    /// Begins the read of rows by a product, after the check of its access. Until its end, nobody may write them.
    pub fn begin_product(&mut self, rows: &[u32]) {
        rows.iter().for_each(|row| self.products[*row as usize] += 1);
        self.product_rows += rows.len();
    }

    /// Ends the read of rows by a product: it may have happened as late as now.
    pub fn end_product(&mut self, rows: &[u32], moment: &Moment<'_>) {
        for row in rows {
            self.products[*row as usize] -= 1;
            for index in self.cells_of(u64::from(*row) * ROW as u64, ROW) {
                self.note(index, moment, Kind::Read);
            }
        }
        self.product_rows -= rows.len();
    }

    /// Forgets the products on their way, whose block has ended.
    pub fn forget_products(&mut self) {
        if self.product_rows > 0 {
            self.products.fill(0);
            self.product_rows = 0;
        }
    }

    /// The last writes of the cells of a row: their times and threads.
    pub fn writes_of(&self, row: u32) -> impl Iterator<Item = (u32, u16)> {
        self.cells[self.cells_of(u64::from(row) * ROW as u64, ROW)].iter().map(Cell::last_write)
    }

    /// Notes loads or stores of lanes that need no more thought. Returns the lanes for which [`Shared::access`] has to be called.
    ///
    /// `moment` is that of lane 0.
    pub fn access_quickly(&mut self, addresses: &[u64; LANES], active: u32, length: usize, moment: Moment<'_>, kind: Kind) -> u32 {
        match kind {
            Kind::Read => self.quickly(addresses, active, length, moment, Cell::read_quickly),
            _ if self.warps > 0 => active,
            Kind::Write if self.product_rows > 0 => active,
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
        moment: Moment<'_>,
        note: impl Fn(&mut Cell, &Moment<'_>) -> bool,
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
    fn touch(&mut self, index: usize, moment: &Moment<'_>, kind: Kind) -> Result<(), Fault> {
        let cell = &mut self.cells[index];
        if cell.is_in_flight() {
            return Err(in_flight(index << self.shift, kind));
        }
        if kind != Kind::Write && !cell.is_written(moment) {
            return Err(uninitialised(index << self.shift));
        }
        match self.note(index, moment, kind) {
            None => Ok(()),
            Some(clash) => Err(race(FaultKind::SharedRace, (index << self.shift) as u64, "shared memory", kind, clash, "")),
        }
    }
}

impl Shared {
    /// Notes an access to a cell. Returns the earlier one that it is not ordered after.
    fn note(&mut self, index: usize, moment: &Moment<'_>, kind: Kind) -> Option<Clash> {
        let cell = &mut self.cells[index];
        let readers = &mut self.readers[index * self.warps..][..self.warps];
        match kind {
            Kind::Read if readers.is_empty() => cell.read(moment, false),
            Kind::Read => {
                readers[usize::from(moment.thread / 32)].note(moment);
                cell.writer_clash(moment, false)
            }
            _ => {
                let reader = readers.iter().zip(0..).find_map(|(reader, warp)| reader.clash(warp, moment));
                cell.write(moment, kind == Kind::Atomic, false).or(reader)
            }
        }
    }
}

#[cold]
fn uninitialised(address: usize) -> Fault {
    Fault::new(FaultKind::UninitialisedShared, format!("the shared memory at {address:#x} is read, but the block has not written it"))
}

#[cold]
fn in_flight(address: usize, kind: Kind) -> Fault {
    let text = format!("it {} shared memory at {address:#x}, to which a copy is on its way: nobody has waited for it", verb(kind));
    Fault::new(FaultKind::InFlight, text)
}

fn verb(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "reads",
        Kind::Write => "writes",
        Kind::Atomic => "changes",
    }
}

#[cold]
pub fn race(fault: FaultKind, address: u64, memory: &str, kind: Kind, clash: Clash, place: &str) -> Fault {
    let verb = verb(kind);
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
