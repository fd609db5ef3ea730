//! Matrix products, and the kernels that consist of them.

use super::product::{Left, Product, Right, Start, panel};
use super::scratch;
use crate::simd::{Simd, WithSimd, dispatch};
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{dense, matmul};
use gradlet_core::{DType, Error, Result};

/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 18;
/// Maximum number of elements of a right matrix that stays in a core's cache.
pub(super) const CACHED: usize = 1 << 17;
/// Rows and columns of the parts into which a larger right matrix is divided.
const PART: [usize; 2] = [512, 128];
/// Maximum number of rows of a result whose columns, instead of its rows, are divided among the threads.
const FEW: usize = 512;
/// Maximum number of rows of a result for which the right matrix is read in place, without packing.
const UNPACKED: usize = 28;
/// Length of a row of the right matrix above which the matrix is packed. The cache cannot hold columns of longer rows.
const LONG: usize = 192;

/// Kernel of [`matmul`].
pub static MATMUL: Kernel = Kernel { def: &matmul::DEF, dtype: DType::F32, run: run_matmul };
/// Kernel of [`dense`].
pub static DENSE: Kernel = Kernel { def: &dense::DEF, dtype: DType::F32, run: run_dense };

fn run_dense(call: &mut Call<'_, '_>) -> Result<()> {
    let transposed = call.attributes::<dense::Attributes>()?.transpose != 0;
    let (x, kernel) = (call.input(0)?, call.input(1)?);
    let bias = call.inputs.get(2).map(|bias| bias.slice::<f32>());
    let (k, n) = if transposed { (kernel.dim(1), kernel.dim(0)) } else { (kernel.dim(0), kernel.dim(1)) };
    let result = call.output()?.slice_mut::<f32>();
    let m = result.len() / n.max(1);
    multiply(Operand { data: x.slice(), transposed: false }, Operand { data: kernel.slice(), transposed }, [m, n, k], bias, result);
    Ok(())
}

fn run_matmul(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: matmul::Attributes = call.attributes()?;
    let (transpose_a, transpose_b) = (attributes.transpose_a != 0, attributes.transpose_b != 0);
    let (a, b) = (call.input(0)?, call.input(1)?);
    let output = call.output()?;
    let (Some((a_dims, [.., rows, columns])), Some((b_dims, _)), Some((batch, &[m, n]))) =
        (split(a.dims()), split(b.dims()), split(output.dims()))
    else {
        return Err(Error::Rank { input: 0 });
    };
    let [mut m, n, k] = [m, n, if transpose_a { *rows } else { *columns }].map(|dim| dim as usize);
    let (a, b) = (a.slice::<f32>(), b.slice::<f32>());
    let result = output.slice_mut::<f32>();
    if b.len() == k * n && !transpose_a {
        // All products share one right matrix, so they are computed as one product of all left rows.
        m = result.len() / n.max(1);
    }
    let products = result.len() / (m * n).max(1);
    let one = |(index, result): (usize, &mut [f32])| {
        let (i, j) = if products > 1 { (place(index, batch, a_dims), place(index, batch, b_dims)) } else { (0, 0) };
        let a = Operand { data: &a[i * m * k..][..m * k], transposed: transpose_a };
        let b = Operand { data: &b[j * k * n..][..k * n], transposed: transpose_b };
        multiply(a, b, [m, n, k], None, result);
    };
    let parallel = products >= team::threads() && result.len() * k > ALONE;
    team::each(parallel, result.chunks_exact_mut((m * n).max(1)).enumerate(), one);
    Ok(())
}

/// Splits the dimensions into the batch dimensions and the last two. Returns `None` if there are fewer than two.
fn split(dims: &[u32]) -> Option<(&[u32], &[u32; 2])> {
    dims.split_last_chunk()
}

/// Returns the index of the matrix that a batched operand contributes to matrix product number `index`. `batch` holds the batch
/// dimensions of the result, and `own` those of the operand, which are broadcast to `batch`.
fn place(mut index: usize, batch: &[u32], own: &[u32]) -> usize {
    let (mut place, mut step) = (0, 1);
    for (&dim, own) in batch.iter().rev().zip(own.iter().rev().map(|&own| own as usize).chain(std::iter::repeat(1))) {
        place += index % dim as usize % own * step;
        step *= own;
        index /= dim as usize;
    }
    place
}

/// A matrix, stored row by row, or column by column if transposed.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub(super) data: &'a [f32],
    pub(super) transposed: bool,
}

/// Computes `result[m,n] = a[m,k] · b[k,n] + bias[n]`.
pub(super) fn multiply(a: Operand<'_>, b: Operand<'_>, [m, n, k]: [usize; 3], bias: Option<&[f32]>, result: &mut [f32]) {
    if m == 0 || n == 0 {
        return;
    }
    let parallel = m * n * k > ALONE;
    if b.transposed && m <= FEW {
        return multiply_turned(a, b.data, [m, n, k], bias, result, parallel);
    }
    let product = Multiply {
        left: Left::matrix(a.data, if a.transposed { [1, m] } else { [k, 1] }, k),
        right: b.data,
        right_row: if b.transposed { k } else { n },
        right_transposed: b.transposed,
        bias,
        k,
    };
    if m > FEW || k * n <= CACHED {
        product.by_rows(parallel, n, result);
    } else {
        product.by_columns(parallel, m, n, result);
    }
}

