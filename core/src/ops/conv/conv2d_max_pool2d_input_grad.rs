//! Gradient of [`conv2d_max_pool2d`](crate::ops::conv2d_max_pool2d) with respect to its images:
//! `dx[n,ih,iw,ci] = Σ filter[kh,kw,ci,co] · dy`, over the (kh, kw) whose window covers the position, and over the winners that pass a
//! gradient on. The inputs are the filter, dy, and the positions of the winners. Element types: f32 and f64, and u8 for the positions.
//!
//! Bits: each element is summed from +0 over (kh, kw, co) ascending, without the elements that are not winners. If the filter is finite,
//! these are the bits of `max_pool2d_grad` and `relu_grad`, followed by `conv2d_input_grad`.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d;
use crate::ops::conv2d::{check_dim, dims4, filter4};
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
    /// Height and width of the images.
    pub input: [u32; 2],
    /// Height and width of the pooling window.
    pub ksize: [u32; 2],
}

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::conv2d_max_pool2d_input_grad,
    name: "conv2d_max_pool2d_input_grad",
    inputs: (3, 3),
    outputs: 1,
    infer,
    in_place: &[],
};

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [kh, kw, c, co] = filter4(inputs, 0)?;
    let ([n, ..], [h, w]) = (dims4(inputs, 1)?, attributes.input);
    let pools = Pools::new(&attributes.conv, [n, h, w, c], [kh, kw], attributes.ksize, 11)?;
    check_dim(1, 3, co, pools.check_gradient(inputs, n)?)?;
    let ([filter, ..], [output, ..]) = (inputs, outputs) else { return Err(Error::Internal) };
    *output = TensorType::new(filter.dtype, Shape::new(&[n, h, w, c])?);
    Ok(())
}

/// Number of elements that a row sets to 0.
const CLEARED: usize = 1024;

fn run<T: Float>(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (filter, dy, winners) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (&[kh, kw, c, co], n) = (filter.dims(), dy.dim(0)) else { return Err(Error::Rank { input: 0 }) };
    let [h, w] = attributes.input;
    let pools = Pools::new(&attributes.conv, [n as u32, h, w, c], [kh, kw], attributes.ksize, 11)?;
    let (winners, co) = (winners.slice::<u8>(), co as usize);
    // The first rows set dx to 0.
    let zeros = call.output()?.slice_mut::<T>().len().div_ceil(CLEARED);
    let rows = zeros + pools.segments(n);
    let cost = call.mean_cost(rows, |row| match row.checked_sub(zeros) {
        None => 2 * CLEARED + 40,
        Some(segment) => pools.segment_cost(segment, winners, co),
    });
    let rows = call.rows(rows, cost);
    let (filter, dx) = (filter.slice::<T>(), call.output()?.slice_mut::<T>());
    let [first, end] = [rows.start, rows.end].map(|row| (row * CLEARED).min(dx.len()));
    clear(dx.get_mut(first..end).unwrap_or_default());
    let segments = rows.start.saturating_sub(zeros)..rows.end.saturating_sub(zeros);
    let width = NonZeroUsize::new(co).unwrap_or(NonZeroUsize::MIN);
    // Backwards, because a later position of the result meets an element of dx with an earlier tap.
    pools.winners_backwards(segments, (dy.slice::<T>(), winners, co), |patch, channel, dy| {
        add_column(dx, filter, (width, channel), &patch, dy);
    });
    Ok(())
}

/// Adds column `column` of the filter, times `dy`, to the elements of `dx` under the window. The filter is a matrix with rows of `width`
/// elements.
#[inline(never)]
fn add_column<T: Float>(dx: &mut [T], filter: &[T], (width, column): (NonZeroUsize, usize), patch: &Patch, dy: T) {
    let (mut dx, mut filter) = (dx.get_mut(patch.element..), filter.get(patch.weights * width.get()..));
    // The loop's own bounds check, done once before it.
    if column >= width.get() {
        return;
    }
    for _ in 0..patch.rows {
        let (Some(pixels), Some(rows)) = (dx, filter) else { return };
        let sums = pixels.get_mut(..patch.length).unwrap_or(&mut []);
        for (sum, row) in sums.iter_mut().zip(rows.chunks_exact(width.get())) {
            let Some(&weight) = row.get(column) else { return };
            *sum = sum.add(weight.mul(dy));
        }
        (dx, filter) = (pixels.get_mut(patch.step..), rows.get(patch.weights_step * width.get()..));
    }
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("Conv2DMaxPoolBackpropInput"),
    ..Op::total(
        &DEF,
        "conv2d_max_pool2d_input_grad(filter[kh,kw,c,co], dy[n,oh,ow,co], winners[n,oh,ow,co]), where filter and dy are f32 or f64, and \
         winners are u8",
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
    use crate::ops::{conv2d_input_grad, conv2d_max_pool2d, max_pool2d_grad, relu_grad};

    #[test]
    fn has_the_bits_of_the_single_ops() {
        for (x_dims, filter_dims, y_dims, forward) in cases() {
            let (x, filter) = (ties(&x_dims, 1), ties(&filter_dims, 2));
            let dy = floats(&y_dims, 4);
            let full = full_size(&[&x, &filter], &forward);
            let mut dfull = run_every_way(&max_pool2d_grad::F32, &pooling(forward.ksize), &[&full, &dy]).remove(0);
            if forward.relu == 1 {
                dfull = run_every_way(&relu_grad::F32, &[], &[&dfull, &full]).remove(0);
            }
            let conv2d_max_pool2d::Attributes { conv, ksize, .. } = forward;
            let input = [x_dims[1], x_dims[2]];
            let single = conv2d_input_grad::Attributes { conv, input };
            // Not the filter of the convolution, whose integers would give equal sums in any order.
            let filter_now = floats(&filter_dims, 5);
            let want = run_every_way(&conv2d_input_grad::F32, &words(single), &[&filter_now, &dfull]);
            let winners = run_every_way(&conv2d_max_pool2d::F32, &words(forward), &[&x, &filter]).remove(1);
            let got = run_every_way(&F32, &words(Attributes { conv, input, ksize }), &[&filter_now, &dy, &winners]);
            assert!(got == want, "{x_dims:?} {filter_dims:?} {forward:?}");
        }
    }
}
