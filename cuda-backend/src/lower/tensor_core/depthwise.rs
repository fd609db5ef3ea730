//! Depthwise convolutions of 16-bit floats. They have no use for tensor cores, but their neighbours in a network do.

use super::sum_of_parts;
use crate::lower::Job;
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::lower::conv::Convolution;
use crate::ptx::Code;
use gradlet_core::custom_op::read_attributes;
use gradlet_core::ops::{code, conv2d_filter_grad, conv2d_input_grad};
use gradlet_core::{DType, Error, Result};

/// Number of pixels of a row that a thread computes: `PIXELS` in the kernels.
const PIXELS: u32 = 4;
/// Numbers of taps and of lanes of a block that sums the gradient of a filter: `TAPS` and `LANES` in the kernels.
const TAPS: u32 = 3;
const LANES: u32 = 32;
/// Smallest number of pixels of a part of such a sum, and largest number of parts.
const SHORTEST: u64 = 32;
const MOST: u64 = 64;

/// Returns the launches of a depthwise convolution or of one of its gradients.
pub(super) fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    use Argument::{Input, Output, Wide};
    let ([a, b, bias @ ..], [output]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
    match job.op.code {
        code::depthwise_conv2d => {
            let conv = Convolution::new(read_attributes(job.attributes)?, [a, b, output])?;
            let groups = conv.across.output.div_ceil(PIXELS);
            let bias = if bias.is_empty() { Wide(0) } else { Input(2) };
            let rows = u64::from(conv.images) * u64::from(conv.down.output);
            Ok(vec![of_groups(job, &conv, groups, rows, conv.filters, vec![Input(0), Input(1), bias, Output(0)])])
        }
        code::depthwise_conv2d_input_grad => {
            let conv2d_input_grad::Attributes { conv, .. } = read_attributes(job.attributes)?;
            let conv = Convolution::new(conv, [output, a, b])?;
            // The pixels of a group are a stride apart.
            let (width, stride) = (conv.across.input, conv.across.stride);
            let groups = stride.min(width) * width.div_ceil(stride).div_ceil(PIXELS);
            let rows = u64::from(conv.images) * u64::from(conv.down.input);
            Ok(vec![of_groups(job, &conv, groups, rows, conv.channels, vec![Input(0), Input(1), Output(0)])])
        }
        _ => {
            let conv2d_filter_grad::Attributes { conv, .. } = read_attributes(job.attributes)?;
            filter_grad(job, &Convolution::new(conv, [a, output, b])?)
        }
    }
}

/// Returns the number of neighbouring channels that a thread computes.
fn width(conv: &Convolution) -> u32 {
    if conv.channels == conv.filters && conv.channels.is_multiple_of(4) { 4 } else { 1 }
}

fn kernel(job: &Job<'_>, conv: &Convolution) -> Code {
    Code::stored("depthwise_80", format!("{}_{}_{}", job.op.name, job.dtype(), width(conv)))
}

/// Returns the words of the kernels' structure.
fn words(job: &Job<'_>, conv: &Convolution, groups: u32) -> Argument {
    let sizes = [conv.images, conv.channels, conv.filters, conv.filters.checked_div(conv.channels).unwrap_or(1), groups];
    let bfloat = u32::from(job.dtype() == DType::Bf16);
    Argument::Words([[conv.down.words(), conv.across.words()].as_flattened(), &sizes, &[bfloat]].concat())
}

/// Returns the launch of a kernel whose threads compute groups of pixels: `groups` of each of `rows` rows, with `channels` channels.
fn of_groups(job: &Job<'_>, conv: &Convolution, groups: u32, rows: u64, channels: u32, mut arguments: Vec<Argument>) -> KernelCall {
    let threads = rows * u64::from(groups) * u64::from(channels / width(conv));
    arguments.extend([words(job, conv, groups), Argument::Wide(threads)]);
    KernelCall::over(threads, kernel(job, conv), arguments)
}

fn filter_grad(job: &Job<'_>, conv: &Convolution) -> Result<Vec<KernelCall>> {
    use Argument::{Input, Output, Wide, Words, Workspace};
    let pixels = u64::from(conv.images) * u64::from(conv.down.output) * u64::from(conv.across.output);
    let elements = u64::from(conv.down.kernel) * u64::from(conv.across.kernel) * u64::from(conv.filters);
    let (columns, rows) =
        (conv.filters.div_ceil(LANES * width(conv)), u64::from(conv.down.kernel) * u64::from(conv.across.kernel.div_ceil(TAPS)));
    let room = u64::from(job.target.multiprocessors) * 4 / (u64::from(columns) * rows).max(1);
    let parts = room.min(pixels / SHORTEST).min(job.target.workspace / 4 / elements.max(1)).clamp(1, MOST);
    let each = u32::try_from(pixels.div_ceil(parts)).map_err(|_| Error::TooLarge)?;
    let rows = u16::try_from(rows).map_err(|_| Error::TooLarge)?;
    let sums = if parts > 1 { Workspace } else { Wide(0) };
    let arguments = vec![Input(0), Input(1), Output(0), sums, words(job, conv, 0), Words(vec![each])];
    let (grid, block) = ([columns, rows.into(), parts as u32], [BLOCK, 1, 1]);
    let call = KernelCall { code: kernel(job, conv), grid, block, shared: 0, arguments };
    let sum = (parts > 1).then(|| sum_of_parts(job, parts as u32, elements, conv.filters));
    Ok([call].into_iter().chain(sum).collect())
}
