//! Convolutions and their gradients.

use super::matmul::transpose;
use super::product::{Left, Product, Right, Start};
use super::window::{Axis, Slide, axes, dims4, with_field};
use super::{portable, scratch};
use crate::simd::{Simd, WithSimd, dispatch};
use crate::team;
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::{conv2d, conv2d_filter_grad, conv2d_input_grad};
use gradlet_core::{DType, Result};

/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 19;
/// Maximum number of input elements that are processed at a time.
const FIELD: usize = 1 << 15;

/// Kernel of [`conv2d`].
pub static CONV2D: Kernel = Kernel { def: &conv2d::DEF, dtype: DType::F32, run: forward };
/// Kernel of [`conv2d_input_grad`].
pub static INPUT_GRAD: Kernel = Kernel { def: &conv2d_input_grad::DEF, dtype: DType::F32, run: input_grad };
/// Kernel of [`conv2d_filter_grad`].
pub static FILTER_GRAD: Kernel = Kernel { def: &conv2d_filter_grad::DEF, dtype: DType::F32, run: filter_grad };

/// Returns the number of rows of the result to compute at a time. It is small enough that every thread has work. If possible, the
/// input rows that these rows of the result need have at most [`FIELD`] elements.
fn block(images: usize, axis: Axis, row: usize) -> usize {
    let shared = if images < 2 * team::threads() { axis.output.div_ceil(2 * team::threads() / images.max(1)) } else { axis.output };
    let fitting = (FIELD / row.max(1)).saturating_sub(axis.reach(1)) / axis.stride + 1;
    shared.min(fitting).max(1)
}

fn forward(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: conv2d::Attributes = call.attributes()?;
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let bias = call.inputs.get(2).map(|bias| bias.slice::<f32>());
    let ([n, h, w, c], [kh, kw, _, co]) = (dims4(x.dims())?, dims4(filter.dims())?);
    let [_, oh, ow, _] = dims4(call.output()?.dims())?;
    let axes @ [down, across] = axes(&attributes, [h, w], [kh, kw], [oh, ow]);
    if n * oh * ow * co == 0 || h * w * c == 0 {
        return portable(call, &conv2d::F32);
    }
    let forward = Forward { x: x.slice(), filter: filter.slice(), bias, axes, channels: [c, co] };
    let block = block(n, down, across.reach(ow) * c);
    let result = call.output()?.slice_mut::<f32>();
    let images = result.chunks_exact_mut(oh * ow * co).enumerate();
    let blocks = images.flat_map(|(image, result)| {
        result.chunks_mut(block * ow * co).enumerate().map(move |(index, result)| ForwardBlock { image, first: index * block, result })
    });
    team::each(n * oh * ow * co * kh * kw * c > ALONE, blocks, |block| dispatch(Of(&forward, block)));
    Ok(())
}

/// Arguments of a convolution.
struct Forward<'a> {
    x: &'a [f32],
    filter: &'a [f32],
    bias: Option<&'a [f32]>,
    axes: [Axis; 2],
    channels: [usize; 2],
}

/// Block of rows of one image of the result.
struct ForwardBlock<'a> {
    image: usize,
    first: usize,
    result: &'a mut [f32],
}

/// Work `W` and the part `P` of it to compute.
struct Of<'w, W, P>(&'w W, P);

impl WithSimd for Of<'_, Forward<'_>, ForwardBlock<'_>> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Of(Forward { x, filter, bias, axes: [down, across], channels: [c, co] }, ForwardBlock { image, first, result }) = self;
        let (size, row) = (down.input * across.input * c, across.output * co);
        let slide = Slide {
            taps: [down.taps, across.taps],
            strides: [down.stride, across.stride],
            dilations: [down.dilation, across.dilation],
            channels: *c,
            filter: Right::matrix(simd, filter, *co),
            filters: *co,
            start: bias.map_or(Start::Zero, Start::Bias),
        };
        let count = [result.len() / row, across.output];
        let first = [(first * down.stride) as isize - down.before as isize, -(across.before as isize)];
        let reach = [down.reach(count[0]), across.reach(count[1])];
        with_field(&x[image * size..][..size], [down.input, across.input, *c], first, reach, |field| {
            slide.run(simd, field, count, result, [row, *co]);
        });
    }
}

