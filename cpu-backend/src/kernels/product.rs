//! The product of two matrices, tile by tile. All matrix products and convolutions use it.
//!
//! A tile is a part of the result, some rows high and up to two vectors wide. It stays in registers while the products of a column of the
//! left matrix and a row of the right matrix are added to it. Elements of the left matrix are broadcast from memory, so the left
//! matrix may be any strided view, such as the windows of a convolution. Rows of the right matrix are loaded as vectors.

use crate::simd::{Simd, WithSimd};

/// Maximum number of rows of a tile.
const HEIGHT: usize = 14;

/// The left matrix. Row `i` starts at `i · row`. Its columns come in runs of `length` elements that are `column` apart. The runs
/// are nested in two levels of (count, distance), the outer level first. Either `row` or `column` is 1.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) runs: [(usize, usize); 2],
    pub(super) length: usize,
}

/// The right matrix. Its rows are `row` apart. Its columns are divided into panels of [`panel`] columns, which are `panel` apart.
#[derive(Clone, Copy)]
pub(super) struct Right<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) panel: usize,
}

/// Initial value of the sums that become the elements of the result.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    Zero,
    /// The elements that the result already holds.
    Result,
    /// The bias of each column.
    Bias(&'a [f32]),
}

/// Product `result[rows, columns] = start + left · right`.
pub(super) struct Product<'a> {
    pub(super) left: Left<'a>,
    pub(super) right: Right<'a>,
    pub(super) start: Start<'a>,
    pub(super) result: &'a mut [f32],
    /// Distance between rows of the result.
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl<'a> Left<'a> {
    /// Creates a matrix of `columns` columns. One of the distances `row` and `column` is 1.
    pub(super) fn matrix(data: &'a [f32], [row, column]: [usize; 2], columns: usize) -> Left<'a> {
        Left { data, row, column, runs: [(1, 0); 2], length: columns }
    }
}

impl<'a> Right<'a> {
    /// Creates a matrix whose rows are `row` apart.
    pub(super) fn matrix<S: Simd>(_: S, data: &'a [f32], row: usize) -> Right<'a> {
        Right { data, row, panel: panel::<S>() }
    }
}

/// Returns the number of columns of a panel: two vectors.
pub(super) const fn panel<S: Simd>() -> usize {
    2 * S::LANES
}

impl Product<'_> {
    /// Computes the product.
    #[inline(always)]
    pub(super) fn run<S: Simd>(mut self, simd: S) {
        let (mut row, panel) = (0, panel::<S>());
        while row < self.rows {
            let rows = height::<S>(self.rows - row);
            let whole = self.columns / panel * panel;
            for column in (0..whole).step_by(panel) {
                self.tile::<S, 2, false>(simd, [row, column], rows);
            }
            match self.columns - whole {
                0 => (),
                rest if rest > S::LANES => self.tile::<S, 2, true>(simd, [row, whole], rows),
                _ => self.tile::<S, 1, true>(simd, [row, whole], rows),
            }
            row += rows;
        }
    }

    /// Computes the tile of `rows` rows and `N` vectors whose upper left corner is at row and column `at` of the result. If `PART` is
    /// true, the last vector is used only partly.
    #[inline(always)]
    fn tile<S: Simd, const N: usize, const PART: bool>(&mut self, simd: S, at: [usize; 2], rows: usize) {
        macro_rules! tile {
            ($($rows:literal)*) => {
                match (rows, self.left.row == 1) {
                    $(
                        ($rows, true) => simd.vectorize(Tile::<$rows, N, PART, false> { product: self, at }),
                        ($rows, false) => simd.vectorize(Tile::<$rows, N, PART, true> { product: self, at }),
                    )*
                    _ => unreachable!("no tile is {rows} high"),
                }
            };
        }
        if S::REGISTERS >= 32 { tile!(1 2 4 6 8 10 12 14) } else { tile!(1 2 4 6) }
    }
}

/// Returns the height of the next tile, if `rows` rows are left. It is 1 or an even number, limited by the number of registers.
fn height<S: Simd>(rows: usize) -> usize {
    let most = if S::REGISTERS >= 32 { HEIGHT } else { 6 };
    if rows > 1 { rows.min(most) / 2 * 2 } else { 1 }
}

/// Tile of `M` rows by `N` vectors. If `PART` is true, the last vector may be used only partly. If `ROWS` is true, the left matrix is
/// stored row by row, otherwise column by column.
struct Tile<'t, 'a, const M: usize, const N: usize, const PART: bool, const ROWS: bool> {
    product: &'t mut Product<'a>,
    at: [usize; 2],
}

impl<const M: usize, const N: usize, const PART: bool, const ROWS: bool> WithSimd for Tile<'_, '_, M, N, PART, ROWS> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Tile { product, at: [i, j] } = self;
        let Left { data, row, column, runs: [(outer, outer_step), (inner, inner_step)], length } = product.left;
        let width = if PART { (product.columns - j).min(N * S::LANES) } else { N * S::LANES };
        let right = product.right.data.get(j / panel::<S>() * product.right.panel + j % panel::<S>()..).unwrap_or(&[]);
        let mut sums = product.begin::<S, M, N, PART>(simd, [i, j], width);
        let mut p = 0;
        for run in 0..outer * inner {
            let start = i * row + run / inner * outer_step + run % inner * inner_step;
            if ROWS {
                let rows: [&[f32]; M] = std::array::from_fn(|r| &data[start + r * row..][..length]);
                // One element of each row at a time.
                #[allow(clippy::needless_range_loop)]
                for q in 0..length {
                    let right = load::<S, N, PART>(simd, &right[p..p + width]);
                    add::<S, M, N>(simd, &mut sums, &right, |r| rows[r][q]);
                    p += product.right.row;
                }
            } else {
                let mut at = start;
                for _ in 0..length {
                    let right = load::<S, N, PART>(simd, &right[p..p + width]);
                    let column_of: &[f32; M] = data[at..at + M].try_into().unwrap_or(&[0.0; M]);
                    add::<S, M, N>(simd, &mut sums, &right, |r| column_of[r]);
                    p += product.right.row;
                    at += column;
                }
            }
        }
        product.end::<S, M, N, PART>(simd, [i, j], width, sums);
    }
}

