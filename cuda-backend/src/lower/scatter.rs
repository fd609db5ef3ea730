//! Ops that add rows to a tensor, or replace rows of it, at positions that an index tensor selects.

use super::array::elements;
use super::{Family, Job, Target};
use crate::lower::call::{Argument, BLOCK, KernelCall};
use crate::ptx::Code;
use gradlet_core::custom_op::{OpDef, read_attributes};
use gradlet_core::ops::{code, gather_grad, scatter_add};
use gradlet_core::tensor::MAX_RANK;
use gradlet_core::{DType, Error, Result, TensorType};

pub(super) const FAMILY: Family = Family { has_kernel, lower };

/// Number of threads of a warp. The blocks of these kernels are whole warps.
const WARP: u64 = 32;
/// Largest number of blocks in x, which loop over updates, and in y, which loop over columns.
const MAX_BLOCKS: u64 = (1 << 16) - 1;

fn has_kernel(op: &OpDef, dtype: DType, _: &Target) -> bool {
    match op.code {
        code::tensor_scatter_update => true,
        code::gather_grad | code::scatter_nd | code::scatter_add => sums(dtype).is_some(),
        _ => false,
    }
}

/// Returns the end of the name of the kernel that adds elements of this type. Integers wrap, so signed ones have the same kernels.
fn sums(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("f32"),
        DType::F64 => Some("f64"),
        DType::I8 | DType::U8 => Some("u8"),
        DType::I32 => Some("u32"),
        DType::I64 => Some("u64"),
        DType::F16 | DType::Bf16 | DType::I16 | DType::Bool => None,
    }
}

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let [y] = job.outputs else { return Err(Error::Internal) };
    let dims = y.shape.dims();
    match (job.op.code, job.inputs) {
        (code::gather_grad, [_, index]) => {
            let gather_grad::Attributes { axis, batch_dims, .. } = read_attributes(job.attributes)?;
            scatter(job, y, None, &Rows::along(dims, axis, batch_dims, index, true))
        }
        (code::scatter_add, [_, _, index]) => {
            let scatter_add::Attributes { axis, batch_dims } = read_attributes(job.attributes)?;
            scatter(job, y, Some(0), &Rows::along(dims, axis, batch_dims, index, true))
        }
        (code::scatter_nd, [_, index]) => scatter(job, y, None, &Rows::at(dims, index)),
        (code::tensor_scatter_update, [_, _, index]) => scatter(job, y, Some(0), &Rows::at(dims, index)),
        _ => Err(Error::Internal),
    }
}

/// The rows of a tensor that an index tensor selects. The tensor is a sequence of slabs, each slab a sequence of rows.
#[derive(Debug, PartialEq)]
pub(super) struct Rows {
    /// Number of elements of a row.
    row: u64,
    /// Number of rows that the index tensor selects in each slab.
    each: u64,
    /// Number of slabs in turn that share their indices.
    shared: u64,
    /// Limits of the indices that together select one row. Their product is the number of rows of a slab.
    limits: Vec<u32>,
    /// True if a negative index is dropped, not refused.
    drops: bool,
}

impl Rows {
    /// Returns the rows that `index` selects along an axis of a tensor of `dims`, separately for each element of the batch axes.
    pub(super) fn along(dims: &[u32], axis: u32, batch_dims: u32, index: &TensorType, drops: bool) -> Rows {
        let (axis, batch) = (axis as usize, batch_dims as usize);
        let each = product(&index.shape.dims()[batch..]);
        Rows { row: product(&dims[axis + 1..]), each, shared: product(&dims[batch..axis]), limits: vec![dims[axis]], drops }
    }

    /// Returns the rows that `index` selects in a tensor of `dims`. Each vector along the last axis of `index` selects one.
    pub(super) fn at(dims: &[u32], index: &TensorType) -> Rows {
        let (&depth, vectors) = index.shape.dims().split_last().unwrap_or((&0, &[]));
        let (limits, row) = dims.split_at(depth as usize);
        Rows { row: product(row), each: product(vectors), shared: 1, limits: limits.to_vec(), drops: false }
    }

