//! Average of each window of each channel of quantised images: `y[n,oh,ow,c] = clamp(Σ x[n,ih,iw,c] / count)`. The count includes only the
//! positions inside x. The scale and the zero point of y are those of x. Element types: i8 and i16.
//!
//! The quotient is rounded to the nearest integer, and ties go away from zero, like in AVERAGE_POOL_2D of TensorFlow Lite's reference
//! kernels. An odd count has no ties.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::quantized_conv2d::dims4;
use crate::ops::shared::elementwise::set;
use crate::ops::shared::pooling::{self, Covered, windows};
use crate::ops::shared::quantized::{Quantized, check_zero_point};
#[cfg(feature = "alloc")]
use crate::{
    base::quantization::limits, ops::quantized_conv2d::NO_GRADIENT, ops::shared::window::Padding, tensor::Tensor, tensor::scope::Op,
};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Windows.
    pub window: pooling::Attributes,
    /// Smallest and largest element that an activation leaves.
    pub range: [i32; 2],
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_avg_pool2d, name: "quantized_avg_pool2d", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { window, range: [least, greatest] } = read_attributes(attributes)?;
    let ([n, h, w, c], dtype) = (dims4(inputs, 0)?, inputs.first().map_or(DType::F32, |x| x.dtype));
    if !matches!(dtype, DType::I8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    let [down, across] = window.axes([h, w])?;
    check_zero_point(least, dtype, 5)?;
    check_zero_point(greatest, dtype, 6)?;
    if least > greatest {
        return Err(Error::Attribute { index: 6 });
    }
    set(outputs, TensorType::new(dtype, Shape::new(&[n, down.output as u32, across.output as u32, c])?))
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { window, range } = call.attributes()?;
    let x = call.input(0)?;
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let (axes, c, x) = (window.axes([h, w])?, c as usize, x.slice::<T>());
    let elements = call.output()?.slice_mut::<T>().len();
    let elements = call.rows(elements, window.cost(c, 9) + 20);
    let y = call.output()?.slice_mut::<T>();
    windows(axes, c, elements, |window| {
        let y = y.get_mut(window.result.clone()).unwrap_or_default();
        y.chunks_mut(CHANNELS).enumerate().for_each(|(block, y)| average(&window, block, x, y, range));
    });
    Ok(())
}

/// Number of channels whose sums are computed together.
const CHANNELS: usize = 8;

/// Writes the averages of a block of the window's channels to `y`.
#[inline(always)]
fn average<T: Quantized>(window: &Covered, block: usize, x: &[T], y: &mut [T], [least, greatest]: [i32; 2]) {
    let mut window = window.clone();
    window.start += block * CHANNELS;
    window.result = 0..y.len();
    let mut sums = [0i32; CHANNELS];
    window.each(x, |pixel| sums.iter_mut().zip(pixel).for_each(|(sum, x)| *sum = sum.wrapping_add(x.number())));
    let count = (window.count() as i32).max(1);
    for (y, sum) in y.iter_mut().zip(sums) {
        let half = if sum > 0 { count / 2 } else { -(count / 2) };
        *y = T::of((sum.wrapping_add(half) / count).max(least).min(greatest));
    }
}

