//! Convolution: products of windows and filters. A vector has four successive elements of the filters of some channels. It meets four
//! successive bytes of a window.

use super::super::scratch;
use super::super::window::{Axis, axes, dims4};
use super::channels::{Channels, Range, with_channels};
use super::field::{Block, Field, blocks, long};
use super::{LINE, OFFSET, ONES, portable};
use crate::simd::integers::{IntegerSet, Integers, WithIntegers};
use gradlet_core::Result;
use gradlet_core::custom_op::Call;
use gradlet_core::ops::quantized_conv2d::{Attributes, I8};

/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 21;

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let Attributes { window, input_zero_point, output } = call.attributes()?;
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let ([n, h, w, c], [co, kh, kw, ci]) = (dims4(x.dims())?, dims4(filter.dims())?);
    let [_, oh, ow, _] = dims4(call.output()?.dims())?;
    let Some(set) = set.filter(|_| ci == c && n * h * w * c * oh * ow * co > 0) else { return portable(call, &I8) };
    let layer = Layer {
        x: x.slice(),
        filter: bytemuck::cast_slice(filter.slice::<i8>()),
        operands: [call.input(2)?.slice(), call.input(3)?.slice()],
        axes: long(axes(&window, [h, w], [kh, kw], [oh, ow])),
        of_pixel: [c, co],
        zero_point: input_zero_point,
        range: Range { zero_point: output.zero_point, least: output.least, greatest: output.greatest },
    };
    layer.run(set, call.output()?.slice_mut());
    Ok(())
}

/// A convolution.
pub(super) struct Layer<'a> {
    pub(super) x: &'a [i8],
    /// The elements of each filter, in the order of a window.
    pub(super) filter: &'a [u8],
    /// The bias and the multipliers.
    pub(super) operands: [&'a [i32]; 2],
    pub(super) axes: [Axis; 2],
    /// Number of channels of x and of the result.
    pub(super) of_pixel: [usize; 2],
    pub(super) zero_point: i32,
    pub(super) range: Range,
}

impl Layer<'_> {
    /// Computes the result with the instructions of `set`.
    pub(super) fn run(&self, set: IntegerSet, result: &mut [i8]) {
        let Layer { x, filter, operands, axes, of_pixel: [c, co], zero_point, range } = *self;
        let [kh, kw] = axes.map(|axis| axis.taps);
        // The taps of a row are neighbours, unless they are dilated.
        let runs = if axes[1].dilation == 1 { Runs { count: kh, length: kw * c } } else { Runs { count: kh * kw, length: c } };
        scratch::with(co.next_multiple_of(LINE) * runs.steps(), |packed: &mut [i32]| {
            with_channels(operands, kh * kw * c, range, |channels| {
                set.run(Pack { filter, runs, bias: OFFSET + zero_point, packed, starts: channels.starts });
                let forward = Forward { x, axes, channels, of_pixel: [c, co], runs, packed, zero_point };
                let parallel = result.len() * kh * kw * c > ALONE;
                blocks(parallel, axes, [c, co], axes[1].reach(axes[1].output) * c, result, |block, bytes| {
                    scratch::with(block.result.len() / co, |places| set.run(Part { forward: &forward, block, bytes, places }));
                });
            });
        });
    }
}

/// Stretches of a window, and of its filter, whose elements are neighbours.
#[derive(Clone, Copy)]
struct Runs {
    count: usize,
    length: usize,
}

impl Runs {
    /// Number of groups of four elements in all runs.
    fn steps(self) -> usize {
        self.count * self.length.div_ceil(4)
    }
}

/// Arranges the filters: for each vector of channels, four successive elements of each. Subtracts the sum of each
/// filter, times `bias`, from the starts.
struct Pack<'a> {
    filter: &'a [u8],
    runs: Runs,
    bias: i32,
    packed: &'a mut [i32],
    starts: &'a mut [i32],
}

