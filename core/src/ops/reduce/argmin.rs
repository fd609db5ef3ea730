//! Position of the least `x` along one axis. If several elements are equal, the first counts. NaN is skipped. If all elements are
//! NaN, the result is 0. Element types: f32, f64 and integers. The result is i32 or i64. Like `tf.math.argmin`.

#[cfg(any(feature = "alloc", test))]
use crate::base::dtype::DType;
use crate::base::dtype::Number;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::argmax;
pub use crate::ops::argmax::Attributes;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::argmin, name: "argmin", inputs: (1, 1), outputs: 1, infer: argmax::infer, in_place: &[] };

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    argmax::positions(call, T::GREATEST, |x, least| x < least)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("ArgMin"),
    ..Op::total(
        &DEF,
        "argmin(x), along one axis that is not empty, with an i32 or i64 result",
        Gradient::None("positions are integers: they do not change with small changes of x"),
    )
};

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the position of the least element along `axis`, in the element type `dtype`: i32 or i64. A negative axis counts from
    /// the end. If several elements are equal, the first counts. NaN is skipped. If all elements are NaN, the position is 0.
    ///
    /// Fails if the axis is out of range or empty. Like `tf.math.argmin`.
    ///
    /// ```
    /// # use gradlet_core::{DType, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[2.0f32, 1.0, 1.0, 9.0, 7.0, 8.0], &[2, 3])?;
    /// assert_eq!(x.argmin(-1, DType::I32)?.to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn argmin(&self, axis: i32, dtype: DType) -> Result<Tensor> {
        argmax::emit(&OP, self, axis, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, run};

    #[test]
    fn ties_and_nan() {
        let position = |x: &[f32]| run(&F32, &[0, DType::I32 as u32], &[&Value::new(x, &[x.len() as u32])], &[]).1[0].elements::<i32>()[0];
        assert_eq!(position(&[3.0, 1.0, 1.0]), 1);
        assert_eq!(position(&[f32::NAN, 2.0, 1.0, f32::NAN]), 2);
        assert_eq!(position(&[f32::NAN, f32::NAN]), 0);
        assert_eq!(position(&[f32::NAN, f32::INFINITY]), 0);
        assert_eq!(position(&[0.0, -0.0]), 0);
        let (_, y) = run(&U8, &[1, DType::I64 as u32], &[&Value::new(&[3u8, 1, 2, 255, 255, 255], &[2, 3])], &[]);
        assert_eq!(y[0], Value::new(&[1i64, 0], &[2]));
    }
}
