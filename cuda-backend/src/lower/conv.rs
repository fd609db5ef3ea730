//! Convolutions and their gradients.

use super::window::{Axis, dims4};
use super::{Family, Job};
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::ptx::Code;
use gradlet_core::ops::{code, conv2d, conv2d_filter_grad, conv2d_input_grad};
use gradlet_core::{DType, Error, Result, TensorType, custom_op};

pub(super) const FAMILY: Family = Family {
    has_kernel: |op, dtype, _| {
        let convolution = matches!(op.code, code::conv2d | code::conv2d_input_grad | code::conv2d_filter_grad);
        let depthwise = matches!(op.code, code::depthwise_conv2d | code::depthwise_conv2d_input_grad | code::depthwise_conv2d_filter_grad);
        (convolution || depthwise) && matches!(dtype, DType::F32 | DType::F64)
    },
    lower,
};

/// Number of pixels that a thread computes: `PIXELS` in the kernels.
const PIXELS: u32 = 4;
/// Number of channels that a warp of `conv2d_input_grad` computes, and number of groups of pixels that a block computes.
const TILE: [u32; 2] = [32, BLOCK / 32];

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    match job.op.code {
        code::conv2d | code::depthwise_conv2d => forward(job),
        code::conv2d_input_grad | code::depthwise_conv2d_input_grad => input_grad(job),
        _ => filter_grad(job),
    }
}

/// True for the ops whose channels do not meet.
fn is_depthwise(job: &Job<'_>) -> bool {
    matches!(job.op.code, code::depthwise_conv2d | code::depthwise_conv2d_input_grad | code::depthwise_conv2d_filter_grad)
}

/// True on a GPU that may add in another order than the portable kernels, if it has kernels for the element type that do so.
fn is_free(job: &Job<'_>) -> bool {
    !job.target.strict && job.dtype() == DType::F32
}

/// Geometry of a convolution.
pub(super) struct Convolution {
    pub down: Axis,
    pub across: Axis,
    /// Numbers of images, of their channels, and of channels of the result.
    pub images: u32,
    pub channels: u32,
    pub filters: u32,
}

impl Convolution {
    pub(super) fn new(attributes: conv2d::Attributes, [images, filter, result]: [&TensorType; 3]) -> Result<Convolution> {
        let ([n, h, w, channels], [kh, kw, ..], [_, oh, ow, filters]) = (dims4(images)?, dims4(filter)?, dims4(result)?);
        let conv2d::Attributes { strides, dilations, padding, pads: [top, _, left, _] } = attributes;
        let down = Axis { input: h, output: oh, kernel: kh, stride: strides[0], dilation: dilations[0], before: top };
        let across = Axis { input: w, output: ow, kernel: kw, stride: strides[1], dilation: dilations[1], before: left };
        Ok(Convolution { down: down.padded(padding), across: across.padded(padding), images: n, channels, filters })
    }

    /// Returns the convolution as the kernels see it, and the kernel. A depthwise one of f32 has quads of channels if it can: they have the
    /// bits of single ones.
    fn in_quads(self, job: &Job<'_>) -> (Convolution, Code) {
        if !is_depthwise(job) || job.dtype() != DType::F32 || !self.has_quads() {
            return (self, kernel(job, ""));
        }
        (Convolution { channels: self.channels / 4, filters: self.filters / 4, ..self }, kernel(job, "_4"))
    }

    /// Returns the kernel's structure. `groups` is the number of groups of pixels in a row.
    fn words(&self, groups: u32) -> Argument {
        let axes = [self.down.words(), self.across.words()];
        Argument::Words([axes.as_flattened(), &[self.channels, self.filters, groups]].concat())
    }
}

/// Returns the kernel for the op and its element type, with this suffix of its name.
fn kernel(job: &Job<'_>, suffix: &str) -> Code {
    Code::stored("conv", format!("{}_{}{suffix}", job.op.name, job.dtype()))
}

