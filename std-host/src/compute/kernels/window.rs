//! Windows that slide over images, as products: the rows of the left matrix are the windows of a row of positions, seen where
//! they lie in the image, or in a copy of it with what the padding adds.

use super::product::{Left, Product, Right, Start};
use super::scratch;
use gradlet_core::ops::conv2d::Attributes;
use gradlet_core::{Error, Result};
use pulp::Simd;
use std::ops::Range;

/// How a window slides along one axis of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) taps: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    /// The padding before the first position.
    pub(super) before: usize,
}

/// The axes of a convolution from `input` to `output` positions, the vertical one first.
pub(super) fn axes(attributes: &Attributes, input: [usize; 2], taps: [usize; 2], output: [usize; 2]) -> [Axis; 2] {
    let [top, _, left, _] = attributes.pads;
    let axis = |axis: usize, before: u32| {
        let (stride, dilation) = (attributes.strides[axis] as usize, attributes.dilations[axis] as usize);
        let mut axis = Axis { input: input[axis], output: output[axis], taps: taps[axis], stride, dilation, before: before as usize };
        if attributes.padding == 1 {
            axis.before = axis.reach(axis.output).saturating_sub(axis.input) / 2;
        }
        axis
    };
    [axis(0, top), axis(1, left)]
}

impl Axis {
    /// How many positions of the input `count` windows, one after the other, reach over.
    pub(super) fn reach(&self, count: usize) -> usize {
        count.saturating_sub(1) * self.stride + self.taps.saturating_sub(1) * self.dilation + 1
    }
}

/// The dimensions of an image or a filter.
pub(super) fn dims4(dims: &[u32]) -> Result<[usize; 4]> {
    let dims: [u32; 4] = dims.try_into().map_err(|_| Error::Rank { input: 0 })?;
    Ok(dims.map(|dim| dim as usize))
}

/// A part of an image, or what is around it: where rows lie in `data`.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) data: &'a [f32],
    /// The distance of rows.
    pub(super) pitch: usize,
}

/// Calls `work` with the field of the image `[rows, columns, channels]` from the position `first` on, of `count` rows and columns;
/// what lies outside of the image is 0. It is copied only where it does not lie inside.
#[inline(always)]
pub(super) fn with_field<R>(
    image: &[f32],
    [rows, columns, channels]: [usize; 3],
    first: [isize; 2],
    count: [usize; 2],
    work: impl FnOnce(Field<'_>) -> R,
) -> R {
    let inside = |first: isize, count: usize, limit: usize| first >= 0 && first as usize + count <= limit;
    if inside(first[0], count[0], rows) && inside(first[1], count[1], columns) {
        let start = (first[0] as usize * columns + first[1] as usize) * channels;
        return work(Field { data: &image[start..], pitch: columns * channels });
    }
    let pitch = count[1] * channels;
    scratch::with(count[0] * pitch, |copy| {
        let covered = clip(first[1], count[1], columns);
        for (row, copy) in copy.chunks_exact_mut(pitch.max(1)).enumerate() {
            let source = usize::try_from(first[0] + row as isize).ok().filter(|&row| row < rows && !covered.is_empty());
            let Some(source) = source else {
                copy.fill(0.0);
                continue;
            };
            let from = ((source * columns) as isize + first[1] + covered.start as isize) as usize * channels;
            copy[..covered.start * channels].fill(0.0);
            copy[covered.start * channels..covered.end * channels].copy_from_slice(&image[from..][..covered.len() * channels]);
            copy[covered.end * channels..].fill(0.0);
        }
        work(Field { data: copy, pitch })
    })
}

/// Which of `count` positions from `first` on lie within `0..limit`.
fn clip(first: isize, count: usize, limit: usize) -> Range<usize> {
    let clipped = |position: isize| (position - first).clamp(0, count as isize) as usize;
    clipped(0)..clipped(limit as isize)
}

/// `result = start + windows · filter`, for windows of a field.
pub(super) struct Slide<'a> {
    pub(super) taps: [usize; 2],
    pub(super) strides: [usize; 2],
    pub(super) dilations: [usize; 2],
    pub(super) channels: usize,
    /// Rows in the order of (tap, tap, channel).
    pub(super) filter: Right<'a>,
    pub(super) filters: usize,
    pub(super) start: Start<'a>,
}

impl Slide<'_> {
    /// Computes the positions `count` of a field. The distances in the result are those of rows and of columns.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, field: Field<'_>, count: [usize; 2], result: &mut [f32], distances: [usize; 2]) {
        let [down, across] = self.dilations;
        let row = (self.taps[0], down * field.pitch);
        let (runs, length) = match across {
            1 => ([row, (1, 0)], self.taps[1] * self.channels),
            _ => ([row, (self.taps[1], across * self.channels)], self.channels),
        };
        for at in 0..count[0] {
            let data = &field.data[at * self.strides[0] * field.pitch..];
            Product {
                left: Left { data, row: self.strides[1] * self.channels, column: 1, runs, length },
                right: self.filter,
                start: self.start,
                result: &mut result[at * distances[0]..],
                stride: distances[1],
                rows: count[1],
                columns: self.filters,
            }
            .run(simd);
        }
    }
}
