//! Product: `y = a · b`, broadcast. Integers wrap. Element types: f32, f64 and integers. Like `tf.math.multiply`.

use crate::base::dtype::Number;
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
    code: crate::ops::code::mul,
    name: "mul",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast,
    in_place: &[(0, 0), (1, 0)],
};

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary::<T>(call, 1, T::mul)
}

fn run_integers<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary_small::<T>(call, 0, T::mul)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integers: I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: each operand gets the upstream gradient times the other operand, summed over the axes along which it
/// was broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { neutral: Some(1.0), ..Op::elementwise(&DEF, "mul(a, b), broadcast, of the same element type", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let operand = |index: usize| of.if_wanted(index, || elementwise::unbroadcast(&of.dy()?.mul(&of.inputs[1 - index])?, &of.inputs[index]));
    Ok([operand(0)?, operand(1)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self * other`, broadcast. Integers wrap. Fails if the shapes do not broadcast or the element types differ.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1, 2, 3, 4], &[2, 2])?;
    /// let b = Tensor::new(&device, &[10, 20], &[2])?;
    /// assert_eq!(a.mul(&b)?.to_vec::<i32>()?, [10, 40, 30, 80]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn mul(&self, other: &Tensor) -> Result<Tensor> {
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
