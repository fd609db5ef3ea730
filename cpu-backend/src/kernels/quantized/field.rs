//! Parts of images as bytes without a sign, with padding around them.

use super::super::scratch;
use super::super::window::Axis;
use super::OFFSET;
use crate::team;

/// Bytes after a field that kernels may read. They do not matter.
const SLACK: usize = 64;
/// Maximum number of bytes of a field, if that is possible.
const FIELD: usize = 1 << 15;

/// Block of rows of one image of the result.
pub(super) struct Block<'a> {
    pub(super) image: usize,
    /// First row.
    pub(super) first: usize,
    pub(super) result: &'a mut [i8],
}

/// Calls `work` with blocks of rows of a result of `axes`, and with memory for the field of each. If `parallel` is true, threads share the
/// blocks. A pixel of x and of the result has `channels` channels. A row of the input takes `row` bytes of the cache.
pub(super) fn blocks(
    parallel: bool,
    axes: [Axis; 2],
    channels: [usize; 2],
    row: usize,
    result: &mut [i8],
    work: impl Fn(Block<'_>, &mut [u8]) + Sync,
) {
    let [down, across] = axes;
    let [c, co] = channels;
    let (of_row, of_image) = (across.output * co, down.output * across.output * co);
    let wanted = if parallel { (2 * team::threads()).div_ceil(result.len() / of_image) } else { 1 };
    let fitting = (FIELD / row.max(1)).saturating_sub(down.reach(1)) / down.stride + 1;
    let rows = down.output.div_ceil(wanted).min(fitting).max(1);
    let blocks = result.chunks_exact_mut(of_image).enumerate().flat_map(|(image, result)| {
        result.chunks_mut(rows * of_row).enumerate().map(move |(index, result)| Block { image, first: index * rows, result })
    });
    let size = down.reach(rows) * across.reach(across.output) * c + SLACK;
    team::each(parallel, blocks, |block| scratch::with(size, |bytes| work(block, bytes)));
}

/// Most pixels of a column that is computed as a row. Threads share the rows of a longer one.
const COLUMN: usize = 1024;

/// Returns the axes of an image. One column of pixels has the memory of one row, and kernels take several pixels of a row at a time.
pub(super) fn long(axes: [Axis; 2]) -> [Axis; 2] {
    let [down, across] = axes;
    let is_column = [across.input, across.output, across.taps] == [1; 3] && across.before == 0 && down.output <= COLUMN;
    if is_column { [across, down] } else { axes }
}

/// Part of an image.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) data: &'a [u8],
    /// Distance between rows.
    pub(super) pitch: usize,
    pub(super) rows: usize,
}

impl<'a> Field<'a> {
    /// Copies the part of image number `image` of `x` that `count` rows of the result need, from row `first` on, to `bytes`. Each byte is
    /// an element plus [`OFFSET`]. Positions outside the image have the element `zero_point`.
    #[inline(always)]
    pub(super) fn copied(
        x: &[i8],
        [down, across]: [Axis; 2],
        channels: usize,
        zero_point: i32,
        [image, first, count]: [usize; 3],
        bytes: &'a mut [u8],
    ) -> Field<'a> {
        let image = &x[image * down.input * across.input * channels..][..down.input * across.input * channels];
        let (rows, columns) = (down.reach(count), across.reach(across.output));
        let pitch = columns * channels;
        let fill = biased(zero_point as i8);
        let (before, inside) = (across.before.min(columns), across.input.min(columns.saturating_sub(across.before)));
        for (row, to) in bytes.chunks_exact_mut(pitch).take(rows).enumerate() {
            let source = (first * down.stride + row).checked_sub(down.before).filter(|&row| row < down.input);
            let Some(source) = source else {
                to.fill(fill);
                continue;
            };
            to[..before * channels].fill(fill);
            let from = &image[source * across.input * channels..][..inside * channels];
            for (to, &from) in to[before * channels..].iter_mut().zip(from) {
                *to = biased(from);
            }
            to[(before + inside) * channels..].fill(fill);
        }
        Field { data: bytes, pitch, rows }
    }
}

/// Returns an element plus [`OFFSET`].
#[inline(always)]
pub(super) fn biased(element: i8) -> u8 {
    (element as u8).wrapping_add(OFFSET as u8)
}