fn input_grad(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: conv2d_input_grad::Attributes = call.attributes()?;
    let (filter, dy) = (call.input(0)?, call.input(1)?);
    let ([kh, kw, c, co], [n, oh, ow, _]) = (dims4(filter.dims())?, dims4(dy.dims())?);
    let [h, w] = attributes.input.map(|side| side as usize);
    let axes @ [down, across] = axes(&attributes.conv, [h, w], [kh, kw], [oh, ow]);
    let both = |axis: Axis| axis.stride > 1 && axis.dilation > 1;
    if n * h * w * c == 0 || oh * ow * co == 0 || both(down) || both(across) {
        return portable(call, &conv2d_input_grad::F32);
    }
    let (filter, dy) = (filter.slice::<f32>(), dy.slice::<f32>());
    let parallel = n * oh * ow * co * kh * kw * c > ALONE;
    let result = call.output()?.slice_mut::<f32>();
    scratch::with(filter.len(), |turned| {
        // Transposes the matrix of each tap. The taps are in the order of phases, and in reverse order inside each phase.
        let taps: [usize; 2] = [kh, kw];
        let order = phases(down).flat_map(|vertical| {
            let vertical_taps = (0..vertical.taps).rev().map(move |tap| vertical.tap(tap));
            phases(across).map(move |horizontal| (vertical_taps.clone(), horizontal))
        });
        let order = order.flat_map(|(vertical_taps, horizontal)| {
            vertical_taps.flat_map(move |vertical| (0..horizontal.taps).rev().map(move |tap| vertical * taps[1] + horizontal.tap(tap)))
        });
        team::each(parallel, order.zip(turned.chunks_exact_mut(c * co)), |(tap, turned)| {
            transpose(&filter[tap * c * co..][..c * co], turned, [c, co]);
        });
        let grad = InputGrad { turned, dy, axes, channels: [c, co] };
        let block = block(n, Axis { output: h, stride: 1, ..down }, across.reach(1) + ow * co).next_multiple_of(down.stride);
        let blocks = result.chunks_exact_mut(h * w * c).enumerate().flat_map(|(image, result)| {
            result.chunks_mut(block * w * c).enumerate().map(move |(index, result)| ForwardBlock { image, first: index * block, result })
        });
        team::each(parallel, blocks, |block| dispatch(Of(&grad, block)));
    });
    Ok(())
}

/// Set of input positions along one axis that the same filter taps cover: every `stride`-th position. The input gradient is
/// computed for one phase after another.
#[derive(Clone, Copy)]
struct Phase {
    axis: Axis,
    /// First tap that covers the positions.
    first: usize,
    /// Number of taps that cover the positions.
    taps: usize,
}

fn phases(axis: Axis) -> impl Iterator<Item = Phase> + Clone + Send {
    (0..axis.stride).map(move |first| Phase { axis, first, taps: axis.taps.saturating_sub(first).div_ceil(axis.stride) })
}

impl Phase {
    fn tap(&self, index: usize) -> usize {
        self.first + index * self.axis.stride
    }

    /// Returns the positions of this phase within `first..end` of the input: the first one, their number, and the output position
    /// at which the window of the first one starts.
    fn positions(&self, first: usize, end: usize) -> (usize, usize, isize) {
        let Phase { axis: Axis { stride, before, dilation, .. }, first: tap, taps } = *self;
        let step = |position: usize| (position + before).saturating_sub(tap).div_ceil(stride);
        let (from, to) = (step(first), step(end));
        (from * stride + tap - before, to.saturating_sub(from), from as isize - ((taps.max(1) - 1) * dilation) as isize)
    }
}

struct InputGrad<'a> {
    turned: &'a [f32],
    dy: &'a [f32],
    axes: [Axis; 2],
    channels: [usize; 2],
}

impl WithSimd for Of<'_, InputGrad<'_>, ForwardBlock<'_>> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Of(InputGrad { turned, dy, axes: [down, across], channels: [c, co] }, ForwardBlock { image, first, result }) = self;
        let (size, row) = (down.output * across.output * co, across.input * c);
        let dy = &dy[image * size..][..size];
        let rows = result.len() / row;
        let mut turned = *turned;
        for vertical in phases(*down) {
            for horizontal in phases(*across) {
                let taps = [vertical.taps, horizontal.taps];
                let (filter, rest) = turned.split_at(taps[0] * taps[1] * c * co);
                turned = rest;
                let slide = Slide {
                    taps,
                    strides: [1, 1],
                    dilations: [down.dilation, across.dilation],
                    channels: *co,
                    filter: Right::matrix(simd, filter, *c),
                    filters: *c,
                    start: Start::Zero,
                };
                let (top, height, from_row) = vertical.positions(first, first + rows);
                let (left, width, from_column) = horizontal.positions(0, across.input);
                if height == 0 || width == 0 {
                    continue;
                }
                let reach = |count: usize, taps: usize, dilation: usize| count + taps.saturating_sub(1) * dilation;
                let reaches = [reach(height, taps[0], down.dilation), reach(width, taps[1], across.dilation)];
                let result = &mut result[(top - first) * row + left * c..];
                let distances = [down.stride * row, across.stride * c];
                with_field(dy, [down.output, across.output, *co], [from_row, from_column], reaches, |field| {
                    slide.run(simd, field, [height, width], result, distances);
                });
            }
        }
    }
}

