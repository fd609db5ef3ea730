//! Depthwise convolutions and their gradients, one vector of channels at a time. The portable kernels compute those with several filters
//! for each channel.

use super::math::Elementary;
use super::window::{Axis, axes, dims4};
use super::{portable, scratch};
use crate::simd::{Simd, WithSimd, dispatch};
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{depthwise_conv2d, depthwise_conv2d_filter_grad, depthwise_conv2d_input_grad};
use gradlet_core::{DType, Result};

/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 16;

/// Largest number of parts of a filter's gradient. Each of them needs memory.
const PARTS: usize = 16;

/// Kernels of [`depthwise_conv2d`], for f32 and f64.
pub static DEPTHWISE_CONV2D: [Kernel; 2] = [
    Kernel { def: &depthwise_conv2d::DEF, dtype: DType::F32, run: |call| forward::<f32>(call, &depthwise_conv2d::F32) },
    Kernel { def: &depthwise_conv2d::DEF, dtype: DType::F64, run: |call| forward::<f64>(call, &depthwise_conv2d::F64) },
];
/// Kernels of [`depthwise_conv2d_input_grad`], for f32 and f64.
pub static INPUT_GRAD: [Kernel; 2] = [
    Kernel {
        def: &depthwise_conv2d_input_grad::DEF,
        dtype: DType::F32,
        run: |call| input_grad::<f32>(call, &depthwise_conv2d_input_grad::F32),
    },
    Kernel {
        def: &depthwise_conv2d_input_grad::DEF,
        dtype: DType::F64,
        run: |call| input_grad::<f64>(call, &depthwise_conv2d_input_grad::F64),
    },
];
/// Kernels of [`depthwise_conv2d_filter_grad`], for f32 and f64.
pub static FILTER_GRAD: [Kernel; 2] = [
    Kernel {
        def: &depthwise_conv2d_filter_grad::DEF,
        dtype: DType::F32,
        run: |call| filter_grad::<f32>(call, &depthwise_conv2d_filter_grad::F32),
    },
    Kernel {
        def: &depthwise_conv2d_filter_grad::DEF,
        dtype: DType::F64,
        run: |call| filter_grad::<f64>(call, &depthwise_conv2d_filter_grad::F64),
    },
];

fn forward<T: Channels>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let bias = call.inputs.get(2).map(|bias| bias.slice::<T>());
    let ([_, h, w, c], [kh, kw, _, multiplier]) = (dims4(x.dims())?, dims4(filter.dims())?);
    let [n, oh, ow, _] = dims4(call.output()?.dims())?;
    if multiplier != 1 || n * oh * ow * c == 0 || h * w == 0 {
        return portable(call, kernel);
    }
    let axes = axes(&call.attributes()?, [h, w], [kh, kw], [oh, ow]);
    let meetings = axes.map(|axis| Meetings::new(axis, axis.output, |position, result, tap| (result, position, tap)));
    let sums = Sums { images: x.slice(), size: [h, w], meetings, filter: filter.slice(), taps: kw, bias, channels: c };
    sums.compute(call.output()?.slice_mut());
    Ok(())
}

fn input_grad<T: Channels>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let (filter, dy) = (call.input(0)?, call.input(1)?);
    let ([kh, kw, c, multiplier], [_, oh, ow, _]) = (dims4(filter.dims())?, dims4(dy.dims())?);
    let [n, h, w, _] = dims4(call.output()?.dims())?;
    if multiplier != 1 || n * h * w * c == 0 || oh * ow == 0 {
        return portable(call, kernel);
    }
    let attributes: depthwise_conv2d_input_grad::Attributes = call.attributes()?;
    let axes = axes(&attributes.conv, [h, w], [kh, kw], [oh, ow]);
    let meetings = axes.map(|axis| Meetings::new(axis, axis.input, |position, result, tap| (position, result, tap)));
    let sums = Sums { images: dy.slice::<T>(), size: [oh, ow], meetings, filter: filter.slice(), taps: kw, bias: None, channels: c };
    sums.compute(call.output()?.slice_mut());
    Ok(())
}

fn filter_grad<T: Channels>(call: &mut Call<'_, '_>, kernel: &Kernel) -> Result<()> {
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let ([n, h, w, c], [_, oh, ow, co]) = (dims4(x.dims())?, dims4(dy.dims())?);
    if co != c || n * h * w * c == 0 || oh * ow == 0 {
        return portable(call, kernel);
    }
    let attributes: depthwise_conv2d_filter_grad::Attributes = call.attributes()?;
    let axes = axes(&attributes.conv, [h, w], attributes.kernel.map(|side| side as usize), [oh, ow]);
    let result = call.output()?.slice_mut::<T>();
    // Each part of the images has sums of its own, which are then added in a fixed order.
    let part = n.div_ceil(PARTS);
    scratch::with(n.div_ceil(part) * result.len(), |partial: &mut [T]| {
        partial.fill(T::zeroed());
        let images = x.slice::<T>().chunks(part * h * w * c).zip(dy.slice::<T>().chunks(part * oh * ow * c));
        let parallel = n * oh * ow * result.len() > ALONE;
        team::each(parallel, images.zip(partial.chunks_exact_mut(result.len())), |((x, dy), sums)| {
            dispatch(FilterSums { x, dy, axes, channels: c, sums });
        });
        result.fill(T::zeroed());
        for sums in partial.chunks_exact(result.len()) {
            result.iter_mut().zip(sums).for_each(|(result, &sum)| *result = *result + sum);
        }
    });
    Ok(())
}

