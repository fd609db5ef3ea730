//! Layout of the operands of packed ops, and the geometry of their windows.

use core::ops::Range;
use gradlet_core::ops::conv2d::Attributes;

/// Words of a channel's constants, as core packs them (`ops/shared/packed.rs`): twice the bias, the mantissa of the multiplier, the offset
/// and the shift.
pub(crate) const CHANNEL: usize = 4;

/// Bytes of a vector.
pub(crate) const LANES: usize = 16;
/// Words of a channel's constants with a filter of 3×3: those of the channel, then nine weights, and three bytes that are not used.
pub(crate) const FILTER: usize = CHANNEL + 3;

/// Returns the quotient and the remainder of `index` and `size`. A size of 0 counts as 1, so that the division cannot panic.
pub(crate) fn split(index: usize, size: usize) -> (usize, usize) {
    let size = size.max(1);
    (index / size, index % size)
}

/// Attribute word of `Padding::Same`.
const SAME: u32 = 1;

/// A window that slides along one axis. The attributes must be those of a checked instruction.
pub(crate) struct Axis {
    /// Size of x.
    pub(crate) input: usize,
    /// Size of the window.
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    /// Padding before x.
    pub(crate) before: usize,
}

impl Axis {
    /// Returns axis `axis`: 0 is vertical, 1 is horizontal.
    pub(crate) fn new(window: &Attributes, axis: usize, [input, output, kernel]: [usize; 3]) -> Axis {
        let stride = window.strides[axis] as usize;
        let before = if window.padding == SAME {
            (output.saturating_sub(1) * stride + kernel).saturating_sub(input) / 2
        } else {
            window.pads[2 * axis] as usize
        };
        Axis { input, kernel, stride, before }
    }

    /// Returns the taps of the window at output position `at` that are inside x.
    pub(crate) fn taps(&self, at: usize) -> Range<usize> {
        let start = at * self.stride;
        self.before.saturating_sub(start)..(self.input + self.before).saturating_sub(start).min(self.kernel)
    }

    /// Returns the position in x of tap `tap` of the window at output position `at`. The tap must be inside x.
    pub(crate) fn input_at(&self, at: usize, tap: usize) -> usize {
        (at * self.stride + tap).wrapping_sub(self.before)
    }
}
