//! `mma`: products of a warp.

use super::{
    code::{Number, Product},
    converged,
    numbers::place,
};
use crate::machine::{
    arithmetic::float::Float,
    engine::{Engine, Outcome},
    fused,
    memory::Memory,
    registers::{FULL, LANES, Register, Registers},
    warp::Warp,
};

/// Rows and columns of a product, and the most columns of its left factor.
pub const ROWS: usize = 16;
pub const COLUMNS: usize = 8;
pub const DEPTH: usize = 16;

/// Sums of a product of 16 rows and 8 columns.
pub type Tile = [[f64; COLUMNS]; ROWS];

impl<M: Memory> Engine<'_, M> {
    /// Executes a product.
    pub fn product(&mut self, warp: &mut Warp, product: &Product, active: u32) -> Outcome<()> {
        converged(active)?;
        let registers = &mut warp.registers;
        let (mut a, mut b, mut sums) = ([[0.0; DEPTH]; ROWS], [[0.0; COLUMNS]; DEPTH], [[0.0; COLUMNS]; ROWS]);
        left(registers, product.number, &product.a, &mut a);
        right(registers, product.number, &product.b, &mut b);
        let known = defined(registers, &product.a) & defined(registers, &product.b);
        let known = if known == FULL { FULL } else { 0 };
        accumulators(registers, &product.c, &mut sums);
        fused::multiply(&a, &b, product.depth, &mut sums);
        for (index, (c, d)) in product.c.iter().zip(&product.d).enumerate() {
            let known = known & registers.narrow.defined[*c as usize];
            registers.narrow.set(*d, results(&sums, index), FULL, known);
        }
        Ok(())
    }
}

/// The lanes that have all of some registers.
pub fn defined(registers: &Registers, list: &[Register]) -> u32 {
    list.iter().fold(FULL, |all, register| all & registers.narrow.defined[*register as usize])
}

/// Reads the left factor: a register has one or two numbers of a row of the first or second eight.
pub fn left(registers: &Registers, number: Number, list: &[Register], a: &mut [[f64; DEPTH]; ROWS]) {
    let parts = number.per_register();
    for (index, register) in list.iter().enumerate() {
        for (lane, word) in registers.narrow.values[*register as usize].iter().enumerate() {
            let (row, first) = place(lane);
            for part in 0..parts {
                a[row + index % 2 * 8][index / 2 * 4 * parts + first * parts + part] = number.part(*word, part);
            }
        }
    }
}

/// Reads the right factor: a register has one or two numbers of a column.
fn right(registers: &Registers, number: Number, list: &[Register], b: &mut [[f64; COLUMNS]; DEPTH]) {
    let parts = number.per_register();
    for (index, register) in list.iter().enumerate() {
        for (lane, word) in registers.narrow.values[*register as usize].iter().enumerate() {
            let (column, first) = place(lane);
            for part in 0..parts {
                b[index * 4 * parts + first * parts + part][column] = number.part(*word, part);
            }
        }
    }
}

/// Reads the sums of a tile from four registers.
pub fn accumulators(registers: &Registers, list: &[Register], sums: &mut Tile) {
    for (index, register) in list.iter().enumerate() {
        for (lane, word) in registers.narrow.values[*register as usize].iter().enumerate() {
            let (row, first) = place(lane);
            sums[row + index / 2 * 8][2 * first + index % 2] = f32::from_bits(*word).into();
        }
    }
}

/// The words of one of a tile's four registers.
pub fn results(sums: &Tile, index: usize) -> [u32; LANES] {
    std::array::from_fn(|lane| {
        let (row, first) = place(lane);
        (sums[row + index / 2 * 8][2 * first + index % 2] as f32).canonical().to_bits()
    })
}

/// Adds the product of factors of a depth to sums.
#[inline(always)]
pub fn accumulate(a: &[[f64; DEPTH]; ROWS], b: &[[f64; COLUMNS]; DEPTH], depth: usize, sums: &mut Tile) {
    for (row, sums) in a.iter().zip(sums) {
        for (left, right) in row.iter().zip(b).take(depth) {
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum += left * right;
            }
        }
    }
}
