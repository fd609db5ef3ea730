//! Two-dimensional convolution: `y[n,oh,ow,co] = Σ x[n,ih,iw,ci] · filter[kh,kw,ci,co] + bias[co]` with
//! `ih = oh · stride + kh · dilation − padding`, and `iw` alike. Positions outside x count as 0. The bias is optional. Element
//! types: f32 and f64. Like `tf.nn.conv2d` in NHWC, followed by `tf.nn.bias_add`.
//!
//! Bits: each element is summed from +0 over (kh, kw, ci) ascending, without the positions outside x. The bias is added last.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, NONE, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::contraction::{Lines, Rows, add_products, check_bias};
use crate::ops::shared::elementwise::add_to_rows;
use crate::ops::shared::window::{Axis, clear, groups, part, positive, split};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};
use core::ops::Range;

pub use crate::ops::shared::window::Padding;

/// Attribute words of the op. The vertical axis comes first.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Distance from one window to the next.
    pub strides: [u32; 2],
    /// Distance from one tap of the window to the next.
    pub dilations: [u32; 2],
    /// Kind of padding: 0 for valid, 1 for same, 2 for explicit.
    pub padding: u32,
    /// Explicit padding above, below, to the left and to the right. All 0 for the other kinds.
    pub pads: [u32; 4],
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::conv2d, name: "conv2d", inputs: (2, 3), outputs: 1, infer, in_place: &[] };

impl Attributes {
    /// Checks the attributes, and returns the geometry of the sliding window along the vertical and the horizontal axis. `input`
    /// and `kernel` are the height and width of the images and of the filter.
    pub(in crate::ops) fn axes(&self, input: [u32; 2], kernel: [u32; 2]) -> Result<[Axis; 2]> {
        let ([down, across], [dilation_h, dilation_w]) = (self.strides, self.dilations);
        let strides = [positive(down, 0)?, positive(across, 1)?];
        let dilations = [positive(dilation_h, 2)?, positive(dilation_w, 3)?];
        if self.padding > Padding::EXPLICIT {
            return Err(Error::Attribute { index: 4 });
        }
        if self.padding != Padding::EXPLICIT && self.pads.iter().any(|&pad| pad != 0) {
            return Err(Error::Attribute { index: 5 });
        }
        let ([height, width], [kh, kw], [top, bottom, left, right]) = (input, kernel, self.pads);
        let ([down, across], [dilation_h, dilation_w]) = (strides, dilations);
        Ok([
            Axis::new(1, [height, kh], [down, dilation_h], (self.padding, top, bottom))?,
            Axis::new(2, [width, kw], [across, dilation_w], (self.padding, left, right))?,
        ])
    }
}

/// Returns the dimensions of the op's input `input`, an image or a filter. Fails unless it has rank 4 and the element type of input
/// 0, a float.
pub(in crate::ops) fn dims4(inputs: &[TensorType], input: u8) -> Result<[u32; 4]> {
    let (Some(operand), Some(first)) = (inputs.get(usize::from(input)), inputs.first()) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    if !operand.dtype.is_float() || operand.dtype != first.dtype {
        return Err(Error::DType { input });
    }
    operand.shape.dims().try_into().map_err(|_| Error::Rank { input })
}

/// Returns the dimensions of the op's input `input`, a filter. Fails in the same cases as [`dims4`], and if its height or width is 0.
pub(in crate::ops) fn filter4(inputs: &[TensorType], input: u8) -> Result<[u32; 4]> {
    let dims = dims4(inputs, input)?;
    let [kh, kw, ..] = dims;
    for (axis, side) in [(0, kh), (1, kw)] {
        if side == 0 {
            return Err(Error::Dimension { input, axis, want: 1, got: 0 });
        }
    }
    Ok(dims)
}

/// Fails unless `got`, dimension `axis` of the op's input `input`, equals `want`.
pub(in crate::ops) fn check_dim(input: u8, axis: u8, want: u32, got: u32) -> Result<()> {
    if got == want { Ok(()) } else { Err(Error::Dimension { input, axis, want, got }) }
}

/// Fails unless `dims`, the dimensions of the op's input `input`, are those of the result of a convolution of `n` images to `co`
/// channels. The two axes are the geometry of its window.
pub(in crate::ops) fn check_output(input: u8, dims: [u32; 4], n: u32, [down, across]: [Axis; 2], co: u32) -> Result<()> {
    for (axis, (want, got)) in (0..).zip([n, down.output as u32, across.output as u32, co].into_iter().zip(dims)) {
        check_dim(input, axis, want, got)?;
    }
    Ok(())
}

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [n, h, w, c] = dims4(inputs, 0)?;
    let [kh, kw, ci, co] = filter4(inputs, 1)?;
    check_dim(1, 2, c, ci)?;
    let ([x, _, bias @ ..], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    check_bias(bias, x.dtype, co)?;
    let [down, across] = attributes.axes([h, w], [kh, kw])?;
    *output = TensorType::new(x.dtype, Shape::new(&[n, down.output as u32, across.output as u32, co])?);
    Ok(())
}

