//! Geometry of windows that slide over images, for convolution and pooling.

use super::contraction::rolled;
use crate::base::dtype::Number;
use crate::base::error::{Error, Result};
use core::num::{NonZeroU32, NonZeroUsize};
use core::ops::Range;

/// Padding of an image while a window slides over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// No padding. The window stays inside the image.
    #[default]
    Valid,
    /// Enough padding for an output of `ceil(input / stride)` positions. If the amount of padding is odd, the larger part is below
    /// and to the right.
    Same,
    /// Padding of a given size on each side.
    Explicit {
        /// Rows above.
        top: u32,
        /// Rows below.
        bottom: u32,
        /// Columns to the left.
        left: u32,
        /// Columns to the right.
        right: u32,
    },
}

impl Padding {
    /// Attribute word of [`Padding::Valid`].
    #[cfg(feature = "alloc")]
    pub(in crate::ops) const VALID: u32 = 0;
    /// Attribute word of [`Padding::Same`].
    pub(in crate::ops) const SAME: u32 = 1;
    /// Attribute word of [`Padding::Explicit`].
    pub(in crate::ops) const EXPLICIT: u32 = 2;

    /// Returns the attribute words: the kind, then the padding above, below, to the left and to the right.
    #[cfg(feature = "alloc")]
    pub(in crate::ops) fn words(self) -> (u32, [u32; 4]) {
        match self {
            Padding::Valid => (Padding::VALID, [0; 4]),
            Padding::Same => (Padding::SAME, [0; 4]),
            Padding::Explicit { top, bottom, left, right } => (Padding::EXPLICIT, [top, bottom, left, right]),
        }
    }

    /// Creates the padding from its kind and its sizes, as [`Padding::words`] returns them. The words must have been checked.
    #[cfg(feature = "alloc")]
    pub(crate) fn from_words(kind: u32, pads: [u32; 4]) -> Padding {
        let [top, bottom, left, right] = pads;
        match kind {
            Padding::VALID => Padding::Valid,
            Padding::SAME => Padding::Same,
            _ => Padding::Explicit { top, bottom, left, right },
        }
    }
}

/// Geometry of a window that slides along one axis. All numbers and all positions in the padded input are at most `i32::MAX`.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Axis {
    pub(in crate::ops) input: usize,
    pub(in crate::ops) output: usize,
    kernel: usize,
    stride: NonZeroUsize,
    dilation: NonZeroUsize,
    before: usize,
}

/// Taps of a window that are inside the input: those from `first` to before `end`. There may be none.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Taps {
    pub(in crate::ops) first: usize,
    pub(in crate::ops) end: usize,
}

impl Axis {
    /// Creates a window of `kernel` taps that slides along an axis of `input` elements. The kind of padding must be known.
    ///
    /// Fails with [`Error::Dimension`] (for `axis` of input 0) if the window exceeds the padded input by more than a stride. There
    /// is then no output at all. Fails with [`Error::TooLarge`] if a number exceeds `i32::MAX`.
    pub(in crate::ops) fn new(
        axis: u8,
        [input, kernel]: [u32; 2],
        [stride, dilation]: [NonZeroU32; 2],
        (padding, before, after): (u32, u32, u32),
    ) -> Result<Axis> {
        let usize_of = |value: NonZeroU32| NonZeroUsize::new(value.get() as usize).unwrap_or(NonZeroUsize::MIN);
        let fits = |value: Option<u32>| value.filter(|&value| value <= i32::MAX as u32).ok_or(Error::TooLarge);
        let window = fits(kernel.saturating_sub(1).checked_mul(dilation.get()).and_then(|reach| reach.checked_add(1)))?;
        fits(Some(stride.get()))?;
        let (before, output) = if padding == Padding::SAME {
            let output = input.div_ceil(stride.get());
            let last = output.saturating_sub(1).saturating_mul(stride.get());
            let total = fits(last.checked_add(window))?.saturating_sub(input);
            fits(input.checked_add(total))?;
            (total / 2, output)
        } else {
            let padded = fits(before.checked_add(after).and_then(|pads| pads.checked_add(input)))?;
            let Some(room) = (padded + stride.get()).checked_sub(window) else {
                return Err(Error::Dimension { input: 0, axis, want: input + (window - padded), got: input });
            };
            (before, room / stride)
        };
        let [input, output, kernel] = [input as usize, output as usize, kernel as usize];
        Ok(Axis { input, output, kernel, stride: usize_of(stride), dilation: usize_of(dilation), before: before as usize })
    }

    /// Returns the stride.
    pub(in crate::ops) fn stride(&self) -> usize {
        self.stride.get()
    }

    /// Returns the dilation.
    pub(in crate::ops) fn dilation(&self) -> usize {
        self.dilation.get()
    }

    /// Returns the taps of the window at output position `at` that are inside the input.
    pub(in crate::ops) fn taps(&self, at: usize) -> Taps {
        let start = at * self.stride.get();
        Taps {
            first: self.before.saturating_sub(start).div_ceil(self.dilation.get()),
            end: (self.input + self.before).saturating_sub(start).div_ceil(self.dilation.get()).min(self.kernel),
        }
    }

