//! Reductions: their axes attribute, and the loops of sums and folds.

use super::runs::{Runs, run_cost};
use super::stages::stages;
use crate::base::dtype::{DType, Element, Number};
use crate::base::error::{Error, Result};
use crate::base::op::Call;
use crate::base::shape::{Shape, TensorType};
#[cfg(feature = "alloc")]
use crate::{
    base::shape::MAX_RANK,
    tensor::Tensor,
    tensor::scope::{Backward, InputGradients, Op},
};
use core::ops::Range;
#[cfg(feature = "alloc")]
use heapless::Vec;

/// Parses the attribute words `[keepdims, axis…]` of a tensor of rank `rank`. Returns `keepdims` as a bool, and the axes. Fails
/// unless `keepdims` is 0 or 1, and the axes are within the rank and in ascending order.
fn parse(attributes: &[u32], rank: usize) -> Result<(bool, &[u32])> {
    let (&keepdims, axes) = attributes.split_first().ok_or(Error::Attribute { index: 0 })?;
    if keepdims > 1 {
        return Err(Error::Attribute { index: 0 });
    }
    let mut least = 0;
    for (index, &axis) in axes.iter().enumerate() {
        if axis < least || axis as usize >= rank {
            return Err(Error::Attribute { index: (index + 1).min(255) as u8 });
        }
        least = axis + 1;
    }
    Ok((keepdims == 1, axes))
}

/// Shape rule of a reduction that keeps the element type.
pub(in crate::ops) fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let (keepdims, axes) = parse(attributes, x.shape.rank())?;
    let mut shape = Shape::SCALAR;
    for (axis, &dim) in x.shape.dims().iter().enumerate() {
        match (axes.contains(&(axis as u32)), keepdims) {
            (false, _) => shape.push(dim)?,
            (true, true) => shape.push(1)?,
            (true, false) => {}
        }
    }
    super::elementwise::set(outputs, TensorType::new(x.dtype, shape))
}

/// [`infer`], restricted to numbers.
pub(in crate::ops) fn numbers(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    if inputs.first().is_some_and(|x| x.dtype == DType::Bool) {
        return Err(Error::DType { input: 0 });
    }
    infer(inputs, attributes, outputs)
}

/// Returns the number of elements of a tensor of `dims` that are reduced to each element of the result.
pub(in crate::ops) fn count(dims: &[u32], attributes: &[u32]) -> usize {
    let axes = attributes.get(1..).unwrap_or(&[]);
    axes.iter().map(|&axis| dims.get(axis as usize).map_or(1, |&dim| dim as usize)).product()
}

/// Folds the elements of input 0 over the axes, and writes the results to output 0. Each result `y` is `start` at first. It is
/// replaced by `f(y, x)` for each element `x` that is reduced to it, in row-major order.
#[inline(always)]
pub(in crate::ops) fn fold<T: Element>(call: &mut Call<'_, '_>, start: T, f: impl Fn(T, T) -> T) -> Result<()> {
    let x = call.input(0)?;
    let axes = call.attributes.get(1..).unwrap_or(&[]);
    let elements = x.slice::<T>();
    let mut runs = Runs::lacking(x.dims(), |axis| axes.contains(&(axis as u32)));
    let innermost = runs.take();
    let rows = call.rows(elements.len(), 14 + run_cost(innermost));
    let output = call.output()?.slice_mut::<T>();
    if rows.start == 0 {
        output.fill(start);
    }
    runs.each(innermost, rows, |run, at| {
        let (Some(run), Some(results)) = (elements.get(run), output.get_mut(at..)) else { return };
        if innermost.1 == 0 {
            results.iter_mut().take(1).for_each(|y| *y = run.iter().fold(*y, |y, &x| f(y, x)));
        } else {
            results.iter_mut().zip(run).for_each(|(y, &x)| *y = f(*y, x));
        }
    });
    Ok(())
}

