//! Inner loops of contractions: matmul, dense and convolution spend most of their time here.
//!
//! Each loop keeps one accumulator per output and adds products in ascending order of the contraction index. Blocking therefore
//! does not change the bits. The functions are `inline(never)`, so a firmware contains each of them once per element type. They add
//! to the contents of `out`, so a contraction can be computed in pieces.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use core::num::NonZeroUsize;
use core::ops::Range;

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

    /// Returns the same view without its first `count` rows.
    pub(in crate::ops) fn skip(self, count: usize) -> Rows<'a, T> {
        Rows { data: self.data.get(count * self.stride.get()..).unwrap_or(&[]), ..self }
    }

    #[inline(always)]
    fn iter(self) -> core::slice::ChunksExact<'a, T> {
        self.data.chunks_exact(self.stride.get())
    }

    /// True if the view has `count` columns from `column` on. The compiler can then remove this check from the loops over rows.
    #[inline(always)]
    fn has(&self, column: usize, count: usize) -> bool {
        column <= self.stride.get() && self.stride.get() - column >= count
    }
}

/// Part of a matrix: rows of `width` elements, whose beginnings are `step` elements apart. Rows may overlap, or leave elements out.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Lines {
    pub(in crate::ops) step: usize,
    pub(in crate::ops) width: usize,
}

/// True if the target has a float unit. Without one, a product takes a hundred instructions. Blocks then cost flash and save nothing.
pub(in crate::ops) const FLOAT_UNIT: bool =
    cfg!(not(any(all(target_arch = "arm", target_abi = "eabi"), all(target_arch = "riscv32", not(target_feature = "f")))));

/// True if blocks save time for elements of type `T`.
const fn in_blocks<T: Number>() -> bool {
    FLOAT_UNIT || !T::DTYPE.is_float()
}

/// Returns `out` in blocks of `N` elements and the rest, which is all of it if blocks would not save time.
#[inline(always)]
fn blocks<T: Number, const N: usize>(out: &mut [T]) -> (&mut [[T; N]], &mut [T]) {
    if in_blocks::<T>() { out.as_chunks_mut() } else { (&mut [], out) }
}

/// Keeps the compiler from unrolling the surrounding loop, which would cost flash without any gain. Emits no code.
#[inline(always)]
pub(in crate::ops) fn rolled() {
    core::hint::black_box(());
}

/// Sets each element to 0. The compiler would call `memset`, which takes longer for the few outputs of a layer.
#[inline(always)]
pub(in crate::ops) fn clear<T: Number>(out: &mut [T]) {
    out.iter_mut().for_each(|element| {
        *element = T::ZERO;
        rolled();
    });
}

/// Computes one block of outputs: loads it into registers, adds the products of `x` with the elements of each row from `column` on, and
/// stores it again.
///
/// The blocks are written out by hand, because the compiler does not unroll loops over arrays at opt-level "s".
macro_rules! add_block {
    ($block:expr, $x:expr, $rows:expr, $column:expr; $count:literal: $($sum:ident $y:ident),*) => {
        if !$rows.has($column, $count) {
            return;
        }
        let [$(mut $sum),*] = *$block;
        for (&x, row) in $x.iter().zip($rows.iter()) {
            let Some(&[$($y),*]) = row.get($column..).and_then(|row| row.first_chunk()) else { break };
            $($sum = $sum.add(x.mul($y));)*
            rolled();
        }
        *$block = [$($sum),*];
    };
}

/// Returns the instructions that [`add_rows`] takes for each row, with `n` outputs.
pub(in crate::ops) fn cost_of_row(n: usize) -> usize {
    13 * n / 4 + 4 * (n % 8) + 4
}

/// Computes `out[j] += Σ_p x[p] · rows[p][j]`.
#[inline(never)]
pub(in crate::ops) fn add_rows<T: Number>(out: &mut [T], x: &[T], rows: Rows<'_, T>) {
    let mut column = rows.offset;
    let (sixteens, rest) = blocks::<T, 16>(out);
    for block in sixteens {
        add_block!(block, x, rows, column; 16: a p, b q, c r, d s, e t, f u, g v, h w, i p1, j q1, k r1, l s1, m t1, n u1, o v1, z w1);
        column += 16;
    }
    let (eights, rest) = blocks::<T, 8>(rest);
    for block in eights {
        add_block!(block, x, rows, column; 8: a p, b q, c r, d s, e t, f u, g v, h w);
        column += 8;
    }
    for sum in rest.as_chunks_mut::<1>().0 {
        add_block!(sum, x, rows, column; 1: a p);
        column += 1;
    }
}

