//! Softmax, its logarithm, and the cross entropy of logits and labels, along the last axis. The portable kernels compute others.

use super::math::Elementary;
use super::portable;
use super::reduce::add;
use crate::simd::vectorized;
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{log_softmax, softmax, sparse_softmax_cross_entropy, sparse_softmax_cross_entropy_grad};
use gradlet_core::tensor::TensorView;
use gradlet_core::{DType, Result};

/// Number of elements below which one thread is faster than several.
const ALONE: usize = 1 << 14;
/// Number of elements that a thread computes at a time.
const BLOCK: usize = 1 << 12;

/// Returns the kernels for one element type.
macro_rules! kernels {
    ($of:ident $dtype:ident) => {
        [
            Kernel { def: &softmax::DEF, dtype: DType::$dtype, run: |call| run_softmax::<$of>(call, &softmax::$dtype) },
            Kernel { def: &log_softmax::DEF, dtype: DType::$dtype, run: |call| run_log_softmax::<$of>(call, &log_softmax::$dtype) },
            Kernel {
                def: &sparse_softmax_cross_entropy::DEF,
                dtype: DType::$dtype,
                run: |call| cross_entropy::<$of>(call, &sparse_softmax_cross_entropy::$dtype),
            },
            Kernel {
                def: &sparse_softmax_cross_entropy_grad::DEF,
                dtype: DType::$dtype,
                run: |call| cross_entropy_grad::<$of>(call, &sparse_softmax_cross_entropy_grad::$dtype),
            },
        ]
    };
}

/// Kernels for f32.
pub static SINGLE: [Kernel; 4] = kernels!(f32 F32);
/// Kernels for f64.
pub static DOUBLE: [Kernel; 4] = kernels!(f64 F64);

/// Replaces each lane of input 0 with what `of` makes of it.
#[inline(always)]
fn lanes<T: Elementary>(call: &mut Call<'_, '_>, kernel: &Kernel, of: impl Fn(&mut [T]) + Copy + Sync) -> Result<()> {
    let softmax::Attributes { axis } = call.attributes()?;
    let x = call.input(0)?;
    let lane = x.dims().last().map_or(0, |&dim| dim as usize);
    if axis as usize + 1 != x.dims().len() || lane == 0 {
        return portable(call, kernel);
    }
    each(
        x.slice::<T>(),
        call.output()?.slice_mut::<T>(),
        lane,
        #[inline(always)]
        |_, lane| of(lane),
    );
    Ok(())
}

/// Copies `from` to `to`, unless `from` is empty because the elements are there, and calls `work` with each lane of `to` and its index.
#[inline(always)]
fn each<T: Elementary>(from: &[T], to: &mut [T], lane: usize, work: impl Fn(usize, &mut [T]) + Copy + Sync) {
    let count = BLOCK.div_ceil(lane);
    team::each(to.len() >= ALONE, to.chunks_mut(count * lane).enumerate(), |(block, to)| {
        let first = block * count;
        if let Some(from) = from.get(first * lane..first * lane + to.len()) {
            to.copy_from_slice(from);
        }
        vectorized!({
            for (index, lane) in (first..).zip(to.chunks_exact_mut(lane)) {
                work(index, lane);
            }
        });
    });
}

#[inline(always)]
fn greatest<T: Elementary>(lane: &[T]) -> T {
    lane.iter().fold(T::LEAST, |most, &x| if x > most { x } else { most })
}

/// Replaces each element `x` with `exp (x - most)`. Returns the sum.
#[inline(always)]
fn exponentials<T: Elementary>(lane: &mut [T]) -> T {
    let most = greatest(lane);
    for x in &mut *lane {
        *x = (*x - most).exp();
    }
    add().all(lane)
}

fn run_softmax<T: Elementary>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    lanes(
        call,
        kernel,
        #[inline(always)]
        |lane: &mut [T]| {
            let sum = exponentials(lane);
            for x in lane {
                *x = *x / sum;
            }
        },
    )
}

fn run_log_softmax<T: Elementary>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    lanes(
        call,
        kernel,
        #[inline(always)]
        |lane: &mut [T]| {
            let most = greatest(lane);
            let shift = log_sum(lane, most);
            for x in lane {
                *x = (*x - most) - shift;
            }
        },
    )
}

/// Returns `ln Σ exp (x - most)`.
#[inline(always)]
fn log_sum<T: Elementary>(lane: &[T], most: T) -> T {
    let mut sum = T::zeroed();
    let mut powers = [T::zeroed(); 256];
    for part in lane.chunks(powers.len()) {
        let powers = &mut powers[..part.len()];
        for (power, &x) in powers.iter_mut().zip(part) {
            *power = (x - most).exp();
        }
        sum = sum + add().all(powers);
    }
    sum.ln()
}

