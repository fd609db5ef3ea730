//! Gradient of [`conv2d`] with respect to its filter: `dfilter[kh,kw,ci,co] = Σ x[n,ih,iw,ci] · dy[n,oh,ow,co]`, over the positions
//! whose tap is inside x. Element types: f32 and f64. Like `tf.raw_ops.Conv2DBackpropFilter` in NHWC.
//!
//! Bits: each element is summed from +0 over (n, oh, ow) ascending, without the positions whose tap is outside x.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d;
use crate::ops::conv2d::{check_output, dims4};
use crate::ops::shared::contraction::{Rows, add_transposed};
use crate::ops::shared::window::{clear, groups, part_mut, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::conv2d::{Conv2DOptions, middle},
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Attributes of the convolution whose gradient is computed.
    pub conv: conv2d::Attributes,
    /// Height and width of the filter.
    pub kernel: [u32; 2],
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::conv2d_filter_grad, name: "conv2d_filter_grad", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [n, h, w, c] = dims4(inputs, 0)?;
    let dy = dims4(inputs, 1)?;
    let ([x, _], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let ([kh, kw], [_, _, _, co]) = (attributes.kernel, dy);
    if kh == 0 || kw == 0 {
        return Err(Error::Attribute { index: 9 + u8::from(kh != 0) });
    }
    check_output(1, dy, n, attributes.conv.axes([h, w], attributes.kernel)?, co)?;
    *output = TensorType::new(x.dtype, Shape::new(&[kh, kw, c, co])?);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let (&[n, h, w, c], co) = (x.dims(), dy.dim(3)) else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.conv.axes([h, w], attributes.kernel)?;
    let (w, c, [kh, kw]) = (w as usize, c as usize, attributes.kernel.map(|side| side as usize));
    let (x, dy) = (x.slice::<T>(), dy.slice::<T>());
    // For each row of dy, one row for each row of the gradient, a matrix `[kh·kw·c,co]`. Without dy, the gradient is 0.
    let lines = (n as usize * down.output).max(1);
    let rows = call.rows(lines * kh * kw * c, across.output * (3 * co + 7 * (co % 8) + 10) + 220);
    let output = call.output()?.slice_mut::<T>();
    for (line, rows) in groups(rows, kh * kw * c) {
        let (image, oh) = split(line, down.output);
        if line == 0 {
            clear(output.get_mut(rows.start * co..rows.end * co).unwrap_or(&mut []));
        }
        let (vertical, row) = (down.taps(oh), kw * c * co);
        for (kh, rows) in groups(rows, kw * c) {
            if kh < vertical.first || kh >= vertical.end {
                continue;
            }
            let (output, ih) = (part_mut(output, kh * row, row), (image * down.input + down.input_at(oh, kh)) * w);
            for (kw, channels) in groups(rows, c) {
                let (first, end) = across.outputs(kw);
                let pixels = x.get((ih + across.input_at(first, kw)) * c + channels.start..).unwrap_or(&[]);
                let rows = Rows::new(dy.get((line * across.output + first) * co..).unwrap_or(&[]), co);
                let output = part_mut(output, (kw * c + channels.start) * co, channels.len() * co);
                add_transposed(output, co, pixels, across.stride() * c, end.saturating_sub(first), rows);
            }
        }
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. It is linear in x and in dy, so the gradients are `conv2d_input_grad` and `conv2d` with the upstream
/// gradient as the filter.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("Conv2DBackpropFilter"),
    ..Op::total(&DEF, "conv2d_filter_grad(x[n,h,w,c], dy[n,oh,ow,co]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let attributes: Attributes = read_attributes(of.attributes)?;
    let options = Conv2DOptions::from(attributes.conv);
    let ([x, dy], upstream) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dx = of.if_wanted(0, || dy.conv2d_input_grad(upstream, &options, middle(x)?))?;
    let ddy = of.if_wanted(1, || x.conv2d(upstream, None, &options))?;
    Ok([dx, ddy].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the gradient of a convolution of `self`, images `[n,h,w,c]`, with respect to its filter: `[kh,kw,c,co]`. `kernel`
    /// is the height and width of the filter, and `dy[n,oh,ow,co]` is the gradient of the convolution's result.
    ///
    /// Fails unless `dy` has the shape of that convolution's result.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1])?;
    /// let dy = Tensor::full(&device, 1.0f32, &[1, 2, 1, 1])?;
    /// let dfilter = x.conv2d_filter_grad(&dy, &Default::default(), [1, 2])?;
    /// assert_eq!(dfilter.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn conv2d_filter_grad(&self, dy: &Tensor, options: &Conv2DOptions, kernel: [u32; 2]) -> Result<Tensor> {
        let attributes = Attributes { conv: options.attributes(), kernel };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[self, dy])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::{cases, meetings, output, words};
    use crate::ops::shared::testing::{Value, floats, indices, position, run_every_way};

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, filter_dims, conv) in cases() {
            let Some(y_dims) = output(x_dims, filter_dims, &conv) else { continue };
            let (x, dy) = (floats(&x_dims, 1), floats(&y_dims, 2));
            let (left, right) = (x.elements::<f32>(), dy.elements::<f32>());
            let mut want = std::vec![0.0f32; indices(&filter_dims).len()];
            let [kh, kw, c, co] = filter_dims;
            for ([n, ih, iw], [oh, ow], [kh, kw]) in meetings(x_dims, [kh, kw], [y_dims[1], y_dims[2]], &conv) {
                for channels in indices(&[c, co]) {
                    let (ci, co) = (channels[0], channels[1]);
                    let product = left[position(&x_dims, &[n, ih, iw, ci])] * right[position(&y_dims, &[n, oh, ow, co])];
                    want[position(&filter_dims, &[kh, kw, ci, co])] += product;
                }
            }
            let attributes = Attributes { conv, kernel: [kh, kw] };
            let got = run_every_way(&F32, &words(attributes), &[&x, &dy]);
            assert!(got[0] == Value::new(&want, &filter_dims), "{x_dims:?} {filter_dims:?} {conv:?}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, filter, conv) in cases().into_iter().step_by(11) {
            let Some(dy) = output(x, filter, &conv) else { continue };
            let attributes = Attributes { conv, kernel: [filter[0], filter[1]] };
            check_gradient(&OP, &words(attributes), &[tensor(&x, 1), tensor(&dy, 2)]);
        }
    }
}
