//! Sums, means, maxima and minima of floats over neighbouring axes. The portable kernels compute others.
//!
//! A long sum consists of parts, whose number depends only on the shape. It has the same bits for any number of threads.

use super::math::{Elementary, greater, smaller};
use super::{portable, scratch};
use crate::simd::vectorized;
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{max, mean, min, sum};
use gradlet_core::tensor::Element;
use gradlet_core::{DType, Result};
use std::ops::Add;

/// Smallest number of elements in a part of a sum.
const PART: usize = 1 << 14;
/// Number of parts of a sum that is not long. Each of them needs memory.
const PARTS: usize = 16;
/// Largest number of rows that are added one after the other. The rounding error of a longer sum would grow with their number.
const ROWS: usize = 2048;
/// Number of elements that are added at the same time.
const WIDE: usize = 64;

/// Returns the kernels for one element type.
macro_rules! kernels {
    ($of:ident $dtype:ident) => {
        [
            Kernel { def: &sum::DEF, dtype: DType::$dtype, run: |call| reduce(call, &sum::$dtype, add::<$of>(), |sum, _| sum) },
            Kernel {
                def: &mean::DEF,
                dtype: DType::$dtype,
                run: |call| reduce(call, &mean::$dtype, add::<$of>(), |sum, count| sum / count as $of),
            },
            Kernel { def: &max::DEF, dtype: DType::$dtype, run: |call| reduce(call, &max::$dtype, greatest::<$of>(), |most, _| most) },
            Kernel { def: &min::DEF, dtype: DType::$dtype, run: |call| reduce(call, &min::$dtype, smallest::<$of>(), |least, _| least) },
        ]
    };
}

/// Kernels for f32.
pub static SINGLE: [Kernel; 4] = kernels!(f32 F32);
/// Kernels for f64.
pub static DOUBLE: [Kernel; 4] = kernels!(f64 F64);

/// A function that combines two elements, in any order, and the element that it leaves the other unchanged with.
#[derive(Clone, Copy)]
pub struct Fold<T, F> {
    start: T,
    f: F,
}

/// Returns the fold that adds.
pub fn add<T: Element + Add<Output = T>>() -> Fold<T, impl Fn(T, T) -> T + Copy + Sync> {
    Fold { start: T::zeroed(), f: |a, b| a + b }
}

fn greatest<T: Elementary>() -> Fold<T, impl Fn(T, T) -> T + Copy + Sync> {
    Fold { start: T::LEAST, f: |a, b| greater(a, b) }
}

fn smallest<T: Elementary>() -> Fold<T, impl Fn(T, T) -> T + Copy + Sync> {
    Fold { start: T::MOST, f: |a, b| smaller(a, b) }
}

/// Reduces input 0 over its axes. `finish` returns a result from the folded elements and their number.
#[inline(always)]
fn reduce<T: Element, F: Fn(T, T) -> T + Copy + Sync>(
    call: &mut Call<'_, '_>,
    kernel: &Kernel,
    fold: Fold<T, F>,
    finish: impl Fn(T, usize) -> T,
) -> Result<()> {
    let x = call.input(0)?;
    let axes = call.attributes.get(1..).unwrap_or_default();
    let elements = x.slice::<T>();
    let results = call.output()?.slice_mut::<T>();
    let sizes = neighbours(x.dims(), axes).filter(|_| !elements.is_empty());
    let Some([outer, count, inner]) = sizes else { return portable(call, kernel) };
    if outer == 1 {
        fold.rows(elements, results);
    } else {
        let block = PART.div_ceil(count * inner);
        let blocks = elements.chunks(block * count * inner).zip(results.chunks_mut(block * inner));
        team::each(elements.len() >= 2 * PART, blocks, |(rows, results)| {
            vectorized!({
                for (rows, results) in rows.chunks_exact(count * inner).zip(results.chunks_exact_mut(inner)) {
                    match results {
                        [result] => *result = fold.all(rows),
                        results => {
                            results.fill(fold.start);
                            fold.columns(rows, inner, 0, results);
                        }
                    }
                }
            });
        });
    }
    results.iter_mut().for_each(|result| *result = finish(*result, count));
    Ok(())
}

/// Returns the sizes of the axes before the reduced ones, of the reduced ones, and of those after them. Returns `None` if the reduced axes
/// are not neighbours. An axis of one element can be of any kind.
fn neighbours(dims: &[u32], axes: &[u32]) -> Option<[usize; 3]> {
    let mut sizes = [1; 3];
    let mut kind = 0;
    for (axis, &dim) in (0..).zip(dims).filter(|(_, dim)| **dim != 1) {
        let reduced = axes.contains(&axis);
        kind = match (kind, reduced) {
            (0, true) => 1,
            (1, false) => 2,
            (2, true) => return None,
            _ => kind,
        };
        sizes[kind] *= dim as usize;
    }
    Some(sizes)
}

