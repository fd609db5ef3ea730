//! Gradients of [`conv2d_max_pool2d`](crate::ops::conv2d_max_pool2d) with respect to its filter and its bias:
//! `dfilter[kh,kw,ci,co] = Σ x[n,ih,iw,ci] · dy` and `dbias[co] = Σ dy`, over the winners of the pooling windows that pass a gradient on.
//! The inputs are x, dy, and the positions of the winners. Element types: f32 and f64, and u8 for the positions.
//!
//! Bits: each element is summed from +0 over the winners in row-major order of the convolution's result, without the positions whose tap is
//! outside x. If x is finite, these are the bits of `max_pool2d_grad` and `relu_grad`, followed by `conv2d_filter_grad` and `sum`.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d;
use crate::ops::conv2d::dims4;
use crate::ops::shared::stages::stages;
use crate::ops::shared::window::clear;
use crate::ops::shared::winners::{Patch, Pools};
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};
use core::num::NonZeroUsize;

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Attributes of the convolution.
    pub conv: conv2d::Attributes,
    /// Height and width of the filter.
    pub kernel: [u32; 2],
    /// Height and width of the pooling window.
    pub ksize: [u32; 2],
}

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::conv2d_max_pool2d_filter_grad,
    name: "conv2d_max_pool2d_filter_grad",
    inputs: (3, 3),
    outputs: 2,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let x = dims4(inputs, 0)?;
    let ([n, _, _, c], [kh, kw]) = (x, attributes.kernel);
    if kh == 0 || kw == 0 {
        return Err(Error::Attribute { index: 9 + u8::from(kh != 0) });
    }
    let co = Pools::new(&attributes.conv, x, [kh, kw], attributes.ksize, 11)?.check_gradient(inputs, n)?;
    let ([x, ..], [dfilter, dbias, ..]) = (inputs, outputs) else { return Err(Error::Internal) };
    *dfilter = TensorType::new(x.dtype, Shape::new(&[kh, kw, c, co])?);
    *dbias = TensorType::new(x.dtype, Shape::new(&[co])?);
    Ok(())
}

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (x, dy, winners) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (&[n, h, w, c], co) = (x.dims(), dy.dim(3)) else { return Err(Error::Rank { input: 0 }) };
    let pools = Pools::new(&attributes.conv, [n, h, w, c], attributes.kernel, attributes.ksize, 11)?;
    let ((rows, cost), total) = (pools.rows(n as usize, co), call.output()?.slice_mut::<T>().len());
    let [cleared, rows] = stages(call, [total, rows], [2, cost]);
    let [dfilter, dbias] = call.outputs else { return Err(Error::Internal) };
    let (dfilter, dbias) = (dfilter.slice_mut::<T>(), dbias.slice_mut::<T>());
    clear(dfilter.get_mut(cleared).unwrap_or_default());
    if rows.start == 0 {
        clear(dbias);
    }
    let (x, width) = (x.slice::<T>(), NonZeroUsize::new(co).unwrap_or(NonZeroUsize::MIN));
    pools.winners(rows, (dy.slice::<T>(), winners.slice::<u8>(), co), |patch, channel, dy| {
        if let Some(sum) = dbias.get_mut(channel) {
            *sum = sum.add(dy);
        }
        add_to_column(dfilter, (width, channel), x, &patch, dy);
    });
    Ok(())
}

/// Adds `x · dy` to column `column` of the filter's gradient, for each element of `x` under the window. The gradient is a matrix with rows
/// of `width` elements.
#[inline(never)]
fn add_to_column<T: Float>(dfilter: &mut [T], (width, column): (NonZeroUsize, usize), x: &[T], patch: &Patch, dy: T) {
    let (mut x, mut dfilter) = (x.get(patch.element..), dfilter.get_mut(patch.weights * width.get()..));
    // The loop's own bounds check, done once before it.
    if column >= width.get() {
        return;
    }
    for _ in 0..patch.rows {
        let (Some(pixels), Some(rows)) = (x, dfilter) else { return };
        let values = pixels.get(..patch.length).unwrap_or(&[]);
        for (row, &x) in rows.chunks_exact_mut(width.get()).zip(values) {
            let Some(sum) = row.get_mut(column) else { return };
            *sum = sum.add(x.mul(dy));
        }
        (x, dfilter) = (pixels.get(patch.step..), rows.get_mut(patch.weights_step * width.get()..));
    }
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("Conv2DMaxPoolBackpropFilter"),
    ..Op::total(
        &DEF,
        "conv2d_max_pool2d_filter_grad(x[n,h,w,c], dy[n,oh,ow,co], winners[n,oh,ow,co]), where x and dy are f32 or f64, and winners are u8",
        Gradient::Missing("only plans for devices contain it, and they are not differentiated"),
    )
};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::conv2d_max_pool2d::tests::{cases, full_size, pooling, ties};
    use crate::ops::shared::testing::{floats, run_every_way};
    use crate::ops::{conv2d_filter_grad, conv2d_max_pool2d, max_pool2d_grad, relu_grad, sum};

    #[test]
    fn has_the_bits_of_the_single_ops() {
        for (x_dims, filter_dims, y_dims, forward) in cases() {
            let (x, filter, bias) = (ties(&x_dims, 1), ties(&filter_dims, 2), ties(&filter_dims[3..], 3));
            let dy = floats(&y_dims, 4);
            let full = full_size(&[&x, &filter, &bias], &forward);
            let mut dfull = run_every_way(&max_pool2d_grad::F32, &pooling(forward.ksize), &[&full, &dy]).remove(0);
            if forward.relu == 1 {
                dfull = run_every_way(&relu_grad::F32, &[], &[&dfull, &full]).remove(0);
            }
            let conv2d_max_pool2d::Attributes { conv, ksize, .. } = forward;
            let kernel = [filter_dims[0], filter_dims[1]];
            let single = conv2d_filter_grad::Attributes { conv, kernel };
            let dfilter = run_every_way(&conv2d_filter_grad::F32, &words(single), &[&x, &dfull]).remove(0);
            let dbias = run_every_way(&sum::F32, &[0, 0, 1, 2], &[&dfull]).remove(0);
            let winners = run_every_way(&conv2d_max_pool2d::F32, &words(forward), &[&x, &filter, &bias]).remove(1);
            let got = run_every_way(&F32, &words(Attributes { conv, kernel, ksize }), &[&x, &dy, &winners]);
            assert!(got == [dfilter, dbias], "{x_dims:?} {filter_dims:?} {forward:?}");
        }
    }
}
