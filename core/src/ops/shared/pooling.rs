//! Pooling ops: their attributes, and the windows that slide over an image.

use super::window::{Axis, Padding, Taps, clear, groups, part_mut, positive, split};
use crate::base::dtype::{Float, Number};
use crate::base::error::{Error, Result};
use crate::base::op::read_attributes;
use crate::base::shape::{Shape, TensorType};
use crate::ops::conv2d::dims4;
#[cfg(feature = "alloc")]
use crate::tensor::Tensor;
use core::num::NonZeroU32;
use core::ops::Range;

/// Attributes of a pooling op. The vertical axis comes first.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Height and width of the window.
    pub ksize: [u32; 2],
    /// Vertical and horizontal distance from one window to the next.
    pub strides: [u32; 2],
    /// Kind of padding: 0 for valid, 1 for same.
    pub padding: u32,
}

impl Attributes {
    /// Creates the attribute words. Fails for explicit padding.
    #[cfg(feature = "alloc")]
    pub(in crate::ops) fn new(ksize: [u32; 2], strides: [u32; 2], padding: Padding) -> Result<Attributes> {
        match padding.words() {
            (Padding::EXPLICIT, _) => Err(Error::message("expected padding Valid or Same for this pooling, but got Explicit")),
            (padding, _) => Ok(Attributes { ksize, strides, padding }),
        }
    }

    /// Checks the attributes, and returns the geometry of the sliding window along the vertical and the horizontal axis, for images
    /// of this height and width.
    pub(in crate::ops) fn axes(&self, [height, width]: [u32; 2]) -> Result<[Axis; 2]> {
        let ([kh, kw], [down, across]) = (self.ksize, self.strides);
        let (kh, kw) = (positive(kh, 0)?.get(), positive(kw, 1)?.get());
        let (down, across) = (positive(down, 2)?, positive(across, 3)?);
        if self.padding > Padding::SAME {
            return Err(Error::Attribute { index: 4 });
        }
        let (one, padding) = (NonZeroU32::MIN, (self.padding, 0, 0));
        Ok([Axis::new(1, [height, kh], [down, one], padding)?, Axis::new(2, [width, kw], [across, one], padding)?])
    }

    /// Returns the cost of an element of the result. `each` is the cost of an element under its window.
    pub(in crate::ops) fn cost(&self, channels: usize, each: usize) -> usize {
        let [kh, kw] = self.ksize;
        let window = kh as usize * kw as usize;
        window * each + split(window * 40 + 60, channels).0
    }
}

/// Shape rule of a pooling op. Input 0 holds the images.
pub(in crate::ops) fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    super::elementwise::set(outputs, pooled(inputs, attributes)?)
}

/// Returns the type of the pooling's result for the images in input 0.
pub(in crate::ops) fn pooled(inputs: &[TensorType], attributes: &[u32]) -> Result<TensorType> {
    dims4(inputs, 0)?;
    pooled_images(inputs.first().ok_or(Error::Internal)?, attributes)
}

/// Returns the type of the pooling's result for images of any element type.
pub(in crate::ops) fn pooled_images(images: &TensorType, attributes: &[u32]) -> Result<TensorType> {
    let attributes: Attributes = read_attributes(attributes)?;
    let &[n, h, w, c] = images.shape.dims() else { return Err(Error::Rank { input: 0 }) };
    let [down, across] = attributes.axes([h, w])?;
    Ok(TensorType::new(images.dtype, Shape::new(&[n, down.output as u32, across.output as u32, c])?))
}

/// The pixels that a window covers, in some channels.
#[derive(Clone)]
pub(in crate::ops) struct Covered {
    /// Position in the images of the first covered element.
    pub(in crate::ops) start: usize,
    /// Number of covered rows.
    pub(in crate::ops) rows: usize,
    /// Number of covered pixels in each row.
    pub(in crate::ops) columns: usize,
    /// Distance from the beginning of one row of the image to the next, in elements.
    row: usize,
    /// Distance from one pixel to the next, in elements.
    pixel: usize,
    /// The window's elements of the result.
    pub(in crate::ops) result: Range<usize>,
}

impl Covered {
    /// Returns the number of covered pixels.
    pub(in crate::ops) fn count(&self) -> usize {
        self.rows * self.columns
    }

    /// Returns the number of elements from the first covered one of a row to its last.
    fn reach(&self) -> usize {
        (self.columns * self.pixel + self.result.len()).saturating_sub(self.pixel)
    }

