//! Negation: `y = -x`. The least integer maps to itself. Element types: f32, f64, i8, i32 and i64. Like `tf.math.negative`.

use crate::base::dtype::{Float, Number};
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::neg, name: "neg", inputs: (1, 1), outputs: 1, infer: elementwise::same, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 1, T::neg)
}

fn run_integer<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::unary(call, 1, |x: T| T::ZERO.sub(x))
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integer: I32 = i32, I64 = i64, I8 = i8, I16 = i16);

/// The op with its gradient: the negated upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::elementwise(&DEF, "neg(x)", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.neg())?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `-self`. The least integer maps to itself.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, -2.0], &[2])?;
    /// assert_eq!(x.neg()?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn neg(&self) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use crate::ops::shared::testing::{Value, run_every_way};

    #[test]
    fn signs() {
        let y = run_every_way(&super::F32, &[], &[&Value::new(&[0.0f32, -0.0, 1.0], &[3])])[0].elements::<f32>();
        assert_eq!(y.iter().map(|y| y.to_bits()).collect::<std::vec::Vec<u32>>(), [(-0.0f32).to_bits(), 0, (-1.0f32).to_bits()]);
        let y = run_every_way(&super::I32, &[], &[&Value::new(&[i32::MIN, 5], &[2])]);
        assert_eq!(y[0].elements::<i32>(), [i32::MIN, -5]);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        crate::ops::shared::testing::check_gradient(&super::OP, &[], &[crate::ops::shared::testing::tensor(&[2, 3], 1)]);
    }
}
