//! What elementwise ops share: walking their operands, in place and broadcast.

use crate::dtype::{Bool, DType, Element, Number};
use crate::error::{Error, Result};
use crate::op::Call;
use crate::shape::{MAX_RANK, TensorType};
#[cfg(feature = "alloc")]
use crate::tensor::Tensor;
use crate::view::{TensorView, TensorViewMut};

/// The shape rule of an op with one input whose output has the same type.
pub(super) fn same(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    let [x, ..] = inputs else { return Err(Error::Arity { got: 0 }) };
    set(outputs, *x)
}

/// Sets the type of output 0.
pub(super) fn set(outputs: &mut [TensorType], tensor_type: TensorType) -> Result<()> {
    *outputs.first_mut().ok_or(Error::Arity { got: 0 })? = tensor_type;
    Ok(())
}

/// The shape rule of an op with two inputs of one element type, broadcast.
pub(super) fn broadcast(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    let [a, b] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if b.dtype != a.dtype {
        return Err(Error::DType { input: 1 });
    }
    set(outputs, TensorType::new(a.dtype, a.shape.broadcast(&b.shape)?))
}

/// [`same`], of floats only.
pub(super) fn same_float(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    float(0, inputs)?;
    same(inputs, attributes, outputs)
}

/// [`broadcast`], of floats only.
pub(super) fn broadcast_float(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    float(0, inputs)?;
    broadcast(inputs, attributes, outputs)
}

/// The shape rule of a comparison: two inputs of one element type, broadcast, to booleans.
pub(super) fn comparison(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    broadcast(inputs, attributes, outputs)?;
    outputs.iter_mut().take(1).for_each(|output| output.dtype = DType::Bool);
    Ok(())
}

/// [`broadcast`], of booleans only.
pub(super) fn logical(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    boolean(0, inputs)?;
    broadcast(inputs, attributes, outputs)
}

/// Fails unless input `index` is of the type of input 0.
pub(super) fn like_first(index: usize, inputs: &[TensorType]) -> Result<()> {
    let input = index as u8;
    let (Some(want), Some(got)) = (inputs.first(), inputs.get(index)) else { return Err(Error::Arity { got: input }) };
    if got.dtype != want.dtype {
        return Err(Error::DType { input });
    }
    same_dims(input, want.shape.dims(), got.shape.dims())
}

/// Fails unless `got`, the dimensions of `input`, are `want`.
pub(super) fn same_dims(input: u8, want: &[u32], got: &[u32]) -> Result<()> {
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

/// Only floats: gradients, exponentials and what else has no meaning on integers.
pub(super) fn float(input: usize, inputs: &[TensorType]) -> Result<()> {
    if inputs.get(input).is_some_and(|x| x.dtype.is_float()) { Ok(()) } else { Err(Error::DType { input: input as u8 }) }
}

/// Only booleans.
pub(super) fn boolean(input: usize, inputs: &[TensorType]) -> Result<()> {
    if inputs.get(input).is_some_and(|x| x.dtype == DType::Bool) { Ok(()) } else { Err(Error::DType { input: input as u8 }) }
}

/// Computes `f` of each element.
#[inline(always)]
pub(super) fn unary<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T) -> T) -> Result<()> {
    let x = call.input(0)?;
    let output = call.output()?.slice_mut::<T>();
    if x.in_place() {
        output.iter_mut().for_each(|y| *y = f(*y));
    } else {
        output.iter_mut().zip(x.slice()).for_each(|(y, &x)| *y = f(x));
    }
    Ok(())
}

/// Computes `f` of each pair of elements of two inputs of one type. The first may lie in the output; if it does not, it is
/// copied there, so that a firmware has one loop.
#[inline(always)]
pub(super) fn pairs<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> T) -> Result<()> {
    copy(call)?;
    let b = call.input(1)?;
    each_pair(call.output()?.slice_mut::<T>(), b.slice(), f);
    Ok(())
}

/// Makes each `to` `f` of it and its partner in `from`: four at a time, written out, as `-Os` does not unroll.
#[inline(always)]
fn each_pair<T: Element>(to: &mut [T], from: &[T], f: impl Fn(T, T) -> T) {
    let (blocks, rest) = to.as_chunks_mut::<4>();
    let (from_blocks, from_rest) = from.as_chunks::<4>();
    for ([a, b, c, d], &[p, q, r, s]) in blocks.iter_mut().zip(from_blocks) {
        (*a, *b, *c, *d) = (f(*a, p), f(*b, q), f(*c, r), f(*d, s));
    }
    rest.iter_mut().zip(from_rest).for_each(|(to, &from)| *to = f(*to, from));
}

/// Copies the bytes of input 0 to output 0, unless they are there.
pub(super) fn copy(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    copy_bytes(&x, call.output()?);
    Ok(())
}

/// Copies the bytes of `from` to `to`, unless they are there.
pub(super) fn copy_bytes(from: &TensorView<'_>, to: &mut TensorViewMut<'_>) {
    if let (Some(from), Some(to)) = (from.data, to.data.get_mut(..from.bytes().len())) {
        to.copy_from_slice(from);
    }
}

