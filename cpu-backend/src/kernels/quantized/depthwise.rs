//! Depthwise convolution. A vector has four elements of a row of the window for each of some channels. It meets those of the filter.

use super::super::scratch;
use super::super::window::{Axis, axes, dims4};
use super::channels::{Channels, Range, with_channels};
use super::conv2d::Layer;
use super::field::{Block, Field, blocks, long};
use super::{LINE, OFFSET, ONES, portable};
use crate::simd::integers::{IntegerSet, Integers, WithIntegers};
use gradlet_core::Result;
use gradlet_core::custom_op::Call;
use gradlet_core::ops::quantized_depthwise_conv2d::{Attributes, I8};

/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 18;
/// Number of pixels that are computed together.
const TILE: usize = 8;

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let Attributes { window, input_zero_point, output } = call.attributes()?;
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let ([n, h, w, c], [_, kh, kw, co]) = (dims4(x.dims())?, dims4(filter.dims())?);
    let [_, oh, ow, _] = dims4(call.output()?.dims())?;
    // A depthwise convolution of one channel is also a convolution.
    let Some(set) = set.filter(|_| (co == c || c == 1) && n * h * w * oh * ow * co * kh * kw > 0) else { return portable(call, &I8) };
    let axes = long(axes(&window, [h, w], [kh, kw], [oh, ow]));
    let ([kh, kw], ow) = (axes.map(|axis| axis.taps), axes[1].output);
    let range = Range { zero_point: output.zero_point, least: output.least, greatest: output.greatest };
    let (x, filter, operands) = (x.slice::<i8>(), filter.slice::<i8>(), [call.input(2)?.slice(), call.input(3)?.slice()]);
    let result = call.output()?.slice_mut::<i8>();
    if c == 1 {
        scratch::with(filter.len(), |by_channel: &mut [u8]| {
            for (channel, to) in by_channel.chunks_exact_mut(kh * kw).enumerate() {
                to.iter_mut().zip(filter.iter().skip(channel).step_by(co)).for_each(|(to, &from)| *to = from as u8);
            }
            let of_pixel = [1, co];
            Layer { x, filter: by_channel, operands, axes, of_pixel, zero_point: input_zero_point, range }.run(set, result);
        });
        return Ok(());
    }
    let taps = [kh, kw];
    scratch::with(c.next_multiple_of(LINE) * kh * kw.div_ceil(4), |packed: &mut [i32]| {
        with_channels(operands, kh * kw, range, |channels| {
            // The last vector reads more channels than there are.
            scratch::with(filter.len() + LINE, |padded: &mut [u8]| {
                padded[..filter.len()].copy_from_slice(bytemuck::cast_slice(filter));
                let bias = OFFSET + input_zero_point;
                set.run(Pack { filter: padded, taps, channels: c, bias, packed: &mut *packed, starts: channels.starts });
            });
            let forward = Forward { x, axes, channels, of_pixel: c, packed, zero_point: input_zero_point };
            let parallel = result.len() * kh * kw > ALONE;
            // The vectors of a block of channels take four bytes for each byte of the result.
            let row = (axes[1].reach(ow) * c).max(ow * kw.div_ceil(4) * 4 * LINE);
            blocks(parallel, axes, [c, c], row, result, |block, bytes| {
                // The last tile reads more pixels than there are.
                let vectors = axes[0].reach(block.result.len() / (ow * c)) * kw.div_ceil(4) * ow + TILE;
                scratch::with(vectors * LINE, |vectors| set.run(Part { forward: &forward, block, bytes, vectors }));
            });
        });
    });
    Ok(())
}

/// Arranges the filters: for each vector of channels, four taps of a row. Subtracts the sum of each filter, times `bias`, from the starts.
struct Pack<'a> {
    filter: &'a [u8],
    taps: [usize; 2],
    channels: usize,
    bias: i32,
    packed: &'a mut [i32],
    starts: &'a mut [i32],
}

impl WithIntegers for Pack<'_> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let ([kh, kw], c) = (self.taps, self.channels);
        let panels = self.packed.chunks_exact_mut(kh * kw.div_ceil(4) * S::LANES).zip(self.starts.chunks_exact_mut(S::LANES));
        for ((panel, starts), first) in panels.zip((0..c).step_by(S::LANES)) {
            let mut sums = simd.splat(0);
            for (index, vector) in panel.chunks_exact_mut(S::LANES).enumerate() {
                let (tap, column) = (index / kw.div_ceil(4), index % kw.div_ceil(4) * 4);
                let count = 4.min(kw - column);
                let filters = simd.ordered(four(simd, self.filter, (tap * kw + column) * c + first, c, count));
                sums = simd.dot(sums, simd.splat(ONES), filters);
                simd.store(vector, filters);
            }
            let sums = simd.mul(sums, simd.splat(self.bias));
            simd.store(starts, simd.sub(simd.load(starts), sums));
        }
    }
}

