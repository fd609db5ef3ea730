//! Maximum of `x` over some axes. A NaN gives NaN. Element types: f32, f64 and integers. Without elements, the result is minus
//! infinity or the least integer. Like `tf.reduce_max`.
//!
//! The attribute words are those of [`sum`](crate::ops::sum).

use crate::base::dtype::Number;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::maximum::greater;
use crate::ops::shared::reduce;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::max, name: "max", inputs: (1, 1), outputs: 1, infer: reduce::numbers, in_place: &[] };

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    reduce::fold(call, T::LEAST, greater::<T>)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: all elements equal to the maximum share the upstream gradient equally.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "max(x), over distinct axes of x", Gradient::Rule(reduce::shared_gradient));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the maximum over `axes`. Negative axes count from the end. An empty `axes` reduces all axes. With `keepdims`, the
    /// reduced axes stay in the shape with dimension 1. A NaN gives NaN. Without elements, the result is minus infinity or the
    /// least integer.
    ///
    /// Fails on booleans, or if an axis is out of range or listed twice. Like `tf.reduce_max`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 5, 3, 4, 2, 6], &[2, 3])?;
    /// assert_eq!(x.max(&[1], false)?.to_vec::<i32>()?, [5, 6]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn max(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        reduce::emit(&OP, self, axes, keepdims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, run};

    #[test]
    fn of_nothing_and_of_nan() {
        let (_, nothing) = run(&F32, &[0, 1], &[&Value::new::<f32>(&[], &[2, 0])], &[]);
        assert_eq!(nothing[0].elements::<f32>(), [f32::NEG_INFINITY; 2]);
        let (_, nothing) = run(&U8, &[0, 1], &[&Value::new::<u8>(&[], &[2, 0])], &[]);
        assert_eq!(nothing[0].elements::<u8>(), [u8::MIN; 2]);
        for place in 0..3 {
            let mut x = [1.0f32, f32::INFINITY, f32::NEG_INFINITY];
            x[place] = f32::NAN;
            for dims in [&[3][..], &[3, 1]] {
                assert!(run(&F32, &[0, 0], &[&Value::new(&x, dims)], &[]).1[0].elements::<f32>()[0].is_nan());
            }
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for attributes in [&[0u32, 0, 1][..], &[0, 0], &[1, 1]] {
            check_gradient(&OP, attributes, &[tensor(&[2, 3], 1)]);
        }
    }
}
