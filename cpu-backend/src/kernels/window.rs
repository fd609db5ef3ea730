//! Convolutions as matrix products. The rows of the left matrix are the windows of one row of output positions. They are read in
//! place from the image, or from a copy of the image with its padding.

use super::product::{Left, Product, Right, Start};
use super::scratch;
use crate::simd::Simd;
use gradlet_core::ops::conv2d::Attributes;
use gradlet_core::ops::max_pool2d;
use gradlet_core::{Error, Result};
use std::ops::Range;

/// Movement of a window along one axis of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) taps: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    /// Padding before the first input position.
    pub(super) before: usize,
}

/// Returns the axes of a convolution from `input` to `output` positions, the vertical axis first.
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

/// Returns the axes of a pooling from `input` to `output` positions, the vertical axis first.
pub(super) fn pool_axes(attributes: &max_pool2d::Attributes, input: [usize; 2], output: [usize; 2]) -> [Axis; 2] {
    [0, 1].map(|axis| {
        let (taps, stride) = (attributes.ksize[axis] as usize, attributes.strides[axis] as usize);
        let mut axis = Axis { input: input[axis], output: output[axis], taps, stride, dilation: 1, before: 0 };
        if attributes.padding == 1 {
            axis.before = axis.reach(axis.output).saturating_sub(axis.input) / 2;
        }
        axis
    })
}

impl Axis {
    /// Returns the number of input positions that `count` consecutive windows cover.
    pub(super) fn reach(&self, count: usize) -> usize {
        count.saturating_sub(1) * self.stride + self.taps.saturating_sub(1) * self.dilation + 1
    }
}

/// Returns the dimensions of an image or a filter.
pub(super) fn dims4(dims: &[u32]) -> Result<[usize; 4]> {
    let dims: [u32; 4] = dims.try_into().map_err(|_| Error::Rank { input: 0 })?;
    Ok(dims.map(|dim| dim as usize))
}

/// Part of an image, possibly with padding around it.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) data: &'a [f32],
    /// Distance between rows.
    pub(super) pitch: usize,
}

/// Calls `work` with the field of `count` rows and columns that starts at position `first` of the image
/// `[rows, columns, channels]`. Elements outside the image are 0. The field is copied only if a part of it is outside.
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

/// Clips the `count` positions that start at `first` to `0..limit`. Returns the range of the positions inside, relative to
/// `first`.
fn clip(first: isize, count: usize, limit: usize) -> Range<usize> {
    let clipped = |position: isize| (position - first).clamp(0, count as isize) as usize;
    clipped(0)..clipped(limit as isize)
}

/// Product `result = start + windows · filter`, for the windows of a field.
pub(super) struct Slide<'a> {
    pub(super) taps: [usize; 2],
    pub(super) strides: [usize; 2],
    pub(super) dilations: [usize; 2],
    pub(super) channels: usize,
    /// Filter matrix. Its rows are in the order (vertical tap, horizontal tap, channel).
    pub(super) filter: Right<'a>,
    pub(super) filters: usize,
    pub(super) start: Start<'a>,
}

impl Slide<'_> {
    /// Computes the result for `count` rows and columns of positions in a field. `distances` holds the distances between rows and
    /// between columns of the result.
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
