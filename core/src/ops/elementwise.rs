//! What elementwise ops share: walking their operands, in place and broadcast.

#[cfg(feature = "alloc")]
use crate::dtype::DType;
use crate::dtype::{Bool, Element};
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
            let mut index = BroadcastIndex::new(dims, a.dims(), b.dims());
            for slot in output {
                let (i, j) = index.advance();
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
    let mut index = BroadcastIndex::new(output.dims(), a.dims(), b.dims());
    let (left, right) = (a.slice::<T>(), b.slice::<T>());
    for slot in output.slice_mut::<T>() {
        // An input that lies in the output has no slice of its own.
        let (i, j) = index.advance();
        *slot = f(left.get(i).copied().unwrap_or(*slot), right.get(j).copied().unwrap_or(*slot));
    }
    Ok(())
}

/// Computes `f` of each pair of elements, broadcast, into booleans.
#[inline(always)]
pub(super) fn compare<T: Element>(call: &mut Call<'_, '_>, f: impl Fn(T, T) -> bool) -> Result<()> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let mut index = BroadcastIndex::new(output.dims(), a.dims(), b.dims());
    let (a, b) = (a.slice::<T>(), b.slice::<T>());
    for y in output.slice_mut::<Bool>() {
        let (i, j) = index.advance();
        if let (Some(&a), Some(&b)) = (a.get(i), b.get(j)) {
            *y = f(a, b).into();
        }
    }
    Ok(())
}

/// Walks the elements of a result in row-major order, and gives the positions of the two operands' elements.
pub(super) struct BroadcastIndex<'a> {
    dims: &'a [u32],
    counter: [u32; MAX_RANK],
    strides: [[u32; MAX_RANK]; 2],
    position: [u32; 2],
}

impl<'a> BroadcastIndex<'a> {
    /// For a result of `dims` over operands of `a` and `b`, which broadcast to it.
    pub(super) fn new(dims: &'a [u32], a: &[u32], b: &[u32]) -> BroadcastIndex<'a> {
        let strides = [strides(dims.len(), a), strides(dims.len(), b)];
        BroadcastIndex { dims, counter: [0; MAX_RANK], strides, position: [0; 2] }
    }

    /// The positions for this element; then goes on to the next.
    pub(super) fn advance(&mut self) -> (usize, usize) {
        let now = (self.position[0] as usize, self.position[1] as usize);
        let [a, b] = &self.strides;
        for (((count, &dim), &a), &b) in self.counter.iter_mut().zip(self.dims).zip(a).zip(b).rev() {
            *count += 1;
            self.position[0] = self.position[0].wrapping_add(a);
            self.position[1] = self.position[1].wrapping_add(b);
            if *count < dim {
                break;
            }
            *count = 0;
            self.position[0] = self.position[0].wrapping_sub(a.wrapping_mul(dim));
            self.position[1] = self.position[1].wrapping_sub(b.wrapping_mul(dim));
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

/// A scalar of the element type of `like`, on its device. Fails with [`Error::DType`] on booleans and small integers.
#[cfg(feature = "alloc")]
pub(super) fn constant(like: &Tensor, value: f64) -> Result<Tensor> {
    let device = like.device()?;
    match like.dtype() {
        DType::F32 => Ok(Tensor::scalar(&device, value as f32)),
        DType::F64 => Ok(Tensor::scalar(&device, value)),
        DType::F16 => Ok(Tensor::scalar(&device, half::f16::from_f64(value))),
        DType::Bf16 => Ok(Tensor::scalar(&device, half::bf16::from_f64(value))),
        DType::I32 => Ok(Tensor::scalar(&device, value as i32)),
        DType::I64 => Ok(Tensor::scalar(&device, value as i64)),
        _ => Err(Error::DType { input: 0 }),
    }
}
