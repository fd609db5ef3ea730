//! Max pooling and its gradient, one vector of channels at a time.

use super::portable;
use super::window::{Axis, dims4, pool_axes};
use crate::simd::{Simd, WithSimd, dispatch};
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{max_pool2d, max_pool2d_grad};
use gradlet_core::{DType, Result};
use std::ops::Range;

/// Number of elements below which one thread is faster than several.
const ALONE: usize = 1 << 15;

/// Kernel of [`max_pool2d`].
pub static MAX_POOL2D: Kernel = Kernel { def: &max_pool2d::DEF, dtype: DType::F32, run: forward };
/// Kernel of [`max_pool2d_grad`].
pub static MAX_POOL2D_GRAD: Kernel = Kernel { def: &max_pool2d_grad::DEF, dtype: DType::F32, run: grad };

fn forward(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    let pool = Pool::new(call.attributes()?, dims4(x.dims())?, dims4(call.output()?.dims())?);
    if pool.image == 0 || pool.result == 0 {
        return portable(call, &max_pool2d::F32);
    }
    let images = x.slice::<f32>().chunks_exact(pool.image);
    let results = call.output()?.slice_mut::<f32>().chunks_exact_mut(pool.result);
    team::each(x.elements() > ALONE, images.zip(results), |(x, y)| dispatch(Forward { pool, x, y }));
    Ok(())
}

fn grad(call: &mut Call<'_, '_>) -> Result<()> {
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let pool = Pool::new(call.attributes()?, dims4(x.dims())?, dims4(dy.dims())?);
    if pool.image == 0 || pool.result == 0 {
        return portable(call, &max_pool2d_grad::F32);
    }
    let images = x.slice::<f32>().chunks_exact(pool.image).zip(dy.slice::<f32>().chunks_exact(pool.result));
    let results = call.output()?.slice_mut::<f32>().chunks_exact_mut(pool.image);
    team::each(x.elements() > ALONE, images.zip(results), |((x, dy), dx)| dispatch(Grad { pool, x, dy, dx }));
    Ok(())
}

/// Geometry of a pooling of images.
#[derive(Clone, Copy)]
struct Pool {
    axes: [Axis; 2],
    channels: usize,
    /// Number of elements of an input image. `result` is the number of elements of an output image.
    image: usize,
    result: usize,
}

impl Pool {
    fn new(attributes: max_pool2d::Attributes, [_, h, w, c]: [usize; 4], [_, oh, ow, _]: [usize; 4]) -> Pool {
        Pool { axes: pool_axes(&attributes, [h, w], [oh, ow]), channels: c, image: h * w * c, result: oh * ow * c }
    }

    /// Calls `work` with each window of an input image, and the offset of the window's result in the output image.
    #[inline(always)]
    fn each_window(&self, mut work: impl FnMut(Window, usize)) {
        let [down, across] = self.axes;
        let covered = |axis: Axis, at: usize| -> Range<usize> {
            let start = at * axis.stride;
            start.saturating_sub(axis.before)..(start + axis.taps).saturating_sub(axis.before).min(axis.input)
        };
        for row in 0..down.output {
            let rows = covered(down, row);
            for column in 0..across.output {
                let columns = covered(across, column);
                let first = (rows.start * across.input + columns.start) * self.channels;
                let window = Window { first, size: [rows.len(), columns.len()], steps: [across.input * self.channels, self.channels] };
                work(window, (row * across.output + column) * self.channels);
            }
        }
    }

    /// Calls `work` for each vector of channels, with the index of its first channel and its number of channels.
    #[inline(always)]
    fn each_vector<S: Simd>(&self, _: S, mut work: impl FnMut(usize, usize)) {
        for channel in (0..self.channels).step_by(S::LANES) {
            work(channel, (self.channels - channel).min(S::LANES));
        }
    }
}

/// Positions of the taps of a window on an image.
#[derive(Clone, Copy)]
struct Window {
    first: usize,
    size: [usize; 2],
    steps: [usize; 2],
}

impl Window {
    /// Calls `work` with the offset of each tap, in row-major order.
    #[inline(always)]
    fn each_tap(self, mut work: impl FnMut(usize)) {
        for row in 0..self.size[0] {
            for column in 0..self.size[1] {
                work(self.first + row * self.steps[0] + column * self.steps[1]);
            }
        }
    }
}

/// Returns true where `x` replaces `best`: it is greater, or it is the first NaN.
#[inline(always)]
fn beats<S: Simd>(simd: S, x: S::Vector, best: S::Vector) -> S::Mask {
    simd.and(simd.not_less_or_equal(x, best), simd.equal(best, best))
}

#[inline(always)]
fn load<S: Simd>(simd: S, from: &[f32]) -> S::Vector {
    if from.len() == S::LANES { simd.load(from) } else { simd.load_part(from) }
}

#[inline(always)]
fn store<S: Simd>(simd: S, to: &mut [f32], vector: S::Vector) {
    if to.len() == S::LANES { simd.store(to, vector) } else { simd.store_part(to, vector) }
}

struct Forward<'a> {
    pool: Pool,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Forward { pool, x, y } = self;
        pool.each_window(|window, result| {
            pool.each_vector(simd, |channel, lanes| {
                let mut best = simd.splat(f32::NEG_INFINITY);
                window.each_tap(|tap| {
                    let x = load(simd, &x[tap + channel..][..lanes]);
                    best = simd.select(beats(simd, x, best), x, best);
                });
                store(simd, &mut y[result + channel..][..lanes], best);
            });
        });
    }
}

struct Grad<'a> {
    pool: Pool,
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for Grad<'_> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Grad { pool, x, dy, dx } = self;
        let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
        dx.fill(0.0);
        pool.each_window(|window, result| {
            pool.each_vector(simd, |channel, lanes| {
                let dy = load(simd, &dy[result + channel..][..lanes]);
                let mut best = load(simd, &x[window.first + channel..][..lanes]);
                // Index of the best tap so far, and index of the current tap.
                let (mut place, mut number) = (zero, zero);
                window.each_tap(|tap| {
                    let x = load(simd, &x[tap + channel..][..lanes]);
                    let wins = beats(simd, x, best);
                    best = simd.select(wins, x, best);
                    place = simd.select(wins, number, place);
                    number = simd.add(number, one);
                });
                number = zero;
                window.each_tap(|tap| {
                    let dx = &mut dx[tap + channel..][..lanes];
                    let share = simd.select(simd.equal(place, number), dy, zero);
                    let sum = simd.add(load(simd, dx), share);
                    store(simd, dx, sum);
                    number = simd.add(number, one);
                });
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, result, same};
    use super::*;

    #[test]
    fn as_the_portable_kernels() {
        for seed in 0..500 {
            let random = &mut Random::new(seed);
            let dims = [random.between(0, 3), random.between(1, 9), random.between(1, 9), random.between(0, 40)];
            let mut x = random.tensor(&dims);
            // Makes some elements equal, and some NaN or infinite.
            x.floats_mut().iter_mut().for_each(|x| *x = (*x * 3.0).round());
            x.floats_mut().iter_mut().step_by(37).for_each(|x| *x = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY][seed as usize % 3]);
            let words = [random.between(1, 4), random.between(1, 4), random.between(1, 3), random.between(1, 3), random.between(0, 1)];
            if same(&MAX_POOL2D, &max_pool2d::F32, &words, &[&x]) {
                let dy = random.tensor(result(&MAX_POOL2D, &words, &[&x]).dims());
                assert!(same(&MAX_POOL2D_GRAD, &max_pool2d_grad::F32, &words, &[&x, &dy]));
            }
        }
    }
}
