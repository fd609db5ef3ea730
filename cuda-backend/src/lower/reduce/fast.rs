//! Reductions and softmax of rows and columns whose sums have an order of their own, for devices that are not strict.

use super::{Groups, Lanes, elements, operands};
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::lower::{Job, Target};
use crate::ptx::Code;
use crate::ptx::opening::Opening;
use gradlet_core::custom_op::OpDef;
use gradlet_core::ops::code;
use gradlet_core::{DType, Result, TensorType};

/// Number of elements that a thread loads before it uses them.
const BATCH: u64 = 8;
/// Number of elements that a thread holds of a row of softmax that is a multiple of [`LANES`], which are loaded and stored at once.
const WIDE_BATCH: u64 = 16;
const LANES: u32 = 4;
/// Width in columns from which neighbouring threads read whole lines of the cache.
const WIDE: u64 = 32;
/// Largest number of blocks for each multiprocessor. More than run at once, so that others take the place of those that end early.
const MOST: u64 = 32;
/// Least number of elements of a block, if other blocks have the rest.
const LEAST: u64 = 4096;

/// True if there are kernels for this op and element type.
pub(super) fn has_kernel(op: &OpDef, dtype: DType) -> bool {
    match op.code {
        code::sum | code::mean | code::softmax | code::log_softmax => matches!(dtype, DType::F32 | DType::F16 | DType::Bf16),
        code::max | code::sparse_softmax_cross_entropy | code::sparse_softmax_cross_entropy_grad => dtype == DType::F32,
        code::any | code::all => dtype == DType::Bool,
        _ => false,
    }
}

/// Kernels that reduce a part of a tensor in each block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kernel {
    Rows,
    Columns,
    /// Rows that consist of the values of parts.
    Parts,
}

/// A tensor of `outer` blocks of `extent` rows of `inner` elements. The rows are reduced, in parts of `part` rows. `members` threads take a
/// result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) kernel: Kernel,
    pub(super) outer: u64,
    pub(super) extent: u64,
    pub(super) inner: u64,
    pub(super) part: u64,
    pub(super) members: u64,
}

impl Shape {
    /// Returns the shape of a reduction over neighbouring axes. Returns `None` for other ones, and for those of no elements.
    pub(super) fn new(groups: &Groups) -> Option<Shape> {
        let [outer, extent, inner] = match groups.axes[..] {
            [(extent, false)] => [1, extent, 1],
            [(extent, false), (inner, true)] => [1, extent, inner],
            [(outer, true), (extent, false)] => [outer, extent, 1],
            [(outer, true), (extent, false), (inner, true)] => [outer, extent, inner],
            _ => return None,
        };
        let [outer, extent, inner] = [outer, extent, inner].map(u64::from);
        let kernel = if inner == 1 { Kernel::Rows } else { Kernel::Columns };
        (extent > 0).then(|| Shape { kernel, outer, extent, inner, part: extent, members: 1 }.with_members())
    }

    /// Sets the number of threads for a result: as many as have about a batch of elements, but so few that neighbouring threads still have
    /// many columns.
    pub(super) fn with_members(mut self) -> Shape {
        self.members = self.part.div_ceil(BATCH).next_power_of_two().min(most_members(self.inner));
        self
    }

    /// Number of blocks that take all results.
    pub(super) fn blocks(&self) -> u64 {
        let width = u64::from(BLOCK) / self.members;
        if self.inner == 1 { self.outer.div_ceil(width) } else { self.outer * self.inner.div_ceil(width) }
    }

    /// Divides the rows into parts, if there are too few results for `most` blocks. The parts of a result have at most `room` values.
    pub(super) fn with_parts(mut self, most: u64, room: u64) -> Shape {
        let all = self.extent.saturating_mul(u64::from(BLOCK) / self.members.max(1)) / LEAST;
        let parts = (most / self.blocks()).min(all).min(room);
        if parts > 1 {
            self.part = self.extent.div_ceil(parts);
        }
        self.with_members()
    }

    pub(super) fn parts(&self) -> u64 {
        self.extent.div_ceil(self.part)
    }

