//! Depthwise convolutions of f32 images with 3 x 3 taps, and their gradients: see `kernels/depthwise.cu`.

use super::Target;
use super::conv::Convolution;
use super::gemm::{self, End};
use super::window::Axis;
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::ptx::Code;

/// Number of pixels that a thread computes: `PIXELS` in the kernels.
const PIXELS: u32 = 4;
/// Number of taps.
const TAPS: u32 = 9;

impl Convolution {
    /// True if each channel of the images has one channel of the result, and the channels are quads: groups of four.
    pub(super) fn has_quads(&self) -> bool {
        self.channels == self.filters && self.channels.is_multiple_of(4)
    }

    /// Returns the stride if the kernels for 3 x 3 taps compute the convolution.
    fn stride(&self) -> Option<u32> {
        let axes = [self.down, self.across];
        let fits = |axis: &Axis| axis.kernel == 3 && axis.dilation == 1 && axis.stride == axes[0].stride;
        (self.has_quads() && axes.iter().all(fits)).then_some(axes[0].stride)
    }

    /// Returns the launches of a depthwise convolution, or `None` if it has other kernels.
    pub(super) fn depthwise(&self, bias: Option<usize>) -> Option<Vec<KernelCall>> {
        let stride = self.stride().filter(|&stride| stride <= 2)?;
        Some(vec![self.slide(stride, [0, 1], bias, false)])
    }

    /// Returns the launches of the gradient of the images, or `None` if it has other kernels. With stride 1, it is the convolution of dy
    /// with the taps in reverse order.
    pub(super) fn depthwise_input_grad(&self) -> Option<Vec<KernelCall>> {
        self.stride().filter(|&stride| stride == 1)?;
        let turned = |axis: Axis| Axis { input: axis.output, output: axis.input, before: 2u32.wrapping_sub(axis.before), ..axis };
        let convolution = Convolution { down: turned(self.down), across: turned(self.across), ..*self };
        Some(vec![convolution.slide(1, [1, 0], None, true)])
    }

    fn slide(&self, stride: u32, [x, filter]: [usize; 2], bias: Option<usize>, turned: bool) -> KernelCall {
        let groups = self.across.output.div_ceil(PIXELS);
        let rows = u64::from(self.images) * u64::from(self.down.output);
        let threads = rows * u64::from(groups) * u64::from(self.channels / 4);
        let bias = bias.map_or(Argument::Wide(0), Argument::Input);
        let operands = [Argument::Input(x), Argument::Input(filter), bias, Argument::Output(0)];
        let sizes = [self.quads(groups, turned), Argument::Wide(threads)];
        let code = Code::stored("depthwise", format!("depthwise_3x3_stride_{stride}_f32"));
        KernelCall::over(threads, code, operands.into_iter().chain(sizes).collect())
    }

    /// Returns the launches of the gradient of the filter, or `None` if it has other kernels.
    pub(super) fn depthwise_filter_grad(&self, target: &Target) -> Option<Vec<KernelCall>> {
        self.stride()?;
        // Number of blocks that keep a multiprocessor busy.
        const BLOCKS: u64 = 4;
        let quads = self.channels / 4;
        let wide = quads.next_power_of_two().min(32);
        let (columns, rows) = (quads.div_ceil(wide), u64::from(self.images) * u64::from(self.down.output));
        let elements = u64::from(TAPS) * u64::from(self.channels);
        let wanted = (u64::from(target.multiprocessors) * BLOCKS).div_ceil(columns.into());
        // The threads of a block share the rows of each part.
        let most = rows.div_ceil((BLOCK / wide).into()).min(target.workspace / 4 / elements);
        let parts = wanted.min(most).clamp(1, 1024) as u32;
        let launch = |end: &End| {
            let operands = [Argument::Input(0), Argument::Input(1), end.output(), self.quads(0, false)];
            let sizes = [Argument::Words(vec![wide]), Argument::Wide(rows)];
            let code = Code::stored("depthwise", "depthwise_3x3_filter_grad_f32".into());
            let arguments = operands.into_iter().chain(sizes).collect();
            KernelCall { code, grid: [columns, parts, 1], block: [BLOCK, 1, 1], shared: 0, arguments }
        };
        Some(gemm::in_parts(parts, elements, self.channels, End::stored(None, Argument::Output(0)), launch))
    }

    /// Returns the structure `Depthwise` of the kernels.
    fn quads(&self, groups: u32, turned: bool) -> Argument {
        let axes = [self.down.words(), self.across.words()];
        Argument::Words([axes.as_flattened(), &[self.channels / 4, groups, turned.into()]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_geometries_have_the_kernels_for_3_x_3_taps() {
        let axis = Axis { input: 8, output: 8, kernel: 3, stride: 1, dilation: 1, before: 1 };
        let convolution = |axis, channels, filters| Convolution { down: axis, across: axis, images: 2, channels, filters };
        let forward = |axis| convolution(axis, 8, 8).depthwise(None).is_some();
        assert!(forward(axis) && forward(Axis { stride: 2, ..axis }) && !forward(Axis { stride: 3, ..axis }));
        assert!(!forward(Axis { dilation: 2, ..axis }) && !forward(Axis { kernel: 5, ..axis }));
        assert!(convolution(axis, 8, 16).depthwise(None).is_none() && convolution(axis, 6, 6).depthwise(None).is_none());
        assert!(convolution(Axis { stride: 2, ..axis }, 8, 8).depthwise_input_grad().is_none());
    }

    #[test]
    fn a_long_sum_is_divided() {
        let axis = Axis { input: 56, output: 56, kernel: 3, stride: 1, dilation: 1, before: 1 };
        let convolution = Convolution { down: axis, across: axis, images: 32, channels: 144, filters: 144 };
        let calls = convolution.depthwise_filter_grad(&Target::ORIN).unwrap();
        assert_eq!(calls.iter().map(|call| call.grid).collect::<Vec<_>>(), [[2, 32, 1], [2, 1, 1]]);
        let none = Target { workspace: 0, ..Target::ORIN };
        assert_eq!(convolution.depthwise_filter_grad(&none).unwrap().len(), 1);
    }
}