    /// Calls `f` with the covered elements of each covered pixel of `images`.
    #[inline(always)]
    pub(in crate::ops) fn each<T>(&self, images: &[T], mut f: impl FnMut(&[T])) {
        let (pixel, row, reach) = (self.pixel.max(1), self.row.max(1), self.reach());
        for row in images.get(self.start..).unwrap_or(&[]).chunks(row).take(self.rows) {
            row.get(..reach).unwrap_or(&[]).chunks(pixel).for_each(&mut f);
        }
    }

    /// Mutable version of [`Covered::each`].
    #[inline(always)]
    pub(in crate::ops) fn each_mut<T>(&self, images: &mut [T], mut f: impl FnMut(&mut [T])) {
        let (pixel, row, reach) = (self.pixel.max(1), self.row.max(1), self.reach());
        for row in images.get_mut(self.start..).unwrap_or(&mut []).chunks_mut(row).take(self.rows) {
            row.get_mut(..reach).unwrap_or(&mut []).chunks_mut(pixel).for_each(&mut f);
        }
    }

    /// Returns the position in `images` of the greatest covered element of `channel`, counted from the first channel of the window's
    /// result. If several elements are equal to the maximum, returns the first in row-major order. If there is a NaN, returns the first
    /// NaN.
    #[inline(always)]
    pub(in crate::ops) fn greatest<T: Float>(&self, images: &[T], channel: usize) -> usize {
        let (mut line, mut first) = (self.start + channel, self.start + channel);
        let mut best = images.get(first).copied().unwrap_or(T::ZERO);
        for _ in 0..self.rows {
            let mut at = line;
            for _ in 0..self.columns {
                let Some(&x) = images.get(at) else { break };
                if beats(x, best) {
                    (best, first) = (x, at);
                }
                at += self.pixel;
            }
            line += self.row;
        }
        first
    }
}

/// Calls `f` for the window of each pixel of the result that has some of the elements `within`, in row-major order. `f` gets the pixels of
/// the images under the window. The images have `channels` channels.
#[inline(always)]
pub(in crate::ops) fn windows([down, across]: [Axis; 2], channels: usize, within: Range<usize>, mut f: impl FnMut(Covered)) {
    let (row, count) = (across.input * channels, |taps: Taps| taps.end.saturating_sub(taps.first));
    for (line, within) in groups(within, across.output * channels) {
        let (image, oh) = split(line, down.output);
        let vertical = down.taps(oh);
        let above = (image * down.input + down.input_at(oh, vertical.first)) * row;
        for (ow, within) in groups(within, channels) {
            let horizontal = across.taps(ow);
            let start = above + across.input_at(ow, horizontal.first) * channels + within.start;
            let first = (line * across.output + ow) * channels;
            let result = first + within.start..first + within.end;
            f(Covered { start, rows: count(vertical), columns: count(horizontal), row, pixel: channels, result });
        }
    }
}

/// Sets the images' gradient to 0 where the windows of the elements `within` are the first: in the rows of pixels that no row of windows
/// before covers. Without windows, sets all of it.
pub(in crate::ops) fn clear_ahead<T: Float>(dx: &mut [T], [down, across]: [Axis; 2], channels: usize, within: &Range<usize>) {
    let (row, windows) = (across.input * channels, across.output * channels);
    if down.output * windows == 0 {
        return clear(dx);
    }
    for (line, within) in groups(within.clone(), windows) {
        let (image, oh) = split(line, down.output);
        if within.start == 0 {
            let covered = |oh| down.input_at(oh, down.taps(oh).end);
            let first = if oh == 0 { 0 } else { covered(oh - 1) };
            let end = if oh + 1 < down.output { covered(oh) } else { down.input };
            clear(part_mut(dx, (image * down.input + first) * row, end.saturating_sub(first) * row));
        }
    }
}

