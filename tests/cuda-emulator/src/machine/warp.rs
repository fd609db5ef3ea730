//! A warp: its registers, and where its lanes are.

use super::{
    Launch,
    code::{Function, Word},
    copies::Copies,
    matrix::Products,
    registers::{FULL, LANES, Registers, lanes},
    spaces::Local,
};

/// No lane is there.
pub const NOWHERE: u32 = u32::MAX;

/// The state of a warp.
pub struct Warp {
    pub registers: Registers,
    pub local: Local,
    /// Its number in the block.
    pub index: u32,
    /// Where each lane is.
    pub places: [u32; LANES],
    /// Lanes that stand for a thread, and those of them that have not ended.
    pub present: u32,
    pub live: u32,
    /// Lanes that wait at a barrier of the block.
    pub waiting: u32,
    /// Lanes that wait for others of the warp.
    pub parked: u32,
    /// The time of the last synchronization.
    pub synchronized: u32,
    /// The threads' coordinates along x, y, z.
    pub threads: [[u32; LANES]; 3],
    /// See [`Moment::seen`](super::shadow::Moment::seen).
    pub seen: Vec<u32>,
    pub copies: Copies,
    pub products: Products,
}

impl Warp {
    /// A warp whose constants are set.
    pub fn new(function: &Function) -> Self {
        let mut registers = Registers::new(function.narrow as usize, function.wide as usize, function.predicates as usize);
        registers.predicates[0] = FULL;
        registers.predicates_defined[0] = FULL;
        for constant in &function.constants {
            let value = match constant.value {
                Word::Bits(value) | Word::Linked(value) => value,
                Word::Address(..) => continue,
            };
            if constant.wide {
                registers.wide.set(constant.register, [value; LANES], FULL, FULL);
            } else {
                registers.narrow.set(constant.register, [value as u32; LANES], FULL, FULL);
            }
        }
        Self {
            registers,
            local: Local::new(function.local as usize),
            index: 0,
            places: [0; LANES],
            present: 0,
            live: 0,
            waiting: 0,
            parked: 0,
            synchronized: 0,
            threads: [[0; LANES]; 3],
            seen: Vec::new(),
            copies: Copies::default(),
            products: Products::default(),
        }
    }

    /// Begins the warp of a number. `template` is a warp that has not run.
    pub fn begin(&mut self, index: u32, launch: &Launch<'_>, template: &Registers, time: u32) {
        self.registers.reset(template);
        self.local.written.fill(0);
        let [x, y, z] = launch.block;
        let first = index * LANES as u32;
        let count = (x * y * z - first).min(LANES as u32);
        for lane in 0..LANES {
            let thread = first + lane as u32;
            let (row, column) = if thread < x { (0, thread) } else { (thread / x, thread % x) };
            self.threads[0][lane] = column;
            self.threads[1][lane] = row % y;
            self.threads[2][lane] = row / y;
        }
        self.index = index;
        self.places = [launch.function.start; LANES];
        self.present = FULL >> (LANES as u32 - count);
        self.live = self.present;
        (self.waiting, self.parked, self.synchronized) = (0, 0, time);
        self.seen.fill(0);
        self.products.begin();
    }

    /// The number of a lane's thread in its block.
    pub fn thread(&self, lane: usize) -> u16 {
        (self.index * LANES as u32 + lane as u32) as u16
    }

    /// Lanes that can go on.
    pub fn runnable(&self) -> u32 {
        self.live & !self.waiting & !self.parked
    }

    /// The lanes that are behind all others: where they are, which they are, and where the next ones are.
    pub fn hindmost(&self) -> Option<(u32, u32, u32)> {
        let runnable = self.runnable();
        let mut place = NOWHERE;
        for lane in lanes(runnable) {
            place = place.min(self.places[lane]);
        }
        let (mut mask, mut next) = (0, NOWHERE);
        for lane in lanes(runnable) {
            if self.places[lane] == place {
                mask |= 1 << lane;
            } else {
                next = next.min(self.places[lane]);
            }
        }
        (mask != 0).then_some((place, mask, next))
    }

    /// Moves lanes.
    pub fn move_to(&mut self, mask: u32, place: u32) {
        for lane in lanes(mask) {
            self.places[lane] = place;
        }
    }

    /// The lanes of a mask that are at a place.
    pub fn at(&self, mask: u32, place: u32) -> u32 {
        lanes(mask).filter(|lane| self.places[*lane] == place).fold(0, |found, lane| found | 1 << lane)
    }
}