/// [`add_rows`] for two outputs and their `x`, which share the loads of the rows.
#[inline(never)]
fn add_rows_to_pair<T: Number>([first, second]: [&mut [T]; 2], [x, z]: [&[T]; 2], rows: Rows<'_, T>) {
    let mut column = rows.offset;
    let (first, first_rest) = blocks::<T, 8>(first);
    let (second, second_rest) = blocks::<T, 8>(second);
    for (first, second) in first.iter_mut().zip(second) {
        if !rows.has(column, 8) {
            return;
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *first;
        let [mut p, mut q, mut r, mut s, mut t, mut u, mut v, mut w] = *second;
        for ((&x, &z), row) in x.iter().zip(z).zip(rows.iter()) {
            let Some(&[i, j, k, l, m, n, o, y]) = row.get(column..).and_then(|row| row.first_chunk()) else { break };
            (a, b, c, d) = (a.add(x.mul(i)), b.add(x.mul(j)), c.add(x.mul(k)), d.add(x.mul(l)));
            (e, f, g, h) = (e.add(x.mul(m)), f.add(x.mul(n)), g.add(x.mul(o)), h.add(x.mul(y)));
            (p, q, r, s) = (p.add(z.mul(i)), q.add(z.mul(j)), r.add(z.mul(k)), s.add(z.mul(l)));
            (t, u, v, w) = (t.add(z.mul(m)), u.add(z.mul(n)), v.add(z.mul(o)), w.add(z.mul(y)));
            rolled();
        }
        *first = [a, b, c, d, e, f, g, h];
        *second = [p, q, r, s, t, u, v, w];
        column += 8;
    }
    if !first_rest.is_empty() {
        add_rows(first_rest, x, rows.at_column(column));
        add_rows(second_rest, z, rows.at_column(column));
    }
}

/// Computes `out[i][j] += Σ_p x[i][p] · rows[p][j]`. `to` and `from` are the lines of `out` and of `x`.
#[inline(never)]
pub(in crate::ops) fn add_products<T: Number>(out: &mut [T], to: Lines, mut x: &[T], from: Lines, rows: Rows<'_, T>) {
    for pair in out.chunks_mut((2 * to.step).max(1)) {
        let (first, second) = pair.split_at_mut(to.step.min(pair.len()));
        let Some(line) = x.get(..from.width) else { return };
        let next = x.get(from.step..).and_then(|x| x.get(..from.width));
        match (first.get_mut(..to.width), second.get_mut(..to.width), next) {
            (Some(first), Some(second), Some(next)) => add_rows_to_pair([first, second], [line, next], rows),
            (Some(first), ..) => add_rows(first, line, rows),
            _ => return,
        }
        x = x.get(2 * from.step..).unwrap_or(&[]);
    }
}

/// Computes `out[i][j] += Σ_p x[p][i] · rows[p][j]`. The rows of `out` have `width` elements, and those of `x` begin `step` elements
/// apart. `x` and `rows` have `count` rows.
///
/// Gathers two columns of `x` in pieces of 16 elements.
#[inline(never)]
pub(in crate::ops) fn add_transposed<T: Number>(
    out: &mut [T],
    width: usize,
    mut x: &[T],
    step: usize,
    mut count: usize,
    mut rows: Rows<'_, T>,
) {
    const PIECE: usize = 16;
    let to = Lines { step: width, width };
    if step == 1 {
        // The columns of x are already lines.
        return add_products(out, to, x, Lines { step, width: count }, rows);
    }
    let mut columns = [T::ZERO; 2 * PIECE];
    while count > 0 {
        let from = Lines { step: PIECE, width: PIECE.min(count) };
        for (i, pair) in out.chunks_mut((2 * width).max(1)).enumerate() {
            let (first, second) = columns.split_at_mut(PIECE);
            let elements = x.get(2 * i..).unwrap_or(&[]).chunks(step.max(1));
            for ((x, z), row) in first.iter_mut().zip(second).zip(elements) {
                (*x, *z) = match *row {
                    [x, z, ..] => (x, z),
                    [x] => (x, T::ZERO),
                    [] => break,
                };
                rolled();
            }
            add_products(pair, to, &columns, from, rows);
        }
        x = x.get(PIECE * step..).unwrap_or(&[]);
        rows = rows.skip(PIECE);
        count = count.saturating_sub(PIECE);
    }
}

/// Computes `out[j] += Σ_p x[p][0] · rows[p][j]`. The rows of `x` begin `step` elements apart.
///
/// Gathers the column of `x` in pieces of 16 elements.
#[inline(never)]
pub(in crate::ops) fn add_column<T: Number>(out: &mut [T], x: &[T], step: usize, mut rows: Rows<'_, T>) {
    let mut piece = [T::ZERO; 16];
    for x in x.chunks((piece.len() * step).max(1)) {
        let column = x.chunks(step.max(1)).filter_map(|row| row.first());
        let length = piece.iter_mut().zip(column).map(|(slot, &x)| *slot = x).count();
        add_rows(out, piece.get(..length).unwrap_or(&[]), rows);
        rows = rows.skip(length);
    }
}

/// Computes the rows `rows` of the product of x transposed with dy, where x is `[m,k]` and dy is `[m,n]`, in parts of at most 8 elements of
/// a row. Calls `f` with the position of each part in these rows, and with the part. The product is never stored.
#[inline(always)]
pub(in crate::ops) fn each_gradient<T: Number>(
    x: &[T],
    dy: &[T],
    [k, n]: [usize; 2],
    rows: Range<usize>,
    mut f: impl FnMut(Range<usize>, &[T]),
) {
    for (i, row) in rows.enumerate() {
        for column in (0..n).step_by(8) {
            let mut part = [T::ZERO; 8];
            let part = part.get_mut(..8.min(n - column)).unwrap_or_default();
            add_column(part, x.get(row..).unwrap_or(&[]), k, Rows::new(dy, n).at_column(column));
            let at = i * n + column;
            f(at..at + part.len(), part);
        }
    }
}

/// Returns the instructions that [`add_dots`] takes for each output, with an `x` of `k` elements.
pub(in crate::ops) fn cost_of_dot(k: usize) -> usize {
    5 * k + 16
}

/// Computes `out[j] += Σ_p x[p] · rows[j][p]`: adds the dot product of `x` and row j to each output. Four rows share the loads of `x`.
#[inline(never)]
pub(in crate::ops) fn add_dots<T: Number>(out: &mut [T], x: &[T], rows: Rows<'_, T>) {
    // The bounds check of `each`, done once before it.
    if !rows.has(rows.offset, x.len()) {
        return;
    }
    let mut each = rows.iter().map_while(|row| row.get(rows.offset..)?.get(..x.len()));
    let (fours, rest) = blocks::<T, 4>(out);
    for block in fours {
        let (Some(a), Some(b), Some(c), Some(d)) = (each.next(), each.next(), each.next(), each.next()) else { return };
        let [mut p, mut q, mut r, mut s] = *block;
        // The compiler keeps iterators in registers, and indices not.
        let (mut b, mut c, mut d) = (b.iter(), c.iter(), d.iter());
        for (&x, &y) in x.iter().zip(a) {
            let (Some(&z), Some(&v), Some(&w)) = (b.next(), c.next(), d.next()) else { break };
            (p, q, r, s) = (p.add(x.mul(y)), q.add(x.mul(z)), r.add(x.mul(v)), s.add(x.mul(w)));
            rolled();
        }
        *block = [p, q, r, s];
    }
    for sum in rest {
        let Some(row) = each.next() else { return };
        let mut total = *sum;
        for (&x, &y) in x.iter().zip(row) {
            total = total.add(x.mul(y));
            rolled();
        }
        *sum = total;
    }
}

/// Replaces one block of columns of `out`, from `column` on, with `f(out[i][j], x[i], y[j])`. The elements of `y` stay in registers.
macro_rules! outer_block {
    ($out:expr, $x:expr, $width:expr, $column:expr, $f:expr; $count:literal: $($y:ident $w:ident),*) => {
        // The bounds check of the loop, done once before it.
        if $column > $width || $width - $column < $count {
            return;
        }
        for (row, &x) in $out.chunks_exact_mut($width).zip($x) {
            let Some([$($w),*]) = row.get_mut($column..).and_then(<[T]>::first_chunk_mut) else { break };
            $(*$w = $f(*$w, x, $y);)*
            rolled();
        }
        $column += $count;
    };
}

/// Computes an outer product, `out[i][j] = f(out[i][j], x[i], y[j])`.
#[inline(always)]
pub(in crate::ops) fn outer<T: Number>(out: &mut [T], x: &[T], y: &[T], mut f: impl FnMut(T, T, T) -> T) {
    let (mut column, width) = (0, y.len());
    let (eights, rest) = if in_blocks::<T>() { y.as_chunks() } else { (&[][..], y) };
    for &[a, b, c, d, e, g, h, i] in eights {
        outer_block!(out, x, width, column, f; 8: a p, b q, c r, d s, e t, g u, h v, i w);
    }
    for &a in rest {
        outer_block!(out, x, width, column, f; 1: a p);
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