/// Returns `count` bytes for each element, `distance` apart. The first byte of the first element is at `at`. The others are 0.
#[inline(always)]
fn four<S: Integers>(simd: S, from: &[u8], at: usize, distance: usize, count: usize) -> S::Vector {
    let mut bytes = simd.widen(&from[at..]);
    for index in 1..count {
        bytes = simd.or(bytes, simd.left(simd.widen(&from[at + index * distance..]), simd.splat(8 * index as i32)));
    }
    bytes
}

/// Arguments of a depthwise convolution.
struct Forward<'a> {
    x: &'a [i8],
    axes: [Axis; 2],
    channels: &'a Channels<'a>,
    of_pixel: usize,
    packed: &'a [i32],
    zero_point: i32,
}

/// A block of a convolution's result, with memory for its field and for the vectors of bytes.
struct Part<'a, 'b> {
    forward: &'a Forward<'a>,
    block: Block<'b>,
    bytes: &'a mut [u8],
    vectors: &'a mut [i32],
}

impl WithIntegers for Part<'_, '_> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let Part { forward, block: Block { image, first, result }, bytes, vectors } = self;
        let (axes @ [down, across], c) = (forward.axes, forward.of_pixel);
        let groups = across.taps.div_ceil(4);
        let count = result.len() / (across.output * c);
        let field = Field::copied(forward.x, axes, c, forward.zero_point, [image, first, count], bytes);
        for first in (0..c).step_by(S::LANES) {
            for (index, vectors) in vectors.chunks_exact_mut(across.output * S::LANES).take(field.rows * groups).enumerate() {
                let (row, column) = (index / groups, index % groups * 4);
                let from = &field.data[row * field.pitch + column * across.dilation * c + first..];
                let steps = [across.stride * c, across.dilation * c];
                match across.taps - column {
                    1 => arrange::<S, 1>(simd, from, steps, vectors),
                    2 => arrange::<S, 2>(simd, from, steps, vectors),
                    3 => arrange::<S, 3>(simd, from, steps, vectors),
                    _ => arrange::<S, 4>(simd, from, steps, vectors),
                }
            }
            let tap = down.dilation * groups;
            if forward.channels.are_usual {
                forward.products::<S, true>(simd, vectors, first, tap, result);
            } else {
                forward.products::<S, false>(simd, vectors, first, tap, result);
            }
        }
    }
}

/// Writes the vectors of a row of pixels: `N` bytes for each channel. `steps` are the distances between pixels and between bytes.
#[inline(always)]
fn arrange<S: Integers, const N: usize>(simd: S, from: &[u8], [pixel, byte]: [usize; 2], to: &mut [i32]) {
    if pixel != byte {
        for (index, to) in to.chunks_exact_mut(S::LANES).enumerate() {
            simd.store(to, simd.ordered(four(simd, from, index * pixel, byte, N)));
        }
        return;
    }
    // The vector of a pixel has all bytes of the one before but the first.
    let mut vector = four(simd, from, 0, byte, N);
    let (first, rest) = to.split_at_mut(S::LANES);
    simd.store(first, simd.ordered(vector));
    for (index, to) in rest.chunks_exact_mut(S::LANES).enumerate() {
        let next = simd.left(simd.widen(&from[(index + N) * byte..]), simd.splat(8 * (N as i32 - 1)));
        vector = simd.or(simd.right(vector, simd.splat(8)), next);
        simd.store(to, simd.ordered(vector));
    }
}

impl Forward<'_> {
    /// Computes a vector of channels from channel `first` on. `vectors` has those of the block's rows; `tap` of them separate two taps.
    #[inline(always)]
    fn products<S: Integers, const USUAL: bool>(&self, simd: S, vectors: &[i32], first: usize, tap: usize, result: &mut [i8]) {
        let ([down, across], c) = (self.axes, self.of_pixel);
        let groups = across.taps.div_ceil(4);
        let lanes = self.channels.lanes(simd, first);
        let size = down.taps * groups * S::LANES;
        let filters = &self.packed[first / S::LANES * size..][..size];
        let channels = S::LANES.min(c - first);
        for row in 0..result.len() / (across.output * c) {
            let mut at = 0;
            while at < across.output {
                let mut sums = [lanes.start; TILE];
                for kh in 0..down.taps {
                    for group in 0..groups {
                        let place = row * down.stride * groups + kh * tap + group;
                        let vectors = &vectors[(place * across.output + at) * S::LANES..][..TILE * S::LANES];
                        let filter = simd.load(&filters[(kh * groups + group) * S::LANES..]);
                        for (index, sum) in sums.iter_mut().enumerate() {
                            *sum = simd.dot(*sum, simd.load(&vectors[index * S::LANES..]), filter);
                        }
                    }
                }
                let result = &mut result[(row * across.output + at) * c..];
                for (index, &sum) in sums.iter().enumerate().take(across.output - at) {
                    lanes.finish::<S, USUAL>(simd, sum, &mut result[index * c + first..][..channels]);
                }
                at += TILE;
            }
        }
    }
}
