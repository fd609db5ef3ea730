//! `wgmma`: asynchronous products of four warps.
//!
//! A product is computed when it begins. Until the warp has waited for it, its accumulators are undefined, and nobody may write the rows of
//! shared memory that it reads. Each warp computes its own 16 rows, so the warps need not meet; that they do the same is checked.

use super::{
    code::{GroupProduct, Left, Number, Warpgroup},
    converged,
    descriptor::Matrix,
    product::{COLUMNS, DEPTH, ROWS, accumulators, defined, left, results},
};
use crate::machine::{
    code::{Function, Operation},
    engine::{Engine, Outcome, Stop, first, stop},
    fused,
    memory::{Fault, FaultKind, Memory},
    registers::{FULL, LANES, Register},
    spaces::{Kind, ROW},
    warp::Warp,
};

/// Warps of a warpgroup.
const WARPS: usize = 4;

/// The warpgroups of a block.
#[derive(Default)]
pub struct Warpgroups {
    /// The registers of all products of the kernel, in order.
    watched: Vec<Register>,
    /// The operations that the warps of each warpgroup execute.
    steps: Vec<Vec<Step>>,
    /// Number of operations that each warp has executed.
    taken: Vec<usize>,
    /// For each warp, when its lanes executed proxy fences.
    fences: Vec<Vec<(u32, u32)>>,
}

/// An operation and its descriptors.
type Step = (u32, [u64; 3]);

/// The products of a warp.
#[derive(Default)]
pub struct Products {
    /// The watched registers as the last fence or a later product left them. Empty before the first fence.
    fenced: Vec<[u32; LANES]>,
    /// Number of complete groups.
    groups: u32,
    flying: Vec<Flight>,
    /// For each watched register that is an accumulator of these products: where it will be defined, and the last group that writes it.
    accumulators: Vec<Option<(u32, u32)>>,
}

/// A product on its way.
struct Flight {
    group: u32,
    rows: Vec<u32>,
    left: Vec<(Register, [u32; LANES])>,
}

impl Warpgroups {
    pub fn new(function: &Function) -> Self {
        let products = function.code.iter().filter_map(|instruction| match &instruction.operation {
            Operation::Warpgroup(Warpgroup::Product(product)) => Some(product),
            _ => None,
        });
        let mut watched: Vec<Register> = products.flat_map(|product| product.d.iter().chain(product.left()).copied()).collect();
        watched.sort_unstable();
        watched.dedup();
        Self { watched, ..Self::default() }
    }

    pub fn begin(&mut self, warps: u32) {
        let warps = warps as usize;
        self.steps.resize(warps.div_ceil(WARPS), Vec::new());
        self.steps.iter_mut().for_each(Vec::clear);
        self.taken.clear();
        self.taken.resize(warps, 0);
        self.fences.resize(warps, Vec::new());
        self.fences.iter_mut().for_each(Vec::clear);
    }

    /// Notes the next operation of a warp. Returns what is wrong with it.
    fn take(&mut self, warp: usize, step: Step) -> Option<&'static str> {
        if warp / WARPS * WARPS + WARPS > self.taken.len() {
            return Some("an operation of four warps, where the block has fewer");
        }
        let (steps, taken) = (&mut self.steps[warp / WARPS], &mut self.taken[warp]);
        *taken += 1;
        match steps.get(*taken - 1) {
            None => steps.push(step),
            Some((place, _)) if *place != step.0 => {
                return Some("an operation of four warps, of which another warp executes a different one");
            }
            Some(other) if *other != step => return Some("an operation of four warps that has other descriptors in another warp"),
            Some(_) => {}
        }
        None
    }

    fn index(&self, register: Register) -> usize {
        self.watched.binary_search(&register).unwrap_or_default()
    }
}

impl Products {
    pub fn begin(&mut self) {
        *self = Self::default();
    }

    /// Whether products are on their way.
    pub fn are_in_flight(&self) -> bool {
        !self.flying.is_empty()
    }
}

impl GroupProduct {
    /// The registers of the left factor.
    fn left(&self) -> &[Register] {
        if let Left::Registers(list) = &self.a { list } else { &[] }
    }

