//! Gradient of [`depthwise_conv2d`](crate::ops::depthwise_conv2d) with respect to its filter:
//! `dfilter[kh,kw,c,q] = Σ x[n,ih,iw,c] · dy[n,oh,ow,c·m+q]`, over the positions whose tap is inside x. Element types: f32 and f64.
//! Like `tf.nn.depthwise_conv2d_backprop_filter` in NHWC.
//!
//! Bits: each element is summed from +0 over (n, oh, ow) ascending, without the positions whose tap is outside x.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d::{check_output, dims4};
pub use crate::ops::conv2d_filter_grad::Attributes;
use crate::ops::shared::depthwise::add_products;
use crate::ops::shared::window::{clear, groups, part, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::conv2d::{Conv2DOptions, middle},
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::depthwise_conv2d_filter_grad,
    name: "depthwise_conv2d_filter_grad",
    inputs: (2, 2),
    outputs: 1,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [n, h, w, c] = dims4(inputs, 0)?;
    let dy = dims4(inputs, 1)?;
    let ([x, _], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let ([kh, kw], [_, _, _, co]) = (attributes.kernel, dy);
    if kh == 0 || kw == 0 {
        return Err(Error::Attribute { index: 9 + u8::from(kh != 0) });
    }
    // Without channels, the number of filters for each channel is arbitrary. Take 1.
    let multiplier = co.checked_div(c).unwrap_or(1);
    check_output(1, dy, n, attributes.conv.axes([h, w], [kh, kw])?, c * multiplier)?;
    *output = TensorType::new(x.dtype, Shape::new(&[kh, kw, c, multiplier])?);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let (&[n, h, w, c], co) = (x.dims(), dy.dim(3)) else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.conv.axes([h, w], attributes.kernel)?;
    let (w, c, [kh, kw]) = (w as usize, c as usize, attributes.kernel.map(|side| side as usize));
    let (x, dy) = (x.slice::<T>(), dy.slice::<T>());
    // One row for each row of dy and each tap. Without dy, the gradient is 0.
    let lines = (n as usize * down.output).max(1);
    let rows = call.rows(lines * kh * kw, across.output * (8 * co + 110) + 150);
    let output = call.output()?;
    let multiplier = output.dim(3);
    let output = output.slice_mut::<T>();
    for (line, taps) in groups(rows, kh * kw) {
        let (image, oh) = split(line, down.output);
        let vertical = down.taps(oh);
        for tap in taps {
            let ((kh, kw), output) = (split(tap, kw), output.get_mut(tap * co..tap * co + co).unwrap_or(&mut []));
            if line == 0 {
                clear(output);
            }
            if kh < vertical.first || kh >= vertical.end {
                continue;
            }
            let row = (image * down.input + down.input_at(oh, kh)) * w;
            let (first, end) = across.outputs(kw);
            for ow in first..end {
                let pixel = part(x, (row + across.input_at(ow, kw)) * c, c);
                add_products(output, pixel, part(dy, (line * across.output + ow) * co, co), multiplier);
            }
        }
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. It is linear in x and in dy, so the gradients are `depthwise_conv2d_input_grad` and
/// `depthwise_conv2d` with the upstream gradient as the filter.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("DepthwiseConv2dNativeBackpropFilter"),
    ..Op::total(&DEF, "depthwise_conv2d_filter_grad(x[n,h,w,c], dy[n,oh,ow,c*m]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let options = Conv2DOptions::from(read_attributes::<Attributes>(of.attributes)?.conv);
    let ([x, dy], upstream) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dx = of.if_wanted(0, || dy.depthwise_conv2d_input_grad(upstream, &options, middle(x)?))?;
    let ddy = of.if_wanted(1, || x.depthwise_conv2d(upstream, None, &options))?;
    Ok([dx, ddy].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the gradient of a depthwise convolution of `self`, images `[n,h,w,c]`, with respect to its filter: `[kh,kw,c,m]`.
    /// `kernel` is the height and width of the filter, and `dy[n,oh,ow,c*m]` is the gradient of the convolution's result.
    ///
    /// Fails unless `dy` has the shape of that convolution's result.
    pub fn depthwise_conv2d_filter_grad(&self, dy: &Tensor, options: &Conv2DOptions, kernel: [u32; 2]) -> Result<Tensor> {
        let attributes = Attributes { conv: options.attributes(), kernel };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[self, dy])
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
        for (x_dims, [kh, kw, c, multiplier], y_dims, conv) in cases() {
            let filter_dims = [kh, kw, c, if c == 0 { 1 } else { multiplier }];
            let (x, dy) = (floats(&x_dims, 1), floats(&y_dims, 2));
            let (left, right) = (x.elements::<f32>(), dy.elements::<f32>());
            let mut want = std::vec![0.0f32; indices(&filter_dims).len()];
            for ([x, filter, y], _) in products(x_dims, filter_dims, y_dims, &conv) {
                want[filter] += left[x] * right[y];
            }
            let got = run_every_way(&F32, &words(Attributes { conv, kernel: [kh, kw] }), &[&x, &dy]);
            assert!(got[0] == Value::new(&want, &filter_dims), "{x_dims:?} {filter_dims:?} {conv:?}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, [kh, kw, ..], y, conv) in cases().into_iter().step_by(11) {
            check_gradient(&OP, &words(Attributes { conv, kernel: [kh, kw] }), &[tensor(&x, 1), tensor(&y, 2)]);
        }
    }
}
