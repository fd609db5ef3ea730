//! Convolution and max pooling in one op. The full-size result of the convolution never exists. Of each pooling window, only the
//! winner is kept: the greatest element, and its position in the window.
//!
//! The pooling windows neither overlap nor leave gaps, and are not padded. Rows and columns that do not fill a window are dropped.

use super::window::{Axis, Taps, part, positive};
use crate::base::dtype::{DType, Element};
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::ops::conv2d;
use crate::ops::conv2d::{check_dim, dims4};
use core::num::{NonZeroU32, NonZeroUsize};

/// Position of a winner that passes no gradient on, because relu made it 0.
pub(in crate::ops) const CUT: u8 = u8::MAX;

/// Geometry of the two windows: that of the convolution slides over the image, and that of the pooling over its result.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Pools {
    down: Axis,
    across: Axis,
    ksize: [NonZeroUsize; 2],
    /// Number of taps in a row of the filter.
    kernel_row: usize,
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
        Ok(Pools { down, across, ksize, kernel_row: kw as usize, channels: c as usize })
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

    /// Returns the part of an image that the convolution sees for row `oh` and column `ow` of its result.
    #[inline(always)]
    fn patch(&self, oh: usize, ow: usize) -> Patch {
        let Pools { down, across, channels, kernel_row, .. } = self;
        let (vertical, horizontal) = (down.taps(oh), across.taps(ow));
        let count = |taps: Taps| taps.end.saturating_sub(taps.first);
        let pixel = down.input_at(oh, vertical.first) * across.input + across.input_at(ow, horizontal.first);
        let length = count(horizontal) * channels;
        Patch {
            element: pixel * channels,
            length,
            step: down.dilation() * across.input * channels,
            weights: (vertical.first * kernel_row + horizontal.first) * channels,
            weights_step: kernel_row * channels,
            rows: if length > 0 { count(vertical) } else { 0 },
        }
    }

    /// Calls `f` for each winner of one image that passes its gradient on, with its patch, its channel and its gradient. The order is that
    /// of the convolution's result, row-major, or the reverse of this order by rows and columns if `backwards` is true. Channels are always
    /// ascending.
    #[inline(always)]
    pub(in crate::ops) fn winners<T: Element>(
        &self,
        (dy, winners, co): (&[T], &[u8], usize),
        backwards: bool,
        mut f: impl FnMut(Patch, usize, T),
    ) {
        let ([tall, wide], [height, width]) = (self.ksize, self.output());
        let (rows, columns) = (height * tall.get(), width * wide.get());
        for oh in 0..rows {
            let oh = if backwards { rows - 1 - oh } else { oh };
            for ow in 0..columns {
                let ow = if backwards { columns - 1 - ow } else { ow };
                let (window, position) = (oh / tall * width + ow / wide, oh % tall * wide.get() + ow % wide);
                let patch = self.patch(oh, ow);
                let of_window = part(dy, window * co, co).iter().zip(part(winners, window * co, co));
                for (channel, (&dy, &winner)) in of_window.enumerate() {
                    if usize::from(winner) == position {
                        f(patch, channel, dy);
                    }
                }
            }
        }
    }
}
