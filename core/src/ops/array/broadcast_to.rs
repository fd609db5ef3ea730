//! Broadcast of `x` to given dimensions: `x` is repeated along its axes of dimension 1, and along new leading axes. Every element
//! type. Like `tf.broadcast_to`.
//!
//! Attribute words: the dimensions of the result, outermost first.

use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::elementwise;
use crate::ops::shared::runs;
use crate::ops::shared::runs::Runs;
#[cfg(feature = "alloc")]
use crate::{
    base::shape::merged,
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Keeps, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::broadcast_to, name: "broadcast_to", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let shape = Shape::new(attributes)?;
    if x.shape.broadcast(&shape).ok() != Some(shape) {
        return Err(Error::Attribute { index: 0 });
    }
    elementwise::set(outputs, TensorType::new(x.dtype, shape))
}

/// Runs the kernel. `T` is an unsigned integer of the element's size.
fn run<T: bytemuck::Pod>(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    let dims = call.output()?.dims();
    let new = dims.len().saturating_sub(x.dims().len());
    let runs = Runs::lacking(dims, |axis| axis < new || x.dim(axis - new) == 1);
    runs::collect::<T>(call, runs)
}

crate::ops::moving_kernels!(sized run);

/// The op with its gradient: the upstream gradient, summed over the axes that were repeated.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { keeps: Keeps::Where(|_, _| true), ..Op::total(&DEF, "broadcast_to(x), to dimensions that x broadcasts to", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || elementwise::unbroadcast(of.dy()?, &of.inputs[0]))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the elements repeated to the dimensions `dims`: along axes of dimension 1, and along new leading axes.
    ///
    /// Fails if a dimension is neither 1 nor equal to the requested dimension. Like `tf.broadcast_to`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2], &[2, 1])?;
    /// assert_eq!(x.broadcast_to(&[2, 3])?.to_vec::<i32>()?, [1, 1, 1, 2, 2, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn broadcast_to(&self, dims: &[u32]) -> Result<Tensor> {
        Tensor::emit1(&OP, dims, &[self])
    }

    /// Returns copies of the tensor side by side: `multiples` has the number of copies for each axis.
    ///
    /// Fails unless `multiples` has one number for each axis. Like `tf.tile`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2], &[2])?;
    /// assert_eq!(x.tile(&[3])?.to_vec::<i32>()?, [1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn tile(&self, multiples: &[u32]) -> Result<Tensor> {
        if multiples.len() != self.shape().rank() {
            return Err(Error::message(alloc::format!(
                "{multiples:?} cannot tile {}: expected one number for each axis",
                self.tensor_type()
            )));
        }
        let mut result = self.clone();
        for (axis, &multiple) in multiples.iter().enumerate().rev().filter(|(_, multiple)| **multiple != 1) {
            let mut tiled = *result.shape();
            let (before, after) = result.dims().split_at(axis);
            let (before, after) = (merged(before)?, merged(after)?);
            tiled.dims_mut()[axis] = tiled.dims()[axis].checked_mul(multiple).ok_or(Error::TooLarge)?;
            result = result.reshape(&[before, 1, after])?.broadcast_to(&[before, multiple, after])?.reshape(tiled.dims())?;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, indices, numbers, position, run, shapes};
    use std::vec::Vec;

    #[test]
    fn same_as_one_element_at_a_time() {
        for to in shapes(4, &[0, 1, 2, 5]) {
            for narrowed in 0..1u32 << to.len() {
                for new in 0..=to.len() {
                    let from: Vec<u32> =
                        (0..).zip(&to).skip(new).map(|(axis, &dim)| if narrowed >> axis & 1 == 1 { 1 } else { dim }).collect();
                    let x: Vec<i32> = numbers(&from, 5).iter().map(|x| (x * 1e6) as i32).collect();
                    let element = |index: Vec<u32>| {
                        let ours: Vec<u32> = index[new..].iter().zip(&from).map(|(&at, &dim)| if dim == 1 { 0 } else { at }).collect();
                        x[position(&from, &ours)]
                    };
                    let want: Vec<i32> = indices(&to).into_iter().map(element).collect();
                    let (result, got) = run(&I32, &to, &[&Value::new(&x, &from)], &[]);
                    assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want, &to)]), "{from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn attributes_are_checked() {
        let x = Value::new(&[0u8; 6], &[2, 3]);
        for dims in [&[3u32][..], &[2, 1], &[3, 2], &[2, 3, 1], &[]] {
            assert_eq!(run(&U8, dims, &[&x], &[]).0, Err(Error::Attribute { index: 0 }), "{dims:?}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn tiles_repeat_the_whole() {
        for dims in shapes(3, &[0, 1, 2, 3]) {
            for multiples in shapes(dims.len(), &[0, 1, 2, 3]).iter().filter(|multiples| multiples.len() == dims.len()) {
                let x: Vec<i32> = numbers(&dims, 5).iter().map(|x| (x * 1e6) as i32).collect();
                let to: Vec<u32> = dims.iter().zip(multiples).map(|(dim, multiple)| dim * multiple).collect();
                let within = |index: Vec<u32>| index.iter().zip(&dims).map(|(at, dim)| at % dim).collect::<Vec<_>>();
                let want: Vec<i32> = indices(&to).into_iter().map(|index| x[position(&dims, &within(index))]).collect();
                let tiled = Tensor::new(crate::ops::shared::testing::device(), &x, &dims).unwrap().tile(multiples).unwrap();
                assert_eq!((tiled.dims(), tiled.to_vec::<i32>().unwrap()), (&to[..], want), "{dims:?} by {multiples:?}");
            }
        }
        assert!(crate::ops::shared::testing::tensor(&[2, 3], 1).tile(&[2]).is_err());
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        for from in [&[3u32, 1][..], &[1, 4], &[4], &[], &[2, 3, 4]] {
            crate::ops::shared::testing::check_gradient(&OP, &[2, 3, 4], &[crate::ops::shared::testing::tensor(from, 1)]);
        }
    }
}
