//! The maximum of each window of each channel: `y[n,oh,ow,c] = max x[n,ih,iw,c]`. Positions outside of x do not count;
//! NaN in a window gives NaN. f32 and f64. As `tf.nn.max_pool2d` in NHWC (which leaves open what NaN gives, and gives
//! the lowest finite number instead of −∞).

use super::conv2d::{Padding, dims4};
use super::window::{Axis, part, positive};
use crate::dtype::Float;
use crate::error::{Error, Result};
use crate::op::{Call, Kernel, OpDef, read_attributes};
use crate::shape::{Shape, TensorType};
#[cfg(feature = "alloc")]
use crate::{
    scope::{Backward, Gradient, InputGradients, Op},
    tensor::Tensor,
};
use core::num::NonZeroU32;

/// The attributes, for the vertical axis first.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Height and width of the window.
    pub ksize: [u32; 2],
    /// How far it moves.
    pub strides: [u32; 2],
    /// 0 valid, 1 same.
    pub padding: u32,
}

/// The op.
pub static DEF: OpDef = OpDef { code: super::code::max_pool2d, name: "max_pool2d", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

impl Attributes {
    /// Checks the attributes, and gives how the window slides, vertically and horizontally.
    pub(super) fn axes(&self, [height, width]: [u32; 2]) -> Result<[Axis; 2]> {
        let ([kh, kw], [down, across]) = (self.ksize, self.strides);
        let (kh, kw) = (positive(kh, 0)?.get(), positive(kw, 1)?.get());
        let (down, across) = (positive(down, 2)?, positive(across, 3)?);
        if self.padding > Padding::SAME {
            return Err(Error::Attribute { index: 4 });
        }
        let (one, padding) = (NonZeroU32::MIN, (self.padding, 0, 0));
        Ok([Axis::new(1, [height, kh], [down, one], padding)?, Axis::new(2, [width, kw], [across, one], padding)?])
    }
}

/// The type of the result of pooling input 0.
pub(super) fn pooled(inputs: &[TensorType], attributes: &[u32]) -> Result<TensorType> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [n, h, w, c] = dims4(inputs, 0)?;
    let [down, across] = attributes.axes([h, w])?;
    let dtype = inputs.first().map_or(crate::dtype::DType::F32, |x| x.dtype);
    Ok(TensorType::new(dtype, Shape::new(&[n, down.output as u32, across.output as u32, c])?))
}

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let pooled = pooled(inputs, attributes)?;
    outputs.iter_mut().take(1).for_each(|output| *output = pooled);
    Ok(())
}

/// Whether `x` takes the place of `best`: it is greater, or the first NaN.
#[inline(always)]
#[allow(clippy::eq_op, clippy::neg_cmp_op_on_partial_ord)]
pub(super) fn beats<T: Float>(x: T, best: T) -> bool {
    !(x <= best) && best == best
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let x = call.input(0)?;
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.axes([h, w])?;
    let (w, c) = (w as usize, c as usize);
    let row = across.output * c;
    let output = call.output()?.slice_mut::<T>();
    if output.is_empty() {
        return Ok(());
    }
    let mut images = x.slice::<T>().chunks_exact((down.input * w * c).max(1));
    for output in output.chunks_exact_mut((down.output * row).max(1)) {
        let Some(x) = images.next() else { break };
        for (oh, output) in output.chunks_exact_mut(row.max(1)).enumerate() {
            let vertical = down.taps(oh);
            for (ow, y) in output.chunks_exact_mut(c.max(1)).enumerate() {
                let horizontal = across.taps(ow);
                y.fill(T::NEG_INFINITY);
                for kh in vertical.first..vertical.end {
                    let start = (down.input_at(oh, kh) * w + across.input_at(ow, horizontal.first)) * c;
                    for pixel in part(x, start, horizontal.end.saturating_sub(horizontal.first) * c).chunks_exact(c.max(1)) {
                        y.iter_mut().zip(pixel).for_each(|(y, &x)| *y = if beats(x, *y) { x } else { *y });
                    }
                }
            }
        }
    }
    Ok(())
}