/// The same as [`multiply`] for `b` stored as `[n,k]`. Computes the transposed product, in which the smaller matrix is the right
/// one.
fn multiply_turned(a: Operand<'_>, b: &[f32], [m, n, k]: [usize; 3], bias: Option<&[f32]>, result: &mut [f32], parallel: bool) {
    let turn = |right: &[f32], result: &mut [f32]| {
        let left = Left::matrix(b, [k, 1], k);
        Multiply { left, right, right_row: m, right_transposed: false, bias: None, k }.by_rows(parallel, m, result);
    };
    let turned = |a: &[f32], result: &mut [f32]| match m {
        1 => turn(a, result),
        _ => scratch::with(n * m, |product| {
            turn(a, product);
            let rows = share(m, if parallel { team::threads() } else { 1 });
            team::each(parallel, result.chunks_mut(rows * n).enumerate(), |(index, result)| {
                for (row, result) in (index * rows..).zip(result.chunks_exact_mut(n)) {
                    result.iter_mut().zip(product[row..].iter().step_by(m)).for_each(|(to, &from)| *to = from);
                }
            });
        }),
    };
    if a.transposed || m == 1 {
        turned(a.data, result);
    } else {
        scratch::with(a.data.len(), |columns| {
            transpose(a.data, columns, [m, k]);
            turned(columns, result);
        });
    }
    if let Some(bias) = bias {
        result.chunks_exact_mut(n).for_each(|row| row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias));
    }
}

/// Sets `to[j][i] = from[i][j]`, for `rows` by `columns` elements of `from`.
pub(super) fn transpose(from: &[f32], to: &mut [f32], [rows, columns]: [usize; 2]) {
    for (first, from) in (0..).step_by(16).zip(from.chunks((16 * columns).max(1))) {
        for (column, to) in to.chunks_exact_mut(rows.max(1)).enumerate() {
            let column = from.get(column..).unwrap_or(&[]).iter().step_by(columns);
            to[first..].iter_mut().zip(column).for_each(|(to, &from)| *to = from);
        }
    }
}

/// Returns the size of each part when `count` items are divided into `parts` parts.
fn share(count: usize, parts: usize) -> usize {
    count.div_ceil(parts.max(1)).max(1)
}

/// A matrix product, for any number of rows and columns.
#[derive(Clone, Copy)]
pub(super) struct Multiply<'a> {
    pub(super) left: Left<'a>,
    pub(super) right: &'a [f32],
    /// Distance between rows of the right matrix, or between its columns if it is stored transposed.
    pub(super) right_row: usize,
    pub(super) right_transposed: bool,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) k: usize,
}

impl<'a> Multiply<'a> {
    /// Computes the product, with the rows of the result divided among the threads.
    fn by_rows(self, parallel: bool, n: usize, result: &mut [f32]) {
        let m = result.len() / n;
        let rows = share(m, if parallel { 2 * team::threads() } else { 1 }).next_multiple_of(2);
        team::each(parallel, result.chunks_mut(rows * n).enumerate(), |(index, result)| {
            let left = Left { data: self.left.data.get(index * rows * self.left.row..).unwrap_or(&[]), ..self.left };
            dispatch(Part { product: Multiply { left, ..self }, columns: n, result });
        });
    }

    /// Computes the product, with the columns of the result divided among the threads. The parts are then copied into the result.
    fn by_columns(self, parallel: bool, m: usize, n: usize, result: &mut [f32]) {
        let columns = share(n, if parallel { 4 * team::threads() } else { 1 }).next_multiple_of(64);
        let part = |(index, result): (usize, &mut [f32])| {
            let (first, columns) = (index * columns, result.len() / m);
            let bias = self.bias.map(|bias| &bias[first..][..columns]);
            dispatch(Part { product: Multiply { right: &self.right[first..], bias, ..self }, columns, result });
        };
        if m == 1 {
            return team::each(parallel, result.chunks_mut(columns).enumerate(), part);
        }
        scratch::with(m * n, |parts| {
            team::each(parallel, parts.chunks_mut(m * columns).enumerate(), part);
            for (first, part) in (0..).step_by(columns).zip(parts.chunks(m * columns)) {
                let width = part.len() / m;
                for (row, part) in result.chunks_exact_mut(n).zip(part.chunks_exact(width)) {
                    row[first..first + width].copy_from_slice(part);
                }
            }
        });
    }