/// A convolution.
pub(in crate::ops) struct Convolution<'a, T> {
    down: Axis,
    across: Axis,
    images: &'a [T],
    /// Number of channels of the images.
    channels: usize,
    /// Height and width of the filter.
    kernel: [usize; 2],
    filter: &'a [T],
    /// Number of channels of the result.
    filters: usize,
    bias: &'a [T],
}

impl<'a, T: Float> Convolution<'a, T> {
    /// Returns the convolution with the inputs of `call`.
    #[inline(always)]
    pub(in crate::ops) fn of(call: &Call<'_, 'a>, attributes: &Attributes) -> Result<Convolution<'a, T>> {
        let (x, filter) = (call.input(0)?, call.input(1)?);
        let bias = call.inputs.get(2).map_or(&[][..], |bias| bias.slice::<T>());
        let (&[_, h, w, c], &[kh, kw, _, co]) = (x.dims(), filter.dims()) else { return Err(Error::Rank { input: 0 }) };
        let [down, across] = attributes.axes([h, w], [kh, kw])?;
        let (channels, kernel, filters) = (c as usize, [kh as usize, kw as usize], co as usize);
        Ok(Convolution { down, across, images: x.slice(), channels, kernel, filter: filter.slice(), filters, bias })
    }

    /// Asks `call` for the pixels of a convolution that computes the first `width` pixels of `lines` lines. `extra` is the cost of other
    /// work on a pixel. Two neighbours share the loads of the filter, so a pair of them is not divided.
    pub(in crate::ops) fn rows(&self, call: &mut Call<'_, '_>, lines: usize, width: usize, extra: usize) -> Range<usize> {
        let ([kh, kw], co) = (self.kernel, self.filters);
        let cost = kh * ((kw * self.channels + 1) * (3 * co + 7 * (co % 8)) + 110) + 60 + extra;
        let mut pixels = call.rows(lines * width, cost);
        // The pairs begin where the whole window is inside the image.
        let (edge, (_, column)) = (self.across.outputs(0).0, split(pixels.end, width));
        if call.slice.next != NONE && pixels.len() > 1 && column > edge && (column - edge) % 2 == 1 {
            pixels.end -= 1;
            call.slice.next -= 1;
        }
        pixels
    }

    /// Computes the pixels `columns` of row `oh` of the result of image `image`.
    #[inline(never)]
    pub(in crate::ops) fn pixels(&self, output: &mut [T], image: usize, oh: usize, columns: Range<usize>) {
        let &Convolution { down, across, images, channels: c, kernel: [_, kw], filter, filters: co, bias } = self;
        let length = down.input * across.input * c;
        clear(output);
        // An image without pixels or channels gives 0 plus the bias.
        let (x, vertical) = (part(images, image * length, length), down.taps(oh));
        for kh in vertical.first..if x.is_empty() { vertical.first } else { vertical.end } {
            let x = x.get(down.input_at(oh, kh) * across.input * c..).unwrap_or(&[]);
            across.each_run(columns.clone(), |first, end, taps| {
                let output = output.get_mut((first - columns.start) * co..(end - columns.start) * co).unwrap_or(&mut []);
                let x = x.get(across.input_at(first, taps.first) * c..).unwrap_or(&[]);
                let from = Lines { step: across.stride() * c, width: (taps.end - taps.first) * c };
                let filter = filter.get((kh * kw + taps.first) * c * co..).unwrap_or(&[]);
                add_products(output, Lines { step: co, width: co }, x, from, Rows::new(filter, co));
            });
        }
        add_to_rows(output, bias);
    }
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let convolution = Convolution::of(call, &call.attributes()?)?;
    let (height, width, co) = (convolution.down.output, convolution.across.output, convolution.filters);
    let pixels = convolution.rows(call, call.input(0)?.dim(0) * height, width, 0);
    let output = call.output()?.slice_mut::<T>();
    for (row, columns) in groups(pixels, width) {
        let ((image, oh), at) = (split(row, height), row * width);
        let output = output.get_mut((at + columns.start) * co..(at + columns.end) * co).unwrap_or(&mut []);
        convolution.pixels(output, image, oh, columns);
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `conv2d_input_grad` for x, `conv2d_filter_grad` for the filter, and for the bias the upstream
/// gradient summed over all positions.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("Conv2D"),
    ..Op::total(&DEF, "conv2d(x[n,h,w,c], filter[kh,kw,c,co], optional bias[co]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let attributes: Attributes = read_attributes(of.attributes)?;
    let options = Conv2DOptions::from(attributes);
    let ([x, filter, bias @ ..], dy) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dx = of.if_wanted(0, || dy.conv2d_input_grad(filter, &options, middle(x)?))?;
    let dfilter = of.if_wanted(1, || x.conv2d_filter_grad(dy, &options, front(filter)?))?;
    let dbias = of.if_wanted(2, || dy.sum(&[0, 1, 2], false))?;
    Ok([dx, dfilter].into_iter().chain(bias.iter().map(|_| dbias.clone())).collect())
}

/// Returns the height and width of images `[n,h,w,c]`.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn middle(images: &Tensor) -> Result<[u32; 2]> {
    let &[_, h, w, _] = images.dims() else { return Err(Error::Rank { input: 0 }) };
    Ok([h, w])
}

