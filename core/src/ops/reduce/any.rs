//! Logical OR over some axes: `y` is true if any `x` is true. For booleans. Without elements the result is false. Like
//! `tf.reduce_any`.
//!
//! The attribute words are those of [`sum`](crate::ops::sum).

use crate::base::dtype::{Bool, DType};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::{elementwise, reduce};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::any, name: "any", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    elementwise::boolean(0, inputs)?;
    reduce::infer(inputs, attributes, outputs)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    reduce::fold(call, Bool::from(false), |a: Bool, b: Bool| (a.get() || b.get()).into())
}

/// Portable kernel for bool.
pub const BOOL: Kernel = Kernel { def: &DEF, dtype: DType::Bool, run };

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "any(x), where x is bool, over distinct axes of x", Gradient::None("booleans have no derivative"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Reduces the booleans over `axes`: each element of the result is true if any element that it comes from is true. Negative
    /// axes count from the end. An empty `axes` reduces all axes. With `keepdims`, the reduced axes stay in the shape with
    /// dimension 1. Without elements the result is false.
    ///
    /// Fails on types other than booleans, or if an axis is out of range or listed twice. Like `tf.reduce_any`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # use gradlet_core::tensor::Bool;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[true, false, true, true].map(Bool::from), &[2, 2])?;
    /// assert_eq!(x.any(&[0], false)?.to_vec::<Bool>()?, [true, true].map(Bool::from));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn any(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        reduce::emit(&OP, self, axes, keepdims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, run};

    #[test]
    fn of_nothing_and_of_odd_bytes() {
        let (_, nothing) = run(&BOOL, &[0, 1], &[&Value::new::<Bool>(&[], &[2, 0])], &[]);
        assert_eq!(nothing[0], Value::new(&[Bool::from(false); 2], &[2]));
        for x in [[0, 0], [0, 7], [7, 0], [7, 9]] {
            let (_, y) = run(&BOOL, &[0, 0], &[&Value::new(&x.map(Bool), &[2])], &[]);
            assert_eq!(y[0], Value::new(&[Bool::from(x[0] != 0 || x[1] != 0)], &[]), "{x:?}");
        }
        assert!(run(&BOOL, &[0, 0, 0], &[&Value::new(&[Bool(1)], &[1])], &[]).0.is_err());
    }
}
