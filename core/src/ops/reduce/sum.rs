//! `y = Σ x` over some axes. f32, f64 and integers, which wrap. The sum of nothing is 0. As `tf.reduce_sum`.
//!
//! Attribute words: `[keepdims, axis…]`, 0 or 1 and the axes in ascending order. Each sum has one accumulator, which
//! starts at 0 and takes its elements in row-major order.

use crate::base::dtype::Number;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::reduce;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// The op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::sum, name: "sum", inputs: (1, 1), outputs: 1, infer: reduce::numbers, in_place: &[] };

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    reduce::sum::<T>(call)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8);

/// The op with its gradient: upstream, broadcast over the axes that were summed.
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
    /// The sum over `axes`, which count from the end where they are negative; over all of them if none is listed. They
    /// stay as 1 in the shape with `keepdims`. Integers wrap.
    ///
    /// Fails on booleans, and where an axis is out of range or listed twice. As `tf.reduce_sum`.
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