/// Writes the sum of input 0 over the axes to output 0.
///
/// Each element of the result has one accumulator. It starts at 0, and the elements are added in row-major order. With `last`, each sum
/// needs a last step. Returns the elements of the result whose last step the caller does now.
pub(in crate::ops) fn sum<T: Number>(call: &mut Call<'_, '_>, last: bool) -> Result<Range<usize>> {
    let x = call.input(0)?;
    let axes = call.attributes.get(1..).unwrap_or(&[]);
    let mut runs = Runs::lacking(x.dims(), |axis| axes.contains(&(axis as u32)));
    let (x, (extent, stride)) = (x.slice::<T>(), runs.take());
    // If the innermost axes are kept, a row is a sequence of neighbours that are added to neighbours.
    let columns = if stride == 0 { 1 } else { extent };
    let repeats = if stride == 0 { extent } else { runs.take_repeats() };
    let results = call.output()?.data.len() / size_of::<T>();
    let cost = if stride == 0 { 3 } else { 5 * columns } + run_cost((repeats, 0));
    let [rows, last] = stages(call, [x.len() / columns.max(1), if last { results } else { 0 }], [cost, 6]);
    let output = call.output()?.slice_mut::<T>();
    if rows.start == 0 && last.start == 0 {
        output.fill(T::ZERO);
    }
    runs.each((repeats, 0), rows, |rows, at| {
        if stride == 0 {
            let (Some(sum), Some(run)) = (output.get_mut(at), x.get(rows)) else { return };
            *sum = add_all(*sum, run);
        } else {
            let rows = x.get(rows.start * columns..rows.end * columns);
            let (Some(sums), Some(rows)) = (output.get_mut(at..at + columns), rows) else { return };
            add_rows(sums, rows);
        }
    });
    Ok(last)
}

/// Returns `sum` plus all `elements`, added in order. Blocks are written out by hand, here and below, because `-Os` does not unroll.
fn add_all<T: Number>(mut sum: T, elements: &[T]) -> T {
    let (blocks, rest) = elements.as_chunks::<8>();
    for &[a, b, c, d, e, f, g, h] in blocks {
        sum = sum.add(a).add(b).add(c).add(d).add(e).add(f).add(g).add(h);
    }
    rest.iter().fold(sum, |sum, &x| sum.add(x))
}

/// Adds each row of the matrix `rows` to the row `sums`, in order. The sums of eight columns stay in registers.
fn add_rows<T: Number>(sums: &mut [T], rows: &[T]) {
    let columns = sums.len().max(1);
    let (blocks, rest) = sums.as_chunks_mut::<8>();
    let mut start = 0;
    for block in blocks {
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *block;
        for row in rows.get(start..).unwrap_or(&[]).chunks(columns) {
            let Some(&[p, q, r, s, t, u, v, w]) = row.first_chunk::<8>() else { break };
            (a, b, c, d) = (a.add(p), b.add(q), c.add(r), d.add(s));
            (e, f, g, h) = (e.add(t), f.add(u), g.add(v), h.add(w));
        }
        *block = [a, b, c, d, e, f, g, h];
        start += 8;
    }
    for (column, sum) in (start..).zip(rest) {
        *sum = rows.iter().skip(column).step_by(columns).fold(*sum, |sum, &x| sum.add(x));
    }
}

/// Returns a flag for each axis of the tensor `of`: true if `axes` lists the axis. Negative axes count from the end.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn listed(of: &Tensor, axes: &[i32]) -> Result<[bool; MAX_RANK]> {
    let mut listed = [false; MAX_RANK];
    for &given in axes {
        let slot = &mut listed[axis(of, given)? as usize];
        if core::mem::replace(slot, true) {
            return Err(Error::message(alloc::format!("axis {given} is listed twice in {axes:?}")));
        }
    }
    Ok(listed)
}

/// Returns the attribute words of a reduction of the tensor `of` over `axes`. Negative axes count from the end, and an empty list
/// means all axes.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn attributes(of: &Tensor, axes: &[i32], keepdims: bool) -> Result<Vec<u32, { MAX_RANK + 1 }>> {
    let listed = listed(of, axes)?;
    let axes = (0..of.shape().rank()).filter(|&axis| axes.is_empty() || listed[axis]).map(|axis| axis as u32);
    Ok(core::iter::once(keepdims.into()).chain(axes).collect())
}

