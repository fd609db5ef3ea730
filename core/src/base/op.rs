//! Op contract: the name of an op, the types it accepts, and the kernels that compute it.
//!
//! The parts of an op are separate: an [`OpDef`] is a static, and a [`Kernel`] is a constant that points to it. Nothing points back. A
//! firmware therefore links only the kernels that it names. Most kernels are generic functions, and a firmware compiles only those that it
//! names.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};
use core::ops::Range;

/// Largest number of inputs of an op.
pub const MAX_INPUTS: usize = 8;
/// Largest number of outputs of an op.
pub const MAX_OUTPUTS: usize = 3;

/// Value that means "none" in a record field, or as the next block of a control op.
pub const NONE: u32 = u32::MAX;

/// Number of an op in artifacts. Numbers are stable and never reused. `ops/mod.rs` lists gradlet's. Ops of users have numbers from 60,000
/// on, which gradlet's never have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpCode(pub u16);

/// Function that computes the output types from the input types and the attribute words, and writes them into the mutable slice.
/// Fails if the inputs or attributes do not fit the op.
pub type ShapeRule = fn(&[TensorType], &[u32], &mut [TensorType]) -> Result<()>;

/// Definition of an op: everything that holds for every kernel and device.
pub struct OpDef {
    /// Number in artifacts.
    pub code: OpCode,
    /// Name of the op, which is also the name of its file.
    pub name: &'static str,
    /// Smallest and largest number of inputs.
    pub inputs: (u8, u8),
    /// Number of outputs, at most [`MAX_OUTPUTS`].
    pub outputs: u8,
    /// Shape rule, which also checks the attributes.
    pub infer: ShapeRule,
    /// Index pairs (input, output) of operands that may share their bytes. If a pair does, the kernel must read that input through
    /// the output.
    pub in_place: &'static [(u8, u8)],
}

impl OpDef {
    /// Returns the output types for `inputs` and `attributes`. The first [`OpDef::outputs`] entries are set.
    ///
    /// Fails if the number of inputs, a dtype, a dimension or an attribute does not fit the op.
    pub fn output_types(&self, inputs: &[TensorType], attributes: &[u32]) -> Result<[TensorType; MAX_OUTPUTS]> {
        if inputs.len() < usize::from(self.inputs.0) || inputs.len() > usize::from(self.inputs.1) {
            return Err(Error::Arity { got: inputs.len() as u8 });
        }
        let mut outputs = [TensorType::EMPTY; MAX_OUTPUTS];
        (self.infer)(inputs, attributes, &mut outputs)?;
        Ok(outputs)
    }
}

/// Function that computes an op for one element type.
pub struct Kernel {
    /// The op.
    pub def: &'static OpDef,
    /// Element type of input 0, or of output 0 if the op has no inputs.
    pub dtype: DType,
    /// Computes the outputs: the rows that [`Call::rows`] returns, or all of them. Unless it returns an error, it writes every element of
    /// the outputs by the end of the last call.
    pub run: fn(&mut Call<'_, '_>) -> Result<()>,
}

/// Operands of one kernel run. Their types were accepted by the kernel's [`OpDef`].
///
/// A kernel can do its work in several calls, one for each *slice* of a session's run
/// ([`Session::advance`](crate::Session::advance)). It divides its work into rows and asks [`Call::rows`] for those to compute. The
/// operands of all calls are the same, and the outputs keep what the calls before have written. A kernel that never asks does all of its
/// work in one call.
pub struct Call<'c, 'd> {
    /// The attribute words.
    pub attributes: &'c [u32],
    /// The inputs.
    pub inputs: &'c [TensorView<'d>],
    /// The outputs.
    pub outputs: &'c mut [TensorViewMut<'d>],
    /// The part of the work that this call does.
    pub slice: &'c mut Slice,
}

/// The part of a kernel's work that one call does, and how far it has come.
pub struct Slice {
    /// The first row to compute. For the kernel of a branch or loop, the number of times that it was asked for a block to run.
    pub first: u32,
    /// The number of rows to compute even if the budget does not cover them.
    pub(crate) least: u32,
    /// Remaining budget, in instructions.
    pub(crate) budget: u32,
    /// The instructions that the slice may take beyond its budget, so that it does not end just before the end of a row.
    pub(crate) beyond: u32,
    /// Cost of a row, in instructions, if the budget did not cover all rows.
    pub(crate) row: u32,
    /// The row after the last one that was computed, or [`NONE`] if no rows are left. From the kernel of a loop: the next `first`.
    pub(crate) next: u32,
    /// Answer of a kernel without outputs: a block to run, [`NONE`], or one of the numbers of a [`Said`](crate::base::format::Said).
    pub(crate) answer: u32,
    /// True if the kernel knows that all values it has written in this call are finite if the old values of its variables were.
    pub(crate) finite: bool,
}

impl Slice {
    /// Cost of an instruction without the rows of its kernel, in instructions of a Cortex-M4.
    pub(crate) const DISPATCH: u32 = 400;

    /// Budget below which a slice does not begin another instruction, because most of it would go into the beginning.
    const WORTHWHILE: u32 = 600;

    /// Returns the slice that consists of all rows.
    pub const fn all() -> Slice {
        Slice { first: 0, least: NONE, budget: NONE, beyond: 0, row: 0, next: NONE, answer: NONE, finite: false }
    }

