//! Depthwise convolution, which convolves each channel separately:
//! `y[n,oh,ow,c·m+q] = Σ x[n,ih,iw,c] · filter[kh,kw,c,q] + bias[c·m+q]`. Here m is the number of filters for each channel. The
//! rest is as for [`conv2d`](crate::ops::conv2d). Element types: f32 and f64. Like `tf.nn.depthwise_conv2d` in NHWC, followed by
//! `tf.nn.bias_add`.
//!
//! Bits: each element is summed from +0 over (kh, kw) ascending, without the positions outside x. The bias is added last.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
pub use crate::ops::conv2d::Attributes;
use crate::ops::conv2d::{check_dim, dims4, filter4};
use crate::ops::shared::contraction::check_bias;
use crate::ops::shared::depthwise::add_products;
use crate::ops::shared::window::{clear, groups, part, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::conv2d::{Conv2DOptions, front, middle},
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::depthwise_conv2d, name: "depthwise_conv2d", inputs: (2, 3), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [n, h, w, c] = dims4(inputs, 0)?;
    let [kh, kw, ci, multiplier] = filter4(inputs, 1)?;
    check_dim(1, 2, c, ci)?;
    let co = c.checked_mul(multiplier).ok_or(Error::TooLarge)?;
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
    let (&[n, h, w, c], &[kh, kw, _, multiplier]) = (x.dims(), filter.dims()) else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.axes([h, w], [kh, kw])?;
    let (w, c, kw, multiplier) = (w as usize, c as usize, kw as usize, multiplier as usize);
    let (x, filter, co, image) = (x.slice::<T>(), filter.slice::<T>(), c * multiplier, down.input * w * c);
    let pixels = n as usize * down.output * across.output;
    let pixels = call.rows(pixels, kh as usize * kw * (8 * co + 110) + 8 * co + 120);
    let mut results = call.output()?.slice_mut::<T>().chunks_exact_mut(co.max(1)).skip(pixels.start);
    for (row, columns) in groups(pixels, across.output) {
        let (of_image, oh) = split(row, down.output);
        let (x, vertical) = (part(x, of_image * image, image), down.taps(oh));
        for (ow, y) in columns.zip(&mut results) {
            let horizontal = across.taps(ow);
            clear(y);
            for kh in vertical.first..vertical.end {
                let row = down.input_at(oh, kh) * w;
                for tap in horizontal.first..horizontal.end {
                    let pixel = part(x, (row + across.input_at(ow, tap)) * c, c);
                    add_products(y, pixel, part(filter, (kh * kw + tap) * co, co), multiplier);
                }
            }
            y.iter_mut().zip(bias).for_each(|(y, &bias)| *y = y.add(bias));
        }
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient: `depthwise_conv2d_input_grad` for x, `depthwise_conv2d_filter_grad` for the filter, and for the bias
/// the upstream gradient summed over all positions.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("DepthwiseConv2dNative"),
    ..Op::total(&DEF, "depthwise_conv2d(x[n,h,w,c], filter[kh,kw,c,m], optional bias[c*m]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let options = Conv2DOptions::from(read_attributes::<Attributes>(of.attributes)?);
    let ([x, filter, bias @ ..], dy) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dx = of.if_wanted(0, || dy.depthwise_conv2d_input_grad(filter, &options, middle(x)?))?;
    // Without channels, the filter's last dimension cannot be derived from dy and may differ.
    let dfilter = of.if_wanted(1, || x.depthwise_conv2d_filter_grad(dy, &options, front(filter)?)?.reshape(filter.dims()))?;
    let dbias = of.if_wanted(2, || dy.sum(&[0, 1, 2], false))?;
    Ok([dx, dfilter].into_iter().chain(bias.iter().map(|_| dbias.clone())).collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the convolution of each channel of images `[n,h,w,c]` with its own filters in `filter[kh,kw,c,m]`, plus
    /// `bias[c*m]`: `[n,oh,ow,c*m]`. The m results of a channel are adjacent. Like `tf.nn.depthwise_conv2d` in NHWC.
    ///
    /// Fails as [`Tensor::conv2d`] does.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[1, 1, 2, 2])?;
    /// let filter = Tensor::new(&device, &[10.0f32, 20.0], &[1, 1, 2, 1])?;
    /// let y = x.depthwise_conv2d(&filter, None, &Default::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [10.0, 40.0, 30.0, 80.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn depthwise_conv2d(&self, filter: &Tensor, bias: Option<&Tensor>, options: &Conv2DOptions) -> Result<Tensor> {
        let inputs: heapless::Vec<&Tensor, 3> = [self, filter].into_iter().chain(bias).collect();
        Tensor::emit1(&OP, bytemuck::cast_slice(&[options.attributes()]), &inputs)
    }

    /// Returns a depthwise convolution with `depthwise[kh,kw,c,m]`, followed by a convolution of each pixel with
    /// `pointwise[1,1,c*m,co]`, plus `bias[co]`: `[n,oh,ow,co]`. Like `tf.nn.separable_conv2d` in NHWC. Fails as
    /// [`Tensor::conv2d`] does.
    pub fn separable_conv2d(
        &self,
        depthwise: &Tensor,
        pointwise: &Tensor,
        bias: Option<&Tensor>,
        options: &Conv2DOptions,
    ) -> Result<Tensor> {
        self.depthwise_conv2d(depthwise, None, options)?.conv2d(pointwise, bias, &Conv2DOptions::default())
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::*;
    use crate::base::dtype::DType;
    use crate::ops::conv2d::tests::{cases as conv_cases, meetings, output, words};
    use crate::ops::shared::testing::{Value, floats, indices, position, run_every_way};
    use std::vec::Vec;

    /// A test case: the dimensions of images, filter and result, and the attributes.
    pub(in crate::ops) type Case = ([u32; 4], [u32; 4], [u32; 4], Attributes);

    /// Returns test cases with all kinds of depthwise convolutions.
    pub(in crate::ops) fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for (x, filter, attributes) in conv_cases() {
            let Some([n, oh, ow, _]) = output(x, filter, &attributes) else { continue };
            let [kh, kw, c, multiplier] = filter;
            let multiplier = if multiplier > 4 { 1 } else { multiplier };
            cases.push((x, [kh, kw, c, multiplier], [n, oh, ow, c * multiplier], attributes));
        }
        cases
    }

    /// Returns the pairs of elements that a convolution multiplies, as positions in x, the filter and the result. They are in the
    /// order of the result's sums.
    pub(in crate::ops) fn products(x: [u32; 4], filter: [u32; 4], y: [u32; 4], attributes: &Attributes) -> Vec<([usize; 3], [u32; 2])> {
        let [kh, kw, c, multiplier] = filter;
        let mut products = Vec::new();
        for ([n, ih, iw], [oh, ow], [kh, kw]) in meetings(x, [kh, kw], [y[1], y[2]], attributes) {
            for channels in indices(&[c, multiplier]) {
                let (c, q) = (channels[0], channels[1]);
                let from = [position(&x, &[n, ih, iw, c]), position(&filter, &[kh, kw, c, q])];
                products.push(([from[0], from[1], position(&y, &[n, oh, ow, c * multiplier + q])], [kh, kw]));
            }
        }
        products
    }

    #[test]
    fn agrees_with_the_formula() {
        let cases = cases();
        assert!(cases.len() > 200);
        for (x_dims, filter_dims, y_dims, attributes) in cases {
            let (x, filter, bias) = (floats(&x_dims, 1), floats(&filter_dims, 2), floats(&y_dims[3..], 3));
            let (left, right, added) = (x.elements::<f32>(), filter.elements::<f32>(), bias.elements::<f32>());
            let mut want = std::vec![0.0f32; indices(&y_dims).len()];
            for ([x, filter, y], _) in products(x_dims, filter_dims, y_dims, &attributes) {
                want[y] += left[x] * right[filter];
            }
            let got = run_every_way(&F32, &words(attributes), &[&x, &filter]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {filter_dims:?} {attributes:?}");
            want.iter_mut().zip(added.iter().cycle()).for_each(|(y, bias)| *y += bias);
            let got = run_every_way(&F32, &words(attributes), &[&x, &filter, &bias]);
            assert!(got[0] == Value::new(&want, &y_dims), "{x_dims:?} {filter_dims:?} {attributes:?}");
        }
    }

    #[test]
    fn shapes_are_checked() {
        let words = words(Attributes { strides: [1, 1], dilations: [1, 1], padding: 0, pads: [0; 4] });
        let refuse = |dims: &[&[u32]]| {
            let types: Vec<_> = dims.iter().map(|dims| TensorType::new(DType::F32, Shape::new(dims).unwrap())).collect();
            DEF.output_types(&types, &words).map(|_| ()).unwrap_err()
        };
        let x: &[u32] = &[1, 4, 4, 2];
        assert_eq!(refuse(&[x, &[2, 2, 3, 1]]), Error::Dimension { input: 1, axis: 2, want: 2, got: 3 });
        assert_eq!(refuse(&[x, &[2, 2, 2, 3], &[5]]), Error::Dimension { input: 2, axis: 0, want: 6, got: 5 });
        assert_eq!(refuse(&[x, &[2, 2, 2]]), Error::Rank { input: 1 });
        assert_eq!(refuse(&[x, &[1, 1, 2, u32::MAX]]), Error::TooLarge);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, filter, y, attributes) in cases().into_iter().step_by(7) {
            check_gradient(&OP, &words(attributes), &[tensor(&x, 1), tensor(&filter, 2), tensor(&y[3..], 3)]);
        }
    }
}