/// The positions and taps that each element of the result meets along an axis, in ascending order of the taps.
pub(super) struct Meetings(pub(super) Vec<Vec<(usize, usize)>>);

impl Meetings {
    /// Creates the meetings of `results` results. `order` arranges a position of the convolution's input, one of its result, and a tap:
    /// first the element of the result, then what it meets.
    pub(super) fn new(axis: Axis, results: usize, order: fn(usize, usize, usize) -> (usize, usize, usize)) -> Meetings {
        let mut meetings = vec![Vec::new(); results];
        // Backwards, because a position meets a later result with an earlier tap.
        for result in (0..axis.output).rev() {
            let start = result * axis.stride;
            let first = axis.before.saturating_sub(start).div_ceil(axis.dilation);
            let inside = (axis.input + axis.before).saturating_sub(start).div_ceil(axis.dilation).min(axis.taps);
            for tap in first..inside {
                let (at, meets, tap) = order(start + tap * axis.dilation - axis.before, result, tap);
                meetings[at].push((meets, tap));
            }
        }
        Meetings(meetings)
    }
}

/// Sums over the window around each pixel of a result: of images times filter.
pub(super) struct Sums<'a, T> {
    pub(super) images: &'a [T],
    /// Height and width of an image.
    pub(super) size: [usize; 2],
    pub(super) meetings: [Meetings; 2],
    pub(super) filter: &'a [T],
    /// Number of taps in a row of the filter.
    pub(super) taps: usize,
    pub(super) bias: Option<&'a [T]>,
    pub(super) channels: usize,
}

impl<T: Channels> Sums<'_, T> {
    /// Computes the result, row by row.
    pub(super) fn compute(&self, result: &mut [T]) {
        let [height, width] = [&self.meetings[0], &self.meetings[1]].map(|axis| axis.0.len());
        let image = self.size[0] * self.size[1] * self.channels;
        let parallel = result.len() * self.filter.len() / self.channels > ALONE;
        team::each(parallel, result.chunks_exact_mut(width * self.channels).enumerate(), |(row, result)| {
            let image = &self.images[row / height * image..][..image];
            dispatch(Row { sums: self, image, vertical: &self.meetings[0].0[row % height], result });
        });
    }
}

/// A row of the result.
struct Row<'a, T> {
    sums: &'a Sums<'a, T>,
    image: &'a [T],
    vertical: &'a [(usize, usize)],
    result: &'a mut [T],
}

impl<T: Channels> WithSimd for Row<'_, T> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Sums { size: [_, width], meetings: [_, across], filter, taps, bias, channels, .. } = self.sums;
        let mut pairs = Vec::new();
        for (result, horizontal) in self.result.chunks_exact_mut(*channels).zip(&across.0) {
            pairs.clear();
            for &(row, down) in self.vertical {
                let place = |&(column, tap): &(usize, usize)| ((row * width + column) * channels, (down * taps + tap) * channels);
                pairs.extend(horizontal.iter().map(place));
            }
            match bias {
                Some(bias) => result.copy_from_slice(bias),
                None => result.fill(T::zeroed()),
            }
            T::accumulate(simd, pairs.iter().copied(), [self.image, filter], result);
        }
    }
}

/// The sums of a filter's gradient over some images.
struct FilterSums<'a, T> {
    x: &'a [T],
    dy: &'a [T],
    axes: [Axis; 2],
    channels: usize,
    sums: &'a mut [T],
}

impl<T: Channels> WithSimd for FilterSums<'_, T> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let FilterSums { x, dy, axes: [down, across], channels: c, sums } = self;
        let [x_image, dy_image] = [down.input * across.input * c, down.output * across.output * c];
        let images = x.chunks_exact(x_image).zip(dy.chunks_exact(dy_image));
        for ((x, dy), oh) in images.flat_map(|image| (0..down.output).map(move |oh| (image, oh))) {
            for (tap, sums) in sums.chunks_exact_mut(c).enumerate() {
                let (kh, kw) = (tap / across.taps, tap % across.taps);
                let row = (oh * down.stride + kh * down.dilation).checked_sub(down.before);
                let Some(row) = row.filter(|&row| row < down.input) else { continue };
                // The positions of the result at which the tap is inside the image.
                let reach = kw * across.dilation;
                let first = across.before.saturating_sub(reach).div_ceil(across.stride);
                let end = (across.input + across.before).saturating_sub(reach).div_ceil(across.stride).min(across.output);
                let place =
                    |ow: usize| ((row * across.input + ow * across.stride + reach - across.before) * c, (oh * across.output + ow) * c);
                T::accumulate(simd, (first..end).map(place), [x, dy], sums);
            }
        }
    }
}

