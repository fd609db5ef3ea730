//! What depthwise convolution shares with its gradients: sums of products of pixels, channel by channel.
//!
//! Each sum takes its terms in order, so blocking does not change the bits. The loops stand alone (`inline(never)`), so a
//! firmware has each of them once per element type.

use super::contraction::rolled;
use crate::dtype::Number;

/// How to go from one pair of pixels to the next.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    /// How many pairs.
    pub(super) count: usize,
    /// From one x to the next, in elements.
    pub(super) x: usize,
    /// From one y to the next, in elements.
    pub(super) y: usize,
}

/// `out[c·m+q] += Σ_p x_p[c] · y_p[c·m+q]`, where m is `multiplier`, for the pixels `x_p` and `y_p` that `steps` leads to.
#[inline(never)]
pub(super) fn add_products<T: Number>(out: &mut [T], x: &[T], y: &[T], multiplier: usize, steps: Steps) {
    if multiplier != 1 {
        return add_multiplied(out, x, y, multiplier, steps);
    }
    let (blocks, rest) = out.as_chunks_mut::<4>();
    let mut column = 0;
    for block in blocks {
        let [mut p, mut q, mut r, mut s] = *block;
        let (mut i, mut j) = (column, column);
        for _ in 0..steps.count {
            let Some(&[x0, x1, x2, x3]) = x.get(i..).and_then(|x| x.first_chunk()) else { break };
            let Some(&[y0, y1, y2, y3]) = y.get(j..).and_then(|y| y.first_chunk()) else { break };
            (p, q, r, s) = (p.add(x0.mul(y0)), q.add(x1.mul(y1)), r.add(x2.mul(y2)), s.add(x3.mul(y3)));
            (i, j) = (i + steps.x, j + steps.y);
            rolled();
        }
        *block = [p, q, r, s];
        column += 4;
    }
    for (column, sum) in (column..).zip(rest) {
        let (mut i, mut j) = (column, column);
        for _ in 0..steps.count {
            let (Some(&x), Some(&y)) = (x.get(i), y.get(j)) else { break };
            *sum = sum.add(x.mul(y));
            (i, j) = (i + steps.x, j + steps.y);
        }
    }
}

/// [`add_products`] for more than one filter for each channel.
fn add_multiplied<T: Number>(out: &mut [T], x: &[T], y: &[T], multiplier: usize, steps: Steps) {
    let (mut i, mut j) = (0, 0);
    for _ in 0..steps.count {
        let (x, y) = (x.get(i..).unwrap_or(&[]), y.get(j..).unwrap_or(&[]));
        let groups = out.chunks_exact_mut(multiplier.max(1)).zip(y.chunks_exact(multiplier.max(1)));
        for ((out, y), &x) in groups.zip(x) {
            out.iter_mut().zip(y).for_each(|(out, &y)| *out = out.add(x.mul(y)));
        }
        (i, j) = (i + steps.x, j + steps.y);
    }
}
