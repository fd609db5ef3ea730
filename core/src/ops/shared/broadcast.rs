//! Broadcasting: the rows and elements of operands that meet those of a result.
//!
//! ```
//! use gradlet_core::Result;
//! use gradlet_core::custom_op::Call;
//! use gradlet_core::custom_op::broadcast::{self, Order};
//!
//! /// Kernel of `a - 2b`, whose operands broadcast.
//! fn run(call: &mut Call<'_, '_>) -> Result<()> {
//!     let order = Order::new(call)?;
//!     let [p, q] = order.of([1.0, -2.0]);
//!     broadcast::rows(call, order, 8, &move |x: &mut [f32], y| x.iter_mut().zip(y).for_each(|(x, y)| *x = p * *x + q * y))
//! }
//! ```

use crate::base::dtype::Element;
use crate::base::error::{Error, Result};
use crate::base::op::Call;
use crate::base::view::TensorView;

/// Divides a broadcast result of dimensions `dims` into runs of equal length, and returns this length and a mask for each operand.
/// Within a run, an operand either advances with the result (mask all ones) or stays at one element (mask 0). The operand's offset
/// is the offset in the run, masked.
#[inline(never)]
pub(in crate::ops) fn runs<const N: usize>(dims: &[u32], operands: [&[u32]; N]) -> (usize, [usize; N]) {
    let (mut length, mut masks) = (1, [0; N]);
    for (back, &dim) in dims.iter().rev().enumerate().filter(|(_, dim)| **dim != 1) {
        let own = |operand: &[u32]| operand.iter().rev().nth(back).is_some_and(|&own| own != 1);
        let goes_on = operands.map(|operand| if own(operand) { usize::MAX } else { 0 });
        if length != 1 && goes_on != masks {
            break;
        }
        (length, masks) = ((dim as usize).wrapping_mul(length), goes_on);
    }
    (length, masks)
}

/// Returns the position, in an operand of dimensions `operand`, of the element that broadcasting puts at position `index` of a
/// result of dimensions `dims`.
#[inline(never)]
pub fn position(index: usize, dims: &[u32], operand: &[u32]) -> usize {
    if index == 0 {
        return 0;
    }
    let (mut rest, mut stride, mut position) = (index, 1usize, 0usize);
    for (&dim, &own) in dims.iter().rev().zip(operand.iter().rev()) {
        let dim = dim.max(1) as usize;
        if own != 1 {
            position = position.wrapping_add((rest % dim).wrapping_mul(stride));
            stride = stride.wrapping_mul(own as usize);
        }
        rest /= dim;
    }
    position
}

/// Calls `f` for each run, or part of a run, of `elements`: with its position in a result with runs of `length`, and its elements. `start`
/// is the position of the first element.
#[inline(always)]
pub(in crate::ops) fn each_run<T>(mut elements: &mut [T], mut start: usize, length: usize, mut f: impl FnMut(usize, &mut [T])) {
    let length = length.max(1);
    let mut next = length - start % length;
    while let Some((run, rest)) = elements.split_at_mut_checked(next.min(elements.len())).filter(|(run, _)| !run.is_empty()) {
        f(start, run);
        start += next;
        (elements, next) = (rest, length);
    }
}

/// Cost of the beginning of a run of a broadcast result, in instructions, for each element of a run of `length`.
pub(in crate::ops) fn run_cost(length: usize) -> usize {
    250 / length.max(1)
}

/// The operands of [`rows`]: x advances with the result or shares its memory, and y is the other input.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// True if x is the second input.
    flipped: bool,
}

impl Order {
    /// Returns the order of the inputs of `call`.
    ///
    /// # Errors
    ///
    /// Fails unless the op has two inputs and an output.
    #[inline(never)]
    pub fn new(call: &Call<'_, '_>) -> Result<Order> {
        let (a, b) = (call.input(0)?, call.input(1)?);
        let (_, [along, _]) = runs(call.outputs.first().ok_or(Error::Internal)?.dims(), [a.dims(), b.dims()]);
        Ok(Order { flipped: b.in_place() || (along == 0 && !a.in_place()) })
    }

    /// Returns what belongs to x and to y, for what belongs to the first and to the second input.
    #[inline(always)]
    pub fn of<T>(self, [a, b]: [T; 2]) -> [T; 2] {
        if self.flipped { [b, a] } else { [a, b] }
    }
}

/// Calls `f` with rows of both inputs, broadcast, or with pieces of rows: first of x, then of y. `f` replaces the elements of x, which are
/// those of the op's first output, with results. y is at least as long as x. `f` takes at most `cost` instructions for an element.
///
/// # Errors
///
/// Fails unless the op has two inputs and an output.
#[inline(never)]
pub fn rows<T: Element>(call: &mut Call<'_, '_>, order: Order, cost: usize, f: &dyn Fn(&mut [T], &[T])) -> Result<()> {
    let [x, y] = order.of([call.input(0)?, call.input(1)?]);
    let dims = call.output()?.dims();
    let (length, [_, along]) = runs(dims, [x.dims(), y.dims()]);
    let elements = call.output()?.data.len() / size_of::<T>();
    let elements = call.rows(elements, cost + 13 + ROW / length.max(1));
    let (first, results) = (elements.start, call.output()?.slice_mut::<T>().get_mut(elements).unwrap_or_default());
    each_run(results, first, length, |start, row| {
        if let Some(x) = operand::<T>(&x, start, dims).get(..row.len()) {
            row.copy_from_slice(x);
        }
        let y_row = operand::<T>(&y, start, dims);
        if along != 0 && !y.in_place() {
            return f(row, y_row);
        }
        let mut block = [y_row.first().copied().unwrap_or(T::zeroed()); BLOCK];
        for part in row.chunks_mut(BLOCK) {
            if y.in_place() {
                block.iter_mut().zip(part.iter()).for_each(|(to, from)| *to = *from);
            }
            f(part, &block);
        }
    });
    Ok(())
}

/// Elements of a piece of a row whose y is repeated.
const BLOCK: usize = 32;
/// Cost of the beginning of a row of [`rows`], in instructions.
const ROW: usize = 450;

/// Returns the elements of an operand from that on which meets position `start` of a result of dimensions `dims`.
fn operand<'a, T: Element>(of: &TensorView<'a>, start: usize, dims: &[u32]) -> &'a [T] {
    of.slice().get(position(start, dims, of.dims())..).unwrap_or_default()
}
