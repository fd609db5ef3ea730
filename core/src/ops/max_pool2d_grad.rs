//! The gradient of [`max_pool2d`](super::max_pool2d): from x and dy, dx. In each window, dy goes to the first maximum in
//! row-major order, or to the first NaN. f32 and f64. As `tf.raw_ops.MaxPoolGrad` in NHWC.
//!
//! Bits: where windows overlap, their dy are added from +0 in row-major order of the windows.

use super::conv2d::{check_dim, dims4};
use super::max_pool2d::{Attributes, beats, pooled};
use crate::dtype::Float;
use crate::error::{Error, Result};
use crate::op::{Call, Kernel, OpDef};
#[cfg(feature = "alloc")]
use crate::scope::{Gradient, Op};
use crate::shape::TensorType;

/// The op.
pub static DEF: OpDef =
    OpDef { code: super::code::max_pool2d_grad, name: "max_pool2d_grad", inputs: (2, 2), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let want = pooled(inputs, attributes)?;
    let dy = dims4(inputs, 1)?;
    for (axis, (&want, got)) in (0..).zip(want.shape.dims().iter().zip(dy)) {
        check_dim(1, axis, want, got)?;
    }
    let ([x, _], [output, ..]) = (inputs, outputs) else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    *output = *x;
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let &[_, h, w, c] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.axes([h, w])?;
    let (w, c) = (w as usize, c as usize);
    let (x, dy) = (x.slice::<T>(), dy.slice::<T>());
    let output = call.output()?.slice_mut::<T>();
    output.fill(T::ZERO);
    let (image, row) = (down.input * w * c, across.output * c);
    if image == 0 || dy.is_empty() {
        return Ok(());
    }
    let (mut images, mut results) = (x.chunks_exact(image.max(1)), dy.chunks_exact((down.output * row).max(1)));
    for output in output.chunks_exact_mut(image.max(1)) {
        let (Some(x), Some(dy)) = (images.next(), results.next()) else { break };
        for (oh, dy) in dy.chunks_exact(row.max(1)).enumerate() {
            let vertical = down.taps(oh);
            for (ow, dy) in dy.chunks_exact(c.max(1)).enumerate() {
                let horizontal = across.taps(ow);
                let corner = (down.input_at(oh, vertical.first) * w + across.input_at(ow, horizontal.first)) * c;
                for (channel, &dy) in dy.iter().enumerate() {
                    let (mut line, mut first) = (corner + channel, corner + channel);
                    let mut best = x.get(first).copied().unwrap_or(T::ZERO);
                    for _ in vertical.first..vertical.end {
                        let mut at = line;
                        for _ in horizontal.first..horizontal.end {
                            let Some(&x) = x.get(at) else { break };
                            if beats(x, best) {
                                (best, first) = (x, at);
                            }
                            at += c;
                        }
                        line += w * c;
                    }
                    if let Some(dx) = output.get_mut(first) {
                        *dx = dx.add(dy);
                    }
                }
            }
        }
    }
    Ok(())
}

super::kernels!(run: F32 = f32, F64 = f64);

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    def: &DEF,
    usage: "max_pool2d_grad(x[n,h,w,c], dy[n,oh,ow,c]), of f32 or f64",
    grad: Gradient::Missing("its gradient picks the maximum's position from another tensor, which no op does yet"),
};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::conv2d::tests::words;
    use super::super::max_pool2d::tests::{cases, windows};
    use super::super::testing::{Value, floats, indices, run_every_way};
    use super::*;
    use std::vec::Vec;

    #[test]
    fn agrees_with_the_formula() {
        for (x_dims, attributes, y_dims) in cases() {
            // Rounded, so that there are ties.
            let rounded: Vec<f32> = floats(&x_dims, 1).elements::<f32>().into_iter().map(|x| (x / 3.0).round()).collect();
            let dy = floats(&y_dims, 2);
            let mut want = std::vec![0.0f32; indices(&x_dims).len()];
            for (window, dy) in windows(x_dims, &attributes, y_dims).into_iter().zip(dy.elements::<f32>()) {
                let largest = window.iter().map(|&at| rounded[at]).fold(f32::NEG_INFINITY, f32::max);
                want[window.into_iter().find(|&at| rounded[at] == largest).unwrap()] += dy;
            }
            let got = run_every_way(&F32, &words(attributes), &[&Value::new(&rounded, &x_dims), &dy]);
            assert!(got[0] == Value::new(&want, &x_dims), "{x_dims:?} {attributes:?}");
        }
    }

    #[test]
    fn odd_values_have_one_maximum() {
        let attributes = Attributes { ksize: [2, 2], strides: [2, 2], padding: 0 };
        for (x, want) in [([1.0, f32::NAN, f32::NAN, 9.0], 1), ([f32::NEG_INFINITY; 4], 0), ([-0.0, 0.0, -0.0, 0.0], 0)] {
            let dy = Value::new(&[2.0f32], &[1, 1, 1, 1]);
            let got = run_every_way(&F32, &words(attributes), &[&Value::new(&x, &[1, 2, 2, 1]), &dy]);
            let mut dx = [0.0; 4];
            dx[want] = 2.0;
            assert_eq!(got[0].elements::<f32>(), dx);
        }
    }
}
