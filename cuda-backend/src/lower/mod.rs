//! Lowers ops to launches of kernels, with one file for each family of ops.

pub(crate) mod array;
pub(crate) mod call;
mod closing;
pub(crate) mod conv;
mod depthwise;
pub(crate) mod elementwise;
mod gemm;
mod implicit_gemm;
pub(crate) mod linalg;
pub(crate) mod pool;
pub(crate) mod product;
pub(crate) mod reduce;
pub(crate) mod scatter;
pub(crate) mod target;
pub(crate) mod tensor_core;
mod tiles;
mod window;

use call::KernelCall;
use elementwise::Grouped;
use gradlet_core::custom_op::{OpCode, OpDef};
use gradlet_core::device::Member;
use gradlet_core::ops::code;
use gradlet_core::{DType, Error, Result, TensorType};
pub(crate) use target::{Target, TensorCores};

/// An op with the types of its operands, which its shape rule has accepted. Every output has at least one element.
#[derive(Clone, Copy)]
pub(crate) struct Job<'j> {
    pub op: &'static OpDef,
    pub attributes: &'j [u32],
    pub inputs: &'j [TensorType],
    pub outputs: &'j [TensorType],
    pub target: Target,
}

impl Job<'_> {
    /// Returns the element type that selects a kernel: that of input 0, or of output 0 if there are no inputs.
    pub(crate) fn dtype(&self) -> DType {
        self.inputs.first().or(self.outputs.first()).map_or(DType::U8, |tensor_type| tensor_type.dtype)
    }

    /// Returns the job with the plan of this rank.
    pub(crate) fn ranked(&self, rank: usize) -> Self {
        Job { target: Target { rank, ..self.target }, ..*self }
    }
}

/// A family of ops.
struct Family {
    /// True if the family computes this op for this element type on this GPU.
    has_kernel: fn(&OpDef, DType, &Target) -> bool,
    /// Lowers an op of the family. The launches run one after another.
    lower: fn(&Job<'_>) -> Result<Vec<KernelCall>>,
}

/// The families. The first one that has a kernel computes an op.
static FAMILIES: [Family; 8] =
    [elementwise::FAMILY, reduce::FAMILY, tensor_core::FAMILY, linalg::FAMILY, conv::FAMILY, pool::FAMILY, array::FAMILY, scatter::FAMILY];

/// Ops that move elements of any type.
const MOVES: [OpCode; 11] = [
    code::reshape,
    code::transpose,
    code::broadcast_to,
    code::identity,
    code::select,
    code::concat,
    code::strided_slice,
    code::pad,
    code::gather,
    code::gather_nd,
    code::tensor_scatter_update,
];

/// True if the GPU computes `op` for inputs of `dtype`.
pub fn has_kernel(op: &OpDef, dtype: DType, target: &Target) -> bool {
    family(op, dtype, target).is_some()
}

/// True unless `op` on elements of type `dtype` is left to the host: the GPU only moves integers of 16 bits, and computes with them element
/// by element.
pub(crate) fn is_for_gpu(op: &OpDef, dtype: DType) -> bool {
    // The host pools integers, as it computes all quantised ops.
    let pools_integers = op.code == code::max_pool2d && !dtype.is_float();
    !pools_integers && (dtype != DType::I16 || MOVES.contains(&op.code) || elementwise::is_elementwise(op))
}

/// Returns the family that computes an op.
fn family(op: &OpDef, dtype: DType, target: &Target) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| is_for_gpu(op, dtype) && (family.has_kernel)(op, dtype, target))
}

/// Lowers a group with `elements` elements. All its members compute element by element, but the first one may be a product, or the last one
/// a reduction. Joined steps are other kinds of groups ([`reduce::moments`], [`reduce::normalize`]).
pub(crate) fn group(elements: usize, members: &[Member], target: &Target) -> Result<Grouped> {
    match members {
        _ if reduce::moments::are(members) => reduce::moments::group(members, target),
        _ if reduce::normalize::are(members) => reduce::normalize::group(members, target),
        [others @ .., last] if !elementwise::is_elementwise(last.op) => reduce::group(others, last, target),
        [first, others @ ..] if !elementwise::is_elementwise(first.op) => closing::group(elements, first, others, target),
        _ => elementwise::group(elements, members, target),
    }
}

/// Returns the launches that compute an op. Fails with [`Error::NoKernel`] if the GPU does not compute it for this element type.
pub(crate) fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let dtype = job.dtype();
    family(job.op, dtype, &job.target).map_or(Err(Error::NoKernel { op: job.op.name, dtype }), |family| (family.lower)(job))
}

/// Largest number of plans among which a measurement chooses.
const MOST_PLANS: usize = 6;

/// True if several plans may compute `op`: products and convolutions.
pub(crate) fn has_plans(op: &OpDef) -> bool {
    let products = [code::matmul, code::dense, code::matmul_sgd, code::matmul_adam];
    let convolutions = [code::conv2d, code::conv2d_input_grad, code::conv2d_filter_grad];
    products.contains(&op.code) || convolutions.contains(&op.code)
}

/// Returns the launches of the plans that compute an op, the one with the least estimated cost first, with their names.
pub(crate) fn plans(job: &Job<'_>) -> Result<Vec<(String, Vec<KernelCall>)>> {
    let mut plans: Vec<(String, Vec<KernelCall>)> = Vec::new();
    for rank in 0..MOST_PLANS {
        let calls = lower(&job.ranked(rank))?;
        let name = calls.first().map(KernelCall::name).unwrap_or_default();
        if plans.iter().any(|(known, _)| *known == name) {
            break;
        }
        plans.push((name, calls));
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{Shape, ops};

    /// Returns the names of the plans for a product of f32 on an Orin that has changed in this way.
    fn plans_of(dims: [[u32; 2]; 2], change: impl Fn(Target) -> Target) -> Vec<String> {
        let inputs = dims.map(|dims| TensorType::new(DType::F32, Shape::new(&dims).unwrap()));
        let outputs = ops::matmul::DEF.output_types(&inputs, &[0, 0]).unwrap();
        let target = change(Target::ORIN);
        let job = Job { op: &ops::matmul::DEF, attributes: &[0, 0], inputs: &inputs, outputs: &outputs[..1], target };
        plans(&job).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_plans_of_a_product() {
        let orin = |target| target;
        let thin = ["thin_across_1_f32_4 1x1x1", "gemm_64x64_f32 2x1x1", "gemm_128x32_f32 4x1x1", "gemm_32x128_f32 1x1x1"];
        assert_eq!(plans_of([[1, 100], [100, 128]], orin)[..4], thin);
        assert_eq!(plans_of([[64, 4096], [4096, 64]], orin).len(), MOST_PLANS);
        assert_eq!(plans_of([[64, 96], [96, 64]], |target| Target { tf32: true, ..target }), ["product_f32_64x64 1x1x1"]);
        assert_eq!(plans_of([[64, 64], [64, 64]], |target| Target { strict: true, ..target }).len(), 1);
    }
}
