//! Slices of `x` along one axis, selected by indices: `y[b…, o…, i…, r…] = x[b…, o…, index[b…, i…], r…]`. Here b are the batch
//! axes, which x and the indices share. Every element type, with i32 or i64 indices.
//!
//! An index out of range is an error. With the third attribute set, a negative index gives zeros instead. Like `tf.gather`.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
use crate::ops::shared::indices;
use crate::ops::shared::indices::{Indices, collect, product};
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
    /// The axis, counted from the outermost.
    pub axis: u32,
    /// Number of leading batch axes. They must all be before the axis.
    pub batch_dims: u32,
    /// Effect of a negative index: 0 for an error, 1 for zeros in the result.
    pub negative: u32,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::gather, name: "gather", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x, index] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let Attributes { axis, batch_dims, negative } = read_attributes(attributes)?;
    if negative > 1 {
        return Err(Error::Attribute { index: 2 });
    }
    if axis as usize >= x.shape.rank() {
        return Err(Error::Attribute { index: 0 });
    }
    let (before, after) = x.shape.dims().split_at_checked(axis as usize).unwrap_or_default();
    let chosen = batched(1, before, index, batch_dims)?;
    let dims = before.iter().chain(chosen).chain(after.iter().skip(1));
    elementwise::set(outputs, TensorType::new(x.dtype, collect(dims)?))
}

/// Returns the dimensions of `index`, the op's input `input`, after its batch axes. `before` are the dimensions of input 0 before the
/// gathered axis. Fails unless the first `batch_dims` dimensions of `index` equal those of `before`.
pub(in crate::ops) fn batched<'a>(input: u8, before: &[u32], index: &'a TensorType, batch_dims: u32) -> Result<&'a [u32]> {
    indices::check_dtype(input, index)?;
    let batch = before.get(..batch_dims as usize).ok_or(Error::Attribute { index: 1 })?;
    let (common, chosen) = index.shape.dims().split_at_checked(batch.len()).ok_or(Error::Rank { input })?;
    elementwise::same_dims(input, batch, common)?;
    Ok(chosen)
}

/// Layout of a tensor's elements around an axis. There are `batches * outer` slabs, one for each index of the axes before it. Each
/// slab has `extent` rows, one for each index of the axis itself, with `row` elements each.
pub(in crate::ops) struct Slabs {
    pub batches: usize,
    pub outer: usize,
    pub extent: usize,
    pub row: usize,
}

impl Slabs {
    pub(in crate::ops) fn new(dims: &[u32], axis: u32, batch_dims: u32) -> Slabs {
        let (before, after) = dims.split_at_checked(axis as usize).unwrap_or_default();
        let (batch, outer) = before.split_at_checked(batch_dims as usize).unwrap_or_default();
        let (extent, row) = (after.first().map_or(1, |&dim| dim as usize), product(after.get(1..).unwrap_or(&[])));
        Slabs { batches: product(batch), outer: product(outer), extent, row }
    }

    /// Returns the slab of slice `slice` of the result, and the position of its index. `each` slices come from each slab.
    pub(in crate::ops) fn slab_index(&self, slice: usize, each: usize) -> (usize, usize) {
        let (slab, position) = (slice / each.max(1), slice % each.max(1));
        (slab, slab / self.outer.max(1) * each + position)
    }
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { axis, batch_dims, negative } = call.attributes()?;
    let (x, index) = (call.input(0)?, Indices::new(&call.input(1)?));
    let slabs = Slabs::new(x.dims(), axis, batch_dims);
    let (bytes, each) = (slabs.row * x.dtype().size(), index.len() / slabs.batches.max(1));
    let rows = call.rows(slabs.batches * slabs.outer * each, 115 + bytes);
    let output = call.output()?;
    for slice in rows {
        let (slab, position) = slabs.slab_index(slice, each);
        let at = index.below(slabs.extent, position, negative == 1)?;
        let to = output.data.get_mut(slice * bytes..(slice + 1) * bytes).unwrap_or_default();
        let from = at.and_then(|at| x.bytes().get((slab * slabs.extent + at) * bytes..)?.get(..to.len()));
        match from {
            Some(from) => to.copy_from_slice(from),
            None => to.fill(0),
        }
    }
    Ok(())
}

crate::ops::moving_kernels!(bytes run);

