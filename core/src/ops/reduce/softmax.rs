//! Softmax along one axis: `y = exp(x - max x) / Σ exp(x - max x)`. Element types: f32 and f64. A lane with NaN or +∞ gives NaN.
//! Like `tf.nn.softmax`.

use crate::base::dtype::Float;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::lanes;
pub use crate::ops::shared::lanes::Attributes;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::softmax, name: "softmax", inputs: (1, 1), outputs: 1, infer: lanes::same, in_place: &[(0, 0)] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { axis } = call.attributes()?;
    lanes::each(call, axis, 94, |lane: &mut [T], stride| {
        let sum = lanes::exponentials(lane, stride);
        lane.iter_mut().step_by(stride).for_each(|x| *x = x.div(sum));
    })
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `(dy - Σ dy · y) · y`. For 16-bit floats, it is computed in f32, of a `y` that was never rounded.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "softmax(x), where x is f32 or f64, along one axis", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let axis = crate::base::op::read_attributes::<Attributes>(of.attributes)?.axis as i32;
    let rule = |dy: &Tensor, y: &Tensor| dy.sub(&dy.mul(y)?.sum(&[axis], true)?)?.mul(y);
    let dx = || match lanes::widened(of)? {
        Some((dy, x)) => rule(&dy, &x.softmax(axis)?)?.cast(of.inputs[0].dtype()),
        None => rule(of.dy()?, &of.outputs[0]),
    };
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the softmax along `axis`: elements from 0 to 1 whose sum is 1. A negative axis counts from the end.
    ///
    /// Fails on integers, or if the axis is out of range. Like `tf.nn.softmax`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 1.0, 5.0, 5.0], &[2, 2])?;
    /// assert_eq!(x.softmax(-1)?.to_vec::<f32>()?, [0.5; 4]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn softmax(&self, axis: i32) -> Result<Tensor> {
        Tensor::emit1(&OP, &[crate::ops::shared::reduce::axis(self, axis)?], &[self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::error::Error;
    use crate::ops::shared::testing::{Value, floats, run, run_every_way};

    #[test]
    fn along_every_axis() {
        let x = floats(&[2, 3, 4], 1);
        let elements = x.elements::<f32>();
        for (axis, extent, stride) in [(0, 2, 12), (1, 3, 4), (2, 4, 1)] {
            let y = run_every_way(&F32, &[axis], &[&x])[0].elements::<f32>();
            for at in 0..elements.len() {
                let first = at - at / stride % extent * stride;
                let lane: std::vec::Vec<f32> = (0..extent).map(|index| elements[first + index * stride]).collect();
                let alone = run_every_way(&F32, &[0], &[&Value::new(&lane, &[extent as u32])])[0].elements::<f32>();
                assert_eq!(y[at], alone[at / stride % extent]);
            }
        }
    }

    #[test]
    fn odd_values_and_shapes() {
        let infinity = f32::INFINITY;
        let x = [0.0, -infinity, 1.0, f32::NAN, 0.0, 1.0, infinity, 0.0, 1.0, -infinity, -infinity, -infinity];
        let y = run_every_way(&F32, &[1], &[&Value::new(&x, &[4, 3])])[0].elements::<f32>();
        assert!(y[..3].iter().all(|y| !y.is_nan()) && y[3..].iter().all(|y| y.is_nan()));
        for (dims, axis) in [(&[0u32, 3][..], 1), (&[3, 0], 1), (&[3, 0], 0), (&[1], 0)] {
            run_every_way(&F32, &[axis], &[&floats(dims, 1)]);
        }
        for words in [&[2u32][..], &[], &[0, 0], &[u32::MAX]] {
            assert_eq!(run(&F32, words, &[&floats(&[2, 2], 1)], &[]).0, Err(Error::Attribute { index: 0 }));
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        for axis in 0..3 {
            crate::ops::shared::testing::check_gradient(&OP, &[axis], &[crate::ops::shared::testing::tensor(&[2, 3, 4], 1)]);
        }
    }
}
