//! Gradient of [`conv2d`] with respect to its images, which is also a transposed convolution:
//! `dx[n,ih,iw,ci] = Σ filter[kh,kw,ci,co] · dy[n,oh,ow,co]`, over the (kh, kw) whose window covers the position. Element types:
//! f32 and f64. Like `tf.raw_ops.Conv2DBackpropInput` in NHWC.
//!
//! Bits: each element is summed from +0 over (kh, kw, co) ascending.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d;
use crate::ops::conv2d::{check_dim, check_output, dims4, filter4};
use crate::ops::shared::contraction::{Lines, Rows, add_products};
use crate::ops::shared::window::{clear, groups, part, split};
#[cfg(feature = "alloc")]
use crate::{
    ops::conv2d::{Conv2DOptions, front},
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};
use core::ops::Range;

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Attributes of the convolution whose gradient is computed.
    pub conv: conv2d::Attributes,
    /// Height and width of the input images of the convolution.
    pub input: [u32; 2],
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::conv2d_input_grad, name: "conv2d_input_grad", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [kh, kw, c, co] = filter4(inputs, 0)?;
    let dy = dims4(inputs, 1)?;
    let ([filter, _], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let [n, _, _, channels] = dy;
    check_dim(1, 3, co, channels)?;
    check_output(1, dy, n, attributes.conv.axes(attributes.input, [kh, kw])?, co)?;
    let [h, w] = attributes.input;
    *output = TensorType::new(filter.dtype, Shape::new(&[n, h, w, c])?);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (filter, dy) = (call.input(0)?, call.input(1)?);
    let &[kh, kw, c, co] = filter.dims() else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.conv.axes(attributes.input, [kh, kw])?;
    let (kh, kw, c, co) = (kh as usize, kw as usize, c as usize, co as usize);
    let (lines, filter, dy) = (dy.dim(0) * down.input, filter.slice::<T>(), dy.slice::<T>());
    let (image, row) = (down.output * across.output * co, across.input * c);
    let blocks = co.div_ceil(BLOCK[0]).max(1) * c.div_ceil(BLOCK[1]);
    // For each row of dx and each tap, one row for each block of the filter.
    let (rows, columns) = (co.min(BLOCK[0]), c.min(BLOCK[1]));
    let cost = across.output * (rows * (3 * columns + 7 * (c % BLOCK[1])) + 120) + 14 * rows * columns + 300;
    let rows = call.rows(lines * kh * kw * blocks, cost);
    let output = call.output()?.slice_mut::<T>();
    for (line, parts) in groups(rows, kh * kw * blocks) {
        let ((of_image, ih), output) = (split(line, down.input), output.get_mut(line * row..line * row + row).unwrap_or(&mut []));
        let (dy, vertical) = (part(dy, of_image * image, image), down.taps_on(ih));
        if parts.start == 0 {
            clear(output);
        }
        for (tap, blocks) in groups(parts, blocks) {
            let (kh, kw) = split(tap, kw);
            let oh = if kh < vertical.first || kh >= vertical.end { None } else { down.output_at(ih, kh) };
            let (Some(oh), (first, end)) = (oh, across.outputs(kw)) else { continue };
            if first < end {
                let dy = part(dy, (oh * across.output + first) * co, (end - first) * co);
                let dx = output.get_mut(across.input_at(first, kw) * c..).unwrap_or(&mut []);
                add_pixels(dx, across.stride() * c, dy, part(filter, tap * c * co, c * co), [c, co], blocks);
            }
        }
    }
    Ok(())
}

/// Number of rows and of columns in a block of the filter.
const BLOCK: [usize; 2] = [16, 8];

