//! Shape rules and loops of elementwise ops, with broadcasting and in-place operands.

use crate::base::dtype::{Bool, DType, Element, Number};
use crate::base::error::{Error, Result};
use crate::base::op::Call;
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};
use crate::ops::shared::broadcast::{each_run, position, run_cost, runs};
use crate::ops::shared::runs::elements_mut;
#[cfg(feature = "alloc")]
use crate::tensor::Tensor;
use bytemuck::Pod;

/// Shape rule of an op with one input and an output of the same type. The op takes no attributes.
pub(in crate::ops) fn same(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    let [x, ..] = inputs else { return Err(Error::Internal) };
    set(outputs, *x)
}

/// Writes `tensor_type` to output 0 of a shape rule.
pub(in crate::ops) fn set(outputs: &mut [TensorType], tensor_type: TensorType) -> Result<()> {
    *outputs.first_mut().ok_or(Error::Internal)? = tensor_type;
    Ok(())
}

/// Shape rule of an op with two inputs of the same element type, which broadcast. The op takes no attributes.
pub(in crate::ops) fn broadcast(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    let [a, b] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if b.dtype != a.dtype {
        return Err(Error::DType { input: 1 });
    }
    set(outputs, TensorType::new(a.dtype, a.shape.broadcast(&b.shape)?))
}

/// [`same`], restricted to floats.
pub(in crate::ops) fn same_float(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    float(0, inputs)?;
    same(inputs, attributes, outputs)
}

/// [`broadcast`], restricted to floats.
pub(in crate::ops) fn broadcast_float(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    float(0, inputs)?;
    broadcast(inputs, attributes, outputs)
}

/// Shape rule of a comparison. The two inputs have the same element type and broadcast, and the output is boolean.
pub(in crate::ops) fn comparison(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    broadcast(inputs, attributes, outputs)?;
    outputs.iter_mut().take(1).for_each(|output| output.dtype = DType::Bool);
    Ok(())
}

/// [`broadcast`], restricted to booleans.
pub(in crate::ops) fn logical(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    boolean(0, inputs)?;
    broadcast(inputs, attributes, outputs)
}

/// Fails unless input `index` has the same type as input 0.
pub(in crate::ops) fn like_first(index: usize, inputs: &[TensorType]) -> Result<()> {
    let input = index as u8;
    let (Some(want), Some(got)) = (inputs.first(), inputs.get(index)) else { return Err(Error::Arity { got: input }) };
    if got.dtype != want.dtype {
        return Err(Error::DType { input });
    }
    same_dims(input, want.shape.dims(), got.shape.dims())
}

/// Fails unless `got`, the dimensions of the op's input `input`, equals `want`.
pub(in crate::ops) fn same_dims(input: u8, want: &[u32], got: &[u32]) -> Result<()> {
    if got.len() != want.len() {
        return Err(Error::Rank { input });
    }
    for (axis, (&want, &got)) in want.iter().zip(got).enumerate() {
        if got != want {
            return Err(Error::Dimension { input, axis: axis as u8, want, got });
        }
    }
    Ok(())
}

/// Fails unless the elements of input `input` are floats. Ops that are undefined on integers, such as gradients and exponentials,
/// call this function.
pub(in crate::ops) fn float(input: usize, inputs: &[TensorType]) -> Result<()> {
    if inputs.get(input).is_some_and(|x| x.dtype.is_float()) { Ok(()) } else { Err(Error::DType { input: input as u8 }) }
}

/// Fails unless the elements of input `input` are booleans.
pub(in crate::ops) fn boolean(input: usize, inputs: &[TensorType]) -> Result<()> {
    if inputs.get(input).is_some_and(|x| x.dtype == DType::Bool) { Ok(()) } else { Err(Error::DType { input: input as u8 }) }
}

/// Returns the position of the first element of output 0 that this call computes, and these elements. `cost` is the number of instructions
/// for an element.
#[inline(never)]
pub(in crate::ops) fn part<'c, T: Pod>(call: &'c mut Call<'_, '_>, cost: usize) -> (usize, &'c mut [T]) {
    let total = call.outputs.first().map_or(0, |output| output.data.len() / size_of::<T>());
    let rows = call.rows(total, cost);
    let start = rows.start;
    let output = call.outputs.first_mut().and_then(|output| elements_mut(output.data).get_mut(rows));
    (start, output.unwrap_or_default())
}