    /// Returns the numbers of elements after which the inner, the reduced and the outer axis end.
    pub(super) fn ends(&self) -> [u64; 3] {
        [self.inner, self.inner * self.extent, self.inner * self.extent * self.outer]
    }

    /// Returns the kernels' structure.
    pub(super) fn argument(&self) -> Argument {
        Argument::Structure([self.outer, self.extent, self.inner, self.part].map(Argument::Wide).to_vec())
    }

    /// Returns the launch that reduces `x` to `y`, or to the values of parts.
    fn call(&self, job: &Job<'_>, x: &Elements, y: Argument, divisor: u64) -> KernelCall {
        let op = if job.op.code == code::mean { "sum" } else { job.op.name };
        let kernel = match self.kernel {
            // Truth values need no other type for parts.
            Kernel::Parts if job.dtype() != DType::Bool => "parts",
            Kernel::Rows | Kernel::Parts => "rows",
            Kernel::Columns => "columns",
        };
        let members = Argument::Words(vec![self.members as u32]);
        let arguments = [y, self.argument(), Argument::Wide(divisor), members].into_iter();
        let (file, dtype) = ("fast_reduce", job.dtype());
        let (code, arguments) = match x {
            Elements::Memory(x) => {
                (Code::stored(file, format!("{op}_{kernel}_{dtype}")), [x.clone()].into_iter().chain(arguments).collect())
            }
            Elements::Opening(opening, others) => {
                let entry = format!("{op}_opening_{kernel}_{dtype}");
                (Code::Opened { file, entry, opening: opening.clone() }, arguments.chain(others.iter().cloned()).collect())
            }
        };
        KernelCall { code, grid: [looping(self.blocks(), &job.target), self.parts() as u32, 1], block: [BLOCK, 1, 1], shared: 0, arguments }
    }

    /// Returns the launches that reduce `x` to `results` results at `y`.
    pub(super) fn calls(self, job: &Job<'_>, x: &Elements, y: Argument, results: u64) -> Vec<KernelCall> {
        let size = if job.dtype() == DType::Bool { 1 } else { 4 };
        let most = MOST * u64::from(job.target.multiprocessors);
        let shape = self.with_parts(most, job.target.workspace / (results * size).max(1));
        let divisor = if job.op.code == code::mean { shape.extent } else { 0 };
        if shape.parts() == 1 {
            return vec![shape.call(job, x, y, divisor)];
        }
        let (extent, inner) = (shape.parts(), 1);
        let last = Shape { kernel: Kernel::Parts, outer: results, extent, inner, part: extent, members: 1 }.with_members();
        let first = shape.call(job, x, Argument::Workspace, 0);
        vec![first, last.call(job, &Elements::Memory(Argument::Workspace), y, divisor)]
    }
}

/// Returns the largest number of threads for each of `inner` neighbouring results.
pub(super) fn most_members(inner: u64) -> u64 {
    if inner == 1 { u64::from(BLOCK) } else { u64::from(BLOCK) / inner.next_power_of_two().min(WIDE) }
}

/// The elements that a launch reduces.
pub(super) enum Elements {
    /// Those of a tensor.
    Memory(Argument),
    /// Those that an opening computes, with its arguments.
    Opening(Opening, Vec<Argument>),
}

/// Returns the number of blocks that do the work of `blocks` blocks.
pub(super) fn looping(blocks: u64, target: &Target) -> u32 {
    blocks.clamp(1, MOST * u64::from(target.multiprocessors)) as u32
}

/// Lowers a reduction, or returns `None` if it is not one of rows or columns.
pub(super) fn reduction(job: &Job<'_>, groups: &Groups, y: &TensorType) -> Result<Option<Vec<KernelCall>>> {
    let Some(shape) = Shape::new(groups).filter(|_| has_kernel(job.op, job.dtype())) else { return Ok(None) };
    if shape.kernel == Kernel::Columns && job.dtype() == DType::Bool {
        return Ok(None);
    }
    Ok(Some(shape.calls(job, &Elements::Memory(Argument::Input(0)), Argument::Output(0), elements(y)?)))
}

