//! Gradient of [`max_pool2d`](crate::ops::max_pool2d): computes dx from x and dy. In each window, dy goes to the first maximum in
//! row-major order, or to the first NaN. Element types: f32 and f64. Like `tf.raw_ops.MaxPoolGrad` in NHWC.
//!
//! Bits: where windows overlap, their dy are added from +0 in row-major order of the windows.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::conv2d::dims4;
use crate::ops::shared::elementwise::{same_dims, set};
use crate::ops::shared::pooling::{Attributes, clear_ahead, pooled, windows};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::max_pool2d_grad, name: "max_pool2d_grad", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let want = pooled(inputs, attributes)?;
    same_dims(1, want.shape.dims(), &dims4(inputs, 1)?)?;
    let [x, ..] = inputs else { return Err(Error::Internal) };
    set(outputs, *x)
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, dy) = (call.input(0)?, call.input(1)?.slice::<T>());
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let (axes, c, x) = (attributes.axes([h, w])?, c as usize, x.slice::<T>());
    let elements = call.rows(dy.len(), attributes.cost(c, 18) + 50);
    let dx = call.output()?.slice_mut::<T>();
    clear_ahead(dx, axes, c, &elements);
    windows(axes, c, elements, |window| {
        for (channel, &dy) in dy.get(window.result.clone()).unwrap_or(&[]).iter().enumerate() {
            if let Some(dx) = dx.get_mut(window.greatest(x, channel)) {
                *dx = dx.add(dy);
            }
        }
    });
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. x gets none, because the positions of the maxima change only where elements are equal. dy gets
/// `max_pool2d_pick` of the upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("MaxPoolGrad"),
    ..Op::total(&DEF, "max_pool2d_grad(x[n,h,w,c], dy[n,oh,ow,c]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let ddy = || Tensor::emit1(&crate::ops::max_pool2d_pick::OP, of.attributes, &[&of.inputs[0], of.dy()?]);
    Ok([None, of.if_wanted(1, ddy)?].into_iter().collect())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::pooling::tests::{cases, positions};
    use crate::ops::shared::testing::{Value, floats, indices, run_every_way};
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, attributes, y_dims) in cases() {
            // Rounded, so that there are ties.
            let rounded: Vec<f32> = floats(&x_dims, 1).elements::<f32>().into_iter().map(|x| (x / 3.0).round()).collect();
            let dy = floats(&y_dims, 2);
            let mut want = std::vec![0.0f32; indices(&x_dims).len()];
            for (window, dy) in positions(x_dims, &attributes, y_dims).into_iter().zip(dy.elements::<f32>()) {
                let largest = window.iter().map(|&at| rounded[at]).fold(f32::NEG_INFINITY, f32::max);
                want[window.into_iter().find(|&at| rounded[at] == largest).unwrap()] += dy;
            }
            let got = run_every_way(&F32, &words(attributes), &[&Value::new(&rounded, &x_dims), &dy]);
            assert!(got[0] == Value::new(&want, &x_dims), "{x_dims:?} {attributes:?}");
        }
    }

    #[test]
    fn odd_values_have_one_maximum() {
        let attributes = Attributes { ksize: [2, 2], strides: [2, 2], padding: 0 };
        for (x, want) in [([1.0, f32::NAN, f32::NAN, 9.0], 1), ([f32::NEG_INFINITY; 4], 0), ([-0.0, 0.0, -0.0, 0.0], 0)] {
            let dy = Value::new(&[2.0f32], &[1, 1, 1, 1]);
            let got = run_every_way(&F32, &words(attributes), &[&Value::new(&x, &[1, 2, 2, 1]), &dy]);
            let mut dx = [0.0; 4];
            dx[want] = 2.0;
            assert_eq!(got[0].elements::<f32>(), dx);
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, attributes, y) in cases().into_iter().step_by(5) {
            check_gradient(&OP, &words(attributes), &[tensor(&x, 1), tensor(&y, 2)]);
        }
    }
}