/// Returns the cost of a function that takes `cost` instructions for f32. For f64, functions slow down more than loads and stores.
pub(in crate::ops) const fn scaled<T>(cost: usize) -> usize {
    if size_of::<T>() == 8 { 2 * cost } else { cost }
}

/// Writes `f` of each element of input 0 to output 0. The two may share memory. `cost` is the number of instructions of `f`.
#[inline(always)]
pub(in crate::ops) fn unary<T: Element>(call: &mut Call<'_, '_>, cost: usize, f: impl Fn(T) -> T) -> Result<()> {
    let x = call.input(0)?;
    let (start, output) = part::<T>(call, scaled::<T>(cost) + 5);
    if x.in_place() {
        output.iter_mut().for_each(|y| *y = f(*y));
    } else {
        output.iter_mut().zip(x.slice().get(start..).unwrap_or_default()).for_each(|(y, &x)| *y = f(x));
    }
    Ok(())
}

/// Applies `f`, of a few instructions, to each pair of elements at the same position of two inputs of the same type. The first input may
/// share the output's memory. Otherwise it is copied there first, so a firmware needs only one loop.
#[inline(always)]
pub(in crate::ops) fn pairs<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> T) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let (start, output) = part::<T>(call, 15);
    if let Some(a) = a.slice().get(start..).and_then(|a| a.get(..output.len())) {
        output.copy_from_slice(a);
    }
    each_pair(output, b.slice().get(start..).unwrap_or_default(), f);
    Ok(())
}

/// Replaces each element `x` of `to` with `f(x, y)`, where `y` is the element of `from` at the same position. `from` may not be
/// shorter. Blocks of four are written out by hand, because `-Os` does not unroll.
#[inline(always)]
fn each_pair<T: Element>(to: &mut [T], from: &[T], f: impl Fn(T, T) -> T) {
    let (from_blocks, from_rest) = from.get(..to.len()).unwrap_or_default().as_chunks::<4>();
    let (blocks, rest) = to.as_chunks_mut::<4>();
    for ([a, b, c, d], &[p, q, r, s]) in blocks.iter_mut().zip(from_blocks) {
        (*a, *b, *c, *d) = (f(*a, p), f(*b, q), f(*c, r), f(*d, s));
    }
    rest.iter_mut().zip(from_rest).for_each(|(to, &from)| *to = f(*to, from));
}

/// Adds `row` to each row of `to`, which has rows of the same length. An empty `row` adds nothing.
#[inline(never)]
pub(in crate::ops) fn add_to_rows<T: Number>(to: &mut [T], row: &[T]) {
    if !row.is_empty() {
        to.chunks_exact_mut(row.len()).for_each(|to| each_pair(to, row, T::add));
    }
}

/// Copies the bytes of input 0 to output 0, unless the two share memory.
pub(in crate::ops) fn copy(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    copy_bytes(&x, call.output()?);
    Ok(())
}

/// Copies the bytes of `from` to `to`, unless the two share memory.
pub(in crate::ops) fn copy_bytes(from: &TensorView<'_>, to: &mut TensorViewMut<'_>) {
    copy_elements(from.bytes(), to.data);
}

/// Copies `from` to the beginning of `to`.
#[inline(always)]
pub(in crate::ops) fn copy_elements<T: Copy>(from: &[T], to: &mut [T]) {
    if let Some(to) = to.get_mut(..from.len()) {
        to.copy_from_slice(from);
    }
}

/// Kernel that copies input 0 to output 0, unless the two share memory.
pub(in crate::ops) fn identity(call: &mut Call<'_, '_>) -> Result<()> {
    let from = call.input(0)?.bytes();
    let rows = call.rows(from.len(), 1);
    if let (Some(from), Some(to)) = (from.get(rows.clone()), call.output()?.data.get_mut(rows)) {
        copy_elements(from, to);
    }
    Ok(())
}