/// Emits a reduction of `x` over `axes`. If each element of the result comes from a single element of `x`, emits a reshape
/// instead.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn emit(op: &'static Op, x: &Tensor, axes: &[i32], keepdims: bool) -> Result<Tensor> {
    let attributes = attributes(x, axes, keepdims)?;
    match op.def.output_types(&[x.tensor_type()], &attributes) {
        Ok([reduced, ..]) if count(x.dims(), &attributes) == 1 => x.reshape(reduced.shape.dims()),
        _ => Tensor::emit1(op, &attributes, &[x]),
    }
}

/// Returns `axis` of the tensor `of`, counted from the front. A negative `axis` counts from the end. Fails if it is out of range.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn axis(of: &Tensor, axis: i32) -> Result<u32> {
    let rank = of.shape().rank() as i32;
    let counted = if axis < 0 { axis.saturating_add(rank) } else { axis };
    if (0..rank).contains(&counted) {
        return Ok(counted as u32);
    }
    Err(Error::message(alloc::format!("axis {axis} is out of range for {}: expected from {} to {}", of.tensor_type(), -rank, rank - 1)))
}

/// Returns the shape of `operand` with the reduced axes set to 1. The upstream gradient of a reduction is reshaped to it, so that
/// it broadcasts to `operand`.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn kept_dims(attributes: &[u32], operand: &crate::tensor::Tensor) -> Result<Shape> {
    let (_, axes) = parse(attributes, operand.shape().rank())?;
    let mut shape = *operand.shape();
    for (axis, dim) in shape.dims_mut().iter_mut().enumerate() {
        if axes.contains(&(axis as u32)) {
            *dim = 1;
        }
    }
    Ok(shape)
}