    /// Rows for `budget` instructions, but at least one.
    pub(crate) const fn of(budget: u32) -> Slice {
        Slice { budget, beyond: budget / 8, least: 2, ..Slice::all() }
    }

    /// Takes the rows that [`Call::rows`] returns.
    #[inline(always)]
    pub(crate) fn take(&mut self, total: usize, cost: usize) -> Range<usize> {
        match total.checked_mul(cost) {
            Some(all) if self.first == 0 && all <= self.budget as usize => {
                self.budget -= all as u32;
                0..total
            }
            _ => self.take_some(total, cost),
        }
    }

    /// Takes rows if the budget may not cover all of them. A slice that has taken a row takes further ones only if the budget covers them.
    #[inline(never)]
    fn take_some(&mut self, total: usize, cost: usize) -> Range<usize> {
        let first = (self.first as usize).min(total);
        // A host may have more than `u32::MAX` rows.
        if self.least == NONE {
            return first..total;
        }
        let cost = cost.max(1);
        let (left, most) = (total - first, self.budget.saturating_add(self.beyond) as usize / cost);
        // The rest of an instruction may take more than the budget, and so may the last row.
        let count = if left <= most { left } else { most.min((self.budget as usize).div_ceil(cost)) };
        let count = count.max(self.least as usize).min(left);
        if count > 0 {
            self.least = 0;
        }
        let next = first + count;
        self.next = if next == total { NONE } else { next as u32 };
        self.budget = self.budget.saturating_sub(count.saturating_mul(cost).min(NONE as usize) as u32);
        self.row = cost.min(NONE as usize) as u32;
        first..next
    }

    /// Takes the cost of an instruction, without its kernel, from the budget. Returns false if the budget covers little more.
    #[inline(always)]
    pub(crate) fn enter(&mut self) -> bool {
        if self.least != NONE {
            if self.least < 2 && self.budget < Slice::WORTHWHILE {
                return false;
            }
            // The first instruction of a slice computes at least one row, so that every slice gets on.
            self.least /= 2;
            self.budget = self.budget.saturating_sub(Slice::DISPATCH);
        }
        true
    }
}

impl<'d> Call<'_, 'd> {
    /// Returns the rows that this call computes, in ascending order: some of `total` rows. `cost` is about the number of instructions that
    /// a Cortex-M4 needs for a row of elements with 32 bits. The range is empty if the budget of the slice does not cover a row. The kernel
    /// then does nothing and returns.
    ///
    /// A kernel calls this at most once. It keeps whatever one row leaves for the next in its outputs. The first range that is not empty
    /// begins at 0, and the last one ends at `total`.
    ///
    /// ```
    /// # use gradlet_core::{Result, custom_op::Call};
    /// fn run(call: &mut Call<'_, '_>) -> Result<()> {
    ///     let x = call.input(0)?.slice::<f32>();
    ///     let rows = call.rows(x.len(), 10);
    ///     let y = call.output()?.slice_mut::<f32>();
    ///     for (y, x) in y.iter_mut().zip(x).take(rows.end).skip(rows.start) {
    ///         *y = x * x;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[inline(always)]
    pub fn rows(&mut self, total: usize, cost: usize) -> Range<usize> {
        self.slice.take(total, cost)
    }

    /// Returns the mean cost of the next rows that the budget covers, for [`Call::rows`]. `cost` returns the cost of a row that can differ
    /// from the cost of another. In a whole run, the cost does not matter.
    pub(crate) fn mean_cost(&self, total: usize, cost: impl Fn(usize) -> usize) -> usize {
        let (mut count, mut sum) = (0, 0);
        let Slice { first, least, budget, .. } = *self.slice;
        for row in first as usize..if least == NONE { 0 } else { total } {
            let next = sum + cost(row);
            if next > budget as usize {
                // The rows before take the whole budget.
                return (budget as usize).checked_div(count).unwrap_or(next);
            }
            (count, sum) = (count + 1, next);
        }
        sum / count.max(1)
    }

    /// Returns input `index`. Fails with [`Error::Arity`] if there is none.
    #[inline]
    pub fn input(&self, index: usize) -> Result<TensorView<'d>> {
        self.inputs.get(index).copied().ok_or(Error::Arity { got: self.inputs.len() as u8 })
    }

    /// Returns the attributes as an `A`. Fails with [`Error::Attribute`] if the number of words does not fit `A`.
    #[inline]
    pub fn attributes<A: bytemuck::AnyBitPattern>(&self) -> Result<A> {
        read_attributes(self.attributes)
    }

    /// Returns output 0. Fails with [`Error::Internal`] if the op has no output.
    #[inline]
    pub fn output(&mut self) -> Result<&mut TensorViewMut<'d>> {
        self.outputs.first_mut().ok_or(Error::Internal)
    }
}

/// Reads attribute words as the op's attribute struct. Fails with [`Error::Attribute`] if there are too few or too many.
#[inline]
pub fn read_attributes<A: bytemuck::AnyBitPattern>(words: &[u32]) -> Result<A> {
    bytemuck::try_pod_read_unaligned(bytemuck::cast_slice(words)).map_err(|_| Error::Attribute { index: 0 })
}
