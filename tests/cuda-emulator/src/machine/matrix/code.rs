//! The operands of matrix instructions.

use crate::machine::{code::Address, registers::Register};

/// Numbers of the factors of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// f16.
    Half,
    /// bf16.
    Brain,
    /// f32 whose last 13 bits are ignored.
    Tf32,
}

/// `ldmatrix`: each group of 8 lanes has the addresses of the rows of one matrix.
#[derive(Clone, Debug)]
pub struct MatrixLoad {
    pub address: Address,
    /// A narrow register for each of 1, 2 or 4 matrices.
    pub to: Box<[Register]>,
    /// Whether the matrices are transposed.
    pub transposed: bool,
}

/// `mma`: the product of 16 rows and 8 columns, added to an accumulator of f32. All registers are narrow.
#[derive(Clone, Debug)]
pub struct Product {
    pub number: Number,
    /// Columns of the left factor.
    pub depth: usize,
    pub a: Box<[Register]>,
    pub b: Box<[Register]>,
    pub c: [Register; 4],
    pub d: [Register; 4],
}

/// An operation of four warps.
#[derive(Clone, Debug)]
pub enum Warpgroup {
    /// Orders accesses to registers before products.
    Fence,
    /// Begins a product.
    Product(Box<GroupProduct>),
    /// Makes a group of the products that are in none.
    Commit,
    /// Waits for all groups of products but the last ones of a number.
    Wait(u32),
}

/// `wgmma`: the product of 64 rows and some columns, added to an accumulator of f32. Each warp has 16 rows of it.
#[derive(Clone, Debug)]
pub struct GroupProduct {
    pub number: Number,
    /// Narrow registers of the accumulator: half as many as columns.
    pub d: Box<[Register]>,
    pub a: Left,
    /// A wide register with the descriptor of the right factor.
    pub b: Register,
    /// A predicate: whether the accumulator counts; and whether the predicate is negated.
    pub accumulates: (Register, bool),
    /// Whether the left and the right factor are negated.
    pub negated: [bool; 2],
    /// Whether the left and the right factor have their rows and columns side by side in memory, and not their depth.
    pub transposed: [bool; 2],
}

/// Where the left factor of a product of four warps is.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    /// In narrow registers.
    Registers([Register; 4]),
    /// In shared memory: a wide register with its descriptor.
    Descriptor(Register),
}