/// The labels of the lanes, i32 or i64. Each is a class.
#[derive(Clone, Copy)]
struct Labels<'a> {
    narrow: &'a [i32],
    wide: &'a [i64],
}

impl<'a> Labels<'a> {
    /// Returns `None` if a label is not one of `classes` classes.
    fn new(labels: &TensorView<'a>, classes: usize) -> Option<Labels<'a>> {
        let is_class = |label: i64| (0..classes as i64).contains(&label);
        let all = match labels.dtype() {
            DType::I32 => Labels { narrow: labels.slice(), wide: &[] },
            _ => Labels { narrow: &[], wide: labels.slice() },
        };
        let valid = all.narrow.iter().all(|&label| is_class(label.into())) && all.wide.iter().all(|&label| is_class(label));
        valid.then_some(all)
    }

    #[inline(always)]
    fn get(&self, lane: usize) -> usize {
        self.narrow.get(lane).map_or_else(|| self.wide[lane] as usize, |&label| label as usize)
    }
}

fn cross_entropy<T: Elementary>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let x = call.input(0)?;
    let classes = x.dims().last().map_or(0, |&dim| dim as usize);
    // The portable kernel returns the error for a label that is not a class.
    let labels = Labels::new(&call.input(1)?, classes).filter(|_| classes > 0);
    let Some(labels) = labels else { return portable(call, kernel) };
    let (logits, losses) = (x.slice::<T>(), call.output()?.slice_mut::<T>());
    let count = BLOCK.div_ceil(classes);
    let blocks = losses.chunks_mut(count).zip(logits.chunks(count * classes)).enumerate();
    team::each(logits.len() >= ALONE, blocks, |(block, (losses, logits))| {
        vectorized!({
            for ((index, loss), lane) in (block * count..).zip(losses).zip(logits.chunks_exact(classes)) {
                let most = greatest(lane);
                *loss = log_sum(lane, most) - (lane[labels.get(index)] - most);
            }
        });
    });
    Ok(())
}

fn cross_entropy_grad<T: Elementary>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let x = call.input(0)?;
    let classes = x.dims().last().map_or(0, |&dim| dim as usize);
    let labels = Labels::new(&call.input(1)?, classes).filter(|_| classes > 0);
    let Some(labels) = labels else { return portable(call, kernel) };
    let scales = call.input(2)?.slice::<T>();
    each(
        x.slice::<T>(),
        call.output()?.slice_mut::<T>(),
        classes,
        #[inline(always)]
        |index, lane| {
            let (sum, scale, label) = (exponentials(lane), scales[index], labels.get(index));
            let share = lane[label] / sum;
            lane.iter_mut().for_each(|x| *x = *x / sum * scale);
            lane[label] = (share - T::ONE) * scale;
        },
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, Value, same};
    use super::*;

    #[test]
    fn as_the_portable_kernels() {
        let random = &mut Random::new(1);
        let shapes: [&[u32]; 10] =
            [&[1], &[5], &[0], &[3, 0], &[40, 7], &[900, 65], &[2, 33_000], &[1, 70_000], &[5, 6, 7, 8], &[300, 1000]];
        let references: [[&Kernel; 4]; 2] = [
            [&softmax::F32, &log_softmax::F32, &sparse_softmax_cross_entropy::F32, &sparse_softmax_cross_entropy_grad::F32],
            [&softmax::F64, &log_softmax::F64, &sparse_softmax_cross_entropy::F64, &sparse_softmax_cross_entropy_grad::F64],
        ];
        for (kernels, references) in [&SINGLE, &DOUBLE].into_iter().zip(references) {
            for dims in shapes {
                for odd in [0, 1] {
                    let x = random.numbers(kernels[0].dtype, dims, odd);
                    for (kernel, reference) in kernels.iter().zip(references).take(2) {
                        assert!((0..dims.len() as u32).all(|axis| same(kernel, reference, &[axis], &[&x])));
                    }
                    let (batch, classes) = (&dims[..dims.len() - 1], dims[dims.len() - 1]);
                    if classes == 0 {
                        continue;
                    }
                    let scales = random.numbers(kernels[0].dtype, batch, odd);
                    for dtype in [DType::I32, DType::I64] {
                        let mut labels = Value::zeros(dtype, batch);
                        let size = dtype.size();
                        for label in labels.bytes_mut().chunks_exact_mut(size) {
                            label[..4].copy_from_slice(&random.between(0, classes - 1).to_le_bytes());
                        }
                        assert!(same(&kernels[2], references[2], &[], &[&x, &labels]));
                        assert!(same(&kernels[3], references[3], &[], &[&x, &labels, &scales]));
                    }
                }
            }
        }
    }
}