/// Returns the height and width of a filter `[kh,kw,c,co]`.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn front(filter: &Tensor) -> Result<[u32; 2]> {
    let &[h, w, _, _] = filter.dims() else { return Err(Error::Rank { input: 1 }) };
    Ok([h, w])
}

/// Options of a convolution: strides and dilations (vertical, then horizontal) and padding.
///
/// By default, strides and dilations are 1, and there is no padding.
///
/// ```
/// use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
/// let options = Conv2DOptions::default().strides([2, 2]).padding(Padding::Same);
/// assert_eq!(options.dilations, [1, 1]);
/// ```
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conv2DOptions {
    /// Distance from one window to the next.
    pub strides: [u32; 2],
    /// Distance from one tap of the window to the next.
    pub dilations: [u32; 2],
    /// Padding around the image.
    pub padding: Padding,
}

#[cfg(feature = "alloc")]
impl Default for Conv2DOptions {
    fn default() -> Conv2DOptions {
        Conv2DOptions { strides: [1; 2], dilations: [1; 2], padding: Padding::Valid }
    }
}

#[cfg(feature = "alloc")]
impl Conv2DOptions {
    /// Sets the strides.
    pub fn strides(self, strides: [u32; 2]) -> Conv2DOptions {
        Conv2DOptions { strides, ..self }
    }

    /// Sets the dilations.
    pub fn dilations(self, dilations: [u32; 2]) -> Conv2DOptions {
        Conv2DOptions { dilations, ..self }
    }

    /// Sets the padding.
    pub fn padding(self, padding: Padding) -> Conv2DOptions {
        Conv2DOptions { padding, ..self }
    }

    pub(in crate::ops) fn attributes(&self) -> Attributes {
        let (padding, pads) = self.padding.words();
        Attributes { strides: self.strides, dilations: self.dilations, padding, pads }
    }
}

#[cfg(feature = "alloc")]
impl From<Attributes> for Conv2DOptions {
    fn from(attributes: Attributes) -> Conv2DOptions {
        let Attributes { strides, dilations, padding, pads } = attributes;
        Conv2DOptions { strides, dilations, padding: Padding::from_words(padding, pads) }
    }
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the convolution of images `[n,h,w,c]` with `filter[kh,kw,c,co]`, plus `bias[co]`: `[n,oh,ow,co]`. Like
    /// `tf.nn.conv2d` in NHWC.
    ///
    /// Fails if ranks, channels or element types do not match, or if the element type is not f32 or f64. Fails if the window is
    /// larger than the padded image, or if a stride or a dilation is 0.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1])?;
    /// let filter = Tensor::full(&device, 1.0f32, &[2, 2, 1, 1])?;
    /// let y = x.conv2d(&filter, None, &Conv2DOptions::default().padding(Padding::Same))?;
    /// assert_eq!(y.to_vec::<f32>()?, [10.0, 6.0, 7.0, 4.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn conv2d(&self, filter: &Tensor, bias: Option<&Tensor>, options: &Conv2DOptions) -> Result<Tensor> {
        let inputs: heapless::Vec<&Tensor, 3> = [self, filter].into_iter().chain(bias).collect();
        Tensor::emit1(&OP, bytemuck::cast_slice(&[options.attributes()]), &inputs)
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::base::dtype::DType;
    use crate::ops::shared::testing::{Value, floats, indices, position, run_every_way};
    use std::vec::Vec;