    /// Calls `work` with the part of the right matrix that starts at row `p` and column `first`. If `pack` is true, this is a
    /// packed copy.
    #[inline(always)]
    fn with_right<S: Simd>(&self, simd: S, pack: bool, [p, first]: [usize; 2], part: [usize; 2], work: impl FnOnce(Right<'_>)) {
        let start = if self.right_transposed { first * self.right_row + p } else { p * self.right_row + first };
        let from = self.right.get(start..).unwrap_or(&[]);
        if !pack {
            return work(Right::matrix(simd, from, self.right_row));
        }
        scratch::with(part[0] * part[1].next_multiple_of(panel::<S>()), |packed| {
            if part[0] > 0 {
                self.pack(from, part, panel::<S>(), packed);
            }
            work(Right { data: packed, row: panel::<S>(), panel: part[0] * panel::<S>() });
        });
    }

    /// Copies the rows and columns at the start of `from` into panels.
    #[inline(always)]
    fn pack(&self, from: &[f32], [rows, columns]: [usize; 2], panel: usize, packed: &mut [f32]) {
        for (first, to) in (0..columns).step_by(panel).zip(packed.chunks_exact_mut(rows * panel)) {
            let width = panel.min(columns - first);
            if self.right_transposed {
                let columns = from[first * self.right_row..].chunks(self.right_row).take(width);
                for (column, from) in columns.enumerate() {
                    to.iter_mut().skip(column).step_by(panel).zip(&from[..rows]).for_each(|(to, &from)| *to = from);
                }
            } else {
                for (row, to) in to.chunks_exact_mut(panel).enumerate() {
                    to[..width].copy_from_slice(&from[row * self.right_row + first..][..width]);
                }
            }
        }
    }
}

/// Part of a product that one thread computes.
pub(super) struct Part<'a, 'r> {
    pub(super) product: Multiply<'a>,
    pub(super) columns: usize,
    pub(super) result: &'r mut [f32],
}

impl WithSimd for Part<'_, '_> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Part { product, columns: n, result } = self;
        let (m, k) = (result.len() / n.max(1), product.k);
        let pack = product.right_transposed || (m > UNPACKED && product.right_row > LONG);
        let [k_part, n_part] = match k * n <= CACHED {
            true => [k, n],
            false if pack => PART,
            // Each row of an unpacked matrix is on another page of memory. A part therefore has few rows, so that the page lookups
            // stay cached.
            false => [48, n],
        };
        for p in (0..k.max(1)).step_by(k_part.max(1)) {
            let length = k_part.min(k - p);
            for first in (0..n).step_by(n_part) {
                let columns = n_part.min(n - first);
                let left = Left { data: product.left.data.get(p * product.left.column..).unwrap_or(&[]), length, ..product.left };
                let start = match product.bias {
                    _ if p > 0 => Start::Result,
                    Some(bias) => Start::Bias(&bias[first..][..columns]),
                    None => Start::Zero,
                };
                let result = &mut result[first..];
                product.with_right(simd, pack, [p, first], [length, columns], |right| {
                    Product { left, right, start, result, stride: n, rows: m, columns }.run(simd);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, same};
    use super::*;

    #[test]
    fn matmul_as_the_portable_kernel() {
        for seed in 0..600 {
            let random = &mut Random::new(seed);
            let large = seed % 50 == 0;
            let mut dim = |most: u32| random.between(0, if large { 600 } else { most });
            let [m, n, k] = [dim(40), dim(70), dim(50)];
            let flags = [random.between(0, 1), random.between(0, 1)];
            let a_dims = if flags[0] == 1 { vec![k, m] } else { vec![m, k] };
            let b_dims = if flags[1] == 1 { vec![n, k] } else { vec![k, n] };
            let (a_batch, b_batch) = match random.between(0, 5) {
                0 if !large => (vec![3], vec![3]),
                1 if !large => (vec![2, 3], vec![3]),
                2 if !large => (vec![2, 1], vec![1, 3]),
                3 if !large => (vec![4], vec![]),
                _ => (vec![], vec![]),
            };
            let (a, b) = (random.tensor(&[a_batch, a_dims].concat()), random.tensor(&[b_batch, b_dims].concat()));
            assert!(same(&MATMUL, &matmul::F32, &flags, &[&a, &b]));
        }
    }

    #[test]
    fn dense_as_the_portable_kernel() {
        for seed in 0..300 {
            let random = &mut Random::new(seed);
            let large = seed % 30 == 0;
            let mut dim = |most: u32| random.between(u32::from(large), if large { 700 } else { most });
            let [m, n, k] = [dim(40), dim(70), dim(50)];
            let transpose = random.between(0, 1);
            let (x, bias) = (random.tensor(&[m, k]), random.tensor(&[n]));
            let kernel = if transpose == 1 { [n, k] } else { [k, n] };
            let kernel = random.tensor(&kernel);
            let inputs = [&x, &kernel, &bias];
            assert!(same(&DENSE, &dense::F32, &[transpose], &inputs[..2 + seed as usize % 2]));
        }
    }
}