impl WithIntegers for Pack<'_> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let Runs { count, length } = self.runs;
        let (row, steps) = (count * length, length.div_ceil(4));
        let panels = self.packed.chunks_exact_mut(self.runs.steps() * S::LANES).zip(self.starts.chunks_exact_mut(S::LANES));
        for ((panel, starts), filters) in panels.zip(self.filter.chunks(S::LANES * row)) {
            let mut sums = simd.splat(0);
            for (run, panel) in panel.chunks_exact_mut(steps * S::LANES).enumerate() {
                for (group, panel) in panel.chunks_mut(4 * S::LANES).enumerate() {
                    let from = run * length + 16 * group;
                    let width = 16.min(length - 16 * group);
                    for (panel, vector) in panel.chunks_exact_mut(S::LANES).zip(columns(simd, filters, row, from, width)) {
                        let vector = simd.ordered(vector);
                        sums = simd.dot(sums, simd.splat(ONES), vector);
                        simd.store(panel, vector);
                    }
                }
            }
            let sums = simd.mul(sums, simd.splat(self.bias));
            simd.store(starts, simd.sub(simd.load(starts), sums));
        }
    }
}

/// Returns four columns of the rows of `filters`, each of four bytes. They begin at byte `from` of a row. Of 16 bytes, `width` are in the
/// filters, and the others are 0.
#[inline(always)]
fn columns<S: Integers>(simd: S, filters: &[u8], row: usize, from: usize, width: usize) -> [S::Vector; 4] {
    if width == 16 && filters.len() == S::LANES * row {
        return rows(simd, &filters[from..], row);
    }
    let mut padded = [0; 16 * LINE];
    for (to, filter) in padded.chunks_exact_mut(16).zip(filters.chunks_exact(row)) {
        to[..width].copy_from_slice(&filter[from..][..width]);
    }
    rows(simd, &padded, 16)
}

/// Returns the transposed first 16 bytes of each row.
#[inline(always)]
fn rows<S: Integers>(simd: S, from: &[u8], row: usize) -> [S::Vector; 4] {
    let (a, b) = (simd.load_rows(from, row), simd.load_rows(&from[row..], row));
    let (c, d) = (simd.load_rows(&from[2 * row..], row), simd.load_rows(&from[3 * row..], row));
    simd.transpose([a, b, c, d])
}

/// Arguments of a convolution.
struct Forward<'a> {
    x: &'a [i8],
    axes: [Axis; 2],
    channels: &'a Channels<'a>,
    /// Number of channels of x and of the result.
    of_pixel: [usize; 2],
    runs: Runs,
    packed: &'a [i32],
    zero_point: i32,
}

/// A block of a convolution's result, with memory for its field and for the places of its windows.
struct Part<'a, 'b> {
    forward: &'a Forward<'a>,
    block: Block<'b>,
    bytes: &'a mut [u8],
    places: &'a mut [i64],
}

impl WithIntegers for Part<'_, '_> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let Part { forward, block: Block { image, first, result }, bytes, places } = self;
        let [down, across] = forward.axes;
        let [c, co] = forward.of_pixel;
        let count = result.len() / (across.output * co);
        let field = Field::copied(forward.x, forward.axes, c, forward.zero_point, [image, first, count], bytes);
        for (row, places) in places.chunks_exact_mut(across.output).enumerate() {
            for (at, place) in places.iter_mut().enumerate() {
                *place = (row * down.stride * field.pitch + at * across.stride * c) as i64;
            }
        }
        if forward.channels.are_usual {
            forward.compute::<S, true>(simd, field, places, result);
        } else {
            forward.compute::<S, false>(simd, field, places, result);
        }
    }
}