    /// Columns of the left factor: 32 bytes.
    pub fn depth(&self) -> usize {
        32 / self.number.bytes()
    }
}

impl<M: Memory> Engine<'_, M> {
    /// Executes an operation of four warps.
    pub fn warpgroup(&mut self, warp: &mut Warp, operation: &Warpgroup, place: u32, active: u32) -> Outcome<()> {
        converged(active)?;
        let words = if let Warpgroup::Product(product) = operation { words(warp, product)? } else { [0; 3] };
        if let Some(text) = self.warpgroups.take(warp.index as usize, (place, words)) {
            return stop(0, FaultKind::WarpDivergence, text);
        }
        match operation {
            Warpgroup::Fence => {
                let values = &warp.registers.narrow.values;
                warp.products.fenced = self.warpgroups.watched.iter().map(|register| values[*register as usize]).collect();
            }
            Warpgroup::Product(product) => return self.begin_product(warp, product, words),
            Warpgroup::Commit => warp.products.groups += 1,
            Warpgroup::Wait(left) => return self.end_products(warp, *left),
        }
        Ok(())
    }

    /// Notes that lanes order their accesses to shared memory before those of products.
    pub fn fence_proxy(&mut self, warp: &Warp, active: u32) {
        self.clock += 1;
        self.warpgroups.fences[warp.index as usize].push((self.clock, active));
    }

    /// Checks that the warps of each warpgroup have executed the same operations.
    pub fn check_warpgroups(&self, warps: &[Warp]) -> Result<(), Fault> {
        for (group, taken) in warps.chunks(WARPS).zip(self.warpgroups.taken.chunks(WARPS)) {
            if let Some((warp, _)) = group.iter().zip(taken).find(|(_, count)| *count < taken.iter().max().unwrap_or(count)) {
                let text = "it does not execute an operation of four warps that another warp executes";
                return Err(self.report(warp, Stop { lane: 0, fault: Fault::new(FaultKind::WarpDivergence, text) }));
            }
        }
        Ok(())
    }

    fn begin_product(&mut self, warp: &mut Warp, product: &GroupProduct, words: [u64; 3]) -> Outcome<()> {
        let accumulates = words[2] != 0;
        self.check_registers(warp, product, accumulates)?;
        let mut rows = Vec::new();
        let mut a = [[0.0; DEPTH]; ROWS];
        let known = match product.a {
            Left::Registers(list) => {
                left(&warp.registers, product.number, &list, &mut a);
                if defined(&warp.registers, &list) == FULL { FULL } else { 0 }
            }
            Left::Descriptor(_) => {
                let matrix = matrix(words[0], product.transposed[0], product)?;
                let first = warp.index as usize % WARPS * ROWS;
                let read = |row: usize, depth: usize, value: f64| a[row - first][depth] = value;
                self.read_factor(warp, (matrix, product.number, product.transposed[0]), first..first + ROWS, &mut rows, read)?;
                FULL
            }
        };
        if product.negated[0] != product.negated[1] {
            a.iter_mut().flatten().for_each(|value| *value = -*value);
        }
        let right = matrix(words[1], product.transposed[1], product)?;
        for (tile, list) in product.d.chunks(4).enumerate() {
            let (mut b, mut sums) = ([[0.0; COLUMNS]; DEPTH], [[0.0; COLUMNS]; ROWS]);
            let first = tile * COLUMNS;
            let read = |column: usize, depth: usize, value: f64| b[depth][column - first] = value;
            self.read_factor(warp, (right, product.number, product.transposed[1]), first..first + COLUMNS, &mut rows, read)?;
            if accumulates {
                accumulators(&warp.registers, list, &mut sums);
            }
            fused::multiply(&a, &b, product.depth(), &mut sums);
            for (index, register) in list.iter().enumerate() {
                self.accumulate(warp, *register, results(&sums, index), accumulates, known);
            }
        }
        self.shared.begin_product(&rows);
        let values = &warp.registers.narrow.values;
        let left = product.left().iter().map(|register| (*register, values[*register as usize])).collect();
        warp.products.flying.push(Flight { group: warp.products.groups, rows, left });
        Ok(())
    }

    /// Checks that the registers of a product are as they were at the last fence.
    fn check_registers(&self, warp: &Warp, product: &GroupProduct, accumulates: bool) -> Outcome<()> {
        let (products, values) = (&warp.products, &warp.registers.narrow.values);
        if products.fenced.is_empty() {
            return stop(0, FaultKind::WarpgroupFence, "a product before which there was no `wgmma.fence`");
        }
        product.d.iter().try_for_each(|register| self.check_accumulator(warp, *register))?;
        let read = if accumulates { &product.d[..] } else { &[] };
        for register in read.iter().chain(product.left()) {
            let (before, now) = (&products.fenced[self.warpgroups.index(*register)], &values[*register as usize]);
            if let Some(lane) = (0..LANES).find(|lane| before[*lane] != now[*lane]) {
                let text = "a product uses a register that was written since the last `wgmma.fence`";
                return stop(lane, FaultKind::WarpgroupFence, text);
            }
        }
        Ok(())
    }

    /// Reads numbers of a factor from shared memory: for some of its rows, or columns if it is the right one, all of its depth.
    fn read_factor(
        &mut self,
        warp: &Warp,
        (matrix, number, transposed): (Matrix, Number, bool),
        range: std::ops::Range<usize>,
        rows: &mut Vec<u32>,
        mut value: impl FnMut(usize, usize, f64),
    ) -> Outcome<()> {
        let each = ROW / number.bytes();
        let (outer, inner) = if transposed { (range.start / each..range.end / each, 0..DEPTH) } else { (range, 0..DEPTH * 2 / ROW) };
        for outer in outer {
            for inner in inner.clone() {
                let (at, depth) = (outer as u64, inner as u64);
                let address = if transposed { matrix.along_rows(at, depth) } else { matrix.along_depth(at, depth) };
                self.check_row(warp, address)?;
                rows.push((address / ROW as u64) as u32);
                let bytes = &self.shared.bytes[address as usize..][..ROW];
                for (index, bytes) in bytes.chunks_exact(number.bytes()).enumerate() {
                    let bits = bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
                    let (row, depth) = if transposed { (outer * each + index, inner) } else { (outer, inner * each + index) };
                    value(row, depth, number.value(bits));
                }
            }
        }
        Ok(())
    }

    /// Checks and notes the read of a row by a product.
    fn check_row(&mut self, warp: &Warp, address: u64) -> Outcome<()> {
        let moment = self.moment(warp, 0);
        self.shared.access(address, ROW, &moment, Kind::Read).map_err(|fault| Box::new(Stop { lane: 0, fault }))?;
        let mut last = None;
        for write in self.shared.writes_of((address / ROW as u64) as u32) {
            if last != Some(write) && !self.is_fenced(warp, write) {
                let text = format!("a product reads shared memory at {address:#x}, which thread number {} of the block wrote", write.1);
                return stop(0, FaultKind::ProxyFence, format!("{text} without `fence.proxy.async` since"));
            }
            last = Some(write);
        }
        Ok(())
    }

    /// Whether a proxy fence lies between a write and a product of a warp now: one of the writing thread before the barrier that orders the
    /// write, or one of the warp after it.
    fn is_fenced(&self, warp: &Warp, (time, thread): (u32, u16)) -> bool {
        let (writer, lane) = (usize::from(thread / 32), thread % 32);
        let own = writer == warp.index as usize;
        let seen = warp.seen.get(writer).copied().unwrap_or_default().max(self.barrier);
        let list = &self.warpgroups.fences[writer];
        let mut after = list[list.partition_point(|fence| fence.0 <= time)..].iter();
        if after.find(|fence| fence.1 >> lane & 1 != 0).is_some_and(|fence| own || fence.0 < seen) {
            return true;
        }
        let barriers = &self.barriers.times;
        let ordered = barriers.get(barriers.partition_point(|barrier| *barrier <= time)).copied().unwrap_or(seen);
        let last = self.warpgroups.fences[warp.index as usize].iter().rev().find(|fence| fence.1 == FULL);
        last.is_some_and(|fence| fence.0 > ordered.max(time))
    }

    /// Writes a register of an accumulator, which stays undefined until the warp has waited.
    fn accumulate(&mut self, warp: &mut Warp, register: Register, values: [u32; LANES], accumulates: bool, known: u32) {
        let (products, narrow, index) = (&mut warp.products, &mut warp.registers.narrow, self.warpgroups.index(register));
        products.accumulators.resize(self.warpgroups.watched.len(), None);
        let before = products.accumulators[index].map_or(narrow.defined[register as usize], |(defined, _)| defined);
        products.accumulators[index] = Some((if accumulates { known & before } else { known }, products.groups));
        narrow.set(register, values, FULL, 0);
        products.fenced[index] = values;
    }

    /// Checks that nobody has written an accumulator of a product on its way.
    fn check_accumulator(&self, warp: &Warp, register: Register) -> Outcome<()> {
        let is_flying = warp.products.accumulators.get(self.warpgroups.index(register)).is_some_and(Option::is_some);
        if is_flying && warp.registers.narrow.defined[register as usize] != 0 {
            return stop(0, FaultKind::InFlight, "an accumulator of a product was written before the wait for the product");
        }
        Ok(())
    }

    /// Ends the products of all groups but the last ones of a number.
    fn end_products(&mut self, warp: &mut Warp, left: u32) -> Outcome<()> {
        let groups = warp.products.groups;
        let ends = |group: u32| group.saturating_add(left) < groups;
        let flying = std::mem::take(&mut warp.products.flying);
        let (ended, flying): (Vec<Flight>, Vec<Flight>) = flying.into_iter().partition(|flight| ends(flight.group));
        for flight in ended {
            self.shared.end_product(&flight.rows, &self.moment(warp, 0));
            let values = &warp.registers.narrow.values;
            if flight.left.iter().any(|(register, before)| values[*register as usize] != *before) {
                return stop(0, FaultKind::InFlight, "a register of a product's left factor was written before the wait for the product");
            }
        }
        warp.products.flying = flying;
        for index in 0..warp.products.accumulators.len() {
            let register = self.warpgroups.watched[index];
            if let Some((known, _)) = warp.products.accumulators[index].filter(|(_, group)| ends(*group)) {
                self.check_accumulator(warp, register)?;
                warp.registers.narrow.defined[register as usize] = known;
                warp.products.accumulators[index] = None;
            }
        }
        Ok(())
    }
}