/// Lowers softmax and its logarithm. Returns `None` for f32 along another axis than the last one.
pub(super) fn softmax(job: &Job<'_>, lanes: &Lanes) -> Option<KernelCall> {
    if !has_kernel(job.op, job.dtype()) {
        return None;
    }
    if lanes.stride == 1 && lanes.extent < 1 << 31 {
        return Some(rows(job, lanes, &[]));
    }
    let code = Code::stored("fast_softmax", format!("{}_lanes_{}", job.op.name, job.dtype()));
    let arguments = operands(job).into_iter().chain(lanes.arguments()).collect();
    (job.dtype() != DType::F32).then(|| KernelCall::over(lanes.count, code, arguments))
}

/// Lowers the cross entropy and its gradient. `wide` is 1 if the labels are i64.
pub(super) fn cross_entropy(job: &Job<'_>, rows: &Lanes, wide: Argument) -> Option<KernelCall> {
    (has_kernel(job.op, job.dtype()) && rows.extent < 1 << 31).then(|| self::rows(job, rows, &[wide]))
}

/// Returns the launch of a kernel whose teams take rows. Its `last` arguments stand after the number of members.
fn rows(job: &Job<'_>, rows: &Lanes, last: &[Argument]) -> KernelCall {
    let (kind, batch) = if rows.extent.is_multiple_of(LANES) { ("_wide", WIDE_BATCH) } else { ("", BATCH) };
    let members = u64::from(rows.extent).div_ceil(batch).next_power_of_two().min(BLOCK.into());
    let mut arguments = operands(job);
    arguments.extend([Argument::Wide(rows.count), Argument::Words(vec![rows.extent]), Argument::Words(vec![members as u32])]);
    arguments.extend_from_slice(last);
    let blocks = looping(rows.count.div_ceil(u64::from(BLOCK) / members), &job.target);
    let code = Code::stored("fast_softmax", format!("{}{kind}_{}", job.op.name, job.dtype()));
    KernelCall { code, grid: [blocks, 1, 1], block: [BLOCK, 1, 1], shared: 0, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[u32], reduced: &[u32]) -> Option<Shape> {
        Shape::new(&Groups::new(dims, reduced))
    }

    /// Returns the number of parts of a reduction on a GPU of 16 multiprocessors, and the number of threads for each result.
    fn divided(dims: &[u32], reduced: &[u32]) -> (u64, u64) {
        let shape = shape(dims, reduced).unwrap().with_parts(16 * MOST, 1 << 20);
        (shape.parts(), shape.members)
    }

    #[test]
    fn neighbouring_axes_are_rows_or_columns() {
        let [rows, columns] = [shape(&[2, 1, 3, 4], &[2, 3]), shape(&[2, 3, 4, 5], &[1, 2])].map(Option::unwrap);
        assert_eq!((rows.kernel, rows.outer, rows.extent, rows.inner), (Kernel::Rows, 2, 12, 1));
        assert_eq!((columns.kernel, columns.outer, columns.extent, columns.inner), (Kernel::Columns, 2, 12, 5));
        assert_eq!(shape(&[2, 3, 4], &[0, 2]), None);
        assert_eq!(shape(&[2, 3], &[]), None);
        assert_eq!(shape(&[2, 0], &[1]), None);
    }

    #[test]
    fn few_results_have_parts() {
        // The sum of all, of long rows, and of a batch for a bias.
        assert_eq!(divided(&[1 << 20], &[0]), (256, 256));
        assert_eq!(divided(&[4, 1 << 20], &[1]), (128, 256));
        assert_eq!(divided(&[4096, 128], &[0]), (32, 8));
        // Parts of at least 4096 elements, or none.
        assert_eq!(divided(&[10_000], &[0]), (2, 256));
        assert_eq!(divided(&[4095], &[0]), (1, 256));
        assert_eq!(divided(&[64, 10], &[0]), (1, 8));
        // Enough results.
        assert_eq!(divided(&[8192, 768], &[1]), (1, 128));
        assert_eq!(divided(&[8192, 20], &[1]), (1, 4));
    }
}
