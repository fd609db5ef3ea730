//! Cumulative product along one axis: `y` is the product of the elements of `x` up to each position, in ascending order. Element
//! types: f32, f64 and integers, which wrap. Like `tf.math.cumprod`.

use crate::base::dtype::Number;
use crate::base::error::Result;
#[cfg(feature = "alloc")]
use crate::base::op::read_attributes;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::scan;
pub use crate::ops::shared::scan::Attributes;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::cumprod, name: "cumprod", inputs: (1, 1), outputs: 1, infer: scan::infer, in_place: &[(0, 0)] };

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    scan::run(call, T::ONE, T::mul)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: the cumulative sum of `y · dy` in the other direction, divided by x. It is 0 where x is 0, as in
/// TensorFlow.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "cumprod(x), along one axis", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let Attributes { axis, exclusive, reverse } = read_attributes(of.attributes)?;
    let dx = || {
        let moved = of.outputs[0].mul(of.dy()?)?.cumsum(axis as i32, exclusive == 1, reverse == 0)?;
        moved.divide_no_nan(&of.inputs[0])
    };
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the product of the elements along `axis` up to each position. A negative axis counts from the end. With
    /// `exclusive`, each result excludes its own element. With `reverse`, the product accumulates from the last element to the
    /// first.
    ///
    /// Fails on booleans, or if the axis is out of range. Like `tf.math.cumprod`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[2, 3, 4], &[3])?;
    /// assert_eq!(x.cumprod(0, false, false)?.to_vec::<i32>()?, [2, 6, 24]);
    /// assert_eq!(x.cumprod(0, true, true)?.to_vec::<i32>()?, [12, 4, 1]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn cumprod(&self, axis: i32, exclusive: bool, reverse: bool) -> Result<Tensor> {
        Tensor::emit1(&OP, &[crate::ops::shared::reduce::axis(self, axis)?, exclusive.into(), reverse.into()], &[self])
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for attributes in [[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]] {
            check_gradient(&super::OP, &attributes, &[tensor(&[3, 4], 1)]);
        }
    }
}