super::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `max_pool2d_grad`.
#[cfg(feature = "alloc")]
pub static OP: Op = Op { def: &DEF, usage: "max_pool2d(x[n,h,w,c]), x of f32 or f64", grad: Gradient::Rule(grad) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let [x] = of.inputs else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dx = || Tensor::emit1(&super::max_pool2d_grad::OP, of.attributes, &[x, of.dy()?]);
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// The maxima of windows of `ksize` that move by `strides` (vertical, horizontal) over images `[n,h,w,c]`, channel by
    /// channel: `[n,oh,ow,c]`. NaN in a window gives NaN. As `tf.nn.max_pool2d` in NHWC.
    ///
    /// Fails where the tensor is not of rank 4 or not of f32 or f64, where the window is larger than the image, where a
    /// size is 0, and for explicit padding.
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
        let attributes = Attributes { ksize, strides, padding: padding.words().0 };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[self])
    }
}

#[cfg(test)]
pub(super) mod tests {
    extern crate std;
    use super::super::conv2d::tests::{meetings, words};
    use super::super::conv2d::{self};
    use super::super::testing::{Value, floats, indices, position, run_every_way};
    use super::*;
    use crate::dtype::DType;
    use std::vec::Vec;

    /// Poolings of all kinds: images, attributes, the dimensions of the result.
    pub(in super::super) fn cases() -> Vec<([u32; 4], Attributes, [u32; 4])> {
        let mut cases = Vec::new();
        for x in [[2, 5, 6, 3], [1, 4, 4, 1], [1, 3, 7, 8], [1, 5, 5, 0], [0, 5, 5, 2], [1, 0, 5, 1]] {
            for ksize in [[1, 1], [2, 2], [3, 2], [4, 3]] {
                for strides in [[1, 1], [2, 2], [1, 3], [5, 4]] {
                    for padding in [0, 1] {
                        let attributes = Attributes { ksize, strides, padding };
                        let x_type = TensorType::new(DType::F32, Shape::new(&x).unwrap());
                        let Ok(types) = DEF.output_types(&[x_type], &words(attributes)) else { continue };
                        cases.push((x, attributes, types[0].shape.dims().try_into().unwrap()));
                    }
                }
            }
        }
        cases
    }

    /// For each element of the result, the positions of its window in x, in row-major order.
    pub(in super::super) fn windows(x: [u32; 4], attributes: &Attributes, y: [u32; 4]) -> Vec<Vec<usize>> {
        let Attributes { ksize, strides, padding } = *attributes;
        let conv = conv2d::Attributes { strides, dilations: [1, 1], padding, pads: [0; 4] };
        let mut windows = std::vec![Vec::new(); indices(&y).len()];
        for ([n, ih, iw], [oh, ow], _) in meetings(x, ksize, [y[1], y[2]], &conv) {
            for c in 0..x[3] {
                windows[position(&y, &[n, oh, ow, c])].push(position(&x, &[n, ih, iw, c]));
            }
        }
        windows
    }

    #[test]
    fn agrees_with_the_formula() {
        let cases = cases();
        assert!(cases.len() > 100);
        for (x_dims, attributes, y_dims) in cases {
            let x = floats(&x_dims, 1);
            let elements = x.elements::<f32>();
            let maximum = |window: Vec<usize>| window.into_iter().map(|at| elements[at]).fold(f32::NEG_INFINITY, f32::max);
            let want: Vec<f32> = windows(x_dims, &attributes, y_dims).into_iter().map(maximum).collect();
            let got = run_every_way(&F32, &words(attributes), &[&x]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {attributes:?}");
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

    #[test]
    fn absurd_attributes_are_refused() {
        let x = TensorType::new(DType::F32, Shape::new(&[1, 4, 4, 1]).unwrap());
        let refuse = |words: &[u32]| DEF.output_types(&[x], words).map(|_| ()).unwrap_err();
        assert_eq!(refuse(&[0, 1, 1, 1, 0]), Error::Attribute { index: 0 });
        assert_eq!(refuse(&[1, 1, 1, 0, 0]), Error::Attribute { index: 3 });
        assert_eq!(refuse(&[1, 1, 1, 1, 2]), Error::Attribute { index: 4 });
        assert_eq!(refuse(&[1, 1, 1, 1, 0, 0]), Error::Attribute { index: 0 });
        assert_eq!(refuse(&[1, u32::MAX, 1, 1, 1]), Error::TooLarge);
        assert_eq!(refuse(&[1, 1 << 30, 1, 1, 0]), Error::Dimension { input: 0, axis: 2, want: 1 << 30, got: 4 });
        assert!(DEF.output_types(&[x], &[1 << 30, 1 << 30, 1, 1, 1]).is_ok());
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use super::super::testing::{check_gradient, tensor};
        for (x, attributes, _) in cases().into_iter().step_by(5) {
            check_gradient(&OP, &words(attributes), &[tensor(&x, 1)]);
        }
    }
}
