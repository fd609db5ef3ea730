//! Slices of `x`, each selected by a row of indices: `y[r…, s…] = x[index[r…, 0], index[r…, 1], …, s…]`. Every element type, with
//! i32 or i64 indices. An index out of range is an error. Like `tf.gather_nd`.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
use crate::ops::shared::elementwise::copy_elements;
use crate::ops::shared::indices::Slices;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::gather_nd, name: "gather_nd", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x, index] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    elementwise::set(outputs, TensorType::new(x.dtype, Slices::shape(1, index, x.shape.dims())?))
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    let slices = Slices::new(&call.input(1)?, x.dims());
    let bytes = slices.size * x.dtype().size();
    let rows = call.rows(slices.count, 100 + slices.cost() + bytes);
    let output = call.output()?;
    for row in rows {
        let start = slices.start(row)? * x.dtype().size();
        let to = output.data.get_mut(row * bytes..(row + 1) * bytes).unwrap_or_default();
        copy_elements(x.bytes().get(start..start + bytes).unwrap_or_default(), to);
    }
    Ok(())
}

crate::ops::moving_kernels!(bytes run);

/// The op with its gradient: each slice of the upstream gradient is added to the slice that it was gathered from.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op::new(&DEF, "gather_nd(x, index[…,k]), where index is i32 or i64, and k is at most the rank of x", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (x, index) = (&of.inputs[0], &of.inputs[1]);
    Ok([of.if_wanted(0, || of.dy()?.scatter_nd(index, x.dims()))?, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the elements or slices of `self` that `index` selects. The rows of `index` are its vectors along the last axis, and
    /// each row selects one element or slice. A row of length k has one index for each of the first k axes of `self`.
    ///
    /// Fails if the rows are longer than the rank, or if `index` is not i32 or i64. Fails with [`Error::IndexOutOfRange`] if an
    /// index is out of range. Like `tf.gather_nd`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let index = Tensor::new(&device, &[1, 2, 0, 1], &[2, 2])?;
    /// assert_eq!(x.gather_nd(&index)?.to_vec::<i32>()?, [6, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn gather_nd(&self, index: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, index])
    }

    /// Gathers like [`Tensor::gather_nd`], separately for each element of the first `batch_dims` axes. `self` and `index` share
    /// these axes. Like `tf.gather_nd` with `batch_dims`.
    pub fn gather_nd_batched(&self, index: &Tensor, batch_dims: u32) -> Result<Tensor> {
        let batch = batch_dims as usize;
        let common = index.dims().get(..batch).filter(|common| batch < index.shape().rank() && self.dims().get(..batch) == Some(*common));
        let Some(common) = common else {
            let (x, index) = (self.tensor_type(), index.tensor_type());
            return Err(Error::message(alloc::format!("{x} and the index {index} do not have {batch} axes in common")));
        };
        // Put the indices of the batch axes before the others.
        let mut dims = *index.shape();
        *dims.dims_mut().last_mut().ok_or(Error::Rank { input: 1 })? = 1;
        let mut columns = alloc::vec::Vec::new();
        for (axis, &dim) in common.iter().enumerate() {
            let mut along = [1; crate::base::shape::MAX_RANK];
            along[axis] = dim;
            let numbers = Tensor::range(&self.device()?, 0, i64::from(dim), 1)?.cast(index.dtype())?;
            columns.push(numbers.reshape(&along[..dims.rank()])?.broadcast_to(dims.dims())?);
        }
        columns.push(index.clone());
        self.gather_nd(&Tensor::concat(&columns, -1)?)
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run, shapes};
    use std::vec::Vec;

    /// Returns test cases: the shape of x, the shape of the index tensor, and the indices.
    pub fn cases() -> Vec<(Vec<u32>, Vec<u32>, Vec<i64>)> {
        let mut cases = Vec::new();
        for dims in shapes(3, &[0, 1, 2, 4]) {
            for depth in 0..=dims.len() {
                for rows in [&[][..], &[3], &[0], &[2, 3]] {
                    let index_dims = [rows, &[depth as u32]].concat();
                    if dims[..depth].contains(&0) && !rows.contains(&0) {
                        continue;
                    }
                    let from = numbers(&index_dims, 9);
                    let limit = |at: usize| i64::from(dims[at % depth]);
                    let index = from.iter().enumerate().map(|(at, x)| ((x + 4.0) * 1e6) as i64 % limit(at)).collect();
                    cases.push((dims.clone(), index_dims, index));
                }
            }
        }
        cases
    }

    /// Returns the index in x of the element that `gather_nd` stores at the index `at` of its result.
    pub fn index_in_whole(at: &[u32], index_dims: &[u32], index: &[i64]) -> Vec<u32> {
        let (rows, depth) = (index_dims.len() - 1, index_dims[index_dims.len() - 1]);
        let column = |column: u32| index[position(index_dims, &[&at[..rows], &[column]].concat())] as u32;
        (0..depth).map(column).chain(at[rows..].iter().copied()).collect()
    }

    /// Returns the dimensions of the result of `gather_nd`.
    pub fn together(dims: &[u32], index_dims: &[u32]) -> Vec<u32> {
        let (depth, rows) = index_dims.split_last().unwrap();
        [rows, &dims[*depth as usize..]].concat()
    }

    #[test]
    fn same_as_one_element_at_a_time() {
        for (dims, index_dims, index) in cases() {
            let x: Vec<i32> = numbers(&dims, 3).iter().map(|x| (x * 1e6) as i32).collect();
            let to = together(&dims, &index_dims);
            let want: Vec<i32> = indices(&to).iter().map(|at| x[position(&dims, &index_in_whole(at, &index_dims, &index))]).collect();
            let (result, got) = run(&I32, &[], &[&Value::new(&x, &dims), &Value::new(&index, &index_dims)], &[]);
            assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &to)]), "{dims:?} {index_dims:?}");
        }
    }

    #[test]
    fn inputs_must_fit() {
        let x = Value::new(&[1u8; 6], &[2, 3]);
        let refused = |index: &Value| run(&U8, &[], &[&x, index], &[]).0;
        let out = |position, value, limit| Err(Error::IndexOutOfRange { node: 0, position, value, limit });
        assert_eq!(refused(&Value::new(&[1, 2, 1, 3], &[2, 2])), out(3, 3, 3));
        assert_eq!(refused(&Value::new(&[1, 2, -1, 0], &[2, 2])), out(2, -1, 2));
        assert_eq!(refused(&Value::new(&[i64::MAX], &[1])), out(0, i32::MAX, 2));
        assert_eq!(refused(&Value::new(&[0; 3], &[3])), Err(Error::Dimension { input: 1, axis: 0, want: 2, got: 3 }));
        assert_eq!(refused(&Value::new(&[0], &[])), Err(Error::Rank { input: 1 }));
        assert_eq!(refused(&Value::new(&[0.0f32], &[1])), Err(Error::DType { input: 1 }));
        assert_eq!(run(&U8, &[0], &[&x, &Value::new(&[0], &[1])], &[]).0, Err(Error::Attribute { index: 0 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn batches() {
        use crate::ops::shared::testing::device;
        let x = Tensor::new(device(), &[0, 1, 2, 3, 4, 5, 6, 7], &[2, 2, 2]).unwrap();
        let index = Tensor::new(device(), &[1i64, 0, 1, 1], &[2, 2, 1]).unwrap();
        let y = x.gather_nd_batched(&index, 1).unwrap();
        assert_eq!((y.dims(), y.to_vec::<i32>().unwrap()), (&[2, 2, 2][..], std::vec![2, 3, 0, 1, 6, 7, 6, 7]));
        assert_eq!(x.gather_nd_batched(&index, 2).unwrap().to_vec::<i32>().unwrap(), [1, 2, 5, 7]);
        assert!(x.gather_nd_batched(&index, 3).is_err() && x.index(0).unwrap().gather_nd_batched(&index, 3).is_err());
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let index = Tensor::new(device(), &[1i64, 2, 0, 0, 1, 2], &[3, 2]).unwrap();
        check_gradient(&OP, &[], &[tensor(&[2, 3, 2], 1), index]);
    }
}