/// True if `x` replaces `best`, the maximum so far: `x` is greater, or it is the first NaN.
#[inline(always)]
#[allow(clippy::eq_op, clippy::neg_cmp_op_on_partial_ord)]
pub(in crate::ops) fn beats<T: Number>(x: T, best: T) -> bool {
    !(x <= best) && best == best
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the maximum of each window of sequences `[n,w,c]`, for each channel: `[n,ow,c]`. The window has `size` elements
    /// and moves by `stride`. Like `tf.nn.max_pool1d`. Fails as [`Tensor::max_pool2d`] does.
    pub fn max_pool1d(&self, size: u32, stride: u32, padding: Padding) -> Result<Tensor> {
        self.pool1d(|x| x.max_pool2d([1, size], [1, stride], padding))
    }

    /// Returns the average of each window of sequences `[n,w,c]`, for each channel: `[n,ow,c]`. The window has `size` elements
    /// and moves by `stride`. Like `tf.nn.avg_pool1d`. Fails as [`Tensor::avg_pool2d`] does.
    pub fn avg_pool1d(&self, size: u32, stride: u32, padding: Padding) -> Result<Tensor> {
        self.pool1d(|x| x.avg_pool2d([1, size], [1, stride], padding))
    }

    /// Applies `pool`, a pooling of images, to sequences as images with one row.
    fn pool1d(&self, pool: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let &[n, w, c] = self.dims() else {
            return Err(Error::message(alloc::format!("expected sequences [n,w,c] for pooling, but got {}", self.tensor_type())));
        };
        let y = pool(&self.reshape(&[n, 1, w, c])?)?;
        let &[n, _, w, c] = y.dims() else { return Err(Error::Rank { input: 0 }) };
        y.reshape(&[n, w, c])
    }
}

#[cfg(test)]
pub(in crate::ops) mod tests {
    extern crate std;
    use super::super::testing::{indices, position};
    use super::*;
    use crate::base::dtype::DType;
    use crate::ops::conv2d;
    use crate::ops::conv2d::tests::{meetings, words};
    use std::vec::Vec;

    /// Returns test cases with all kinds of poolings: the dimensions of the images, the attributes, and the dimensions of the
    /// result.
    pub(in crate::ops) fn cases() -> Vec<([u32; 4], Attributes, [u32; 4])> {
        let mut cases = Vec::new();
        for x in [[2, 5, 6, 3], [1, 4, 4, 1], [1, 3, 7, 8], [1, 5, 5, 0], [0, 5, 5, 2], [1, 0, 5, 1]] {
            for ksize in [[1, 1], [2, 2], [3, 2], [4, 3]] {
                for strides in [[1, 1], [2, 2], [1, 3], [5, 4]] {
                    for padding in [0, 1] {
                        let attributes = Attributes { ksize, strides, padding };
                        let x_type = TensorType::new(DType::F32, Shape::new(&x).unwrap());
                        let Ok(y) = pooled(&[x_type], &words(attributes)) else { continue };
                        cases.push((x, attributes, y.shape.dims().try_into().unwrap()));
                    }
                }
            }
        }
        assert!(cases.len() > 100);
        cases
    }

    /// Returns, for each element of the result, the positions in x that its window covers, in row-major order.
    pub(in crate::ops) fn positions(x: [u32; 4], attributes: &Attributes, y: [u32; 4]) -> Vec<Vec<usize>> {
        let Attributes { ksize, strides, padding } = *attributes;
        let conv = conv2d::Attributes { strides, dilations: [1, 1], padding, pads: [0; 4] };
        let mut windows = std::vec![Vec::new(); indices(&y).len()];
        for ([n, ih, iw], [oh, ow], _) in meetings(x, ksize, [y[1], y[2]], &conv) {
            for c in 0..x[3] {
                windows[position(&y, &[n, oh, ow, c])].push(position(&x, &[n, ih, iw, c]));
            }
        }
        windows
    }

    #[test]
    fn absurd_attributes_are_refused() {
        let x = TensorType::new(DType::F32, Shape::new(&[1, 4, 4, 1]).unwrap());
        let refuse = |words: &[u32]| pooled(&[x], words).map(|_| ()).unwrap_err();
        assert_eq!(refuse(&[0, 1, 1, 1, 0]), Error::Attribute { index: 0 });
        assert_eq!(refuse(&[1, 1, 1, 0, 0]), Error::Attribute { index: 3 });
        assert_eq!(refuse(&[1, 1, 1, 1, 2]), Error::Attribute { index: 4 });
        assert_eq!(refuse(&[1, 1, 1, 1, 0, 0]), Error::Attribute { index: 0 });
        assert_eq!(refuse(&[1, u32::MAX, 1, 1, 1]), Error::TooLarge);
        assert_eq!(refuse(&[1, 1 << 30, 1, 1, 0]), Error::Dimension { input: 0, axis: 2, want: 1 << 30, got: 4 });
        assert!(pooled(&[x], &[1 << 30, 1 << 30, 1, 1, 1]).is_ok());
    }
}
