//! Poolings and their gradients. The fused `conv2d_max_pool2d` ops stay on the CPU: only plans for microcontrollers contain them.

use super::window::{Axis, dims4};
use super::{Family, Job};
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::Code;
use gradlet_core::ops::{avg_pool2d_grad, code, max_pool2d};
use gradlet_core::{DType, Error, Result, TensorType, custom_op};

pub(super) const FAMILY: Family = Family {
    has_kernel: |op, dtype, _| {
        let pooling = matches!(op.code, code::max_pool2d | code::max_pool2d_pick | code::avg_pool2d);
        (pooling || matches!(op.code, code::max_pool2d_grad | code::avg_pool2d_grad)) && matches!(dtype, DType::F32 | DType::F64)
    },
    lower,
};

/// All kernels have the op's operands as parameters, then the geometry, then the number of groups of channels of the result. A group has
/// four channels of f32 if their number is a multiple of 4, and otherwise one.
fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let ([first, ..], [output]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
    let channels = dims4(output)?[3];
    let in_fours = job.dtype() == DType::F32 && channels.is_multiple_of(4) && job.op.code != code::max_pool2d_pick;
    let (width, suffix) = if in_fours { (4, "_4") } else { (1, "") };
    let geometry = |attributes, images, result| geometry(attributes, images, result, channels / width);
    let geometry = match job.op.code {
        code::max_pool2d_grad => geometry(custom_op::read_attributes(job.attributes)?, output, job.inputs.get(1).ok_or(Error::Internal)?),
        code::avg_pool2d_grad => {
            let attributes: avg_pool2d_grad::Attributes = custom_op::read_attributes(job.attributes)?;
            geometry(attributes.pooling, output, first)
        }
        _ => geometry(custom_op::read_attributes(job.attributes)?, first, output),
    };
    let groups = output.shape.elements().ok_or(Error::TooLarge)? as u64 / u64::from(width);
    let operands = (0..job.inputs.len()).map(Argument::Input).chain([Argument::Output(0)]);
    let arguments = operands.chain([geometry?, Argument::Wide(groups)]).collect();
    let kernel = Code::stored("pool", format!("{}_{}{suffix}", job.op.name, job.dtype()));
    Ok(vec![KernelCall::over(groups, kernel, arguments)])
}

/// Returns the structure `Pooling` of the kernels for a pooling of `images` to `result`, whose pixels have `groups` groups of channels.
fn geometry(attributes: max_pool2d::Attributes, images: &TensorType, result: &TensorType, groups: u32) -> Result<Argument> {
    let max_pool2d::Attributes { ksize: [kh, kw], strides: [down, across], padding } = attributes;
    let ([_, h, w, _], [_, oh, ow, _]) = (dims4(images)?, dims4(result)?);
    let down = Axis { input: h, output: oh, kernel: kh, stride: down, dilation: 1, before: 0 };
    let across = Axis { input: w, output: ow, kernel: kw, stride: across, dilation: 1, before: 0 };
    let axes = [down, across].map(|axis| axis.padded(padding).words());
    Ok(Argument::Words([axes.as_flattened(), &[groups]].concat()))
}
