//! Inner loops of contractions: matmul, dense and convolution spend most of their time here.
//!
//! Each loop keeps one accumulator per output and adds products in ascending order of the contraction index. Blocking therefore
//! does not change the bits. The functions are `inline(never)`, so a firmware contains each of them once per element type.
//! [`add_rows`] and [`add_dots`] add to the contents of `out`, so a contraction can be computed in pieces.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use core::num::NonZeroUsize;

/// View of a matrix from a column on. Row `p` is `data[p * stride..][..stride]`, and the view begins at column `offset`.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Rows<'a, T> {
    data: &'a [T],
    stride: NonZeroUsize,
    offset: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Creates a matrix with rows of `stride` elements.
    pub(in crate::ops) fn new(data: &'a [T], stride: usize) -> Rows<'a, T> {
        Rows { data, stride: NonZeroUsize::new(stride).unwrap_or(NonZeroUsize::MIN), offset: 0 }
    }

    /// Returns the same matrix, viewed from column `offset` on.
    pub(in crate::ops) fn at_column(self, offset: usize) -> Rows<'a, T> {
        Rows { offset, ..self }
    }

    #[inline(always)]
    fn iter(self) -> core::slice::ChunksExact<'a, T> {
        self.data.chunks_exact(self.stride.get())
    }
}

/// Adds the products of `x` with the elements of each row to sums in registers. Each sum belongs to one column of the rows, and the
/// caller names it.
///
/// The blocks are written out by hand, because the compiler does not unroll loops over arrays at opt-level "s".
macro_rules! add_products {
    ($pairs:expr, $x_column:expr, $column:expr; $($sum:ident $y:ident),*) => {
        for (x, row) in $pairs {
            let (Some(&x), Some(&[$($y),*])) = (x.get($x_column), row.get($column..).and_then(|row| row.first_chunk())) else { break };
            $($sum = $sum.add(x.mul($y));)*
            rolled();
        }
    };
}

/// Runs [`add_products`] on one block of outputs: loads them into registers, adds the products, and stores them again.
macro_rules! add_block {
    ($block:expr, $pairs:expr, $x:expr, $rows:expr, $column:expr; $count:literal: $($sum:ident $y:ident),*) => {
        // The loop's own bounds checks, done once before it. The compiler can then remove them from the loop.
        if $column > $rows.stride.get() || $rows.stride.get() - $column < $count || $x.offset >= $x.stride.get() {
            return;
        }
        let [$(mut $sum),*] = *$block;
        add_products!($pairs.clone(), $x.offset, $column; $($sum $y),*);
        *$block = [$($sum),*];
    };
}

/// The pixels of an image that a window covers, and the matching part of the filter.
pub(in crate::ops) struct Window<'a, T> {
    /// Elements of the image, from the first element of the first covered pixel on.
    pub(in crate::ops) pixels: &'a [T],
    /// Distance from the beginning of one covered row of the image to the next, in elements.
    pub(in crate::ops) pixel_step: usize,
    /// Number of covered elements in each covered row.
    pub(in crate::ops) length: usize,
    /// Elements of the filter, from the first tap on a covered pixel on. They form a matrix with one row of weights for each
    /// element of a pixel.
    pub(in crate::ops) filter: &'a [T],
    /// Distance from one row of taps to the next, in elements.
    pub(in crate::ops) filter_step: usize,
    /// Number of covered rows.
    pub(in crate::ops) rows: usize,
}

/// Computes one pixel of a convolution's result: writes the sum over the window for each output channel to `out`. Adds the bias,
/// unless `bias` is empty.
#[inline(never)]
pub(in crate::ops) fn convolve<T: Number>(out: &mut [T], window: &Window<'_, T>, bias: &[T]) {
    let Some(width) = NonZeroUsize::new(out.len()) else { return };
    macro_rules! blocks {
        ($blocks:expr, $column:ident, $count:literal: $($sum:ident $y:ident $bias:ident),*) => {
            for block in $blocks {
                if $column > width.get() || width.get() - $column < $count {
                    return;
                }
                $(let mut $sum = T::ZERO;)*
                let (mut pixels, mut filter) = (window.pixels, window.filter);
                for _ in 0..window.rows {
                    let row = pixels.get(..window.length).unwrap_or(&[]);
                    add_products!(row.chunks_exact(1).zip(filter.chunks_exact(width.get())), 0, $column; $($sum $y),*);
                    pixels = pixels.get(window.pixel_step..).unwrap_or(&[]);
                    filter = filter.get(window.filter_step..).unwrap_or(&[]);
                }
                if let Some(&[$($bias),*]) = bias.get($column..).and_then(|bias| bias.first_chunk()) {
                    $($sum = $sum.add($bias);)*
                }
                *block = [$($sum),*];
                $column += $count;
            }
        };
    }
    let mut column = 0;
    let (blocks, rest) = out.as_chunks_mut::<8>();
    blocks!(blocks, column, 8: a p bias0, b q bias1, c r bias2, d s bias3, e t bias4, f u bias5, g v bias6, h w bias7);
    let (blocks, rest) = rest.as_chunks_mut::<4>();
    blocks!(blocks, column, 4: a p bias0, b q bias1, c r bias2, d s bias3);
    blocks!(rest.as_chunks_mut::<1>().0, column, 1: a p bias0);
}

