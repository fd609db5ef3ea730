//! Gradient of [`gather`](crate::ops::gather) with respect to x. The result starts as zeros, and each slice of `dy` is added to the
//! slice that its index selects. Element types: f32, f64 and integers, which wrap, with i32 or i64 indices.
//!
//! A negative index drops its slice, and an index that is too large is an error. With axis 0 and no batch axes, like
//! `tf.math.unsorted_segment_sum`.
//!
//! Bits: slices are added from +0 in row-major order of the indices.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::gather::{Slabs, batched};
use crate::ops::shared::elementwise;
use crate::ops::shared::indices::{Indices, collect};
use crate::ops::shared::stages::stages;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};
use bytemuck::{Pod, Zeroable};

/// Attribute words of the op.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// The axis of the result, counted from the outermost. In dy, the axes of the indices replace it.
    pub axis: u32,
    /// Number of leading batch axes. They must all be before the axis.
    pub batch_dims: u32,
    /// Dimension of the axis.
    pub dim: u32,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::gather_grad, name: "gather_grad", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [dy, index] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let Attributes { axis, batch_dims, dim } = read_attributes(attributes)?;
    if dy.dtype == DType::Bool {
        return Err(Error::DType { input: 0 });
    }
    let (before, rest) = dy.shape.dims().split_at_checked(axis as usize).ok_or(Error::Attribute { index: 0 })?;
    let chosen = batched(1, before, index, batch_dims)?;
    let (common, after) = rest.split_at_checked(chosen.len()).ok_or(Error::Rank { input: 0 })?;
    elementwise::same_dims(0, chosen, common)?;
    elementwise::set(outputs, TensorType::new(dy.dtype, collect(before.iter().chain([&dim]).chain(after))?))
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { axis, batch_dims, .. } = call.attributes()?;
    let (dy, index) = (call.input(0)?, Indices::new(&call.input(1)?));
    let output = call.output()?;
    let slabs = Slabs::new(output.dims(), axis, batch_dims);
    let (total, row, each) = (output.slice_mut::<T>().len(), slabs.row, index.len() / slabs.batches.max(1));
    let [zeros, rows] = stages(call, [total, slabs.batches * slabs.outer * each], [4, 75 + 6 * row]);
    let (dy, sums) = (dy.slice::<T>(), call.output()?.slice_mut::<T>());
    sums.get_mut(zeros).unwrap_or_default().fill(T::ZERO);
    rows.into_iter().try_for_each(|slice| add_slice(sums, dy, &index, &slabs, [slice, each]))
}

