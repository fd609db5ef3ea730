//! Selection from each window: the value at the position of the window's maximum in x. This is the gradient of
//! [`max_pool2d_grad`](crate::ops::max_pool2d_grad) with respect to dy. The inputs are x and values, both `[n,h,w,c]`, and the
//! result is `[n,oh,ow,c]`.
//!
//! If several elements are equal to the maximum, the first in row-major order counts. The first NaN takes precedence over all
//! numbers. Element types: f32 and f64. Like `tf.raw_ops.MaxPoolGradGrad` in NHWC.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::like_first;
use crate::ops::shared::pooling;
use crate::ops::shared::pooling::{Attributes, windows};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::max_pool2d_pick, name: "max_pool2d_pick", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    like_first(1, inputs)?;
    pooling::infer(inputs, attributes, outputs)
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, values) = (call.input(0)?, call.input(1)?.slice::<T>());
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let (axes, c, x) = (attributes.axes([h, w])?, c as usize, x.slice::<T>());
    let elements = call.output()?.slice_mut::<T>().len();
    let elements = call.rows(elements, attributes.cost(c, 18) + 42);
    let y = call.output()?.slice_mut::<T>();
    windows(axes, c, elements, |window| {
        for (channel, y) in y.get_mut(window.result.clone()).unwrap_or(&mut []).iter_mut().enumerate() {
            *y = values.get(window.greatest(x, channel)).copied().unwrap_or(T::ZERO);
        }
    });
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. x gets none, because the positions of the maxima change only where elements are equal. The values
/// get `max_pool2d_grad` of the upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "max_pool2d_pick(x[n,h,w,c], values[n,h,w,c]), all f32 or all f64", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let dvalues = || Tensor::emit1(&crate::ops::max_pool2d_grad::OP, of.attributes, &[&of.inputs[0], of.dy()?]);
    Ok([None, of.if_wanted(1, dvalues)?].into_iter().collect())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::pooling::tests::cases;
    use crate::ops::shared::testing::{Value, floats, run_every_way};
    use std::vec::Vec;

    #[test]
    fn picks_x_itself_at_its_maxima() {
        for (dims, attributes, _) in cases() {
            let x = floats(&dims, 1);
            let doubled: Vec<f32> = x.elements::<f32>().iter().map(|x| 2.0 * x).collect();
            let got = run_every_way(&F32, &words(attributes), &[&x, &Value::new(&doubled, &dims)]);
            let maxima = run_every_way(&crate::ops::max_pool2d::F32, &words(attributes), &[&x]);
            let want: Vec<f32> = maxima[0].elements::<f32>().iter().map(|x| 2.0 * x).collect();
            assert!(got[0] == Value::new(&want, maxima[0].dims()), "{dims:?} {attributes:?}");
        }
    }

    #[test]
    fn of_equals_the_first_is_taken() {
        let words = words(Attributes { ksize: [2, 2], strides: [2, 2], padding: 0 });
        let values = Value::new(&[1.0f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1]);
        for (x, want) in [([1.0, f32::NAN, f32::NAN, 9.0], 2.0), ([f32::NEG_INFINITY; 4], 1.0), ([0.0, 5.0, 1.0, 5.0], 2.0)] {
            assert_eq!(run_every_way(&F32, &words, &[&Value::new(&x, &[1, 2, 2, 1]), &values])[0].elements::<f32>(), [want]);
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, attributes, _) in cases().into_iter().step_by(5) {
            check_gradient(&OP, &words(attributes), &[tensor(&x, 1), tensor(&x, 2)]);
        }
    }
}