/// Applies `f` to each pair of corresponding elements of two inputs, after broadcasting. The result has the same element type. `cost` is
/// the number of instructions of `f`.
#[inline(always)]
pub(in crate::ops) fn binary<T: Element>(call: &mut Call<'_, '_>, cost: usize, f: impl Fn(T, T) -> T) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let dims = call.output()?.dims();
    let (length, [p, q]) = runs(dims, [a.dims(), b.dims()]);
    let (left, right) = (a.slice::<T>(), b.slice::<T>());
    let (first, output) = part::<T>(call, scaled::<T>(cost) + 13 + run_cost(length));
    each_run(output, first, length, |start, run| {
        let left = left.get(position(start, dims, a.dims())..).unwrap_or(&[]);
        let right = right.get(position(start, dims, b.dims())..).unwrap_or(&[]);
        if p != 0 && !b.in_place() {
            // Copy the first operand into the output, so that one fast loop serves all cases. A scalar is repeated for it.
            if let Some(left) = left.get(..run.len()) {
                run.copy_from_slice(left);
            }
            let repeated = [right.first().copied().unwrap_or(T::zeroed()); 8];
            let right = if q != 0 { right } else { &repeated };
            for part in run.chunks_mut(right.len().max(1)) {
                each_pair(part, right, &f);
            }
        } else {
            for (k, slot) in run.iter_mut().enumerate() {
                // An input that shares the output's memory has no slice of its own. Its element is then in `slot`.
                *slot = f(left.get(k & p).copied().unwrap_or(*slot), right.get(k & q).copied().unwrap_or(*slot));
            }
        }
    });
    Ok(())
}

/// A version of [`binary`] with the smallest code size, for integers.
#[inline(always)]
pub(in crate::ops) fn binary_small<T: Element>(call: &mut Call<'_, '_>, cost: usize, f: impl Fn(T, T) -> T) -> Result<()> {
    binary_checked(call, cost, |a, b, _| Ok(f(a, b)))
}

/// A version of [`binary_small`] for an `f` that can fail. `f` also gets the position of the second element in its input.
#[inline(always)]
pub(in crate::ops) fn binary_checked<T: Element>(call: &mut Call<'_, '_>, cost: usize, f: impl Fn(T, T, u32) -> Result<T>) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let dims = call.output()?.dims();
    let (left, right) = (a.slice::<T>(), b.slice::<T>());
    let (a_whole, b_whole) = (a.dims() == dims, b.dims() == dims);
    let (first, output) = part::<T>(call, cost + if a_whole && b_whole { 40 } else { 100 });
    for (index, slot) in output.iter_mut().enumerate() {
        let index = first + index;
        let i = if a_whole { index } else { position(index, dims, a.dims()) };
        let j = if b_whole { index } else { position(index, dims, b.dims()) };
        *slot = f(left.get(i).copied().unwrap_or(*slot), right.get(j).copied().unwrap_or(*slot), Error::position(j))?;
    }
    Ok(())
}

/// Applies `f` to each pair of corresponding elements of two inputs, after broadcasting. The result is boolean.
#[inline(always)]
pub(in crate::ops) fn compare<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> bool) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let dims = output.dims();
    let (left, right) = (a.slice::<T>(), b.slice::<T>());
    // Fast path for single elements, such as the condition of a loop.
    if let ([y], [a], [b]) = (output.slice_mut::<Bool>(), left, right) {
        *y = f(*a, *b).into();
        return Ok(());
    }
    let (length, [p, q]) = runs(dims, [a.dims(), b.dims()]);
    let cost = if size_of::<T>() == 8 { 66 } else { 21 };
    let (first, output) = part::<Bool>(call, cost + run_cost(length));
    each_run(output, first, length, |start, run| {
        let left = left.get(position(start, dims, a.dims())..).unwrap_or(&[]);
        let right = right.get(position(start, dims, b.dims())..).unwrap_or(&[]);
        for (k, slot) in run.iter_mut().enumerate() {
            if let (Some(&a), Some(&b)) = (left.get(k & p), right.get(k & q)) {
                *slot = f(a, b).into();
            }
        }
    });
    Ok(())
}

