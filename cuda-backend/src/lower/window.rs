//! Windows that slide over images, as `kernels/window.cuh` knows them.

use gradlet_core::{Error, Result, TensorType};

/// A window that slides along one axis. The fields are those of `Axis` in the kernels.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub input: u32,
    pub output: u32,
    pub kernel: u32,
    pub stride: u32,
    pub dilation: u32,
    pub before: u32,
}

impl Axis {
    /// Kind of padding that gives an output of `ceil(input / stride)` positions.
    const SAME: u32 = 1;

    /// Returns the axis with the padding before the image that belongs to this kind of padding. `self.before` is the explicit padding. It
    /// is 0 for the other kinds. The op's shape rule has checked the axis.
    pub(super) fn padded(self, kind: u32) -> Axis {
        if kind != Axis::SAME {
            return self;
        }
        let last = self.output.saturating_sub(1) * self.stride;
        let total = (last + (self.kernel - 1) * self.dilation + 1).saturating_sub(self.input);
        Axis { before: total / 2, ..self }
    }

    /// Returns the words of the structure.
    pub(super) fn words(&self) -> [u32; 6] {
        [self.input, self.output, self.kernel, self.stride, self.dilation, self.before]
    }
}

/// Returns the four dimensions of images, of a filter or of a result.
pub(super) fn dims4(tensor_type: &TensorType) -> Result<[u32; 4]> {
    tensor_type.shape.dims().try_into().map_err(|_| Error::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_is_larger_behind() {
        let before = |input: u32, kernel, stride, dilation| {
            let axis = Axis { input, output: input.div_ceil(stride), kernel, stride, dilation, before: 0 };
            axis.padded(Axis::SAME).before
        };
        assert_eq!([before(5, 3, 1, 1), before(5, 4, 1, 1), before(6, 3, 2, 1), before(5, 3, 1, 2)], [1, 1, 0, 2]);
        assert_eq!([before(5, 2, 5, 1), before(0, 3, 1, 1), before(4, 1 << 30, 1, 1)], [0, 1, (1 << 29) - 1]);
    }
}
