//! Gradient of [`depthwise_conv2d`](crate::ops::depthwise_conv2d) with respect to its images:
//! `dx[n,ih,iw,c] = Σ filter[kh,kw,c,q] · dy[n,oh,ow,c·m+q]`, over the (kh, kw) whose window covers the position. Element types:
//! f32 and f64. Like `tf.nn.depthwise_conv2d_backprop_input` in NHWC.
//!
//! Bits: each element is summed from +0 over (kh, kw, q) ascending.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d::{check_output, dims4, filter4};
pub use crate::ops::conv2d_input_grad::Attributes;
use crate::ops::shared::depthwise::add_pairs;
use crate::ops::shared::window::{clear, groups, part, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::conv2d::{Conv2DOptions, front},
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::depthwise_conv2d_input_grad,
    name: "depthwise_conv2d_input_grad",
    inputs: (2, 2),
    outputs: 1,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [kh, kw, c, multiplier] = filter4(inputs, 0)?;
    let dy = dims4(inputs, 1)?;
    let ([filter, _], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let ([n, ..], [h, w]) = (dy, attributes.input);
    let co = c.checked_mul(multiplier).ok_or(Error::TooLarge)?;
    check_output(1, dy, n, attributes.conv.axes([h, w], [kh, kw])?, co)?;
    *output = TensorType::new(filter.dtype, Shape::new(&[n, h, w, c])?);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (filter, dy) = (call.input(0)?, call.input(1)?);
    let &[kh, kw, c, multiplier] = filter.dims() else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.conv.axes(attributes.input, [kh, kw])?;
    let (kw, c, multiplier) = (kw as usize, c as usize, multiplier as usize);
    let (n, filter, dy, co) = (dy.dim(0), filter.slice::<T>(), dy.slice::<T>(), c * multiplier);
    let image = down.output * across.output * co;
    let pixels = n * down.input * across.input;
    let pixels = call.rows(pixels, down.most_taps_on() * across.most_taps_on() * (8 * co + 110) + 120);
    let mut results = call.output()?.slice_mut::<T>().chunks_exact_mut(c.max(1)).skip(pixels.start);
    for (row, columns) in groups(pixels, across.input) {
        let (of_image, ih) = split(row, down.input);
        let (dy, vertical) = (part(dy, of_image * image, image), down.taps_on(ih));
        for (iw, dx) in columns.zip(&mut results) {
            let horizontal = across.taps_on(iw);
            clear(dx);
            for kh in vertical.first..vertical.end {
                let Some(oh) = down.output_at(ih, kh) else { continue };
                for tap in horizontal.first..horizontal.end {
                    let Some(ow) = across.output_at(iw, tap) else { continue };
                    let weights = part(filter, (kh * kw + tap) * co, co);
                    let dy = part(dy, (oh * across.output + ow) * co, co);
                    if multiplier == 1 {
                        add_pairs(dx, weights, dy);
                    } else {
                        add_groups(dx, weights, dy, multiplier);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Computes `out[c] += Σ_q x[c·m+q] · y[c·m+q]`, where m is `multiplier`.
fn add_groups<T: Float>(out: &mut [T], x: &[T], y: &[T], multiplier: usize) {
    let groups = x.chunks_exact(multiplier.max(1)).zip(y.chunks_exact(multiplier.max(1)));
    for (out, (x, y)) in out.iter_mut().zip(groups) {
        *out = x.iter().zip(y).fold(*out, |sum, (&x, &y)| sum.add(x.mul(y)));
    }
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. It is linear in the filter and in dy, so the gradients are `depthwise_conv2d_filter_grad` and
/// `depthwise_conv2d` of the upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("DepthwiseConv2dNativeBackpropInput"),
    ..Op::total(&DEF, "depthwise_conv2d_input_grad(filter[kh,kw,c,m], dy[n,oh,ow,c*m]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let options = Conv2DOptions::from(read_attributes::<Attributes>(of.attributes)?.conv);
    let ([filter, dy], upstream) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dfilter = of.if_wanted(0, || upstream.depthwise_conv2d_filter_grad(dy, &options, front(filter)?)?.reshape(filter.dims()))?;
    let ddy = of.if_wanted(1, || upstream.depthwise_conv2d(filter, None, &options))?;
    Ok([dfilter, ddy].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the gradient of a depthwise convolution with respect to its input images: `[n,oh,ow,c*m]` becomes `[n,h,w,c]`.
    /// `input` is the height and width of these images, and `self` is the gradient of the convolution's result.
    ///
    /// Fails unless `self` has the shape of that convolution's result.
    pub fn depthwise_conv2d_input_grad(&self, filter: &Tensor, options: &Conv2DOptions, input: [u32; 2]) -> Result<Tensor> {
        let attributes = Attributes { conv: options.attributes(), input };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[filter, self])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::depthwise_conv2d::tests::{cases, products};
    use crate::ops::shared::testing::{Value, floats, indices, run_every_way};

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, filter_dims, y_dims, conv) in cases() {
            let (filter, dy) = (floats(&filter_dims, 1), floats(&y_dims, 2));
            let (left, right) = (filter.elements::<f32>(), dy.elements::<f32>());
            let mut want = std::vec![0.0f32; indices(&x_dims).len()];
            let mut products = products(x_dims, filter_dims, y_dims, &conv);
            products.sort_by_key(|&(_, tap)| tap);
            for ([x, filter, y], _) in products {
                want[x] += left[filter] * right[y];
            }
            let attributes = Attributes { conv, input: [x_dims[1], x_dims[2]] };
            let got = run_every_way(&F32, &words(attributes), &[&filter, &dy]);
            assert!(got[0] == Value::new(&want, &x_dims), "{x_dims:?} {filter_dims:?} {conv:?}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, filter, y, conv) in cases().into_iter().step_by(11) {
            let attributes = Attributes { conv, input: [x[1], x[2]] };
            check_gradient(&OP, &words(attributes), &[tensor(&filter, 1), tensor(&y, 2)]);
        }
    }
}