/// Keeps the compiler from unrolling the surrounding loop, which would cost flash without any gain. Emits no code.
#[inline(always)]
pub(in crate::ops) fn rolled() {
    core::hint::black_box(());
}

/// Computes `out[j] += Σ_p x[p] · rows[p][j]`. Here `x` is a column, which has one element in each row, and `rows` is a matrix.
#[inline(never)]
pub(in crate::ops) fn add_rows<T: Number>(out: &mut [T], x: Rows<'_, T>, rows: Rows<'_, T>) {
    let pairs = x.iter().zip(rows.iter());
    let mut column = rows.offset;
    let (blocks, rest) = out.as_chunks_mut::<8>();
    for block in blocks {
        add_block!(block, pairs, x, rows, column; 8: a p, b q, c r, d s, e t, f u, g v, h w);
        column += 8;
    }
    let (blocks, rest) = rest.as_chunks_mut::<4>();
    for block in blocks {
        add_block!(block, pairs, x, rows, column; 4: a p, b q, c r, d s);
        column += 4;
    }
    for sum in rest.as_chunks_mut::<1>().0 {
        add_block!(sum, pairs, x, rows, column; 1: a p);
        column += 1;
    }
}

/// Computes `out[j] += Σ_p x[p] · rows[j][p]`: adds the dot product of `x` and row j to each output. Four rows share the loads of `x`.
#[inline(never)]
pub(in crate::ops) fn add_dots<T: Number>(out: &mut [T], x: &[T], rows: Rows<'_, T>) {
    // The bounds check of `each`, done once before it. The compiler can then drop it there, and can assume equal lengths.
    if rows.offset > rows.stride.get() || rows.stride.get() - rows.offset < x.len() {
        return;
    }
    let mut each = rows.iter().map_while(|row| row.get(rows.offset..)?.get(..x.len()));
    let (x4, x1) = x.as_chunks();
    let (blocks, rest) = out.as_chunks_mut::<4>();
    for block in blocks {
        let Some(a) = each.next() else { return };
        let Some(b) = each.next() else { return };
        let Some(c) = each.next() else { return };
        let Some(d) = each.next() else { return };
        let ((a4, a1), (b4, b1), (c4, c1), (d4, d1)) = (a.as_chunks(), b.as_chunks(), c.as_chunks(), d.as_chunks());
        let [mut p, mut q, mut r, mut s] = *block;
        for ((((x, a), b), c), d) in x4.iter().zip(a4).zip(b4).zip(c4).zip(d4) {
            (p, q, r, s) = (dot(p, x, a), dot(q, x, b), dot(r, x, c), dot(s, x, d));
            rolled();
        }
        for ((((&x, &a), &b), &c), &d) in x1.iter().zip(a1).zip(b1).zip(c1).zip(d1) {
            (p, q, r, s) = (p.add(x.mul(a)), q.add(x.mul(b)), r.add(x.mul(c)), s.add(x.mul(d)));
            rolled();
        }
        *block = [p, q, r, s];
    }
    for sum in rest {
        let Some(row) = each.next() else { return };
        for (&x, &y) in x.iter().zip(row) {
            *sum = sum.add(x.mul(y));
            rolled();
        }
    }
}

/// Returns `sum + Σ_p x[p] · y[p]`, added in ascending order of `p`.
#[inline(always)]
fn dot<T: Number>(sum: T, &[x0, x1, x2, x3]: &[T; 4], &[y0, y1, y2, y3]: &[T; 4]) -> T {
    sum.add(x0.mul(y0)).add(x1.mul(y1)).add(x2.mul(y2)).add(x3.mul(y3))
}

/// Computes an outer product, `out[i][j] = f(out[i][j], x[i], y[j])`. Eight elements of `y` stay in registers for a whole column.
#[inline(always)]
pub(in crate::ops) fn outer<T: Number>(out: &mut [T], x: &[T], y: &[T], f: impl Fn(T, T, T) -> T) {
    if y.is_empty() {
        return;
    }
    let mut column = 0;
    let (blocks, rest) = y.as_chunks();
    for &[a, b, c, d, e, g, h, i] in blocks {
        for (row, &x) in out.chunks_exact_mut(y.len()).zip(x) {
            let Some(row) = row.get_mut(column..).and_then(<[T]>::first_chunk_mut) else { break };
            let [p, q, r, s, t, u, v, w] = *row;
            let (p, q, r, s) = (f(p, x, a), f(q, x, b), f(r, x, c), f(s, x, d));
            *row = [p, q, r, s, f(t, x, e), f(u, x, g), f(v, x, h), f(w, x, i)];
            rolled();
        }
        column += 8;
    }
    for &y_column in rest {
        for (row, &x) in out.chunks_exact_mut(y.len()).zip(x) {
            let Some(slot) = row.get_mut(column) else { break };
            *slot = f(*slot, x, y_column);
            rolled();
        }
        column += 1;
    }
}

/// Checks input 2, an optional bias, against the expected length `n` and `dtype`.
pub(in crate::ops) fn check_bias(bias: &[TensorType], dtype: DType, n: u32) -> Result<()> {
    let [bias] = bias else { return Ok(()) };
    if bias.dtype != dtype {
        return Err(Error::DType { input: 2 });
    }
    let &[got] = bias.shape.dims() else { return Err(Error::Rank { input: 2 }) };
    if got != n {
        return Err(Error::Dimension { input: 2, axis: 0, want: n, got });
    }
    Ok(())
}
