//! Convolution and max pooling in one op. The full-size result of the convolution never exists. Of each pooling window, only the
//! winner is kept: the greatest element, and its position in the window.
//!
//! The pooling windows neither overlap nor leave gaps, and are not padded. Rows and columns that do not fill a window are dropped.

use super::window::{Axis, Taps, groups, part, positive, split};
use crate::base::dtype::{DType, Element};
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::ops::conv2d;
use crate::ops::conv2d::{check_dim, dims4};
use core::num::{NonZeroU32, NonZeroUsize};
use core::ops::Range;

/// Position of a winner that passes no gradient on, because relu made it 0.
pub(in crate::ops) const CUT: u8 = u8::MAX;

/// Geometry of the two windows: that of the convolution slides over the image, and that of the pooling over its result.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Pools {
    down: Axis,
    across: Axis,
    ksize: [NonZeroUsize; 2],
    /// Height and width of the filter.
    kernel: [usize; 2],
    channels: usize,
}

/// The elements of an image under the window of a convolution, and their weights. They are neighbours in each row of the window. The
/// filter is a matrix with one row of weights for each element under the window.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Patch {
    /// Position in the image of the first element.
    pub(in crate::ops) element: usize,
    /// Number of elements in each row of the window.
    pub(in crate::ops) length: usize,
    /// Distance from the first element of one row to that of the next.
    pub(in crate::ops) step: usize,
    /// Number of the filter's row with the weights of the first element.
    pub(in crate::ops) weights: usize,
    /// Distance from `weights` of one row of the window to that of the next.
    pub(in crate::ops) weights_step: usize,
    /// Number of rows of the window; 0 if they have no elements.
    pub(in crate::ops) rows: usize,
}

impl Pools {
    /// Checks the attributes, and returns the geometry. `ksize` is the size of the pooling window, and `word` the number of its first
    /// attribute word. Fails if the window has more than 255 positions, or if the convolution is dilated horizontally.
    pub(in crate::ops) fn new(
        conv: &conv2d::Attributes,
        [_, h, w, c]: [u32; 4],
        [kh, kw]: [u32; 2],
        [tall, wide]: [u32; 2],
        word: u8,
    ) -> Result<Pools> {
        let [down, across] = conv.axes([h, w], [kh, kw])?;
        if across.dilation() != 1 {
            return Err(Error::Attribute { index: 3 });
        }
        let (tall, wide) = (positive(tall, word)?, positive(wide, word + 1)?);
        if tall.checked_mul(wide).is_none_or(|positions| positions.get() > u32::from(CUT)) {
            return Err(Error::Attribute { index: word });
        }
        let ksize = [tall, wide].map(|size: NonZeroU32| NonZeroUsize::new(size.get() as usize).unwrap_or(NonZeroUsize::MIN));
        Ok(Pools { down, across, ksize, kernel: [kh as usize, kw as usize], channels: c as usize })
    }

    /// Returns the height and width of the pooled images.
    pub(in crate::ops) fn output(&self) -> [usize; 2] {
        let [tall, wide] = self.ksize;
        [self.down.output / tall, self.across.output / wide]
    }

    /// Returns the width of the convolution's result.
    pub(in crate::ops) fn across(&self) -> usize {
        self.across.output
    }

    /// Checks the inputs 1 and 2 of a gradient: dy, which must be the gradient of `n` pooled images, and the positions of the winners.
    /// Returns the number of channels.
    pub(in crate::ops) fn check_gradient(&self, inputs: &[TensorType], n: u32) -> Result<u32> {
        let dy = dims4(inputs, 1)?;
        let ([height, width], [.., co]) = (self.output(), dy);
        for (axis, (want, got)) in (0..).zip([n, height as u32, width as u32, co].into_iter().zip(dy)) {
            check_dim(1, axis, want, got)?;
        }
        let [_, _, winners] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
        if winners.dtype != DType::U8 {
            return Err(Error::DType { input: 2 });
        }
        super::elementwise::same_dims(2, &dy, winners.shape.dims())?;
        Ok(co)
    }

    /// Returns the largest cost of a winner.
    fn cost(&self) -> usize {
        let [kh, kw] = self.kernel;
        90 + kh * (50 + 17 * kw * self.channels / 2)
    }

    /// Returns row `oh` of the convolution's result of image `image`: the taps that are inside the image, and the row of pixels, in all
    /// images, under the first of them.
    #[inline(always)]
    fn line(&self, image: usize, oh: usize) -> (Taps, usize) {
        let vertical = self.down.taps(oh);
        (vertical, image * self.down.input + self.down.input_at(oh, vertical.first))
    }