/// Computes `f` of each pair of elements, broadcast, into a result of the same element type.
#[inline(always)]
pub(super) fn binary<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> T) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let dims = output.dims();
    let (left, right, output) = (a.slice::<T>(), b.slice::<T>(), output.slice_mut::<T>());
    let suffix = dims.ends_with(b.dims()) && !b.in_place() && !right.is_empty();
    let columns = right.len().max(1);
    match (a.in_place(), suffix && a.dims() == dims) {
        (false, true) => {
            // Not zipped: that would divide by the length of a chunk.
            let mut left = left.chunks(columns);
            for output in output.chunks_mut(columns) {
                let left = left.next().unwrap_or(&[]);
                output.iter_mut().zip(left.iter().zip(right)).for_each(|(y, (&a, &b))| *y = f(a, b));
            }
        }
        (true, true) => {
            for output in output.chunks_mut(columns) {
                output.iter_mut().zip(right).for_each(|(y, &b)| *y = f(*y, b));
            }
        }
        _ => {
            let mut index = BroadcastIndex::new(dims, [a.dims(), b.dims()]);
            for slot in output {
                let [i, j] = index.advance();
                let a = if a.in_place() { *slot } else { left.get(i).copied().unwrap_or(*slot) };
                let b = if b.in_place() { *slot } else { right.get(j).copied().unwrap_or(*slot) };
                *slot = f(a, b);
            }
        }
    }
    Ok(())
}

/// [`binary`] in as little flash as can be, for element types that models have few of.
#[inline(always)]
pub(super) fn binary_small<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> T) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let mut index = BroadcastIndex::new(output.dims(), [a.dims(), b.dims()]);
    let (left, right) = (a.slice::<T>(), b.slice::<T>());
    for slot in output.slice_mut::<T>() {
        // An input that lies in the output has no slice of its own.
        let [i, j] = index.advance();
        *slot = f(left.get(i).copied().unwrap_or(*slot), right.get(j).copied().unwrap_or(*slot));
    }
    Ok(())
}

/// Computes `f` of each pair of elements, broadcast, into booleans.
#[inline(always)]
pub(super) fn compare<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> bool) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let mut index = BroadcastIndex::new(output.dims(), [a.dims(), b.dims()]);
    let (a, b) = (a.slice::<T>(), b.slice::<T>());
    for y in output.slice_mut::<Bool>() {
        let [i, j] = index.advance();
        if let (Some(&a), Some(&b)) = (a.get(i), b.get(j)) {
            *y = f(a, b).into();
        }
    }
    Ok(())
}

/// Fails with [`Error::DivisionByZero`] where input 1, the divisor of an integer division, holds a 0 that is used.
pub(super) fn nonzero_divisor<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let divisor = call.input(1)?;
    let used = !call.output()?.data.is_empty();
    match divisor.slice::<T>().iter().position(|&divisor| divisor == T::ZERO) {
        Some(position) if used => Err(Error::DivisionByZero { node: 0, position: position as u32 }),
        _ => Ok(()),
    }
}

/// The quotient of two integers, truncated toward zero, and the remainder.
#[inline(always)]
pub(super) fn quotient_remainder<T: Number>(a: T, b: T) -> (T, T) {
    let quotient = a.div(b);
    (quotient, a.sub(quotient.mul(b)))
}

/// True if a remainder is not 0 and has another sign than the divisor.
#[inline(always)]
pub(super) fn signs_differ<T: Number>(remainder: T, divisor: T) -> bool {
    remainder != T::ZERO && (remainder < T::ZERO) != (divisor < T::ZERO)
}

/// Walks the elements of a result in row-major order, and gives the positions of the operands' elements.
pub(super) struct BroadcastIndex<'a, const N: usize> {
    dims: &'a [u32],
    counter: [u32; MAX_RANK],
    strides: [[u32; MAX_RANK]; N],
    position: [u32; N],
}

impl<'a, const N: usize> BroadcastIndex<'a, N> {
    /// For a result of `dims` over operands of these dimensions, which broadcast to it.
    pub(super) fn new(dims: &'a [u32], operands: [&[u32]; N]) -> BroadcastIndex<'a, N> {
        let strides = operands.map(|operand| strides(dims.len(), operand));
        BroadcastIndex { dims, counter: [0; MAX_RANK], strides, position: [0; N] }
    }

    /// The positions for this element; then goes on to the next.
    pub(super) fn advance(&mut self) -> [usize; N] {
        let now = self.position.map(|position| position as usize);
        for (axis, (count, &dim)) in self.counter.iter_mut().zip(self.dims).enumerate().rev() {
            *count += 1;
            let back = if *count < dim { 0 } else { dim };
            for (position, strides) in self.position.iter_mut().zip(&self.strides) {
                let stride = strides.get(axis).copied().unwrap_or(0);
                *position = position.wrapping_add(stride).wrapping_sub(stride.wrapping_mul(back));
            }
            if back == 0 {
                break;
            }
            *count = 0;
        }
        now
    }
}

/// How far apart the neighbours along each axis of the result lie in an operand of `dims`: 0 where it is broadcast.
fn strides(rank: usize, dims: &[u32]) -> [u32; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let mut stride = 1u32;
    let skip = rank.saturating_sub(dims.len());
    for (slot, &dim) in strides.iter_mut().skip(skip).zip(dims).rev() {
        *slot = if dim == 1 { 0 } else { stride };
        stride = stride.wrapping_mul(dim);
    }
    strides
}

/// The gradient of a broadcast operand: `gradient` summed over the axes that were broadcast, in the operand's shape.
#[cfg(feature = "alloc")]
pub(super) fn unbroadcast(gradient: &Tensor, operand: &Tensor) -> Result<Tensor> {
    let (from, to) = (gradient.dims(), operand.dims());
    if from == to {
        return Ok(gradient.clone());
    }
    let skip = from.len() - to.len();
    let widened = |axis: &usize| *axis < skip || (to[axis - skip] == 1 && from[*axis] != 1);
    let axes: alloc::vec::Vec<i32> = (0..from.len()).filter(widened).map(|axis| axis as i32).collect();
    gradient.sum(&axes, false)?.reshape(to)
}
