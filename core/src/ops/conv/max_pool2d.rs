//! Maximum of each window of each channel: `y[n,oh,ow,c] = max x[n,ih,iw,c]`. Positions outside x do not count. A NaN in a window
//! gives NaN. Element types: f32, f64, i8, u8 and i16.
//!
//! Like `tf.nn.max_pool2d` in NHWC. TensorFlow does not define the result for NaN, and returns the lowest finite number instead of
//! −∞.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
pub use crate::ops::shared::pooling::Attributes;
use crate::ops::shared::pooling::{beats, pooled_images, windows};
#[cfg(feature = "alloc")]
use crate::ops::shared::window::Padding;
#[cfg(feature = "alloc")]
use crate::{
    ops::pad::PadMode,
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::max_pool2d, name: "max_pool2d", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

/// Shape rule: that of every pooling, for images of integers too.
fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [images] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !images.dtype.is_float() && !matches!(images.dtype, DType::I8 | DType::U8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    elementwise::set(outputs, pooled_images(images, attributes)?)
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let x = call.input(0)?;
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let (axes, c, x) = (attributes.axes([h, w])?, c as usize, x.slice::<T>());
    let elements = call.output()?.slice_mut::<T>().len();
    let elements = call.rows(elements, attributes.cost(c, 16));
    let y = call.output()?.slice_mut::<T>();
    windows(axes, c, elements, |window| {
        let y = y.get_mut(window.result.clone()).unwrap_or(&mut []);
        y.fill(T::LEAST);
        window.each(x, |pixel| y.iter_mut().zip(pixel).for_each(|(y, &x)| *y = if beats(x, *y) { x } else { *y }));
    });
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: `max_pool2d_grad`.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { tf_type: Some("MaxPool"), ..Op::total(&DEF, "max_pool2d(x[n,h,w,c]), where x is a float, i8, u8 or i16", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let [x] = of.inputs else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dx = || Tensor::emit1(&crate::ops::max_pool2d_grad::OP, of.attributes, &[x, of.dy()?]);
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the maximum of each window of images `[n,h,w,c]`, for each channel: `[n,oh,ow,c]`. The window has the size `ksize`
    /// and moves by `strides` (both vertical, then horizontal). A NaN in a window gives NaN. Like `tf.nn.max_pool2d` in NHWC.
    ///
    /// Fails if the rank is not 4, or if the elements are i32, i64 or booleans. Fails if the window is larger than the image, or if a
    /// size is 0.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::conv2d::Padding;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 5.0, 2.0, 3.0, 4.0, 9.0], &[1, 2, 3, 1])?;
    /// assert_eq!(x.max_pool2d([2, 2], [2, 2], Padding::Same)?.to_vec::<f32>()?, [5.0, 9.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn max_pool2d(&self, ksize: [u32; 2], strides: [u32; 2], padding: Padding) -> Result<Tensor> {
        if let (Padding::Explicit { top, bottom, left, right }, &[_, _, _, _]) = (padding, self.dims()) {
            let padded = self.pad(&[(0, 0), (top, bottom), (left, right), (0, 0)], PadMode::Constant(f64::NEG_INFINITY))?;
            return padded.max_pool2d(ksize, strides, Padding::Valid);
        }
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes::new(ksize, strides, padding)?]), &[self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::pooling::tests::{cases, positions};
    use crate::ops::shared::testing::{Value, floats, numbers, run_every_way};
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, attributes, y_dims) in cases() {
            let x = floats(&x_dims, 1);
            let elements = x.elements::<f32>();
            let maximum = |window: Vec<usize>| window.into_iter().map(|at| elements[at]).fold(f32::NEG_INFINITY, f32::max);
            let want: Vec<f32> = positions(x_dims, &attributes, y_dims).into_iter().map(maximum).collect();
            let got = run_every_way(&F32, &words(attributes), &[&x]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {attributes:?}");
        }
    }

    #[test]
    fn integers_agree_with_the_formula() {
        for (x_dims, attributes, y_dims) in cases() {
            let elements: Vec<i16> = numbers(&x_dims, 1).iter().map(|&x| (x * 25.0) as i16).collect();
            let maximum = |window: Vec<usize>| window.into_iter().map(|at| elements[at]).max().unwrap();
            let want: Vec<i16> = positions(x_dims, &attributes, y_dims).into_iter().map(maximum).collect();
            let words = words(attributes);
            let of = |elements: &[i16]| elements.iter().map(|&x| x as i8).collect::<Vec<i8>>();
            let bytes = |elements: &[i16]| elements.iter().map(|&x| (x as u8) ^ 128).collect::<Vec<u8>>();
            assert!(run_every_way(&I16, &words, &[&Value::new(&elements, &x_dims)])[0] == Value::new(&want, &y_dims));
            assert!(run_every_way(&I8, &words, &[&Value::new(&of(&elements), &x_dims)])[0] == Value::new(&of(&want), &y_dims));
            assert!(run_every_way(&U8, &words, &[&Value::new(&bytes(&elements), &x_dims)])[0] == Value::new(&bytes(&want), &y_dims));
        }
    }

    #[test]
    fn nan_stays() {
        for at in 0..4 {
            let mut x = [1.0f32, 4.0, 3.0, f32::NEG_INFINITY];
            x[at] = f32::NAN;
            let attributes = Attributes { ksize: [2, 2], strides: [2, 2], padding: 0 };
            let got = run_every_way(&F32, &words(attributes), &[&Value::new(&x, &[1, 2, 2, 1])]);
            assert!(got[0].elements::<f32>()[0].is_nan());
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