fn filter_grad(call: &mut Call<'_, '_>) -> Result<()> {
    let attributes: conv2d_filter_grad::Attributes = call.attributes()?;
    let (x, dy) = (call.input(0)?, call.input(1)?);
    let ([n, h, w, c], [_, oh, ow, co]) = (dims4(x.dims())?, dims4(dy.dims())?);
    let [kh, kw] = attributes.kernel.map(|side| side as usize);
    let axes = axes(&attributes.conv, [h, w], [kh, kw], [oh, ow]);
    let length = kh * kw * c * co;
    if n * oh * ow == 0 || h * w * length == 0 {
        return portable(call, &conv2d_filter_grad::F32);
    }
    let grad = FilterGrad { x: x.slice(), dy: dy.slice(), axes, channels: [c, co] };
    let result = call.output()?.slice_mut::<f32>();
    let parallel = n * oh * ow * length > ALONE;
    // Each portion of the images has its own sum. If there are fewer portions than threads, the filter is divided as well.
    let portions = if parallel { team::threads().min(n) } else { 1 };
    let images = n.div_ceil(portions);
    let rows = if portions < team::threads() && parallel { (kh * kw * c).div_ceil(2 * team::threads()) } else { kh * kw * c };
    scratch::with((portions - 1) * length, |sums| {
        let all = std::iter::once(&mut *result).chain(sums.chunks_exact_mut(length)).enumerate();
        let parts = all.flat_map(|(portion, sum)| {
            sum.chunks_mut(rows * co).enumerate().map(move |(index, sum)| FilterGradPart {
                images: [portion * images, ((portion + 1) * images).min(n)],
                first: index * rows,
                sum,
            })
        });
        team::each(parallel, parts, |part| dispatch(Of(&grad, part)));
        for sum in sums.chunks_exact(length) {
            result.iter_mut().zip(sum).for_each(|(result, sum)| *result += sum);
        }
    });
    Ok(())
}

struct FilterGrad<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    axes: [Axis; 2],
    channels: [usize; 2],
}

/// Rows of a filter's gradient, summed over some of the images.
struct FilterGradPart<'a> {
    images: [usize; 2],
    first: usize,
    sum: &'a mut [f32],
}

impl WithSimd for Of<'_, FilterGrad<'_>, FilterGradPart<'_>> {
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Of(FilterGrad { x, dy, axes: [down, across], channels: [c, co] }, FilterGradPart { images, first, sum }) = self;
        let [image, result] = [down.input * across.input * c, down.output * across.output * co];
        let origin = [-(down.before as isize), -(across.before as isize)];
        let reach = [down.reach(down.output), across.reach(across.output)];
        // Neighbouring taps are adjacent in the image, unless they are dilated.
        let group = if across.dilation == 1 { across.taps * c } else { *c };
        let last = first + sum.len() / co;
        if images[0] >= images[1] {
            sum.fill(0.0);
        }
        for index in images[0]..images[1] {
            let start = if index == images[0] { Start::Zero } else { Start::Result };
            let right = Right::matrix(simd, &dy[index * result..][..result], *co);
            with_field(&x[index * image..][..image], [down.input, across.input, *c], origin, reach, |field| {
                let mut row = first;
                while row < last {
                    let rows = (group - row % group).min(last - row);
                    let (tap, offset) = (row / (across.taps * c), row % (across.taps * c));
                    let offset = offset / c * across.dilation * c + offset % c;
                    let data = &field.data[tap * down.dilation * field.pitch + offset..];
                    let runs = [(down.output, down.stride * field.pitch), (1, 0)];
                    Product {
                        left: Left { data, row: 1, column: across.stride * c, runs, length: across.output },
                        right,
                        start,
                        result: &mut sum[(row - first) * co..],
                        stride: *co,
                        rows,
                        columns: *co,
                    }
                    .run(simd);
                    row += rows;
                }
            });
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Random, cases, same};
    use super::*;

    /// Returns attributes of a random convolution.
    pub(in super::super) fn attributes(random: &mut Random) -> [u32; 9] {
        let mut words = [1; 9];
        words[..2].fill_with(|| random.between(1, 3));
        words[2..4].fill_with(|| random.between(1, 4).saturating_sub(1).max(1));
        let padding = random.between(0, 2);
        words[4] = padding;
        words[5..].fill_with(|| if padding == 2 { random.between(0, 3) } else { 0 });
        words
    }

    #[test]
    fn as_the_portable_kernels() {
        let mut tried = 0;
        for seed in 0..cases(1500) {
            let random = &mut Random::new(seed);
            let words = attributes(random);
            let [kh, kw] = [random.between(1, 5), random.between(1, 5)];
            let (c, co) = (random.between(0, 20).min(random.between(1, 40)), random.between(1, 70));
            let x = [random.between(0, 3), random.between(1, 12), random.between(1, 33), c];
            let (x, filter, bias) = (random.tensor(&x), random.tensor(&[kh, kw, c, co]), random.tensor(&[co]));
            let inputs = [&x, &filter, &bias];
            if !same(&CONV2D, &conv2d::F32, &words, &inputs[..2 + seed as usize % 2]) {
                continue;
            }
            tried += 1;
            let y = super::super::testing::result(&CONV2D, &words, &inputs);
            let dy = random.tensor(y.dims());
            let of_input = [&words[..], &x.dims()[1..3]].concat();
            assert!(same(&INPUT_GRAD, &conv2d_input_grad::F32, &of_input, &[&filter, &dy]));
            let of_filter = [&words[..], &[kh, kw]].concat();
            assert!(same(&FILTER_GRAD, &conv2d_filter_grad::F32, &of_filter, &[&x, &dy]));
        }
        assert!(tried > cases(500), "{tried}");
    }
}
