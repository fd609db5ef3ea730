//! Products of two pixels, channel by channel, for depthwise convolution and its gradients.
//!
//! The inner loop is `inline(never)`, so a firmware contains it once per element type.

use super::contraction::rolled;
use crate::base::dtype::Number;

/// Computes `out[c·m+q] += x[c] · y[c·m+q]`, where m is `multiplier`. `y` is as long as `out`.
pub(in crate::ops) fn add_products<T: Number>(out: &mut [T], x: &[T], y: &[T], multiplier: usize) {
    if multiplier == 1 {
        return add_pairs(out, x, y);
    }
    let groups = out.chunks_exact_mut(multiplier.max(1)).zip(y.chunks_exact(multiplier.max(1)));
    for ((out, y), &x) in groups.zip(x) {
        out.iter_mut().zip(y).for_each(|(out, &y)| *out = out.add(x.mul(y)));
    }
}

/// Computes `out[c] += x[c] · y[c]` for three slices of equal length. Blocks of four are written out by hand, because `-Os` does
/// not unroll.
#[inline(never)]
pub(in crate::ops) fn add_pairs<T: Number>(out: &mut [T], x: &[T], y: &[T]) {
    let (blocks, rest) = out.as_chunks_mut::<4>();
    let ((x4, x1), (y4, y1)) = (x.as_chunks::<4>(), y.as_chunks::<4>());
    for (([a, b, c, d], &[p, q, r, s]), &[i, j, k, l]) in blocks.iter_mut().zip(x4).zip(y4) {
        (*a, *b, *c, *d) = (a.add(p.mul(i)), b.add(q.mul(j)), c.add(r.mul(k)), d.add(s.mul(l)));
        rolled();
    }
    rest.iter_mut().zip(x1).zip(y1).for_each(|((out, &x), &y)| *out = out.add(x.mul(y)));
}
