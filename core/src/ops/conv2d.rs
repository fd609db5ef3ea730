//! Two-dimensional convolution: `y[n,oh,ow,co] = Σ x[n,ih,iw,ci] · filter[kh,kw,ci,co] + bias[co]` with
//! `ih = oh · stride + kh · dilation − padding`; what lies outside of x counts as 0. The bias can be left out.
//! f32 and f64. As `tf.nn.conv2d` in NHWC, `tf.nn.bias_add`.
//!
//! Bits: each element is summed from +0 over (kh, kw, ci) ascending, without the positions outside of x; the bias is
//! added last.

use super::contraction::{Rows, add_rows, check_bias};
use super::window::{Axis, part};
use crate::dtype::Float;
use crate::error::{Error, Result};
use crate::op::{Call, Kernel, OpDef, read_attributes};
use crate::shape::{Shape, TensorType};
#[cfg(feature = "alloc")]
use crate::{
    scope::{Backward, Gradient, InputGradients, Op},
    tensor::Tensor,
};

pub use super::window::Padding;

/// The attributes, for the vertical axis first.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// How far the window moves.
    pub strides: [u32; 2],
    /// How far its taps are apart.
    pub dilations: [u32; 2],
    /// 0 valid, 1 same, 2 explicit.
    pub padding: u32,
    /// Explicit padding above, below, to the left, to the right; otherwise 0.
    pub pads: [u32; 4],
}

/// The op.
pub static DEF: OpDef = OpDef { code: super::code::conv2d, name: "conv2d", inputs: (2, 3), outputs: 1, infer, in_place: &[] };

impl Attributes {
    /// Checks the attributes, and gives how the window slides, vertically and horizontally.
    pub(super) fn axes(&self, input: [u32; 2], kernel: [u32; 2]) -> Result<[Axis; 2]> {
        for (index, word) in (0..).zip(self.strides.iter().chain(&self.dilations)) {
            if *word == 0 {
                return Err(Error::Attribute { index });
            }
        }
        if self.padding > Padding::EXPLICIT {
            return Err(Error::Attribute { index: 4 });
        }
        if self.padding != Padding::EXPLICIT && self.pads != [0; 4] {
            return Err(Error::Attribute { index: 5 });
        }
        let ([height, width], [kh, kw], [top, bottom, left, right]) = (input, kernel, self.pads);
        let ([down, across], [dilation_h, dilation_w]) = (self.strides, self.dilations);
        Ok([
            Axis::new(1, [height, kh], [down, dilation_h], (self.padding, top, bottom))?,
            Axis::new(2, [width, kw], [across, dilation_w], (self.padding, left, right))?,
        ])
    }
}

/// The dimensions of input `input`: an image or a filter, of rank 4, of the element type of input 0.
pub(super) fn dims4(inputs: &[TensorType], input: u8) -> Result<[u32; 4]> {
    let (Some(operand), Some(first)) = (inputs.get(usize::from(input)), inputs.first()) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    if !operand.dtype.is_float() || operand.dtype != first.dtype {
        return Err(Error::DType { input });
    }
    operand.shape.dims().try_into().map_err(|_| Error::Rank { input })
}

/// The dimensions of input `input`, a filter: none of its sides is 0.
pub(super) fn filter4(inputs: &[TensorType], input: u8) -> Result<[u32; 4]> {
    let dims = dims4(inputs, input)?;
    let [kh, kw, ..] = dims;
    for (axis, side) in [(0, kh), (1, kw)] {
        if side == 0 {
            return Err(Error::Dimension { input, axis, want: 1, got: 0 });
        }
    }
    Ok(dims)
}

/// Checks that dimension `axis` of `input` is as wanted.
pub(super) fn check_dim(input: u8, axis: u8, want: u32, got: u32) -> Result<()> {
    if got == want { Ok(()) } else { Err(Error::Dimension { input, axis, want, got }) }
}