/// Adds a slice of `dy` to the slice of `sums` that its index selects. `each` slices come from each slab.
#[inline]
pub(in crate::ops) fn add_slice<T: Number>(
    sums: &mut [T],
    dy: &[T],
    index: &Indices<'_>,
    slabs: &Slabs,
    [slice, each]: [usize; 2],
) -> Result<()> {
    let (slab, position) = slabs.slab_index(slice, each);
    let Some(at) = index.below(slabs.extent, position, true)? else { return Ok(()) };
    let sums = sums.get_mut((slab * slabs.extent + at) * slabs.row..).unwrap_or_default();
    let dy = dy.get(slice * slabs.row..(slice + 1) * slabs.row).unwrap_or_default();
    sums.iter_mut().zip(dy).for_each(|(sum, &dy)| *sum = sum.add(dy));
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: each slice of dy gets the slice of the upstream gradient that its index selects.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(
    &DEF,
    "gather_grad(dy, index), where index is i32 or i64; the batch axes come first in both inputs, and before the axis",
    Gradient::Rule(grad),
);

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let Attributes { axis, batch_dims, .. } = read_attributes(of.attributes)?;
    let ddy = || Tensor::emit1(&crate::ops::gather::OP, &[axis, batch_dims, 1], &[of.dy()?, &of.inputs[1]]);
    Ok([of.if_wanted(0, ddy)?, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns a tensor of zeros with dimension `dim` along `axis`, to which each slice of `self` is added at its index in `index`.
    /// This is the gradient of [`Tensor::gather_batched`] for the upstream gradient `self`.
    pub(in crate::ops) fn gather_grad(&self, index: &Tensor, axis: u32, batch_dims: u32, dim: u32) -> Result<Tensor> {
        Tensor::emit1(&OP, &[axis, batch_dims, dim], &[self, index])
    }

    /// Returns the sums of the slices of `self` that belong to the same segment. `segments` has a segment number for each slice:
    /// a number less than `count`, or a negative one to drop the slice. The axes of `segments` are the first axes of `self`.
    ///
    /// Fails on booleans. Fails with [`Error::IndexOutOfRange`] if a segment number is too large. Like
    /// `tf.math.unsorted_segment_sum`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], &[4])?;
    /// let segments = Tensor::new(&device, &[2, 0, 2, -1], &[4])?;
    /// assert_eq!(x.unsorted_segment_sum(&segments, 3)?.to_vec::<i32>()?, [2, 0, 4]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn unsorted_segment_sum(&self, segments: &Tensor, count: u32) -> Result<Tensor> {
        self.gather_grad(segments, 0, 0, count)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::gather::tests::{cases, some_indices};
    use crate::ops::shared::indices::product;
    use crate::ops::shared::testing::{Value, floats, indices, position, run};

    #[test]
    fn same_as_one_element_at_a_time() {
        for (dims, [axis, batch_dims], index_dims) in cases() {
            let (at, batch, chosen) = (axis as usize, batch_dims as usize, index_dims.len() - batch_dims as usize);
            let index = some_indices(&index_dims, dims[at], true);
            let from = [&dims[..at], &index_dims[batch..], &dims[at + 1..]].concat();
            let dy = floats(&from, 3);
            let mut want = std::vec![0.0f32; product(&dims)];
            for (y, dy) in indices(&from).iter().zip(dy.elements::<f32>()) {
                let row = index[position(&index_dims, &[&y[..batch], &y[at..at + chosen]].concat())];
                if let Ok(row) = u32::try_from(row) {
                    want[position(&dims, &[&y[..at], &[row], &y[at + chosen..]].concat())] += dy;
                }
            }
            let (result, got) = run(&F32, &[axis, batch_dims, dims[at]], &[&dy, &Value::new(&index, &index_dims)], &[]);
            assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &dims)]), "{dims:?} {axis} {batch_dims} {index_dims:?}");
        }
    }

    #[test]
    fn inputs_must_fit() {
        let (dy, index) = (Value::new(&[1u8; 6], &[2, 3]), Value::new(&[0, 3], &[2]));
        let refused = |words: &[u32], index: &Value| run(&U8, words, &[&dy, index], &[]).0;
        assert_eq!(refused(&[0, 0, 4], &index), Ok(()));
        assert_eq!(refused(&[0, 0, 3], &index), Err(Error::IndexOutOfRange { node: 0, position: 1, value: 3, limit: 3 }));
        assert_eq!(refused(&[1, 0, 4], &index), Err(Error::Dimension { input: 0, axis: 0, want: 2, got: 3 }));
        assert_eq!(refused(&[2, 0, 4], &index), Err(Error::Rank { input: 0 }));
        assert_eq!(refused(&[3, 0, 4], &index), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 1, 4], &index), Err(Error::Attribute { index: 1 }));
        assert_eq!(run(&U8, &[0, 0, 4], &[&dy, &dy], &[]).0, Err(Error::DType { input: 1 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let index = Tensor::new(device(), &[2i64, 0, -1, 1, 1, 1], &[2, 3]).unwrap();
        check_gradient(&OP, &[1, 0, 3], &[tensor(&[2, 2, 3, 2], 1), index.clone()]);
        check_gradient(&OP, &[2, 1, 4], &[tensor(&[2, 2, 3], 1), index]);
    }
}
