//! Products of matrices and convolutions on tensor cores, from compute capability 8.0 on.

mod depthwise;
mod plan;
mod problem;
pub(crate) mod sample;

use super::{Family, Job, Target, TensorCores};
use crate::lower::call::{Argument, KernelCall};
use crate::lower::{conv, linalg};
use crate::ptx::Code;
use gradlet_core::custom_op::OpDef;
use gradlet_core::ops::code;
use gradlet_core::{DType, Result};
use plan::Plan;
use problem::Problem;

pub(super) const FAMILY: Family = Family { has_kernel, lower };

/// Files of the kernels for warps and for warpgroups.
const FILES: [&str; 2] = ["tensor_core_80", "warpgroup_90a"];
/// Products of f32 with fewer rows or columns have no use for tensor cores: the memory limits them.
const FEW: u32 = 32;

/// True if kernels on tensor cores compute `op` for elements of `dtype` on this GPU.
pub(crate) fn has_kernel(op: &OpDef, dtype: DType, target: &Target) -> bool {
    let products = [code::matmul, code::dense, code::conv2d, code::conv2d_input_grad, code::conv2d_filter_grad];
    let narrow = matches!(dtype, DType::F16 | DType::Bf16);
    let is_product = products.contains(&op.code) && (narrow || dtype == DType::F32 && target.tf32);
    target.tensor_cores >= TensorCores::Warps && (is_product || is_depthwise(op) && narrow)
}

fn is_depthwise(op: &OpDef) -> bool {
    [code::depthwise_conv2d, code::depthwise_conv2d_input_grad, code::depthwise_conv2d_filter_grad].contains(&op.code)
}

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    if is_depthwise(job.op) {
        return depthwise::lower(job);
    }
    let wide = job.dtype() == DType::F32;
    let problem = Problem::new(job);
    if wide && !problem.as_ref().is_ok_and(|problem| problem.is_aligned() && problem.m.min(problem.n) >= FEW) {
        // The kernels for f32 compute what those for TF32 do not.
        let products = [code::matmul, code::dense].contains(&job.op.code);
        return if products { (linalg::FAMILY.lower)(job) } else { (conv::FAMILY.lower)(job) };
    }
    let problem = problem?;
    Ok(launches(job, &problem, Plan::new(&problem, &job.target)))
}

/// Returns the launches of a product that is computed in this way.
fn launches(job: &Job<'_>, problem: &Problem, plan: Plan) -> Vec<KernelCall> {
    use Argument::{Input, Output, Wide, Words, Workspace};
    let Plan { tile, parts } = plan;
    let dtype = job.dtype();
    let (by, kind) = match problem.kind() {
        Some(kind) if tile.by_warpgroups => ("warpgroup", format!("{}_{}", kind.name(), tile.columns)),
        _ if problem.is_aligned() => ("product", format!("{}x{}", tile.rows, tile.columns)),
        _ => ("product", "unaligned".to_string()),
    };
    let bias = job.inputs.get(2).map_or(Wide(0), |_| Input(2));
    // The gradient of the images has the filter first.
    let [a, b] = if job.op.code == code::conv2d_input_grad { [1, 0] } else { [0, 1] };
    let sums = if parts > 1 { Workspace } else { Wide(0) };
    let words = Words(problem.words([tile.rows, tile.columns], parts, u32::from(dtype == DType::Bf16)));
    let product = KernelCall {
        code: Code::stored(FILES[usize::from(tile.by_warpgroups)], format!("{by}_{dtype}_{kind}")),
        grid: [problem.blocks(&plan) as u32, 1, 1],
        block: [tile.threads(), 1, 1],
        shared: tile.shared(),
        arguments: vec![Input(a), Input(b), bias, Output(0), sums, words],
    };
    let sum = (parts > 1).then(|| sum_of_parts(job, parts, problem.results, problem.n));
    [product].into_iter().chain(sum).collect()
}

/// Returns the launch that adds the parts of sums, which are in the workspace, and the bias, if the op has one. Rows of the output have
/// `columns` elements.
fn sum_of_parts(job: &Job<'_>, parts: u32, elements: u64, columns: u32) -> KernelCall {
    use Argument::{Input, Output, Wide, Words, Workspace};
    let bias = job.inputs.get(2).map_or(Wide(0), |_| Input(2));
    let bfloat = u32::from(job.dtype() == DType::Bf16);
    let (wide, each) = if columns.is_multiple_of(4) { ("_4", 4) } else { ("", 1) };
    let arguments = vec![Workspace, bias, Output(0), Words(vec![columns]), Words(vec![parts]), Wide(elements), Words(vec![bfloat])];
    KernelCall::over(elements / each, Code::stored(FILES[0], format!("sum_{}{wide}", job.dtype())), arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::ops::{conv2d_filter_grad, matmul};
    use gradlet_core::{Shape, TensorType};

    #[test]
    fn the_gradient_of_a_filter_sums_over_pixels_in_parts() {
        let of = |dims: [u32; 4]| TensorType::new(DType::F16, Shape::new(&dims).unwrap());
        let (inputs, outputs) = ([of([8, 32, 32, 64]), of([8, 32, 32, 64])], [of([3, 3, 64, 64])]);
        // Strides, dilations, the padding "same", no explicit padding, the filter.
        let attributes = [1, 1, 1, 1, 1, 0, 0, 0, 0, 3, 3];
        let job = Job { op: &conv2d_filter_grad::DEF, attributes: &attributes, inputs: &inputs, outputs: &outputs, target: Target::ORIN };
        let problem = Problem::new(&job).unwrap();
        assert_eq!((problem.m, problem.n, problem.k), (576, 64, 8192));
        let calls = lower(&job).unwrap();
        assert_eq!(calls.iter().map(|call| call.grid[0]).collect::<Vec<_>>(), [9 * 7, 36]);
    }

    #[test]
    fn devices_without_tensor_cores_compute_in_f32() {
        let has = |target: Target, dtype| has_kernel(&matmul::DEF, dtype, &target);
        assert!(has(Target::ORIN, DType::Bf16) && !has(Target::ORIN, DType::F32) && has(Target { tf32: true, ..Target::ORIN }, DType::F32));
        assert!(!has(Target { tensor_cores: TensorCores::None, ..Target::ORIN }, DType::F16));
    }
}