/// The op with its gradient: each slice of the upstream gradient is added to the slice that it was gathered from.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("GatherV2"),
    ..Op::new(
        &DEF,
        "gather(x, index), where index is i32 or i64; the batch axes come first in both inputs, and before the axis",
        Gradient::Rule(grad),
    )
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let Attributes { axis, batch_dims, .. } = read_attributes(of.attributes)?;
    let (x, index) = (&of.inputs[0], &of.inputs[1]);
    let dx = of.if_wanted(0, || of.dy()?.gather_grad(index, axis, batch_dims, x.dims()[axis as usize]))?;
    Ok([dx, None].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the slices of `self` along `axis` that `index` selects. A negative axis counts from the end. In the result, the
    /// dimensions of `index` replace the axis.
    ///
    /// Fails if the axis is out of range, or if `index` is not i32 or i64. Fails with [`Error::IndexOutOfRange`] if an index is out
    /// of range. Like `tf.gather`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[3, 2])?;
    /// let index = Tensor::new(&device, &[2, 0, 2], &[3])?;
    /// assert_eq!(x.gather(&index, 0)?.to_vec::<i32>()?, [5, 6, 1, 2, 5, 6]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn gather(&self, index: &Tensor, axis: i32) -> Result<Tensor> {
        self.gather_batched(index, axis, 0)
    }

    /// Gathers like [`Tensor::gather`], separately for each element of the first `batch_dims` axes. `self` and `index` share
    /// these axes.
    ///
    /// Fails as [`Tensor::gather`] does, or if the batch axes differ or include the axis. Like `tf.gather` with `batch_dims`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// let index = Tensor::new(&device, &[2, 0], &[2, 1])?;
    /// assert_eq!(x.gather_batched(&index, 1, 1)?.to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn gather_batched(&self, index: &Tensor, axis: i32, batch_dims: u32) -> Result<Tensor> {
        Tensor::emit1(&OP, &[crate::ops::shared::reduce::axis(self, axis)?, batch_dims, 0], &[self, index])
    }

    /// Returns the rows of the table `self` that `ids` selects. Fails as [`Tensor::gather`] does. Like `tf.nn.embedding_lookup`.
    pub fn embedding_lookup(&self, ids: &Tensor) -> Result<Tensor> {
        self.gather(ids, 0)
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run, shapes};
    use std::vec::Vec;

    /// Returns test cases: the shape of x, the attributes, and the shape of the index.
    pub fn cases() -> Vec<(Vec<u32>, [u32; 2], Vec<u32>)> {
        let mut cases = Vec::new();
        for dims in shapes(4, &[0, 1, 3]).iter().filter(|dims| !dims.is_empty()) {
            for axis in 0..dims.len() {
                for batch_dims in 0..=axis {
                    for chosen in [&[][..], &[2], &[0], &[2, 3]] {
                        let index = [&dims[..batch_dims], chosen].concat();
                        if dims.len() + index.len() <= 6 {
                            cases.push((dims.clone(), [axis as u32, batch_dims as u32], index));
                        }
                    }
                }
            }
        }
        cases
    }

    /// Returns pseudo-random indices from 0 to below `extent` for an index tensor of dimensions `dims`. With `negative`, some are -1.
    pub fn some_indices(dims: &[u32], extent: u32, negative: bool) -> Vec<i64> {
        let from = if negative { extent + 1 } else { extent.max(1) };
        let index = |x: f64| ((x + 4.0) * 1e6) as i64 % i64::from(from) - i64::from(negative);
        numbers(dims, 9).into_iter().map(index).collect()
    }

    #[test]
    fn same_as_one_element_at_a_time() {
        for (dims, [axis, batch_dims], index_dims) in cases() {
            for negative in [false, true] {
                let (at, batch) = (axis as usize, batch_dims as usize);
                let index = some_indices(&index_dims, dims[at], negative);
                if dims[at] == 0 && !negative && !index.is_empty() {
                    continue;
                }
                let x: Vec<i32> = numbers(&dims, 3).iter().map(|x| (x * 1e6) as i32).collect();
                let to = [&dims[..at], &index_dims[batch..], &dims[at + 1..]].concat();
                let element = |y: Vec<u32>| {
                    let chosen = index_dims.len() - batch;
                    let row = index[position(&index_dims, &[&y[..batch], &y[at..at + chosen]].concat())];
                    let from = |row| x[position(&dims, &[&y[..at], &[row], &y[at + chosen..]].concat())];
                    u32::try_from(row).map_or(0, from)
                };
                let want: Vec<i32> = indices(&to).into_iter().map(element).collect();
                let inputs = [&Value::new(&x, &dims), &Value::new(&index, &index_dims)];
                let (result, got) = run(&I32, &[axis, batch_dims, negative.into()], &inputs, &[]);
                assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &to)]), "{dims:?} {axis} {batch_dims} {index_dims:?}");
            }
        }
    }

    #[test]
    fn indices_are_checked() {
        let x = Value::new(&[1i8, 2, 3], &[3]);
        let check = |index: &Value, position, value| {
            let (result, _) = run(&I8, &[0, 0, 0], &[&x, index], &[]);
            assert_eq!(result, Err(Error::IndexOutOfRange { node: 0, position, value, limit: 3 }));
        };
        check(&Value::new(&[0, 3], &[2]), 1, 3);
        check(&Value::new(&[-1i64, 9], &[2]), 0, -1);
        check(&Value::new(&[0i64, 1 << 40], &[2]), 1, i32::MAX);
    }

    #[test]
    fn inputs_must_fit() {
        let (x, index) = (Value::new(&[0u8; 6], &[2, 3]), Value::new(&[0; 2], &[2]));
        let refused = |words: &[u32], index: &Value| run(&U8, words, &[&x, index], &[]).0;
        assert_eq!(refused(&[1, 1, 0], &index), Ok(()));
        assert_eq!(refused(&[2, 0, 0], &index), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[1, 2, 0], &index), Err(Error::Attribute { index: 1 }));
        assert_eq!(refused(&[0, 1, 0], &index), Err(Error::Attribute { index: 1 }));
        assert_eq!(refused(&[1, 1, 2], &index), Err(Error::Attribute { index: 2 }));
        assert_eq!(refused(&[1, 1], &index), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[1, 1, 0], &Value::new(&[0; 3], &[3])), Err(Error::Dimension { input: 1, axis: 0, want: 2, got: 3 }));
        assert_eq!(refused(&[1, 1, 0], &Value::new(&[0], &[])), Err(Error::Rank { input: 1 }));
        assert_eq!(refused(&[1, 0, 0], &Value::new(&[0.0f32], &[1])), Err(Error::DType { input: 1 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        let index = Tensor::new(device(), &[2i64, 0, 2, 1, 1, 1], &[2, 3]).unwrap();
        check_gradient(&OP, &[1, 0, 0], &[tensor(&[2, 3, 2], 1), index.clone()]);
        check_gradient(&OP, &[2, 1, 0], &[tensor(&[2, 2, 3], 1), index]);
    }
}