/// Computes the gradient of a reduction that selects elements (max or min). All elements equal to the result share the upstream
/// gradient equally.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn shared_gradient(of: &Backward<'_>) -> Result<InputGradients> {
    let x = &of.inputs[0];
    let dx = || {
        let kept = kept_dims(of.attributes, x)?;
        let picked = x.equal(&of.outputs[0].reshape(kept.dims())?)?.cast(x.dtype())?;
        let axes: Vec<i32, MAX_RANK> = of.attributes.iter().skip(1).map(|&axis| axis as i32).collect();
        let count = if axes.is_empty() { picked.clone() } else { picked.sum(&axes, true)? };
        picked.div(&count)?.mul(&of.dy()?.reshape(kept.dims())?)
    };
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::testing::{Value, indices, numbers, position, run, shapes};
    use super::*;
    use crate::base::dtype::Element;
    use crate::base::op::Kernel;
    use crate::ops::{max, mean, min, prod, sum};
    use std::vec::Vec;

    fn naive<T: Number>(x: &[T], dims: &[u32], axes: &[u32], kept: &[u32]) -> Vec<T> {
        let mut sums = std::vec![T::ZERO; Shape::new(kept).unwrap().elements().unwrap()];
        for index in indices(dims) {
            let ours: Vec<u32> = (0..).zip(&index).filter(|(axis, _)| !axes.contains(axis)).map(|(_, &at)| at).collect();
            let sum = &mut sums[position(kept, &ours)];
            *sum = sum.add(x[position(dims, &index)]);
        }
        sums
    }

    fn compare<T: Number>(sum: &Kernel, mean: Option<&Kernel>, dims: &[u32], element: impl Fn(f64) -> T) {
        let x: Vec<T> = numbers(dims, 3).into_iter().map(element).collect();
        for chosen in 0..1u32 << dims.len() {
            let axes: Vec<u32> = (0..dims.len() as u32).filter(|axis| chosen >> axis & 1 == 1).collect();
            let kept: Vec<u32> = (0..).zip(dims).filter(|(axis, _)| !axes.contains(axis)).map(|(_, &dim)| dim).collect();
            let attributes: Vec<u32> = core::iter::once(0).chain(axes.iter().copied()).collect();
            let want = naive(&x, dims, &axes, &kept);
            let (result, got) = run(sum, &attributes, &[&Value::new(&x, dims)], &[]);
            assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &kept)]), "{dims:?} {axes:?}");
            if let Some(mean) = mean {
                let (result, got) = run(mean, &attributes, &[&Value::new(&x, dims)], &[]);
                let count = T::from_count(count(dims, &attributes));
                let want: Vec<T> = want.iter().map(|sum| sum.div(count)).collect();
                assert_eq!(result, Ok(()));
                assert_eq!(std::format!("{:?}", got[0].elements::<T>()), std::format!("{want:?}"));
            }
        }
    }

    #[test]
    fn same_bits_as_one_element_at_a_time() {
        for dims in shapes(4, &[0, 1, 3, 9]).iter().chain(&shapes(5, &[2])).chain(&shapes(2, &[17, 24])) {
            compare(&sum::F32, Some(&mean::F32), dims, |x| x as f32);
        }
        for dims in shapes(3, &[0, 1, 3, 9]) {
            compare(&sum::F64, Some(&mean::F64), &dims, |x| x);
            compare(&sum::I32, None, &dims, |x| (x * 1e9) as i32);
            compare(&sum::I64, None, &dims, |x| (x * 1e18) as i64);
            compare(&sum::U8, None, &dims, |x| (x * 60.0) as i8 as u8);
        }
    }

    #[test]
    fn folds_take_one_element_at_a_time() {
        fn check<T: Number>(kernel: &Kernel, dims: &[u32], start: T, f: fn(T, T) -> T, element: impl Fn(f64) -> T) {
            let x: Vec<T> = numbers(dims, 3).into_iter().map(element).collect();
            for chosen in 0..1u32 << dims.len() {
                let axes: Vec<u32> = (0..dims.len() as u32).filter(|axis| chosen >> axis & 1 == 1).collect();
                let kept: Vec<u32> = (0..).zip(dims).filter(|(axis, _)| !axes.contains(axis)).map(|(_, &dim)| dim).collect();
                let mut want = std::vec![start; Shape::new(&kept).unwrap().elements().unwrap()];
                for index in indices(dims) {
                    let ours: Vec<u32> = (0..).zip(&index).filter(|(axis, _)| !axes.contains(axis)).map(|(_, &at)| at).collect();
                    let slot = &mut want[position(&kept, &ours)];
                    *slot = f(*slot, x[position(dims, &index)]);
                }
                let attributes: Vec<u32> = core::iter::once(0).chain(axes.iter().copied()).collect();
                let (result, got) = run(kernel, &attributes, &[&Value::new(&x, dims)], &[]);
                assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &kept)]), "{dims:?} {axes:?}");
            }
        }
        for dims in shapes(4, &[0, 1, 2, 5]) {
            check(&max::F32, &dims, f32::NEG_INFINITY, f32::max, |x| x as f32);
            check(&min::I8, &dims, i8::MAX, i8::min, |x| (x * 30.0) as i8);
            check(&prod::F64, &dims, 1.0, |a, b| a * b, |x| x);
            check(&prod::I32, &dims, 1, i32::wrapping_mul, |x| (x * 1e9) as i32);
        }
    }

    #[test]
    fn attributes_are_checked() {
        let x = Value::new(&[1.0f32; 6], &[2, 3]);
        let refused = |words: &[u32]| run(&sum::F32, words, &[&x], &[]).0;
        assert_eq!(refused(&[]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[2, 0]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 2]), Err(Error::Attribute { index: 1 }));
        assert_eq!(refused(&[0, 1, 0]), Err(Error::Attribute { index: 2 }));
        assert_eq!(refused(&[0, 1, 1]), Err(Error::Attribute { index: 2 }));
        assert_eq!(refused(&[0, u32::MAX]), Err(Error::Attribute { index: 1 }));
        assert_eq!(run(&sum::F32, &[1, 0, 1], &[&x], &[]).1[0].dims(), [1, 1]);
        assert_eq!(<f32 as Element>::DTYPE, sum::F32.dtype);
    }
}
