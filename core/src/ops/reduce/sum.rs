//! Sum over some axes: `y = Σ x`. Element types: f32, f64 and integers, which wrap. Without elements, the result is 0. Like
//! `tf.reduce_sum`.
//!
//! Attribute words: `[keepdims, axis…]`, where `keepdims` is 0 or 1 and the axes are in ascending order. Each sum has one
//! accumulator. It starts at 0, and the elements are added in row-major order.

use crate::base::dtype::Number;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::reduce;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::sum, name: "sum", inputs: (1, 1), outputs: 1, infer: reduce::numbers, in_place: &[] };

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    reduce::sum::<T>(call, false).map(drop)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: the upstream gradient, broadcast over the reduced axes.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "sum(x), over distinct axes of x", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let x = &of.inputs[0];
    let dx = || of.dy()?.reshape(reduce::kept_dims(of.attributes, x)?.dims())?.broadcast_to(x.dims());
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the sum over `axes`. Negative axes count from the end. An empty `axes` reduces all axes. With `keepdims`, the
    /// reduced axes stay in the shape with dimension 1. Integers wrap.
    ///
    /// Fails on booleans, or if an axis is out of range or listed twice. Like `tf.reduce_sum`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.sum(&[0], false)?.to_vec::<i32>()?, [5, 7, 9]);
    /// assert_eq!(x.sum(&[-1], true)?.dims(), [2, 1]);
    /// assert_eq!(x.sum(&[], false)?.item::<i32>()?, 21);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn sum(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        reduce::emit(&OP, self, axes, keepdims)
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for attributes in [&[0u32, 0, 1][..], &[0, 0], &[0, 1], &[1, 1], &[0], &[1, 0, 1]] {
            check_gradient(&super::OP, attributes, &[tensor(&[2, 3], 1)]);
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn axes_are_checked() {
        let x = crate::ops::shared::testing::tensor(&[2, 3], 1);
        assert!(x.sum(&[2], false).is_err());
        assert!(x.sum(&[-3], false).is_err());
        assert!(x.sum(&[1, -1], false).is_err());
        assert_eq!(x.sum(&[-1, 0], true).unwrap().dims(), [1, 1]);
    }
}