    /// Returns test cases with all kinds of convolutions: the dimensions of images and filter, and the attributes.
    pub(in crate::ops) fn cases() -> Vec<([u32; 4], [u32; 4], Attributes)> {
        let mut cases = Vec::new();
        for (x, filter) in [
            ([2, 5, 6, 2], [3, 2, 2, 3]),
            ([1, 7, 4, 1], [2, 3, 1, 13]),
            ([1, 4, 4, 5], [1, 1, 5, 8]),
            ([2, 3, 3, 3], [5, 5, 3, 1]),
            ([1, 6, 1, 9], [2, 1, 9, 4]),
            ([1, 5, 5, 0], [3, 3, 0, 2]),
            ([1, 5, 5, 2], [3, 3, 2, 0]),
            ([0, 5, 5, 2], [3, 3, 2, 1]),
            ([1, 0, 5, 1], [1, 2, 1, 2]),
        ] {
            for strides in [[1, 1], [2, 2], [1, 3], [9, 2]] {
                for dilations in [[1, 1], [2, 1], [1, 2], [3, 2]] {
                    for (padding, pads) in [(0, [0; 4]), (1, [0; 4]), (2, [1, 2, 0, 3]), (2, [4, 0, 9, 1])] {
                        cases.push((x, filter, Attributes { strides, dilations, padding, pads }));
                    }
                }
            }
        }
        cases
    }

    /// Returns the positions that a convolution multiplies with each other, in the order of its sums. Each entry holds the position
    /// (n, ih, iw) in x, the position (oh, ow) in the result, and the tap (kh, kw) of the filter.
    pub(in crate::ops) fn meetings(
        [n, h, w, _]: [u32; 4],
        [kh, kw]: [u32; 2],
        [oh, ow]: [u32; 2],
        attributes: &Attributes,
    ) -> Vec<([u32; 3], [u32; 2], [u32; 2])> {
        let before = |axis: usize, input: u32, output: u32, kernel: u32| -> i64 {
            let (stride, dilation) = (i64::from(attributes.strides[axis]), i64::from(attributes.dilations[axis]));
            match attributes.padding {
                1 => ((i64::from(output) - 1) * stride + (i64::from(kernel) - 1) * dilation + 1 - i64::from(input)).max(0) / 2,
                _ => i64::from(attributes.pads[axis * 2]),
            }
        };
        let (top, left) = (before(0, h, oh, kh), before(1, w, ow, kw));
        let mut meetings = Vec::new();
        for index in indices(&[n, oh, ow, kh, kw]) {
            let [n, oh, ow, kh, kw] = index[..] else { unreachable!() };
            let at = |axis: usize, output: u32, tap: u32, before: i64, input: u32| {
                let tap = i64::from(tap) * i64::from(attributes.dilations[axis]);
                let position = i64::from(output) * i64::from(attributes.strides[axis]) + tap - before;
                u32::try_from(position).ok().filter(|&position| position < input)
            };
            if let (Some(ih), Some(iw)) = (at(0, oh, kh, top, h), at(1, ow, kw, left, w)) {
                meetings.push(([n, ih, iw], [oh, ow], [kh, kw]));
            }
        }
        meetings
    }

    /// Returns the attribute words of the struct `attributes`.
    pub(in crate::ops) fn words<A: bytemuck::Pod>(attributes: A) -> Vec<u32> {
        bytemuck::cast_slice(&[attributes]).to_vec()
    }

    /// Returns the dimensions of the result of a convolution, or `None` if the window is too large.
    pub(in crate::ops) fn output(x: [u32; 4], filter: [u32; 4], attributes: &Attributes) -> Option<[u32; 4]> {
        let types = [x, filter].map(|dims| TensorType::new(DType::F32, Shape::new(&dims).unwrap()));
        DEF.output_types(&types, &words(*attributes)).ok()?[0].shape.dims().try_into().ok()
    }

