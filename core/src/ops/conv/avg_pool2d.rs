//! Average of each window of each channel: `y[n,oh,ow,c] = Σ x[n,ih,iw,c] / count`. The count includes only the positions inside
//! x. Element types: f32 and f64. Like `tf.nn.avg_pool2d` in NHWC.
//!
//! Bits: each element is summed from +0 over its window in row-major order, and then divided.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
pub use crate::ops::shared::pooling::Attributes;
use crate::ops::shared::pooling::{infer, windows};
#[cfg(feature = "alloc")]
use crate::ops::shared::window::Padding;
use crate::ops::shared::window::clear;
#[cfg(feature = "alloc")]
use crate::{
    base::op::read_attributes,
    ops::conv2d::middle,
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::avg_pool2d, name: "avg_pool2d", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let x = call.input(0)?;
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let (axes, c, x) = (attributes.axes([h, w])?, c as usize, x.slice::<T>());
    let elements = call.output()?.slice_mut::<T>().len();
    let elements = call.rows(elements, attributes.cost(c, 9));
    let y = call.output()?.slice_mut::<T>();
    windows(axes, c, elements, |window| {
        let y = y.get_mut(window.result.clone()).unwrap_or(&mut []);
        clear(y);
        window.each(x, |pixel| y.iter_mut().zip(pixel).for_each(|(y, &x)| *y = y.add(x)));
        let count = T::from_count(window.count());
        y.iter_mut().for_each(|y| *y = y.div(count));
    });
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `avg_pool2d_grad`.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { tf_type: Some("AvgPool"), ..Op::total(&DEF, "avg_pool2d(x[n,h,w,c]), where x is f32 or f64", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let pooling: Attributes = read_attributes(of.attributes)?;
    let dx = || of.dy()?.avg_pool2d_grad(pooling, middle(&of.inputs[0])?);
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the average of each window of images `[n,h,w,c]`, for each channel: `[n,oh,ow,c]`. The window has the size `ksize`
    /// and moves by `strides` (both vertical, then horizontal). Positions outside an image do not count. Like `tf.nn.avg_pool2d`
    /// in NHWC.
    ///
    /// Fails if the rank is not 4, or if the element type is not f32 or f64. Fails if the window is larger than the image, if a
    /// size is 0, or for explicit padding.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::conv2d::Padding;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 5.0, 2.0, 3.0, 7.0, 9.0], &[1, 2, 3, 1])?;
    /// assert_eq!(x.avg_pool2d([2, 2], [2, 2], Padding::Same)?.to_vec::<f32>()?, [4.0, 5.5]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn avg_pool2d(&self, ksize: [u32; 2], strides: [u32; 2], padding: Padding) -> Result<Tensor> {
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes::new(ksize, strides, padding)?]), &[self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::pooling::tests::{cases, positions};
    use crate::ops::shared::testing::{Value, floats, run_every_way};
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, attributes, y_dims) in cases() {
            let x = floats(&x_dims, 1);
            let elements = x.elements::<f32>();
            let average = |window: Vec<usize>| window.iter().fold(0.0, |sum, &at| sum + elements[at]) / window.len() as f32;
            let want: Vec<f32> = positions(x_dims, &attributes, y_dims).into_iter().map(average).collect();
            let got = run_every_way(&F32, &words(attributes), &[&x]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {attributes:?}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, attributes, _) in cases().into_iter().step_by(5) {
            check_gradient(&OP, &words(attributes), &[tensor(&x, 1)]);
        }
    }
}