impl<T: Element, F: Fn(T, T) -> T + Copy + Sync> Fold<T, F> {
    /// Folds all rows, which are as long as `results`. Threads share the columns of long rows, and the parts of many short ones.
    #[inline(always)]
    fn rows(self, rows: &[T], results: &mut [T]) {
        let (width, parallel) = (results.len(), rows.len() >= 2 * PART);
        results.fill(self.start);
        if width >= PART {
            team::each(parallel, results.chunks_mut(PART / 4).enumerate(), |(index, results)| {
                let first = index * (PART / 4);
                vectorized!({ self.columns(rows, width, first, results) });
            });
            return;
        }
        // Several short rows are folded as one.
        let wide = if width < WIDE { WIDE.div_ceil(width) * width } else { width };
        let part = PART.max(rows.len().div_ceil(PARTS).min(ROWS * wide)).next_multiple_of(wide);
        scratch::with(rows.len().div_ceil(part) * wide, |partial: &mut [T]| {
            partial.fill(self.start);
            team::each(parallel, rows.chunks(part).zip(partial.chunks_exact_mut(wide)), |(rows, results)| {
                vectorized!({ rows.chunks(wide).for_each(|row| self.row(results, row)) });
            });
            let (first, others) = partial.split_at_mut(wide.min(partial.len()));
            others.chunks_exact(wide).for_each(|row| self.row(first, row));
            first.chunks_exact(width).for_each(|row| self.row(results, row));
        });
    }

    /// Folds some columns, from `first` on, of rows that are `width` long. A long column is folded in parts.
    #[inline(always)]
    fn columns(self, rows: &[T], width: usize, first: usize, results: &mut [T]) {
        if rows.len() <= ROWS * width {
            return rows.chunks_exact(width).for_each(|row| self.row(results, &row[first..]));
        }
        let mut partial = vec![self.start; results.len()];
        for part in rows.chunks(ROWS * width) {
            partial.fill(self.start);
            part.chunks_exact(width).for_each(|row| self.row(&mut partial, &row[first..]));
            self.row(results, &partial);
        }
    }

    /// Folds a row into `results`.
    #[inline(always)]
    fn row(self, results: &mut [T], row: &[T]) {
        results.iter_mut().zip(row).for_each(|(result, &x)| *result = (self.f)(*result, x));
    }

    /// Returns all `elements`, folded.
    #[inline(always)]
    pub fn all(self, elements: &[T]) -> T {
        elements.chunks(ROWS * WIDE).map(|part| self.part(part)).fold(self.start, self.f)
    }

    /// Returns a few elements, folded.
    #[inline(always)]
    fn part(self, elements: &[T]) -> T {
        let (blocks, rest) = elements.as_chunks::<WIDE>();
        let mut results = [self.start; WIDE];
        blocks.iter().for_each(|block| self.row(&mut results, block));
        let rest = rest.iter().copied().fold(self.start, self.f);
        if blocks.is_empty() { rest } else { results.into_iter().fold(rest, self.f) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, Value, result, same};
    use super::*;

    const SHAPES: [&[u32]; 15] = [
        &[],
        &[1],
        &[5],
        &[0],
        &[3, 0],
        &[40, 7],
        &[900, 65],
        &[2, 33_000],
        &[9_000, 64],
        &[40, 9_000],
        &[1, 70_000],
        &[5, 6, 7, 8],
        &[20, 30, 1, 64],
        &[3, 1, 700, 1],
        &[2, 5000, 2],
    ];

    #[test]
    fn as_the_portable_kernels() {
        let random = &mut Random::new(1);
        let references: [[&Kernel; 4]; 2] = [[&sum::F32, &mean::F32, &max::F32, &min::F32], [&sum::F64, &mean::F64, &max::F64, &min::F64]];
        for (kernel, reference) in SINGLE.iter().chain(&DOUBLE).zip(references.into_iter().flatten()) {
            for dims in SHAPES {
                let [x, tame] = [1, 0].map(|odd| random.numbers(kernel.dtype, dims, odd));
                let rank = dims.len() as u32;
                for chosen in 0..1u32 << rank {
                    let axes: Vec<u32> = (0..rank).filter(|axis| chosen >> axis & 1 == 1).collect();
                    for x in [&x, &tame] {
                        assert!(same(kernel, reference, &[&[chosen % 2], &axes[..]].concat(), &[x]));
                    }
                }
            }
        }
    }

    /// A sum of ones, one after the other, would stop at 2^24.
    #[test]
    fn long_sums_count_every_element() {
        for (dims, axes) in [([2, 17_000_000, 2], 1), ([1, 34_000_000, 1], 1), ([1300, 1, 17_000], 0)] {
            let mut ones = Value::zeros(DType::F32, &dims);
            ones.floats_mut().fill(1.0);
            let sums = result(&SINGLE[0], &[0, axes], &[&ones]);
            assert!(sums.floats().iter().all(|&sum| sum == dims[axes as usize] as f32), "{dims:?}");
        }
    }
}
