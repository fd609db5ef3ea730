//! Average pooling and its gradient: a depthwise convolution with weights of 1, and a division by the size of each window.

use super::depthwise::{Channels, Meetings, Sums};
use super::window::{dims4, pool_axes};
use super::{portable, scratch};
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{avg_pool2d, avg_pool2d_grad};
use gradlet_core::{DType, Result};

/// Number of elements below which one thread is faster than several.
const ALONE: usize = 1 << 15;

/// Kernels of [`avg_pool2d`], for f32 and f64.
pub static AVG_POOL2D: [Kernel; 2] = [
    Kernel { def: &avg_pool2d::DEF, dtype: DType::F32, run: |call| forward::<f32>(call, &avg_pool2d::F32) },
    Kernel { def: &avg_pool2d::DEF, dtype: DType::F64, run: |call| forward::<f64>(call, &avg_pool2d::F64) },
];
/// Kernels of [`avg_pool2d_grad`], for f32 and f64.
pub static AVG_POOL2D_GRAD: [Kernel; 2] = [
    Kernel { def: &avg_pool2d_grad::DEF, dtype: DType::F32, run: |call| grad::<f32>(call, &avg_pool2d_grad::F32) },
    Kernel { def: &avg_pool2d_grad::DEF, dtype: DType::F64, run: |call| grad::<f64>(call, &avg_pool2d_grad::F64) },
];

fn forward<T: Channels>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let x = call.input(0)?;
    let ([_, h, w, c], [n, oh, ow, _]) = (dims4(x.dims())?, dims4(call.output()?.dims())?);
    if n * oh * ow * c == 0 || h * w == 0 {
        return portable(call, kernel);
    }
    let axes = pool_axes(&call.attributes()?, [h, w], [oh, ow]);
    let meetings = axes.map(|axis| Meetings::new(axis, axis.output, |position, result, _| (result, position, 0)));
    let y = call.output()?.slice_mut::<T>();
    let sums = Sums { images: x.slice(), size: [h, w], meetings, filter: &vec![T::ONE; c], taps: 0, bias: None, channels: c };
    sums.compute(y);
    divide(y, &sums.meetings, c);
    Ok(())
}

fn grad<T: Channels>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let dy = call.input(0)?;
    let ([_, oh, ow, c], [n, h, w, _]) = (dims4(dy.dims())?, dims4(call.output()?.dims())?);
    if n * oh * ow * c == 0 || h * w == 0 {
        return portable(call, kernel);
    }
    let attributes: avg_pool2d_grad::Attributes = call.attributes()?;
    let axes = pool_axes(&attributes.pooling, [h, w], [oh, ow]);
    let windows = axes.map(|axis| Meetings::new(axis, axis.output, |position, result, _| (result, position, 0)));
    let meetings = axes.map(|axis| Meetings::new(axis, axis.input, |position, result, _| (position, result, 0)));
    let dx = call.output()?.slice_mut::<T>();
    scratch::with(n * oh * ow * c, |parts: &mut [T]| {
        parts.copy_from_slice(dy.slice());
        divide(parts, &windows, c);
        Sums { images: parts, size: [oh, ow], meetings, filter: &vec![T::ONE; c], taps: 0, bias: None, channels: c }.compute(dx);
    });
    Ok(())
}

/// Divides each pixel of `images` by the number of positions that it meets.
fn divide<T: Channels>(images: &mut [T], [down, across]: &[Meetings; 2], channels: usize) {
    let rows = images.chunks_exact_mut(across.0.len() * channels).zip(down.0.iter().cycle());
    team::each(down.0.len() * across.0.len() * channels >= ALONE, rows, |(row, vertical)| {
        for (pixel, horizontal) in row.chunks_exact_mut(channels).zip(&across.0) {
            let count = T::from_f32((vertical.len() * horizontal.len()) as f32);
            pixel.iter_mut().for_each(|x| *x = *x / count);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, Value, result, same};
    use super::*;

    #[test]
    fn as_the_portable_kernels() {
        let mut tried = 0;
        for seed in 0..600 {
            let random = &mut Random::new(seed);
            let words: Vec<u32> = (0..4).map(|_| random.between(1, 4)).chain([seed as u32 % 2]).collect();
            let x = [random.between(0, 3), random.between(1, 12), random.between(1, 33), random.between(0, 70)];
            let x = random.tensor(&x);
            for (index, portable) in
                [[&avg_pool2d::F32, &avg_pool2d_grad::F32], [&avg_pool2d::F64, &avg_pool2d_grad::F64]].into_iter().enumerate()
            {
                let typed = |value: &Value| if index == 0 { value.clone() } else { value.to_f64() };
                let x = typed(&x);
                if !same(&AVG_POOL2D[index], portable[0], &words, &[&x]) {
                    continue;
                }
                tried += 1;
                let dy = typed(&random.tensor(result(&AVG_POOL2D[index], &words, &[&x]).dims()));
                assert!(same(&AVG_POOL2D_GRAD[index], portable[1], &[&words[..], &x.dims()[1..3]].concat(), &[&dy]));
            }
        }
        assert!(tried > 800, "{tried}");
    }
}
