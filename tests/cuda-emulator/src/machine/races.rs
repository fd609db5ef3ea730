//! The record of races on device memory.

use super::{
    memory::{Fault, FaultKind},
    shadow::{Cell, Moment},
    spaces::{Kind, race},
};
use std::collections::HashMap;

/// Number of bytes whose cells lie together. An access is aligned, so it never crosses the border of a page.
const PAGE: usize = 256;
/// Number of pages that are found without a search.
const RECENT: usize = 64;

/// The threads that accessed each byte of device memory in a launch.
pub struct Races {
    /// Position of each page's first cell.
    pages: HashMap<u64, usize>,
    cells: Vec<Cell>,
    /// Some entries of `pages`, each at a position that depends on the page's number.
    recent: [(u64, usize); RECENT],
    /// When each block began.
    pub begins: Vec<u32>,
}

impl Default for Races {
    fn default() -> Self {
        Races { pages: HashMap::new(), cells: Vec::new(), recent: [(u64::MAX, 0); RECENT], begins: Vec::new() }
    }
}

impl Races {
    /// Checks and notes an access. A strong load, volatile or relaxed, does not race with atomic instructions.
    pub fn access(&mut self, address: u64, length: usize, moment: &Moment<'_>, kind: Kind, strong: bool) -> Result<(), Fault> {
        let first = self.page(address / PAGE as u64) + address as usize % PAGE;
        for (cell, address) in self.cells[first..first + length].iter_mut().zip(address..) {
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

    /// Returns the position of a page's first cell.
    fn page(&mut self, number: u64) -> usize {
        let recent = &mut self.recent[number as usize % RECENT];
        if recent.0 != number {
            let next = self.cells.len();
            let first = *self.pages.entry(number).or_insert(next);
            if first == next {
                self.cells.resize(next + PAGE, Cell::default());
            }
            *recent = (number, first);
        }
        recent.1
    }
}