/// Computes `sums[r] += left(r) · right`.
#[inline(always)]
fn add<S: Simd, const M: usize, const N: usize>(
    simd: S,
    sums: &mut [[S::Vector; N]; M],
    right: &[S::Vector; N],
    left: impl Fn(usize) -> f32,
) {
    for (r, sums) in sums.iter_mut().enumerate() {
        let left = simd.splat(left(r));
        for (sum, &right) in sums.iter_mut().zip(right) {
            *sum = simd.mul_add(left, right, *sum);
        }
    }
}

#[inline(always)]
fn load<S: Simd, const N: usize, const PART: bool>(simd: S, from: &[f32]) -> [S::Vector; N] {
    // The closure of `array::from_fn` is not always inlined, and is then compiled without the vector instructions.
    let mut vectors = [simd.splat(0.0); N];
    for (n, vector) in vectors.iter_mut().enumerate() {
        let from = &from[n * S::LANES..];
        *vector = if PART && n == N - 1 { simd.load_part(from) } else { simd.load(from) };
    }
    vectors
}

#[inline(always)]
fn store<S: Simd, const N: usize, const PART: bool>(simd: S, to: &mut [f32], vectors: [S::Vector; N]) {
    for (n, vector) in vectors.into_iter().enumerate() {
        let to = &mut to[n * S::LANES..];
        if PART && n == N - 1 {
            simd.store_part(to, vector);
        } else {
            simd.store(to, vector);
        }
    }
}

impl Product<'_> {
    /// Returns the initial sums of a tile.
    #[inline(always)]
    fn begin<S: Simd, const M: usize, const N: usize, const PART: bool>(
        &self,
        simd: S,
        [i, j]: [usize; 2],
        width: usize,
    ) -> [[S::Vector; N]; M] {
        match self.start {
            Start::Zero => [[simd.splat(0.0); N]; M],
            Start::Bias(bias) => [load::<S, N, PART>(simd, &bias[j..j + width]); M],
            Start::Result => {
                let mut sums = [[simd.splat(0.0); N]; M];
                for (r, sums) in sums.iter_mut().enumerate() {
                    *sums = load::<S, N, PART>(simd, &self.result[(i + r) * self.stride + j..][..width]);
                }
                sums
            }
        }
    }

    /// Writes the sums of a tile to the result.
    #[inline(always)]
    fn end<S: Simd, const M: usize, const N: usize, const PART: bool>(
        &mut self,
        simd: S,
        [i, j]: [usize; 2],
        width: usize,
        sums: [[S::Vector; N]; M],
    ) {
        for (r, sums) in sums.into_iter().enumerate() {
            store::<S, N, PART>(simd, &mut self.result[(i + r) * self.stride + j..][..width], sums);
        }
    }
}