/// The descriptors of a product, and whether it accumulates. All lanes have the same.
fn words(warp: &Warp, product: &GroupProduct) -> Outcome<[u64; 3]> {
    let descriptor = |register: Register| {
        let (values, defined) = (&warp.registers.wide.values[register as usize], warp.registers.wide.defined[register as usize]);
        if defined != FULL {
            return stop(first(!defined), FaultKind::UninitialisedRegister, "the descriptor depends on a value that was never written");
        }
        match (0..LANES).find(|lane| values[*lane] != values[0]) {
            Some(lane) => stop(lane, FaultKind::MatrixDescriptor, "a descriptor that differs from that of another lane"),
            None => Ok(values[0]),
        }
    };
    let (predicate, negated) = product.accumulates;
    let (value, defined) = (warp.registers.predicates[predicate as usize], warp.registers.predicates_defined[predicate as usize]);
    if defined != FULL || value != 0 && value != FULL {
        let lane = if defined == FULL { first(value) } else { first(!defined) };
        return stop(lane, FaultKind::WarpDivergence, "lanes of a warp do not agree on whether a product accumulates");
    }
    let a = if let Left::Descriptor(register) = product.a { descriptor(register)? } else { 0 };
    Ok([a, descriptor(product.b)?, u64::from((value == FULL) != negated)])
}

/// The matrix of a descriptor.
fn matrix(word: u64, transposed: bool, product: &GroupProduct) -> Outcome<Matrix> {
    let units = (product.depth() * product.number.bytes() / ROW) as u64;
    match Matrix::new(word, transposed) {
        Ok(matrix) if transposed || matrix.has_depth(units) => Ok(matrix),
        Ok(_) => stop(0, FaultKind::MatrixDescriptor, format!("the descriptor {word:#018x}: the depth passes the end of a swizzled row")),
        Err(text) => stop(0, FaultKind::MatrixDescriptor, text),
    }
}