fn forward(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let ([x, filter, bias @ ..], [y]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
    let convolution = Convolution::new(custom_op::read_attributes(job.attributes)?, [x, filter, y])?;
    let bias = (!bias.is_empty()).then_some(2);
    if is_free(job)
        && let Some(calls) = if is_depthwise(job) { convolution.depthwise(bias) } else { convolution.forward(bias, &job.target) }
    {
        return Ok(calls);
    }
    let (convolution, kernel) = convolution.in_quads(job);
    let groups = convolution.across.output.div_ceil(PIXELS);
    let rows = u64::from(convolution.images) * u64::from(convolution.down.output);
    let threads = rows * u64::from(groups) * u64::from(convolution.filters);
    let bias = bias.map_or(Argument::Wide(0), Argument::Input);
    let operands = [Argument::Input(0), Argument::Input(1), bias, Argument::Output(0)];
    let sizes = [convolution.words(groups), Argument::Wide(threads)];
    Ok(vec![KernelCall::over(threads, kernel, operands.into_iter().chain(sizes).collect())])
}

fn input_grad(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let ([filter, dy], [dx]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
    let attributes: conv2d_input_grad::Attributes = custom_op::read_attributes(job.attributes)?;
    let convolution = Convolution::new(attributes.conv, [dx, filter, dy])?;
    if is_free(job)
        && let Some(calls) = if is_depthwise(job) { convolution.depthwise_input_grad() } else { convolution.input_grad(&job.target) }
    {
        return Ok(calls);
    }
    let (convolution, kernel) = convolution.in_quads(job);
    // The pixels of a group are a stride apart.
    let Axis { input: width, stride, .. } = convolution.across;
    let in_row = stride.min(width) * width.div_ceil(stride).div_ceil(PIXELS);
    let groups = u64::from(convolution.images) * u64::from(convolution.down.input) * u64::from(in_row);
    let threads = if job.op.code == code::conv2d_input_grad {
        let [channels, pixels] = TILE;
        groups.div_ceil(pixels.into()) * u64::from(convolution.channels.div_ceil(channels)) * u64::from(BLOCK)
    } else {
        groups * u64::from(convolution.channels)
    };
    let operands = [Argument::Input(0), Argument::Input(1), Argument::Output(0)];
    let sizes = [convolution.words(in_row), Argument::Wide(groups)];
    Ok(vec![KernelCall::over(threads, kernel, operands.into_iter().chain(sizes).collect())])
}

fn filter_grad(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let ([x, dy], [dfilter]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
    let attributes: conv2d_filter_grad::Attributes = custom_op::read_attributes(job.attributes)?;
    let convolution = Convolution::new(attributes.conv, [x, dfilter, dy])?;
    let target = &job.target;
    if is_free(job)
        && let Some(calls) = if is_depthwise(job) { convolution.depthwise_filter_grad(target) } else { convolution.filter_grad(target) }
    {
        return Ok(calls);
    }
    let row = u64::from(convolution.down.output) * u64::from(convolution.across.output);
    let pixels = u64::from(convolution.images) * row;
    let elements = dfilter.shape.elements().ok_or(Error::TooLarge)? as u64;
    let parts = parts(pixels, elements);
    let operands = [Argument::Input(0), Argument::Input(1), Argument::Output(0)];
    let each = Argument::Wide(pixels.div_ceil(parts.into()));
    let sizes = [convolution.words(0), Argument::Words(vec![parts]), each, Argument::Wide(pixels), Argument::Wide(elements)];
    Ok(vec![KernelCall::over(elements * u64::from(parts), kernel(job, ""), operands.into_iter().chain(sizes).collect())])
}

/// Returns the number of parts in which a sum over `pixels` pixels is computed for each of `elements` elements of the filter's gradient, a
/// power of two. One part has the bits of the portable kernel. There are more only if the parts have enough pixels, and if the elements
/// alone would not fill a GPU. The number depends on nothing else, so the bits are the same on every GPU.
fn parts(pixels: u64, elements: u64) -> u32 {
    const PIXELS_OF_PART: u64 = 256;
    const THREADS: u64 = 1 << 16;
    // Up to this number, a block has enough neighbouring elements to load whole sectors.
    const MOST: u64 = 32;
    let most = (pixels / PIXELS_OF_PART).min(THREADS / elements.max(1)).clamp(1, MOST);
    1 << most.ilog2()
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn long_sums_of_few_elements_are_divided() {
        assert_eq!([parts(0, 10), parts(511, 10), parts(512, 10), parts(21632, 288)], [1, 1, 2, 32]);
        assert_eq!([parts(1 << 30, 1), parts(1 << 30, 1 << 14), parts(1 << 30, (1 << 15) + 1), parts(1 << 30, 1 << 40)], [32, 4, 1, 1]);
    }
}