/// Checks that input `input`, of `dims`, is the output of a convolution of `n` images to `co` channels.
pub(super) fn check_output(input: u8, dims: [u32; 4], n: u32, [down, across]: [Axis; 2], co: u32) -> Result<()> {
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

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let bias = call.inputs.get(2).map_or(&[][..], |bias| bias.slice::<T>());
    let (&[_, h, w, c], &[kh, kw, _, co]) = (x.dims, filter.dims) else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.axes([h, w], [kh, kw])?;
    let (w, c, kw, co) = (w as usize, c as usize, kw as usize, co as usize);
    let (x, filter) = (x.slice::<T>(), filter.slice::<T>());
    let output = call.output()?.slice_mut::<T>();
    output.fill(T::ZERO);
    let image = down.input * w * c;
    if image > 0 {
        let row = across.output * co;
        for (x, output) in x.chunks_exact(image).zip(output.chunks_exact_mut((down.output * row).max(1))) {
            for (oh, output) in output.chunks_exact_mut(row.max(1)).enumerate() {
                let vertical = down.taps(oh);
                for (ow, y) in output.chunks_exact_mut(co.max(1)).enumerate() {
                    let horizontal = across.taps(ow);
                    // Neighbouring taps lie side by side in x and in the filter, unless they are dilated.
                    let run = if across.dilation == 1 { horizontal.end.saturating_sub(horizontal.first) } else { 1 };
                    for kh in vertical.first..vertical.end {
                        let ih = down.input_at(oh, kh) * w;
                        let mut tap = horizontal.first;
                        while tap < horizontal.end {
                            let pixels = part(x, (ih + across.input_at(ow, tap)) * c, run * c);
                            let rows = filter.get((kh * kw + tap) * c * co..).unwrap_or(&[]);
                            add_rows(y, Rows::new(pixels, 1), Rows::new(rows, co));
                            tap += run;
                        }
                    }
                }
            }
        }
    }
    if !bias.is_empty() {
        for y in output.chunks_exact_mut(bias.len()) {
            y.iter_mut().zip(bias).for_each(|(y, &bias)| *y = y.add(bias));
        }
    }
    Ok(())
}

super::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `conv2d_input_grad`, `conv2d_filter_grad`, and for the bias upstream summed over positions.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { def: &DEF, usage: "conv2d(x[n,h,w,c], filter[kh,kw,c,co], optional bias[co]), of f32 or f64", grad: Gradient::Rule(grad) };

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

/// Height and width of images.
#[cfg(feature = "alloc")]
pub(super) fn middle(images: &Tensor) -> Result<[u32; 2]> {
    let &[_, h, w, _] = images.dims() else { return Err(Error::Rank { input: 0 }) };
    Ok([h, w])
}

/// Height and width of a filter.
#[cfg(feature = "alloc")]
pub(super) fn front(filter: &Tensor) -> Result<[u32; 2]> {
    let &[h, w, _, _] = filter.dims() else { return Err(Error::Rank { input: 1 }) };
    Ok([h, w])
}

/// How a convolution slides: strides and dilations (vertical, horizontal) and padding.
///
/// The default is a stride and a dilation of 1, without padding.
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
    /// How far the window moves.
    pub strides: [u32; 2],
    /// How far its taps are apart.
    pub dilations: [u32; 2],
    /// What surrounds the image.
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
    /// With these strides.
    pub fn strides(self, strides: [u32; 2]) -> Conv2DOptions {
        Conv2DOptions { strides, ..self }
    }

    /// With these dilations.
    pub fn dilations(self, dilations: [u32; 2]) -> Conv2DOptions {
        Conv2DOptions { dilations, ..self }
    }

    /// With this padding.
    pub fn padding(self, padding: Padding) -> Conv2DOptions {
        Conv2DOptions { padding, ..self }
    }

    pub(super) fn attributes(&self) -> Attributes {
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
    /// The convolution of images `[n,h,w,c]` with `filter[kh,kw,c,co]`, plus `bias[co]`: `[n,oh,ow,co]`. As
    /// `tf.nn.conv2d` in NHWC.
    ///
    /// Fails where ranks, channels or element types do not fit (only f32 and f64), where the window is larger than the
    /// padded image, and where a stride or a dilation is 0.
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