/// Adds the products of one tap to pixels of dx, which begin `step` elements apart: `dx[i][ci] += Σ_co dy[i][co] · filter[ci][co]`. Does
/// this for some blocks of the filter, which are in row-major order of `[co,ci]`.
///
/// Copies the blocks, transposed, so that the pixels can share the loads.
fn add_pixels<T: Float>(dx: &mut [T], step: usize, dy: &[T], filter: &[T], [c, co]: [usize; 2], blocks: Range<usize>) {
    let mut block = [T::ZERO; BLOCK[0] * BLOCK[1]];
    for index in blocks {
        let (first, column) = split(index, c.div_ceil(BLOCK[1]));
        let (first, column) = (first * BLOCK[0], column * BLOCK[1]);
        let to = Lines { step, width: BLOCK[1].min(c - column) };
        let from = Lines { step: co, width: BLOCK[0].min(co - first) };
        for ci in 0..to.width {
            let weights = part(filter, (column + ci) * co + first, from.width);
            let slots = block.get_mut(ci..).unwrap_or(&mut []).chunks_mut(BLOCK[1]);
            slots.zip(weights).for_each(|(slot, weight)| slot.iter_mut().take(1).for_each(|slot| *slot = *weight));
        }
        let (dx, dy) = (dx.get_mut(column..).unwrap_or(&mut []), dy.get(first..).unwrap_or(&[]));
        add_products(dx, to, dy, from, Rows::new(&block, BLOCK[1]));
    }
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op with its gradient. It is linear in the filter and in dy, so the gradients are `conv2d_filter_grad` and `conv2d` of the
/// upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("Conv2DBackpropInput"),
    ..Op::total(&DEF, "conv2d_input_grad(filter[kh,kw,c,co], dy[n,oh,ow,co]), all f32 or all f64", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let attributes: Attributes = read_attributes(of.attributes)?;
    let options = Conv2DOptions::from(attributes.conv);
    let ([filter, dy], upstream) = (of.inputs, of.dy()?) else { return Err(Error::Arity { got: of.inputs.len() as u8 }) };
    let dfilter = of.if_wanted(0, || upstream.conv2d_filter_grad(dy, &options, front(filter)?))?;
    let ddy = of.if_wanted(1, || upstream.conv2d(filter, None, &options))?;
    Ok([dfilter, ddy].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the gradient of a convolution with respect to its input images: `[n,oh,ow,co]` becomes `[n,h,w,c]`. `input` is the
    /// height and width of these images, and `self` is the gradient of the convolution's result. Also known as transposed
    /// convolution.
    ///
    /// Fails unless `self` has the shape of that convolution's result.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let dy = Tensor::full(&device, 1.0f32, &[1, 1, 1, 1])?;
    /// let filter = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2, 1, 1])?;
    /// let dx = dy.conv2d_input_grad(&filter, &Default::default(), [2, 2])?;
    /// assert_eq!(dx.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn conv2d_input_grad(&self, filter: &Tensor, options: &Conv2DOptions, input: [u32; 2]) -> Result<Tensor> {
        let attributes = Attributes { conv: options.attributes(), input };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[filter, self])
    }

    /// Returns the transposed convolution of images `[n,h,w,c]` with `filter[kh,kw,co,c]`: `[n,oh,ow,co]`. `output` is the height
    /// and width of the result. The operation is the gradient of a convolution with respect to its images. Like
    /// `tf.nn.conv2d_transpose` in NHWC.
    ///
    /// Fails unless a convolution of the result with `options` has the shape of `self`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 10.0], &[1, 1, 2, 1])?;
    /// let filter = Tensor::new(&device, &[1.0f32, 2.0], &[1, 2, 1, 1])?;
    /// let y = x.conv2d_transpose(&filter, &Default::default(), [1, 3])?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 12.0, 20.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn conv2d_transpose(&self, filter: &Tensor, options: &Conv2DOptions, output: [u32; 2]) -> Result<Tensor> {
        self.conv2d_input_grad(filter, options, output)
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
            let (filter, dy) = (floats(&filter_dims, 1), floats(&y_dims, 2));
            let (left, right) = (filter.elements::<f32>(), dy.elements::<f32>());
            let mut want = std::vec![0.0f32; indices(&x_dims).len()];
            let [kh, kw, c, co] = filter_dims;
            let mut meetings = meetings(x_dims, [kh, kw], [y_dims[1], y_dims[2]], &conv);
            meetings.sort_by_key(|&(_, _, tap)| tap);
            for ([n, ih, iw], [oh, ow], [kh, kw]) in meetings {
                for channels in indices(&[c, co]) {
                    let (ci, co) = (channels[0], channels[1]);
                    let product = left[position(&filter_dims, &[kh, kw, ci, co])] * right[position(&y_dims, &[n, oh, ow, co])];
                    want[position(&x_dims, &[n, ih, iw, ci])] += product;
                }
            }
            let attributes = Attributes { conv, input: [x_dims[1], x_dims[2]] };
            let got = run_every_way(&F32, &words(attributes), &[&filter, &dy]);
            assert!(got[0] == Value::new(&want, &x_dims), "{x_dims:?} {filter_dims:?} {conv:?}");
        }
    }

    #[test]
    fn another_size_is_refused() {
        let conv = conv2d::Attributes { strides: [1, 1], dilations: [1, 1], padding: 0, pads: [0; 4] };
        let types = [[2, 2, 1, 3], [1, 3, 3, 3]].map(|dims| TensorType::new(crate::base::dtype::DType::F32, Shape::new(&dims).unwrap()));
        assert!(DEF.output_types(&types, &words(Attributes { conv, input: [4, 4] })).is_ok());
        let refused = DEF.output_types(&types, &words(Attributes { conv, input: [4, 5] })).map(|_| ());
        assert_eq!(refused, Err(Error::Dimension { input: 1, axis: 2, want: 4, got: 3 }));
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, tensor};
        for (x, filter, conv) in cases().into_iter().step_by(11) {
            let Some(dy) = output(x, filter, &conv) else { continue };
            let attributes = Attributes { conv, input: [x[1], x[2]] };
            check_gradient(&OP, &words(attributes), &[tensor(&filter, 1), tensor(&dy, 2)]);
        }
    }
}