crate::ops::kernels!(run: I8 = i8, I16 = i16);

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_avg_pool2d(x[n,h,w,c]), where x is i8 or i16", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the average of each window of quantised images `[n,h,w,c]`, for each channel: `[n,oh,ow,c]`, with the scale and the zero
    /// point of the images. `range` is the smallest and the largest element that an activation leaves, or `None` for all elements. It has
    /// the bits of TensorFlow Lite's reference kernel of AVERAGE_POOL_2D.
    ///
    /// Fails as [`Tensor::avg_pool2d`] does, or if the element type is not i8 or i16.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::conv2d::Padding;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1i8, 5, 2, 3, 7, 8], &[1, 2, 3, 1])?;
    /// assert_eq!(x.quantized_avg_pool2d([2, 2], [2, 2], Padding::Same, None)?.to_vec::<i8>()?, [4, 5]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_avg_pool2d(&self, ksize: [u32; 2], strides: [u32; 2], padding: Padding, range: Option<(i32, i32)>) -> Result<Tensor> {
        let window = pooling::Attributes::new(ksize, strides, padding)?;
        let (least, greatest) = range.or(limits(self.dtype())).unwrap_or_default();
        let y = Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes { window, range: [least, greatest] }]), &[self])?;
        self.quantization().cloned().map_or(Ok(y.clone()), |quantization| y.with_quantization(quantization))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::quantized_conv2d::tests::integers;
    use crate::ops::shared::pooling::tests::{cases, positions};
    use crate::ops::shared::testing::{Value, run, run_every_way};
    use std::vec::Vec;

    fn check<T: Quantized>(dims: &[u32], x: &[T], [ksize, strides]: [[u32; 2]; 2], padding: u32, range: [i32; 2], want: &[T]) {
        let attributes = words(Attributes { window: pooling::Attributes { ksize, strides, padding }, range });
        let kernel = if T::DTYPE == DType::I8 { &I8 } else { &I16 };
        assert_eq!(run_every_way(kernel, &attributes, &[&Value::new(x, dims)])[0].elements::<T>(), want);
    }

    /// The results are those of TensorFlow 2.21's reference kernel of AVERAGE_POOL_2D.
    #[rustfmt::skip]
    #[test]
    fn same_bits_as_tensorflow() {
        check::<i8>(&[1, 3, 4, 2],
            &[-51, 71, -30, 27, -9, 53, -40, -106, -53, 33, 30, 123, -66, -20, 114, -100, 51, 117, 106, 45, 100, -78, 65, 44],
            [[2, 2], [2, 2]], 1, [-128, 127],
            &[-26, 64, 0, -43, 79, 81, 83, -17]);
        check::<i8>(&[1, 5, 3, 1],
            &[126, 88, -75, 123, 90, -33, 50, 72, -72, -62, -81, -10, 116, -29, -41],
            [[3, 2], [2, 1]], 0, [84, 127],
            &[92, 84, 84, 84]);
        check::<i8>(&[2, 3, 3, 1],
            &[0, 0, 3, 0, 0, 0, -2, 1, -1, 2, -2, 1, 1, 3, 0, 3, 0, -1],
            [[3, 3], [1, 1]], 1, [-128, 127],
            &[0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 2, 1, 1]);
        check::<i8>(&[1, 2, 5, 1],
            &[-54, -58, -85, -125, -61, -79, 38, 107, -122, 54],
            [[1, 4], [1, 2]], 1, [-20, 100],
            &[-20, -20, -20, 22, 19, -20]);
        check::<i16>(&[1, 3, 4, 2],
            &[5259, 30291, -6447, -25012, 20835, 25556, -15520, 5432, 8720, -24297, -31982, -31331, 9547, 7761, 30969, 6508, 13656,
            -2180, -27739, -10712, 5997, 12489, -12007, -24429],
            [[2, 2], [2, 2]], 1, [-32768, 32767],
            &[-6113, -12587, 11458, 11314, -7042, -6446, -3005, -5970]);
        check::<i16>(&[1, 5, 3, 1],
            &[27505, -17709, -31582, -5937, -31990, 10310, -26464, -12347, -10532, 14399, 25061, 11593, 4236, -17765, 10640],
            [[3, 2], [2, 1]], 0, [0, 32767],
            &[0, 0, 0, 1108]);
        check::<i16>(&[2, 3, 3, 1],
            &[2, -1, 0, -3, -1, -3, 1, 3, 3, 0, -3, 3, -2, 0, 3, 0, -3, -2],
            [[3, 3], [1, 1]], 1, [-32768, 32767],
            &[-1, -1, -1, 0, 0, 0, 0, 0, 1, -1, 0, 1, -1, 0, 0, -1, -1, -1]);
        check::<i16>(&[1, 2, 5, 1],
            &[-9542, -11647, 3345, 21437, -12017, 12348, -7039, 9193, 10306, 6593],
            [[1, 4], [1, 2]], 1, [0, 6000],
            &[0, 280, 4710, 4834, 4763, 6000]);
    }

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, window, y_dims) in cases() {
            let elements = integers(&x_dims, 1, 31.0);
            let average = |window: Vec<usize>| {
                let mean = window.iter().map(|&at| f64::from(elements[at])).sum::<f64>() / window.len() as f64;
                (mean.round() as i8).clamp(-90, 60)
            };
            let want: Vec<i8> = positions(x_dims, &window, y_dims).into_iter().map(average).collect();
            let x: Vec<i8> = elements.iter().map(|&x| x as i8).collect();
            let got = run_every_way(&I8, &words(Attributes { window, range: [-90, 60] }), &[&Value::new(&x, &x_dims)]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {window:?}");
            let x: Vec<i16> = elements.iter().map(|&x| x as i16).collect();
            let want: Vec<i16> = want.into_iter().map(i16::from).collect();
            let got = run_every_way(&I16, &words(Attributes { window, range: [-90, 60] }), &[&Value::new(&x, &x_dims)]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {window:?}");
        }
    }

    #[test]
    fn absurd_attributes_are_refused() {
        let refused = |words: &[i32], x: &Value| run(&I8, bytemuck::cast_slice(words), &[x], &[]).0.unwrap_err();
        let x = Value::new(&[1i8; 4], &[1, 2, 2, 1]);
        for (words, index) in [([0, 1, 1, 1, 0, 0, 9], 0), ([1, 1, 1, 1, 2, 0, 9], 4), ([1, 1, 1, 1, 0, -129, 9], 5)] {
            assert_eq!(refused(&words, &x), Error::Attribute { index });
        }
        assert_eq!(refused(&[1, 1, 1, 1, 0, 0, 128], &x), Error::Attribute { index: 6 });
        assert_eq!(refused(&[1, 1, 1, 1, 0, 9, 8], &x), Error::Attribute { index: 6 });
        assert_eq!(refused(&[1, 1, 1, 1, 0], &x), Error::Attribute { index: 0 });
        assert_eq!(refused(&[1, 1, 1, 1, 0, 0, 9], &Value::new(&[1i8; 4], &[2, 2])), Error::Rank { input: 0 });
    }
}