impl Forward<'_> {
    /// Computes a block. `places` has the place of each pixel's window in the field.
    #[inline(always)]
    fn compute<S: Integers, const USUAL: bool>(&self, simd: S, field: Field<'_>, places: &[i64], result: &mut [i8]) {
        let (co, mut first) = (self.of_pixel[1], 0);
        while first < co {
            // As many sums as the registers can hold.
            first += match (S::LANES, (co - first).div_ceil(S::LANES)) {
                (16, 2..) => self.tiles::<S, USUAL, 8, 2>(simd, field, places, first, result),
                (16, _) => self.tiles::<S, USUAL, 12, 1>(simd, field, places, first, result),
                (8, 2..) => self.tiles::<S, USUAL, 3, 2>(simd, field, places, first, result),
                (8, _) => self.tiles::<S, USUAL, 4, 1>(simd, field, places, first, result),
                (_, 4..) => self.tiles::<S, USUAL, 5, 4>(simd, field, places, first, result),
                (_, 2..) => self.tiles::<S, USUAL, 8, 2>(simd, field, places, first, result),
                (_, _) => self.tiles::<S, USUAL, 12, 1>(simd, field, places, first, result),
            };
        }
    }

    /// Computes `V` vectors of channels from channel `first` on, of `R` pixels at a time. Returns the number of channels.
    #[inline(always)]
    fn tiles<S: Integers, const USUAL: bool, const R: usize, const V: usize>(
        &self,
        simd: S,
        field: Field<'_>,
        places: &[i64],
        first: usize,
        result: &mut [i8],
    ) -> usize {
        let co = self.of_pixel[1];
        let (mut lanes, size) = ([self.channels.lanes(simd, first); V], self.runs.steps() * S::LANES);
        let (mut starts, mut panels) = ([lanes[0].start; V], [&[][..]; V]);
        for v in 0..V {
            lanes[v] = self.channels.lanes(simd, first + v * S::LANES);
            starts[v] = lanes[v].start;
            panels[v] = &self.packed[(first / S::LANES + v) * size..][..size];
        }
        // The last tile overlaps with the one before it.
        let last = places.len().saturating_sub(R);
        let mut at = 0;
        while at < places.len() {
            let (mut pixels, mut windows) = ([0; R], [0; R]);
            for r in 0..R {
                pixels[r] = (at.min(last) + r).min(places.len() - 1);
                windows[r] = places[pixels[r]] as usize;
            }
            let sums = self.sums(simd, field, windows, panels, starts);
            for r in 0..R {
                for v in 0..V {
                    let from = first + v * S::LANES;
                    lanes[v].finish::<S, USUAL>(simd, sums[r][v], &mut result[pixels[r] * co + from..][..S::LANES.min(co - from)]);
                }
            }
            at += R;
        }
        V * S::LANES
    }

    /// Returns the sums of the windows at `places` for `V` vectors of channels.
    #[inline(always)]
    fn sums<S: Integers, const R: usize, const V: usize>(
        &self,
        simd: S,
        field: Field<'_>,
        places: [usize; R],
        panels: [&[i32]; V],
        starts: [S::Vector; V],
    ) -> [[S::Vector; V]; R] {
        let mut sums = [starts; R];
        let steps = self.runs.length.div_ceil(4);
        let ([down, across], c) = (self.axes, self.of_pixel[0]);
        for run in 0..self.runs.count {
            let (tap, column) = if self.runs.count == down.taps { (run, 0) } else { (run / across.taps, run % across.taps) };
            let distance = tap * down.dilation * field.pitch + column * across.dilation * c;
            let (mut windows, mut filters) = ([&[][..]; R], panels);
            for r in 0..R {
                windows[r] = &field.data[places[r] + distance..][..4 * steps].as_chunks::<4>().0[..steps];
            }
            for filters in &mut filters {
                *filters = &filters[run * steps * S::LANES..][..steps * S::LANES];
            }
            let mut filter = starts;
            for step in 0..steps {
                for v in 0..V {
                    filter[v] = simd.load(&filters[v][step * S::LANES..]);
                }
                for r in 0..R {
                    let x = simd.ordered(simd.splat(i32::from_ne_bytes(windows[r][step])));
                    for v in 0..V {
                        sums[r][v] = simd.dot(sums[r][v], x, filter[v]);
                    }
                }
            }
        }
        sums
    }
}