    /// Returns these rows of elements of `size` bytes as rows of pieces of at most 16 bytes, with the size of a piece.
    pub(super) fn in_pieces(mut self, mut size: usize) -> (Rows, usize) {
        while size < 16 && self.row > 0 && self.row.is_multiple_of(2) {
            (self.row, size) = (self.row / 2, 2 * size);
        }
        (self, size)
    }

    /// Returns the last arguments of the kernels, beginning with the number of `units` over which the kernel loops.
    pub(super) fn arguments(&self, units: u64) -> impl Iterator<Item = Argument> + use<> {
        let mut selection = vec![self.limits.len() as u32, u32::from(self.drops)];
        selection.extend(&self.limits);
        selection.resize(2 + MAX_RANK, 0);
        let numbers = [units, self.row, self.each, product(&self.limits), self.shared];
        numbers.map(Argument::Wide).into_iter().chain([Argument::Words(selection)])
    }
}

fn product(dims: &[u32]) -> u64 {
    dims.iter().fold(1u64, |product, &dim| product.wrapping_mul(dim.into()))
}

/// Copies input `base` to output 0, or fills it with zeros, and then adds the updates, or replaces rows with them. The updates and their
/// indices are the inputs after `base`.
fn scatter(job: &Job<'_>, y: &TensorType, base: Option<usize>, rows: &Rows) -> Result<Vec<KernelCall>> {
    let (total, size) = (elements(y)?, y.dtype.size());
    let updates = base.map_or(0, |base| base + 1);
    let index = updates + 1;
    let units = elements(&job.inputs[updates])? / rows.row.max(1);
    // Without a base, the kernel gets a null pointer.
    let from = base.map_or(Argument::Wide(0), Argument::Input);
    // The copy needs no elements, so it moves 16 bytes at a time if it can.
    let (pieces, piece) = if (total * size as u64).is_multiple_of(16) { (total * size as u64 / 16, 16) } else { (total, size) };
    let begin = Code::stored("scatter", format!("begin_{piece}"));
    let mut calls = vec![KernelCall::over(pieces, begin, vec![Argument::Output(0), from, Argument::Wide(pieces)])];
    if units > 0 {
        let name = match job.op.code {
            code::tensor_scatter_update => format!("replace_{size}"),
            _ => format!("sum_{}", sums(y.dtype).ok_or(Error::Internal)?),
        };
        let block = rows.each.max(rows.row).min(BLOCK.into()).next_multiple_of(WARP);
        let mut arguments = vec![Argument::Output(0), Argument::Input(updates), Argument::Input(index)];
        arguments.extend(rows.arguments(units));
        calls.push(KernelCall {
            code: Code::stored("scatter", format!("{name}_{}", job.inputs[index].dtype)),
            grid: [units.min(MAX_BLOCKS) as u32, rows.row.div_ceil(block).min(MAX_BLOCKS) as u32, 1],
            block: [block as u32, 1, 1],
            shared: 0,
            arguments,
        });
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::Shape;

    #[test]
    fn rows_of_a_selection() {
        let index = |dims: &[u32]| TensorType::new(DType::I32, Shape::new(dims).unwrap());
        let along = Rows::along(&[2, 3, 4, 5, 6], 3, 1, &index(&[2, 7, 8]), true);
        assert_eq!(along, Rows { row: 6, each: 56, shared: 12, limits: vec![5], drops: true });
        let at = Rows::at(&[2, 3, 4], &index(&[7, 8, 2]));
        assert_eq!(at, Rows { row: 4, each: 56, shared: 1, limits: vec![2, 3], drops: false });
        assert_eq!(Rows::at(&[2, 3], &index(&[7, 0])), Rows { row: 6, each: 7, shared: 1, limits: vec![], drops: false });
    }
}
