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
    let &[_, h, w, c] = x.dims else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.axes([h, w])?;
    let (w, c) = (w as usize, c as usize);
    let (x, dy) = (x.slice::<T>(), dy.slice::<T>());
    let output = call.output()?.slice_mut::<T>();
    output.fill(T::ZERO);
    let (image, row) = (down.input * w * c, across.output * c);
    if image == 0 || dy.is_empty() {
        return Ok(());
    }
    for ((x, dy), output) in x.chunks_exact(image).zip(dy.chunks_exact(down.output * row)).zip(output.chunks_exact_mut(image)) {
        for (oh, dy) in dy.chunks_exact(row).enumerate() {
            let vertical = down.taps(oh);
            for (ow, dy) in dy.chunks_exact(c).enumerate() {
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
    grad: Gradient::None("its gradient picks the maximum's position from another tensor, which no op does yet"),
};