/// A version of [`binary_small`] for the division of integers. Fails with [`Error::DivisionByZero`] if a divisor that is used is 0.
#[inline(always)]
pub(in crate::ops) fn divide<T: Number>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> T) -> Result<()> {
    binary_checked(call, 12, |a, b, position| if b == T::ZERO { Err(Error::DivisionByZero { node: 0, position }) } else { Ok(f(a, b)) })
}

/// Returns the quotient of two integers, truncated toward zero, and the remainder.
#[inline(always)]
pub(in crate::ops) fn quotient_remainder<T: Number>(a: T, b: T) -> (T, T) {
    let quotient = a.div(b);
    (quotient, a.sub(quotient.mul(b)))
}

/// True if the remainder is not 0 and its sign differs from the divisor's.
#[inline(always)]
pub(in crate::ops) fn signs_differ<T: Number>(remainder: T, divisor: T) -> bool {
    remainder != T::ZERO && (remainder < T::ZERO) != (divisor < T::ZERO)
}

/// Returns the gradient of a broadcast operand: `gradient`, summed over the axes that were broadcast, in the operand's shape.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn unbroadcast(gradient: &Tensor, operand: &Tensor) -> Result<Tensor> {
    let (from, to) = (gradient.dims(), operand.dims());
    if from == to {
        return Ok(gradient.clone());
    }
    let skip = from.len() - to.len();
    let widened = |axis: &usize| *axis < skip || (to[axis - skip] == 1 && from[*axis] != 1);
    let axes: alloc::vec::Vec<i32> = (0..from.len()).filter(widened).map(|axis| axis as i32).collect();
    gradient.sum(&axes, false)?.reshape(to)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::testing::{Value, floats, indices, position, run, run_every_way, shapes};
    use crate::base::dtype::Bool;
    use crate::ops::{less, sub};
    use std::vec::Vec;

    /// Returns the element of an operand that corresponds to an index of the result.
    fn element(operand: &Value, index: &[u32]) -> f32 {
        let dims = operand.dims();
        let own = index[index.len() - dims.len()..].iter().zip(dims).map(|(&index, &dim)| if dim == 1 { 0 } else { index });
        operand.elements::<f32>()[position(dims, &own.collect::<Vec<u32>>())]
    }

    #[test]
    fn every_broadcast_is_as_the_naive_one() {
        let shapes = shapes(3, &[0, 1, 2, 3]);
        for (a, b) in shapes.iter().flat_map(|a| shapes.iter().map(move |b| (a, b))) {
            let (x, y) = (floats(a, 1), floats(b, 2));
            let (result, compared) = run(&less::F32, &[], &[&x, &y], &[]);
            if result.is_err() {
                continue;
            }
            let difference = &run_every_way(&sub::F32, &[], &[&x, &y])[0];
            let pairs: Vec<_> = indices(difference.dims()).iter().map(|index| (element(&x, index), element(&y, index))).collect();
            assert_eq!(difference.elements::<f32>(), pairs.iter().map(|(x, y)| x - y).collect::<Vec<f32>>(), "{a:?} {b:?}");
            let want: Vec<Bool> = pairs.iter().map(|(x, y)| (x < y).into()).collect();
            assert_eq!(compared[0].elements::<Bool>(), want, "{a:?} {b:?}");
        }
    }

    #[test]
    fn long_rows_and_scalars_are_walked_to_their_end() {
        for (a, b) in [(&[19u32][..], &[][..]), (&[], &[19]), (&[3, 11], &[1, 1]), (&[5, 1], &[1, 13]), (&[2, 9], &[9]), (&[2, 9], &[2, 1])]
        {
            let (x, y) = (floats(a, 1), floats(b, 2));
            let difference = &run_every_way(&sub::F32, &[], &[&x, &y])[0];
            let want = indices(difference.dims()).iter().map(|index| element(&x, index) - element(&y, index)).collect::<Vec<f32>>();
            assert_eq!(difference.elements::<f32>(), want, "{a:?} {b:?}");
        }
    }
}
