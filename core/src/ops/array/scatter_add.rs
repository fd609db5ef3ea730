//! Sum with slices: `y` is `sum`, and each slice of `dy` is added to the slice that its index selects. Element types: f32, f64 and
//! integers, which wrap, with i32 or i64 indices.
//!
//! It adds [`gather_grad`](crate::ops::gather_grad) to a sum, without a tensor of zeros, and only at the selected slices. The gradient of a
//! loop that gathers one slice in each iteration needs it. A negative index drops its slice, and an index that is too large is an error.
//!
//! Bits: slices are added in row-major order of the indices.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::gather;
use crate::ops::gather::Slabs;
use crate::ops::gather_grad::add_slice;
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
    /// The axis of the sum, counted from the outermost. In dy, the axes of the indices replace it.
    pub axis: u32,
    /// Number of leading batch axes. They must all be before the axis.
    pub batch_dims: u32,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::scatter_add, name: "scatter_add", inputs: (3, 3), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [sum, dy, index] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let Attributes { axis, batch_dims } = read_attributes(attributes)?;
    if sum.dtype == DType::Bool {
        return Err(Error::DType { input: 0 });
    }
    if dy.dtype != sum.dtype {
        return Err(Error::DType { input: 1 });
    }
    let axis = axis as usize;
    let (before, rest) = sum.shape.dims().split_at_checked(axis).ok_or(Error::Attribute { index: 0 })?;
    let (_, after) = rest.split_first().ok_or(Error::Attribute { index: 0 })?;
    let chosen = gather::batched(2, before, index, batch_dims)?;
    let want = before.iter().chain(chosen).chain(after);
    elementwise::same_dims(1, collect(want)?.dims(), dy.shape.dims())?;
    elementwise::set(outputs, *sum)
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { axis, batch_dims } = call.attributes()?;
    let (sum, dy, index) = (call.input(0)?.slice::<T>(), call.input(1)?.slice::<T>(), Indices::new(&call.input(2)?));
    let slabs = Slabs::new(call.output()?.dims(), axis, batch_dims);
    let each = index.len() / slabs.batches.max(1);
    let [copied, slices] = stages(call, [sum.len(), slabs.batches * slabs.outer * each], [4, 75 + 6 * slabs.row]);
    let sums = call.output()?.slice_mut::<T>();
    elementwise::copy_elements(sum.get(copied.clone()).unwrap_or_default(), sums.get_mut(copied).unwrap_or_default());
    slices.into_iter().try_for_each(|slice| add_slice(sums, dy, &index, &slabs, [slice, each]))
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: the sum gets the upstream gradient, and each slice of dy gets the slice of it that its index selects.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(
    &DEF,
    "scatter_add(sum, dy, index), where index is i32 or i64; the batch axes come first in all inputs, and before the axis",
    Gradient::Rule(grad),
);

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let Attributes { axis, batch_dims } = read_attributes(of.attributes)?;
    let dsum = of.if_wanted(0, || of.dy().cloned())?;
    let ddy = of.if_wanted(1, || Tensor::emit1(&gather::OP, &[axis, batch_dims, 1], &[of.dy()?, &of.inputs[2]]))?;
    Ok([dsum, ddy, None].into_iter().collect())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::gather::tests::{cases, some_indices};
    use crate::ops::shared::indices::product;
    use crate::ops::shared::testing::{Value, floats, run, run_every_way};
    use crate::ops::{add, gather_grad};

    #[test]
    fn as_gather_grad_and_add() {
        for (dims, [axis, batch_dims], index_dims) in cases() {
            let (at, batch) = (axis as usize, batch_dims as usize);
            let index = Value::new(&some_indices(&index_dims, dims[at], true), &index_dims);
            let from = [&dims[..at], &index_dims[batch..], &dims[at + 1..]].concat();
            let (sum, dy) = (floats(&dims, 1), floats(&from, 3));
            // The order of the additions differs if there are several slices. Small integers give the same sums in any order.
            if product(&index_dims) > 1 {
                let ones = Value::new(&std::vec![1.0f32; sum.elements::<f32>().len()], &dims);
                let whole = Value::new(&dy.elements::<f32>().iter().map(|x| x.round()).collect::<std::vec::Vec<_>>(), &from);
                let alone = run_every_way(&gather_grad::F32, &[axis, batch_dims, dims[at]], &[&whole, &index]).remove(0);
                let want = run_every_way(&add::F32, &[], &[&ones, &alone]);
                assert!(run_every_way(&F32, &[axis, batch_dims], &[&ones, &whole, &index]) == want, "{dims:?} {axis} {index_dims:?}");
                continue;
            }
            let alone = run_every_way(&gather_grad::F32, &[axis, batch_dims, dims[at]], &[&dy, &index]).remove(0);
            let want = run_every_way(&add::F32, &[], &[&sum, &alone]);
            assert!(run_every_way(&F32, &[axis, batch_dims], &[&sum, &dy, &index]) == want, "{dims:?} {axis} {batch_dims} {index_dims:?}");
        }
    }

    #[test]
    fn inputs_must_fit() {
        let (sum, dy, index) = (Value::new(&[1u8; 12], &[4, 3]), Value::new(&[1u8; 6], &[2, 3]), Value::new(&[0, 4], &[2]));
        let refused = |words: &[u32], dy: &Value| run(&U8, words, &[&sum, dy, &index], &[]).0;
        assert_eq!(refused(&[0, 0], &dy), Err(Error::IndexOutOfRange { node: 0, position: 1, value: 4, limit: 4 }));
        assert_eq!(refused(&[1, 0], &dy), Err(Error::Dimension { input: 1, axis: 0, want: 4, got: 2 }));
        assert_eq!(refused(&[2, 0], &dy), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 1], &dy), Err(Error::Attribute { index: 1 }));
        assert_eq!(refused(&[0, 0], &Value::new(&[1i8; 6], &[2, 3])), Err(Error::DType { input: 1 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let index = Tensor::new(device(), &[2i64, 0, -1, 1, 1, 1], &[2, 3]).unwrap();
        check_gradient(&OP, &[1, 0], &[tensor(&[2, 3, 2], 2), tensor(&[2, 2, 3, 2], 1), index.clone()]);
        check_gradient(&OP, &[2, 1], &[tensor(&[2, 2, 4], 2), tensor(&[2, 2, 3], 1), index]);
    }
}
