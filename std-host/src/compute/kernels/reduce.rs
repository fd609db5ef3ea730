//! Sums and means of floats over neighbouring axes, and softmax along the last axis. The portable kernels compute others.
//!
//! A long sum consists of parts, whose number depends only on the shape. It has the same bits for any number of threads.

use super::{math, portable, scratch};
use crate::compute::simd::dispatch;
use crate::compute::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{mean, softmax, sum};
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

/// Kernels of sums, means and softmax.
pub static KERNELS: [Kernel; 5] = [
    Kernel { def: &sum::DEF, dtype: DType::F32, run: |call| reduce(call, &sum::F32, |sum: f32, _| sum) },
    Kernel { def: &sum::DEF, dtype: DType::F64, run: |call| reduce(call, &sum::F64, |sum: f64, _| sum) },
    Kernel { def: &mean::DEF, dtype: DType::F32, run: |call| reduce(call, &mean::F32, |sum: f32, count| sum / count as f32) },
    Kernel { def: &mean::DEF, dtype: DType::F64, run: |call| reduce(call, &mean::F64, |sum: f64, count| sum / count as f64) },
    Kernel { def: &softmax::DEF, dtype: DType::F32, run: run_softmax },
];

/// Reduces input 0 over its axes. `finish` returns a result from the sum and the number of its elements.
fn reduce<T: Element + Add<Output = T>>(call: &mut Call<'_, '_>, kernel: &Kernel, finish: impl Fn(T, usize) -> T) -> Result<()> {
    let x = call.input(0)?;
    let axes = call.attributes.get(1..).unwrap_or_default();
    let elements = x.slice::<T>();
    let results = call.output()?.slice_mut::<T>();
    let sizes = neighbours(x.dims(), axes).filter(|_| !elements.is_empty());
    let Some([outer, count, inner]) = sizes else { return portable(call, kernel) };
    if outer == 1 {
        add_rows(elements, results);
    } else {
        let block = PART.div_ceil(count * inner);
        let blocks = elements.chunks(block * count * inner).zip(results.chunks_mut(block * inner));
        team::each(elements.len() >= 2 * PART, blocks, |(rows, results)| {
            dispatch(
                #[inline(always)]
                || {
                    for (rows, sums) in rows.chunks_exact(count * inner).zip(results.chunks_exact_mut(inner)) {
                        match sums {
                            [sum] => *sum = add_all(rows),
                            sums => {
                                sums.fill(T::zeroed());
                                rows.chunks_exact(inner).for_each(|row| add_row(sums, row));
                            }
                        }
                    }
                },
            );
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

/// Adds all rows, which are as long as `sums`. Threads share the columns of long rows, and the parts of many short ones.
fn add_rows<T: Element + Add<Output = T>>(rows: &[T], sums: &mut [T]) {
    let (width, parallel) = (sums.len(), rows.len() >= 2 * PART);
    sums.fill(T::zeroed());
    if width >= PART {
        team::each(parallel, sums.chunks_mut(PART / 4).enumerate(), |(index, sums)| {
            let first = index * (PART / 4);
            dispatch(
                #[inline(always)]
                || rows.chunks_exact(width).for_each(|row| add_row(sums, &row[first..])),
            );
        });
        return;
    }
    // Several short rows are added as one.
    let wide = if width < WIDE { WIDE.div_ceil(width) * width } else { width };
    let part = PART.max(rows.len().div_ceil(PARTS).min(ROWS * wide)).next_multiple_of(wide);
    scratch::with(rows.len().div_ceil(part) * wide, |partial: &mut [T]| {
        partial.fill(T::zeroed());
        team::each(parallel, rows.chunks(part).zip(partial.chunks_exact_mut(wide)), |(rows, sums)| {
            dispatch(
                #[inline(always)]
                || rows.chunks(wide).for_each(|row| add_row(sums, row)),
            );
        });
        let (first, others) = partial.split_at_mut(wide.min(partial.len()));
        others.chunks_exact(wide).for_each(|row| add_row(first, row));
        first.chunks_exact(width).for_each(|row| add_row(sums, row));
    });
}

/// Adds a row to `sums`.
#[inline(always)]
fn add_row<T: Element + Add<Output = T>>(sums: &mut [T], row: &[T]) {
    sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum = *sum + x);
}

/// Returns the sum of `elements`.
#[inline(always)]
fn add_all<T: Element + Add<Output = T>>(elements: &[T]) -> T {
    elements.chunks(ROWS * WIDE).map(add_part).fold(T::zeroed(), |sum, x| sum + x)
}

/// Returns the sum of a few elements.
#[inline(always)]
fn add_part<T: Element + Add<Output = T>>(elements: &[T]) -> T {
    let (blocks, rest) = elements.as_chunks::<WIDE>();
    let mut sums = [T::zeroed(); WIDE];
    blocks.iter().for_each(|block| add_row(&mut sums, block));
    let rest = rest.iter().fold(T::zeroed(), |sum, &x| sum + x);
    if blocks.is_empty() { rest } else { sums.iter().fold(rest, |sum, &x| sum + x) }
}

fn run_softmax(call: &mut Call<'_, '_>) -> Result<()> {
    let softmax::Attributes { axis } = call.attributes()?;
    let x = call.input(0)?;
    let lane = x.dims().last().map_or(0, |&dim| dim as usize);
    if axis as usize + 1 != x.dims().len() || lane == 0 {
        return portable(call, &softmax::F32);
    }
    let (from, to) = (x.slice::<f32>(), call.output()?.slice_mut::<f32>());
    let block = PART.div_ceil(4).div_ceil(lane) * lane;
    team::each(to.len() >= PART, to.chunks_mut(block).enumerate(), |(index, to)| {
        if let Some(from) = from.get(index * block..index * block + to.len()) {
            to.copy_from_slice(from);
        }
        dispatch(
            #[inline(always)]
            || to.chunks_exact_mut(lane).for_each(softmax_of),
        );
    });
    Ok(())
}

/// Replaces a lane with its softmax.
#[inline(always)]
fn softmax_of(lane: &mut [f32]) {
    let most = lane.iter().fold(f32::NEG_INFINITY, |most, &x| if x > most { x } else { most });
    lane.iter_mut().for_each(|x| *x = math::exp(*x - most));
    let sum = add_all(lane);
    lane.iter_mut().for_each(|x| *x /= sum);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, same};
    use super::*;

    const SHAPES: [&[u32]; 14] = [
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
    ];

    #[test]
    fn as_the_portable_kernels() {
        let random = &mut Random::new(1);
        let references = [&sum::F32, &sum::F64, &mean::F32, &mean::F64, &softmax::F32];
        for (kernel, reference) in KERNELS.iter().zip(references) {
            for dims in SHAPES {
                let [x, tame] = [1, 0].map(|odd| random.numbers(kernel.dtype, dims, odd));
                let rank = dims.len() as u32;
                if kernel.def.name == "softmax" {
                    assert!(dims.is_empty() || (0..rank).all(|axis| same(kernel, reference, &[axis], &[&x])));
                    continue;
                }
                for chosen in 0..1u32 << rank {
                    let axes: Vec<u32> = (0..rank).filter(|axis| chosen >> axis & 1 == 1).collect();
                    for x in [&x, &tame] {
                        assert!(same(kernel, reference, &[&[chosen % 2], &axes[..]].concat(), &[x]));
                    }
                }
            }
        }
    }
}
