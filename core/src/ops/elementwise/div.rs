//! Quotient: `y = a / b`, broadcast. Element types: f32 and f64. By IEEE 754, x / 0 is an infinity and 0 / 0 is NaN. Like
//! `tf.math.divide` on floats. On integers, `tf.math.divide` casts to f64 first, and this op does not.

use crate::base::dtype::Float;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::div,
    name: "div",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast_float,
    in_place: &[(0, 0), (1, 0)],
};

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary::<T>(call, 1, T::div)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: a gets `dy / b`, and b gets `dy · ((-a / b) / b)`. Each is summed over the axes along which the
/// operand was broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { tf_type: Some("RealDiv"), ..Op::elementwise(&DEF, "div(a, b), broadcast, both f32 or both f64", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (a, b) = (&of.inputs[0], &of.inputs[1]);
    let da = of.if_wanted(0, || elementwise::unbroadcast(&of.dy()?.div(b)?, a))?;
    let db = of.if_wanted(1, || elementwise::unbroadcast(&of.dy()?.mul(&a.neg()?.div(b)?.div(b)?)?, b))?;
    Ok([da, db].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self / other`, broadcast. Fails on integers, if the shapes do not broadcast, or if the element types differ.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let b = Tensor::new(&device, &[2.0f32, 4.0], &[2])?;
    /// assert_eq!(a.div(&b)?.to_vec::<f32>()?, [0.5, 0.5, 1.5, 1.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn div(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::shared::testing::{floats, run_every_way};

    #[test]
    fn in_place_and_apart() {
        for (a, b) in [(&[3u32, 4][..], &[3, 4][..]), (&[3, 4], &[4]), (&[4], &[3, 4]), (&[3, 1], &[3, 4]), (&[], &[2]), (&[0, 3], &[3])] {
            run_every_way(&super::F32, &[], &[&floats(a, 1), &floats(b, 2)]);
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (a, b) in [(&[2u32, 3][..], &[2, 3][..]), (&[2, 3], &[3]), (&[1, 3], &[2, 1]), (&[], &[2, 2]), (&[4, 1, 3], &[2, 1])] {
            check_gradient(&super::OP, &[], &[tensor(a, 1), tensor(b, 2)]);
        }
    }
}
