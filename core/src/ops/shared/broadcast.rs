//! Broadcasting, for kernels with two operands: also for those of other crates.

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

/// True if [`rows`] is to pass rows of the second input first: the first operand is the one that goes along with the result, or shares its
/// memory.
///
/// # Errors
///
/// Fails unless the op has two inputs and an output.
#[inline(never)]
pub fn is_flipped(call: &Call<'_, '_>) -> Result<bool> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let (_, [along, _]) = runs(call.outputs.first().ok_or(Error::Internal)?.dims(), [a.dims(), b.dims()]);
    Ok(b.in_place() || (along == 0 && !a.in_place()))
}

/// Calls `f` with rows of both inputs, broadcast: of the first and the second, or of the second and the first if `flipped`, the result of
/// [`is_flipped`], is true. `f` replaces the elements of the first row with results. The second row is at least as long. `f` takes `cost`
/// instructions for an element.
///
/// # Errors
///
/// Fails unless the op has two inputs and an output.
#[inline(never)]
pub fn rows<T: Element>(call: &mut Call<'_, '_>, flipped: bool, cost: usize, f: &dyn Fn(&mut [T], &[T])) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let (own, other) = if flipped { (b, a) } else { (a, b) };
    let dims = call.output()?.dims();
    let (length, [_, along]) = runs(dims, [own.dims(), other.dims()]);
    let elements = call.output()?.data.len() / size_of::<T>();
    let elements = call.rows(elements, cost + 13 + run_cost(length));
    let (first, results) = (elements.start, call.output()?.slice_mut::<T>().get_mut(elements).unwrap_or_default());
    each_run(results, first, length, |start, row| {
        if let Some(own) = operand::<T>(&own, start, dims).get(..row.len()) {
            row.copy_from_slice(own);
        }
        let other_row = operand::<T>(&other, start, dims);
        let in_blocks = other.in_place() || along == 0;
        let mut block = [other_row.first().copied().unwrap_or(T::zeroed()); 32];
        for part in row.chunks_mut(if in_blocks { block.len() } else { other_row.len().max(1) }) {
            if other.in_place() {
                block.iter_mut().zip(part.iter()).for_each(|(to, from)| *to = *from);
            }
            f(part, if in_blocks { &block } else { other_row });
        }
    });
    Ok(())
}

/// Returns the elements of an operand from that on which meets position `start` of a result of dimensions `dims`.
fn operand<'a, T: Element>(of: &TensorView<'a>, start: usize, dims: &[u32]) -> &'a [T] {
    of.slice().get(position(start, dims, of.dims())..).unwrap_or_default()
}
