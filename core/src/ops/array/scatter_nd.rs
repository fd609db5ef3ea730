//! Slices added to a tensor of zeros. A row of indices selects the position of each slice. Element types: f32, f64 and integers,
//! which wrap, with i32 or i64 indices. An index out of range is an error. Like `tf.scatter_nd`.
//!
//! This is the gradient of [`gather_nd`](crate::ops::gather_nd), and `gather_nd` is its gradient.
//!
//! Attribute words: the dimensions of the result. Bits: slices are added from +0 in row-major order of the indices.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::elementwise;
use crate::ops::shared::indices::Slices;
use crate::ops::shared::stages::stages;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::scatter_nd, name: "scatter_nd", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [updates, index] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if updates.dtype == DType::Bool {
        return Err(Error::DType { input: 0 });
    }
    elementwise::same_dims(0, Slices::shape(1, index, attributes)?.dims(), updates.shape.dims())?;
    elementwise::set(outputs, TensorType::new(updates.dtype, Shape::new(attributes)?))
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let (updates, index) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let slices = Slices::new(&index, output.dims());
    let (total, size) = (output.slice_mut::<T>().len(), slices.size);
    let [zeros, rows] = stages(call, [total, slices.count], [4, 60 + slices.cost() + 6 * size]);
    let (updates, sums) = (updates.slice::<T>(), call.output()?.slice_mut::<T>());
    sums.get_mut(zeros).unwrap_or_default().fill(T::ZERO);
    for row in rows {
        let sums = sums.get_mut(slices.start(row)?..).unwrap_or_default();
        let update = updates.get(row * size..(row + 1) * size).unwrap_or_default();
        sums.iter_mut().zip(update).for_each(|(sum, &update)| *sum = sum.add(update));
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: each slice gets the slice of the upstream gradient from the position where it was added.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(
    &DEF,
    "scatter_nd(updates, index[…,k]), where index is i32 or i64; the dimensions of updates are those of index without k, and then \
            those of the result after the first k",
    Gradient::Rule(grad),
);

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.gather_nd(&of.inputs[1]))?, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns a tensor of `dims` with the elements or slices of `self` added to zeros. Each row along the last axis of `index`
    /// selects the position of one slice. Slices with the same position are summed.
    ///
    /// Fails if the shapes do not match, if `index` is not i32 or i64, or on booleans. Fails with [`Error::IndexOutOfRange`] if an
    /// index is out of range. Like `tf.scatter_nd`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let updates = Tensor::new(&device, &[1, 2, 3], &[3])?;
    /// let index = Tensor::new(&device, &[4, 0, 4], &[3, 1])?;
    /// assert_eq!(updates.scatter_nd(&index, &[5])?.to_vec::<i32>()?, [2, 0, 0, 0, 4]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn scatter_nd(&self, index: &Tensor, dims: &[u32]) -> Result<Tensor> {
        Tensor::emit1(&OP, dims, &[self, index])
    }

    /// Returns `self` with the elements or slices of `updates` added. Each row along the last axis of `index` selects the
    /// position of one slice.
    ///
    /// Fails as [`Tensor::scatter_nd`] does. Like `tf.tensor_scatter_nd_add`.
    pub fn tensor_scatter_add(&self, index: &Tensor, updates: &Tensor) -> Result<Tensor> {
        self.add(&updates.scatter_nd(index, self.dims())?)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::gather_nd::tests::{cases, index_in_whole, together};
    use crate::ops::shared::testing::{Value, floats, indices, position, run};

    #[test]
    fn same_as_one_element_at_a_time() {
        for (dims, index_dims, index) in cases() {
            let from = together(&dims, &index_dims);
            let updates = floats(&from, 3);
            let mut want = std::vec![0.0f32; indices(&dims).len()];
            for (at, update) in indices(&from).iter().zip(updates.elements::<f32>()) {
                want[position(&dims, &index_in_whole(at, &index_dims, &index))] += update;
            }
            let (result, got) = run(&F32, &dims, &[&updates, &Value::new(&index, &index_dims)], &[]);
            assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &dims)]), "{dims:?} {index_dims:?}");
        }
    }

    #[test]
    fn inputs_must_fit() {
        let updates = Value::new(&[1u8; 6], &[2, 3]);
        let refused = |dims: &[u32], index: &Value| run(&U8, dims, &[&updates, index], &[]).0;
        assert_eq!(refused(&[4, 3], &Value::new(&[3, 3], &[2, 1])), Ok(()));
        let out = Error::IndexOutOfRange { node: 0, position: 1, value: 4, limit: 4 };
        assert_eq!(refused(&[4, 3], &Value::new(&[3, 4], &[2, 1])), Err(out));
        assert_eq!(refused(&[4, 2], &Value::new(&[3, 3], &[2, 1])), Err(Error::Dimension { input: 0, axis: 1, want: 2, got: 3 }));
        assert_eq!(refused(&[4], &Value::new(&[3, 3], &[2, 1])), Err(Error::Rank { input: 0 }));
        assert_eq!(refused(&[], &Value::new(&[3, 3], &[2, 1])), Err(Error::Dimension { input: 1, axis: 1, want: 0, got: 1 }));
        assert_eq!(refused(&[1; 9], &Value::new(&[3], &[1])), Err(Error::Rank { input: 0 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let index = Tensor::new(device(), &[1i64, 0, 1], &[3, 1]).unwrap();
        check_gradient(&OP, &[2, 4], &[tensor(&[3, 4], 1), index]);
    }
}
