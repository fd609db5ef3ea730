//! Copy of `x` with some slices replaced. A row of indices selects the position of each slice. If several slices have the same
//! position, the last one wins. Every element type, with i32 or i64 indices. An index out of range is an error. Like
//! `tf.tensor_scatter_nd_update`.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
use crate::ops::shared::elementwise::copy_elements;
use crate::ops::shared::indices::Slices;
use crate::ops::shared::stages::stages;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::tensor_scatter_update,
    name: "tensor_scatter_update",
    inputs: (3, 3),
    outputs: 1,
    infer,
    in_place: &[(0, 0)],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x, updates, index] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    if updates.dtype != x.dtype {
        return Err(Error::DType { input: 1 });
    }
    elementwise::same_dims(1, Slices::shape(2, index, x.shape.dims())?.dims(), updates.shape.dims())?;
    elementwise::set(outputs, *x)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let (x, updates, index) = (call.input(0)?.bytes(), call.input(1)?, call.input(2)?);
    let slices = Slices::new(&index, call.output()?.dims());
    let element = updates.dtype().size();
    let bytes = slices.size * element;
    let [copied, rows] = stages(call, [x.len(), slices.count], [1, 90 + slices.cost() + bytes]);
    let output = call.output()?;
    copy_elements(x.get(copied.clone()).unwrap_or_default(), output.data.get_mut(copied).unwrap_or_default());
    for row in rows {
        let start = slices.start(row)? * element;
        let update = updates.bytes().get(row * bytes..(row + 1) * bytes).unwrap_or_default();
        copy_elements(update, output.data.get_mut(start..).unwrap_or_default());
    }
    Ok(())
}

crate::ops::moving_kernels!(bytes run);

/// The op with its gradient. x gets the upstream gradient, with zeros where elements were replaced. Each update gets the slice of
/// the upstream gradient at its position.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::new(
    &DEF,
    "tensor_scatter_update(x, updates, index[…,k]), where index is i32 or i64; the dimensions of updates are those of index \
            without k, and then those of x after the first k",
    Gradient::Rule(grad),
);

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (updates, index) = (&of.inputs[1], &of.inputs[2]);
    let dx = of.if_wanted(0, || of.dy()?.tensor_scatter_update(index, &updates.zeros_like()?))?;
    let dupdates = of.if_wanted(1, || of.dy()?.gather_nd(index))?;
    Ok([dx, dupdates, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self` with some elements or slices replaced by those of `updates`. Each row along the last axis of `index` selects
    /// the position of one slice. If several slices have the same position, the last one wins.
    ///
    /// Fails if the shapes do not match, if `index` is not i32 or i64, or if the element types differ. Fails with
    /// [`Error::IndexOutOfRange`] if an index is out of range. Like `tf.tensor_scatter_nd_update`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], &[4])?;
    /// let index = Tensor::new(&device, &[3, 0], &[2, 1])?;
    /// let y = x.tensor_scatter_update(&index, &Tensor::new(&device, &[8, 9], &[2])?)?;
    /// assert_eq!(y.to_vec::<i32>()?, [9, 2, 3, 8]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn tensor_scatter_update(&self, index: &Tensor, updates: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, updates, index])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::gather_nd::tests::{cases, index_in_whole, together};
    use crate::ops::shared::testing::{Value, indices, numbers, position, run, run_every_way};
    use std::vec::Vec;

    #[test]
    fn same_as_one_element_at_a_time() {
        let elements = |dims: &[u32], seed| numbers(dims, seed).iter().map(|x| (x * 1e6) as i64).collect::<Vec<_>>();
        for (dims, index_dims, index) in cases() {
            let from = together(&dims, &index_dims);
            let (x, updates) = (elements(&dims, 1), elements(&from, 2));
            let mut want = x.clone();
            for (at, update) in indices(&from).iter().zip(&updates) {
                want[position(&dims, &index_in_whole(at, &index_dims, &index))] = *update;
            }
            let inputs = [&Value::new(&x, &dims), &Value::new(&updates, &from), &Value::new(&index, &index_dims)];
            assert_eq!(run_every_way(&I64, &[], &inputs), [Value::new(&want, &dims)], "{dims:?} {index_dims:?}");
        }
    }

    #[test]
    fn inputs_must_fit() {
        let (x, update) = (Value::new(&[1u8; 6], &[2, 3]), Value::new(&[1u8; 3], &[1, 3]));
        let refused = |update: &Value, index: &Value| run(&U8, &[], &[&x, update, index], &[]).0;
        assert_eq!(refused(&update, &Value::new(&[1], &[1, 1])), Ok(()));
        let out = Error::IndexOutOfRange { node: 0, position: 0, value: 2, limit: 2 };
        assert_eq!(refused(&update, &Value::new(&[2], &[1, 1])), Err(out));
        assert_eq!(refused(&update, &Value::new(&[1], &[1])), Err(Error::Rank { input: 1 }));
        assert_eq!(refused(&Value::new(&[1i8; 3], &[1, 3]), &Value::new(&[1], &[1, 1])), Err(Error::DType { input: 1 }));
        assert_eq!(refused(&update, &Value::new(&[1u8], &[1, 1])), Err(Error::DType { input: 2 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let index = Tensor::new(device(), &[2i64, 0], &[2, 1]).unwrap();
        check_gradient(&OP, &[], &[tensor(&[3, 2], 1), tensor(&[2, 2], 2), index]);
    }
}