/// An element type of channels.
pub(super) trait Channels: Elementary {
    /// Adds the products of elements of two tensors to `to`, for each channel. `pairs` are the positions of the first channels.
    fn accumulate<S: Simd>(simd: S, pairs: impl Iterator<Item = (usize, usize)> + Clone, of: [&[Self]; 2], to: &mut [Self]);
}

impl Channels for f32 {
    #[inline(always)]
    fn accumulate<S: Simd>(simd: S, pairs: impl Iterator<Item = (usize, usize)> + Clone, of: [&[f32]; 2], to: &mut [f32]) {
        let mut at = 0;
        while to.len() - at >= 4 * S::LANES {
            block::<S, 4>(simd, pairs.clone(), of, to, at);
            at += 4 * S::LANES;
        }
        while to.len() - at >= S::LANES {
            block::<S, 1>(simd, pairs.clone(), of, to, at);
            at += S::LANES;
        }
        if at < to.len() {
            let count = to.len() - at;
            let mut sum = simd.load_part(&to[at..]);
            for (a, b) in pairs {
                sum = simd.mul_add(simd.load_part(&of[0][a + at..][..count]), simd.load_part(&of[1][b + at..][..count]), sum);
            }
            simd.store_part(&mut to[at..], sum);
        }
    }
}

/// The compiler vectorizes the loop.
impl Channels for f64 {
    #[inline(always)]
    fn accumulate<S: Simd>(_: S, pairs: impl Iterator<Item = (usize, usize)> + Clone, [a, b]: [&[f64]; 2], to: &mut [f64]) {
        for (left, right) in pairs {
            let channels = to.len();
            for ((to, &a), &b) in to.iter_mut().zip(&a[left..][..channels]).zip(&b[right..][..channels]) {
                *to += a * b;
            }
        }
    }
}

/// [`Channels::accumulate`] for the `V` vectors of channels from `at` on.
#[inline(always)]
fn block<S: Simd, const V: usize>(simd: S, pairs: impl Iterator<Item = (usize, usize)>, of: [&[f32]; 2], to: &mut [f32], at: usize) {
    let mut sums: [S::Vector; V] = std::array::from_fn(|v| simd.load(&to[at + v * S::LANES..]));
    for (a, b) in pairs {
        let (a, b) = (&of[0][a + at..][..V * S::LANES], &of[1][b + at..][..V * S::LANES]);
        for (v, sum) in sums.iter_mut().enumerate() {
            *sum = simd.mul_add(simd.load(&a[v * S::LANES..]), simd.load(&b[v * S::LANES..]), *sum);
        }
    }
    for (v, sum) in sums.into_iter().enumerate() {
        simd.store(&mut to[at + v * S::LANES..], sum);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, Value, cases, result, same};
    use super::*;

    #[test]
    fn as_the_portable_kernels() {
        let mut tried = 0;
        for seed in 0..cases(800) {
            let random = &mut Random::new(seed);
            let words = super::super::conv2d::tests::attributes(random);
            let [kh, kw] = [random.between(1, 5), random.between(1, 5)];
            let (c, multiplier) = (random.between(0, 140), 1 + u32::from(seed % 8 == 0));
            let x = [if seed % 40 == 1 { 35 } else { random.between(0, 3) }, random.between(1, 12), random.between(1, 33), c];
            let (x, filter, bias) = (random.tensor(&x), random.tensor(&[kh, kw, c, multiplier]), random.tensor(&[c * multiplier]));
            let of_input = [&words[..], &x.dims()[1..3]].concat();
            let of_filter = [&words[..], &[kh, kw]].concat();
            for (index, portable) in [
                [&depthwise_conv2d::F32, &depthwise_conv2d_input_grad::F32, &depthwise_conv2d_filter_grad::F32],
                [&depthwise_conv2d::F64, &depthwise_conv2d_input_grad::F64, &depthwise_conv2d_filter_grad::F64],
            ]
            .into_iter()
            .enumerate()
            {
                let typed = |value: &Value| if index == 0 { value.clone() } else { value.to_f64() };
                let inputs = [&x, &filter, &bias].map(typed);
                let inputs = inputs.each_ref();
                if !same(&DEPTHWISE_CONV2D[index], portable[0], &words, &inputs[..2 + seed as usize % 2]) {
                    continue;
                }
                tried += 1;
                let y = result(&DEPTHWISE_CONV2D[index], &words, &inputs);
                let dy = typed(&random.tensor(y.dims()));
                assert!(same(&INPUT_GRAD[index], portable[1], &of_input, &[inputs[1], &dy]));
                assert!(same(&FILTER_GRAD[index], portable[2], &of_filter, &[inputs[0], &dy]));
            }
        }
        assert!(tried > cases(600), "{tried}");
    }
}