    /// Returns the part of the images that the convolution sees for column `ow` of a line.
    #[inline(always)]
    fn patch(&self, (vertical, row): (Taps, usize), ow: usize) -> Patch {
        let Pools { down, across, channels, kernel: [_, kernel_row], .. } = self;
        let (horizontal, count) = (across.taps(ow), |taps: Taps| taps.end.saturating_sub(taps.first));
        let length = count(horizontal) * channels;
        Patch {
            element: (row * across.input + across.input_at(ow, horizontal.first)) * channels,
            length,
            step: down.dilation() * across.input * channels,
            weights: (vertical.first * kernel_row + horizontal.first) * channels,
            weights_step: kernel_row * channels,
            rows: if length > 0 { count(vertical) } else { 0 },
        }
    }

    /// Calls `f` for each winner that passes its gradient on, with its patch, its channel and its gradient. For each channel, the order is
    /// that of the convolution's result, row-major. `rows` are those of a call: one for each row of windows and each channel.
    #[inline(always)]
    pub(in crate::ops) fn winners<T: Element>(
        &self,
        rows: Range<usize>,
        (dy, winners, co): (&[T], &[u8], usize),
        mut f: impl FnMut(Patch, usize, T),
    ) {
        let ([tall, wide], [height, width]) = (self.ksize, self.output());
        for (row, channels) in groups(rows, co) {
            let (image, above) = split(row, height);
            for down in 0..tall.get() {
                let line = self.line(image, above * tall.get() + down);
                for channel in channels.clone() {
                    let mut at = row * width * co + channel;
                    for column in 0..width {
                        let (Some(&winner), Some(&dy)) = (winners.get(at), dy.get(at)) else { return };
                        let winner = usize::from(winner);
                        if winner / wide == down {
                            f(self.patch(line, column * wide.get() + winner % wide), channel, dy);
                        }
                        at += co;
                    }
                }
            }
        }
    }

    /// Returns the number of rows for [`Pools::winners`] of `n` images, and the cost of a row.
    pub(in crate::ops) fn rows(&self, n: usize, co: usize) -> (usize, usize) {
        let ([tall, _], [height, width]) = (self.ksize, self.output());
        (n * height * co, width * (self.cost() + tall.get() * 12) + 60)
    }

    /// Returns the number of segments in `n` pooled images. A segment is a row of a window.
    pub(in crate::ops) fn segments(&self, n: usize) -> usize {
        let ([tall, _], [height, width]) = (self.ksize, self.output());
        n * height * tall.get() * width
    }

    /// Returns the cost of a segment. `winners` are all winners of the images.
    pub(in crate::ops) fn segment_cost(&self, segment: usize, winners: &[u8], co: usize) -> usize {
        let (window, down, _) = self.segment(segment);
        let [_, wide] = self.ksize;
        let here = part(winners, window * co, co).iter().filter(|&&winner| usize::from(winner) / wide == down).count();
        wide.get() * (6 * co + 70) + 60 + here * self.cost()
    }

    /// Returns the number of a segment's window, the row of the window, and the row and first column in the convolution's result.
    #[inline(always)]
    fn segment(&self, segment: usize) -> (usize, usize, [usize; 3]) {
        let ([tall, wide], [height, width]) = (self.ksize, self.output());
        let (line, column) = split(segment, width);
        let (image, row) = split(line, height * tall.get());
        let (oh, column) = ((height * tall.get()).saturating_sub(row + 1), width.saturating_sub(column + 1));
        ((image * height + oh / tall) * width + column, oh % tall, [image, oh, column * wide.get()])
    }

    /// Calls `f` for each winner in `segments` that passes its gradient on, like [`Pools::winners`], but backwards: from the last pixel of
    /// the convolution's result to the first in each image. The channels of a pixel are ascending.
    #[inline(always)]
    pub(in crate::ops) fn winners_backwards<T: Element>(
        &self,
        segments: Range<usize>,
        (dy, winners, co): (&[T], &[u8], usize),
        mut f: impl FnMut(Patch, usize, T),
    ) {
        let [_, wide] = self.ksize;
        for segment in segments {
            let (window, down, [image, oh, left]) = self.segment(segment);
            let line = self.line(image, oh);
            let (dy, winners) = (part(dy, window * co, co), part(winners, window * co, co));
            for across in (0..wide.get()).rev() {
                let (position, patch) = (down * wide.get() + across, self.patch(line, left + across));
                for (channel, (&dy, &winner)) in dy.iter().zip(winners).enumerate() {
                    if usize::from(winner) == position {
                        f(patch, channel, dy);
                    }
                }
            }
        }
    }
}
