//! Lowers ops to launches of kernels, with one file for each family of ops.

pub(crate) mod array;
pub(crate) mod call;
pub(crate) mod conv;
mod depthwise;
pub(crate) mod elementwise;
mod gemm;
mod implicit_gemm;
pub(crate) mod linalg;
pub(crate) mod pool;
pub(crate) mod reduce;
pub(crate) mod scatter;
pub(crate) mod target;
pub(crate) mod tensor_core;
mod tiles;
mod window;

use call::KernelCall;
use gradlet_core::custom_op::OpDef;
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

/// True if the GPU computes `op` for inputs of `dtype`.
pub fn has_kernel(op: &OpDef, dtype: DType, target: &Target) -> bool {
    FAMILIES.iter().any(|family| (family.has_kernel)(op, dtype, target))
}

/// Returns the launches that compute an op. Fails with [`Error::NoKernel`] if the GPU does not compute it for this element type.
pub(crate) fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let dtype = job.dtype();
    let family = FAMILIES.iter().find(|family| (family.has_kernel)(job.op, dtype, &job.target));
    family.map_or(Err(Error::NoKernel { op: job.op.name, dtype }), |family| (family.lower)(job))
}
