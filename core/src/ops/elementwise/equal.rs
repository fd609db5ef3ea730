//! Comparison: `y = (a == b)`, broadcast, as booleans. NaN equals nothing. Element types: f32, f64, integers and booleans. Like
//! `tf.math.equal`.

use crate::base::dtype::{Bool, Element};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::equal, name: "equal", inputs: (2, 2), outputs: 1, infer: elementwise::comparison, in_place: &[] };

fn run<T: Element>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::compare(call, |a: T, b: T| a == b)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);
crate::ops::kernels!(run: BOOL = Bool);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(
    &DEF,
    "equal(a, b), broadcast, of the same element type",
    Gradient::None("the result is boolean, a step in both operands"),
);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns true where `self` equals `other`, broadcast. NaN equals nothing.
    ///
    /// Fails if the shapes do not broadcast or the element types differ.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # use gradlet_core::tensor::Bool;
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1, 2, 3], &[3])?;
    /// let b = Tensor::new(&device, &[1, 5, 3], &[3])?;
    /// assert_eq!(a.equal(&b)?.to_vec::<Bool>()?, [true.into(), false.into(), true.into()]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn equal(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, run};

    #[test]
    fn broadcast_and_nan() {
        let a = Value::new(&[1.0f32, f32::NAN, -0.0, 1.0], &[2, 2]);
        let b = Value::new(&[1.0f32, f32::NAN], &[2]);
        let (result, y) = run(&F32, &[], &[&a, &b], &[]);
        assert_eq!((result, &y[0]), (Ok(()), &Value::new(&[true, false, false, false].map(Bool::from), &[2, 2])));
        let (_, y) = run(&BOOL, &[], &[&Value::new(&[Bool(1), Bool(0)], &[2]), &Value::new(&[Bool(9), Bool(1)], &[2])], &[]);
        assert_eq!(y[0].elements::<Bool>(), [Bool(1), Bool(0)]);
    }
}