    #[test]
    fn agrees_with_the_formula() {
        let mut seen = 0;
        for (x_dims, filter_dims, attributes) in cases() {
            let Some(y_dims) = output(x_dims, filter_dims, &attributes) else { continue };
            let (x, filter, bias) = (floats(&x_dims, 1), floats(&filter_dims, 2), floats(&[filter_dims[3]], 3));
            let (left, right, added) = (x.elements::<f32>(), filter.elements::<f32>(), bias.elements::<f32>());
            let mut want = std::vec![0.0f32; indices(&y_dims).len()];
            let [kh, kw, c, co] = filter_dims;
            for ([n, ih, iw], [oh, ow], [kh, kw]) in meetings(x_dims, [kh, kw], [y_dims[1], y_dims[2]], &attributes) {
                for channels in indices(&[c, co]) {
                    let (ci, co) = (channels[0], channels[1]);
                    let product = left[position(&x_dims, &[n, ih, iw, ci])] * right[position(&filter_dims, &[kh, kw, ci, co])];
                    want[position(&y_dims, &[n, oh, ow, co])] += product;
                }
            }
            let got = run_every_way(&F32, &words(attributes), &[&x, &filter]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {filter_dims:?} {attributes:?}");
            want.iter_mut().zip(added.iter().cycle()).for_each(|(y, bias)| *y += bias);
            let got = run_every_way(&F32, &words(attributes), &[&x, &filter, &bias]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {filter_dims:?} {attributes:?}");
            seen += usize::from(!want.is_empty());
        }
        assert!(seen > 200, "{seen}");
    }

    #[test]
    fn sizes_are_those_of_tensorflow() {
        let sizes = |x, filter, padding, strides, dilations| {
            output(x, filter, &Attributes { strides, dilations, padding, pads: [0; 4] }).map(|[_, h, w, _]| [h, w])
        };
        assert_eq!(sizes([1, 5, 7, 1], [3, 3, 1, 1], 1, [2, 2], [1, 1]), Some([3, 4]));
        assert_eq!(sizes([1, 6, 7, 1], [3, 3, 1, 1], 0, [2, 2], [1, 1]), Some([2, 3]));
        assert_eq!(sizes([1, 9, 9, 1], [3, 3, 1, 1], 0, [1, 1], [2, 3]), Some([5, 3]));
        assert_eq!(sizes([1, 2, 2, 1], [3, 3, 1, 1], 0, [1, 1], [1, 1]), Some([0, 0]));
        assert_eq!(sizes([1, 1, 2, 1], [3, 3, 1, 1], 0, [1, 1], [1, 1]), None);
    }

    #[test]
    fn absurd_attributes_are_refused_or_harmless() {
        let refuse = |x, filter, strides, dilations, padding, pads| {
            let types = [x, filter].map(|dims: [u32; 4]| TensorType::new(DType::F32, Shape::new(&dims).unwrap()));
            let attributes = Attributes { strides, dilations, padding, pads };
            DEF.output_types(&types, &words(attributes)).map(|_| ()).unwrap_err()
        };
        let (x, filter) = ([1, 4, 4, 1], [2, 2, 1, 1]);
        assert_eq!(refuse(x, filter, [0, 1], [1, 1], 0, [0; 4]), Error::Attribute { index: 0 });
        assert_eq!(refuse(x, filter, [1, 1], [1, 0], 0, [0; 4]), Error::Attribute { index: 3 });
        assert_eq!(refuse(x, filter, [1, 1], [1, 1], 3, [0; 4]), Error::Attribute { index: 4 });
        assert_eq!(refuse(x, filter, [1, 1], [1, 1], 1, [1, 0, 0, 0]), Error::Attribute { index: 5 });
        assert_eq!(refuse(x, filter, [1, 1], [u32::MAX, 1], 1, [0; 4]), Error::TooLarge);
        assert_eq!(refuse(x, filter, [u32::MAX, 1], [1, 1], 1, [0; 4]), Error::TooLarge);
        assert_eq!(refuse(x, filter, [1, 1], [1, 1], 2, [u32::MAX; 4]), Error::TooLarge);
        assert_eq!(refuse(x, [0, 2, 1, 1], [1, 1], [1, 1], 0, [0; 4]), Error::Dimension { input: 1, axis: 0, want: 1, got: 0 });
        assert_eq!(refuse(x, [2, 2, 3, 1], [1, 1], [1, 1], 0, [0; 4]), Error::Dimension { input: 1, axis: 2, want: 1, got: 3 });
        // A window of a billion taps over an image with as many pixels, but without channels. There is nothing to compute.
        let (x, filter) = (floats(&[1, 1 << 30, 1, 0], 1), floats(&[1 << 30, 1, 0, 1], 2));
        let attributes = Attributes { strides: [1, 1], dilations: [1, 1], padding: 0, pads: [0; 4] };
        assert_eq!(run_every_way(&F32, &words(attributes), &[&x, &filter])[0].elements::<f32>(), [0.0]);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, filter, attributes) in cases().into_iter().step_by(7) {
            if output(x, filter, &attributes).is_some() {
                check_gradient(&OP, &words(attributes), &[tensor(&x, 1), tensor(&filter, 2), tensor(&filter[3..], 3)]);
            }
        }
    }
}