    /// Returns the input position of tap `tap` of the window at output position `at`. The tap must be inside the input.
    pub(in crate::ops) fn input_at(&self, at: usize, tap: usize) -> usize {
        (at * self.stride.get() + tap * self.dilation.get()).wrapping_sub(self.before)
    }

    /// Returns the range of output positions at which tap `tap` is inside the input: its first position, and the position after its last.
    pub(in crate::ops) fn outputs(&self, tap: usize) -> (usize, usize) {
        let reach = tap * self.dilation.get();
        let first = self.before.saturating_sub(reach).div_ceil(self.stride.get());
        (first, (self.input + self.before).saturating_sub(reach).div_ceil(self.stride.get()).min(self.output))
    }

    /// Calls `f` with ranges of output positions, each with taps that are inside the input at all positions of the range and contiguous
    /// there: the first position, the position after the last, and the taps. Together, the calls cover all taps inside the input at the
    /// output positions `within`. The taps of one output position are ascending.
    #[inline(always)]
    pub(in crate::ops) fn each_run(&self, within: Range<usize>, mut f: impl FnMut(usize, usize, Taps)) {
        let dilated = self.dilation() > 1;
        // Between these positions, the whole window is inside the input.
        let (inside, inside_end) = (self.outputs(0).0, self.outputs(self.kernel.saturating_sub(1)).1);
        let (mut at, count) = if dilated { (0, self.kernel) } else { (within.start, within.end) };
        while at < count {
            let (first, end, taps) = if dilated {
                let (first, end) = self.outputs(at);
                (first.max(within.start), end.min(within.end), Taps { first: at, end: at + 1 })
            } else {
                (at, if at >= inside { inside_end.min(within.end).max(at + 1) } else { at + 1 }, self.taps(at))
            };
            at = if dilated { at + 1 } else { end };
            if first < end && taps.first < taps.end {
                f(first, end, taps);
            }
        }
    }

    /// Returns the taps that can be on input position `position`: those for which [`Axis::output_at`] can return an output.
    pub(in crate::ops) fn taps_on(&self, position: usize) -> Taps {
        let position = position + self.before;
        let beyond = position.checked_sub(self.output * self.stride.get());
        Taps { first: beyond.map_or(0, |beyond| beyond / self.dilation + 1), end: (position / self.dilation + 1).min(self.kernel) }
    }

    /// Returns the largest number of taps that are on one input position.
    pub(in crate::ops) fn most_taps_on(&self) -> usize {
        if self.dilation() > 1 { self.kernel } else { self.kernel.div_ceil(self.stride.get()) }
    }

    /// Returns the output position whose window has the tap `tap` on the input position `position`. `tap` must be one of
    /// [`Axis::taps_on`]. Returns `None` if there is no such window, because the stride skips it.
    pub(in crate::ops) fn output_at(&self, position: usize, tap: usize) -> Option<usize> {
        let start = (position + self.before).wrapping_sub(tap * self.dilation.get());
        let output = start / self.stride;
        (output * self.stride.get() == start).then_some(output)
    }
}

/// Returns `word`, the attribute word with the number `index`, as a number above 0. Fails if it is 0.
pub(in crate::ops) fn positive(word: u32, index: u8) -> Result<NonZeroU32> {
    NonZeroU32::new(word).ok_or(Error::Attribute { index })
}

/// Returns the quotient and the remainder of `index` and `size`. A size of 0 counts as 1.
#[inline(always)]
pub(in crate::ops) fn split(index: usize, size: usize) -> (usize, usize) {
    let size = NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
    (index / size, index % size)
}

/// Divides `rows` into groups: every multiple of `size` begins a group. Returns the number of each group, and those of its rows that are
/// in `rows`, counted from the beginning of the group.
#[inline(always)]
pub(in crate::ops) fn groups(mut rows: Range<usize>, size: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let size = NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
    core::iter::from_fn(move || {
        let (group, first) = (rows.start / size, rows.start % size);
        let count = (size.get() - first).min(rows.end - rows.start);
        rows.start += count;
        (count > 0).then_some((group, first..first + count))
    })
}

/// Sets all elements to 0. Takes half of the time of `memset`, because it writes four elements at once.
#[inline(never)]
pub(in crate::ops) fn clear<T: Number>(elements: &mut [T]) {
    let (blocks, rest) = elements.as_chunks_mut::<4>();
    for block in blocks {
        *block = [T::ZERO; 4];
        rolled();
    }
    for element in rest {
        *element = T::ZERO;
        rolled();
    }
}

/// Returns `length` elements from `start` on, or an empty slice if there are fewer than `length`.
#[inline]
pub(in crate::ops) fn part<T>(elements: &[T], start: usize, length: usize) -> &[T] {
    elements.get(start..).and_then(|elements| elements.get(..length)).unwrap_or(&[])
}

/// Mutable version of [`part`].
#[inline]
pub(in crate::ops) fn part_mut<T>(elements: &mut [T], start: usize, length: usize) -> &mut [T] {
    elements.get_mut(start..).and_then(|elements| elements.get_mut(..length)).unwrap_or(&mut [])
}
