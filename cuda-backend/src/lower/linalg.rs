//! Products of matrices, and the steps of optimizers that are fused with them.

use super::gemm::{self, End};
use super::{Family, Job, Target};
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::Code;
use gradlet_core::custom_op::{OpDef, read_attributes};
use gradlet_core::ops::{code, dense, matmul};
use gradlet_core::tensor::MAX_RANK;
use gradlet_core::{DType, Error, Result, TensorType};

pub(super) const FAMILY: Family = Family { has_kernel, lower };

/// Number of threads of a block.
const THREADS: u32 = 256;
/// Numbers of rows and columns of the tiles of the kernels for small and for large products.
const TILES: [u32; 2] = [16, 64];
/// Largest number of blocks, which loop over tiles.
const MAX_BLOCKS: u64 = 1 << 16;

fn has_kernel(op: &OpDef, dtype: DType, _: &Target) -> bool {
    match op.code {
        code::matmul => matches!(dtype, DType::F32 | DType::F64 | DType::I32),
        code::dense | code::matmul_sgd | code::matmul_adam => matches!(dtype, DType::F32 | DType::F64),
        _ => false,
    }
}

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    use Argument::{Input, Output};
    if !job.target.strict && job.dtype() == DType::F32 {
        return fast(job);
    }
    let call = match (job.op.code, job.inputs) {
        (code::matmul | code::dense, [_, _, bias @ ..]) => {
            let shapes = Shapes::of(job)?;
            let bias = if bias.is_empty() { Argument::Wide(0) } else { Input(2) };
            shapes.call(job, "matmul", &[Input(0), Input(1), bias, Output(0)], &[Argument::Wide(shapes.products())])
        }
        (code::matmul_sgd, [_, x, dy, _]) => {
            let operands = [Input(0), Input(1), Input(2), Input(3), Output(0)];
            Shapes::new(x, dy, [true, false])?.call(job, "matmul_sgd", &operands, &[])
        }
        (code::matmul_adam, [_, _, _, x, dy, _, _]) => {
            let operands: Vec<Argument> = (0..7).map(Input).chain((0..3).map(Output)).collect();
            Shapes::new(x, dy, [true, false])?.call(job, "matmul_adam", &operands, &[Argument::Words(job.attributes.to_vec())])
        }
        _ => return Err(Error::Internal),
    };
    Ok(vec![call])
}

/// Lowers an op for f32 on a GPU that may add in another order than the portable kernels.
fn fast(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    match (job.op.code, job.inputs) {
        (code::matmul | code::dense, [_, _, bias @ ..]) => {
            let end = End::stored((!bias.is_empty()).then_some(2), Argument::Output(0));
            Ok(gemm::lower(&job.target, &Shapes::of(job)?, [0, 1], end))
        }
        (code::matmul_sgd, [_, x, dy, _]) => Ok(gemm::lower(&job.target, &Shapes::new(x, dy, [true, false])?, [1, 2], End::sgd())),
        (code::matmul_adam, [_, _, _, x, dy, _, _]) => {
            Ok(gemm::lower(&job.target, &Shapes::new(x, dy, [true, false])?, [3, 4], End::adam(job.attributes)))
        }
        _ => Err(Error::Internal),
    }
}

/// A batch dimension of a product, and the operands that have it. The others broadcast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Batch {
    pub dim: u32,
    pub in_a: bool,
    pub in_b: bool,
}

/// Shapes of the operands a[…,m,k] and b[…,k,n] of a product.
#[derive(Debug, PartialEq)]
pub(super) struct Shapes {
    pub m: u32,
    pub k: u32,
    pub n: u32,
    /// True for an operand whose matrices are stored transposed.
    pub flipped: [bool; 2],
    /// The batch dimensions, outermost first. None is 1, and no neighbours could count as one.
    pub batch: Vec<Batch>,
}

impl Shapes {
    /// Returns the shapes of a `matmul` or a `dense`.
    pub(super) fn of(job: &Job<'_>) -> Result<Shapes> {
        let [a, b, ..] = job.inputs else { return Err(Error::Internal) };
        let flipped = if job.op.code == code::dense {
            let dense::Attributes { transpose } = read_attributes(job.attributes)?;
            [0, transpose]
        } else {
            let matmul::Attributes { transpose_a, transpose_b } = read_attributes(job.attributes)?;
            [transpose_a, transpose_b]
        };
        Shapes::new(a, b, flipped.map(|flip| flip != 0))
    }

    /// Returns the shapes of operands that the op's shape rule has accepted. A vector counts as a matrix of one row.
    pub(super) fn new(a: &TensorType, b: &TensorType, flipped: [bool; 2]) -> Result<Shapes> {
        let (a_batch, [a_rows, a_columns]) = matrices(a)?;
        let (b_batch, [b_rows, b_columns]) = matrices(b)?;
        let (m, k) = if flipped[0] { (a_columns, a_rows) } else { (a_rows, a_columns) };
        let n = if flipped[1] { b_rows } else { b_columns };
        let mut shapes = Shapes { m, k, n, flipped, batch: Vec::new() };
        for from_end in (0..a_batch.len().max(b_batch.len())).rev() {
            let [a, b] = [a_batch, b_batch].map(|dims| dims.iter().rev().nth(from_end).copied().unwrap_or(1));
            if let Some(dim) = [a, b].into_iter().find(|&dim| dim != 1) {
                shapes.push(Batch { dim, in_a: a != 1, in_b: b != 1 });
            }
        }
        Ok(shapes.flat())
    }

    /// Appends a batch dimension.
    fn push(&mut self, next: Batch) {
        if let Some(last) = self.batch.last_mut()
            && (last.in_a, last.in_b) == (next.in_a, next.in_b)
            && let Some(dim) = last.dim.checked_mul(next.dim)
        {
            last.dim = dim;
        } else {
            self.batch.push(next);
        }
    }

    /// Returns one product instead of many if they all have the same b.
    fn flat(mut self) -> Shapes {
        if let [Batch { dim, in_a: true, in_b: false }] = self.batch[..]
            && !self.flipped[0]
            && let Some(m) = self.m.checked_mul(dim)
        {
            self.m = m;
            self.batch.clear();
        }
        self
    }

    /// Returns the number of products.
    pub(super) fn products(&self) -> u64 {
        self.batch.iter().map(|batch| u64::from(batch.dim)).product()
    }

    /// Returns the words of the kernels' structure.
    pub(super) fn words(&self) -> Vec<u32> {
        let bits = |of: fn(&Batch) -> bool| (0..).zip(&self.batch).map(|(axis, batch)| u32::from(of(batch)) << axis).sum::<u32>();
        let [flip_a, flip_b] = self.flipped.map(u32::from);
        let mut words = vec![self.m, self.k, self.n, flip_a, flip_b, self.batch.len() as u32];
        words.extend([bits(|batch| batch.in_a), bits(|batch| batch.in_b)]);
        words.extend(self.batch.iter().map(|batch| batch.dim).chain([0; MAX_RANK]).take(MAX_RANK));
        words
    }

    /// Returns the launch of the kernel `name`. The shapes stand between `operands` and `last`.
    fn call(&self, job: &Job<'_>, name: &str, operands: &[Argument], last: &[Argument]) -> KernelCall {
        let large = self.m.min(self.n) >= TILES[1];
        let (tile, size) = if large { (TILES[1], "") } else { (TILES[0], "_small") };
        let tiles = [self.m, self.n].into_iter().fold(self.products(), |tiles, side| tiles.saturating_mul(side.div_ceil(tile).into()));
        let blocks = tiles.clamp(1, MAX_BLOCKS) as u32;
        let arguments = [operands, &[Argument::Words(self.words())], last].concat();
        let code = Code::stored("linalg", format!("{name}{size}_{}", job.dtype()));
        KernelCall { code, grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared: 0, arguments }
    }
}

/// Returns the batch dimensions of a tensor of matrices, and the numbers of their rows and columns.
fn matrices(tensor: &TensorType) -> Result<(&[u32], [u32; 2])> {
    match tensor.shape.dims() {
        [batch @ .., rows, columns] => Ok((batch, [*rows, *columns])),
        [columns] => Ok((&[], [1, *columns])),
        [] => Err(Error::Internal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::Shape;

    fn shapes(a: &[u32], b: &[u32], flipped: [bool; 2]) -> Shapes {
        let [a, b] = [a, b].map(|dims| TensorType::new(DType::F32, Shape::new(dims).unwrap()));
        Shapes::new(&a, &b, flipped).unwrap()
    }

    #[test]
    fn neighbouring_batch_dimensions_count_as_one() {
        let batch = |dim, in_a, in_b| Batch { dim, in_a, in_b };
        let both = shapes(&[2, 3, 4, 5], &[2, 3, 5, 6], [false; 2]);
        assert_eq!(both, Shapes { m: 4, k: 5, n: 6, flipped: [false; 2], batch: vec![batch(6, true, true)] });
        let broadcast = shapes(&[7, 1, 3, 5, 4], &[2, 3, 6, 5], [true; 2]);
        let dims = vec![batch(7, true, false), batch(2, false, true), batch(3, true, true)];
        assert_eq!(broadcast, Shapes { m: 4, k: 5, n: 6, flipped: [true; 2], batch: dims });
        assert_eq!(broadcast.products(), 42);
        assert_eq!(broadcast.words(), [4, 5, 6, 1, 1, 3, 0b101, 0b110, 7, 2, 3, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn products_with_the_same_matrix_are_one() {
        let one = Shapes { m: 24, k: 5, n: 6, flipped: [false; 2], batch: Vec::new() };
        assert_eq!(shapes(&[2, 3, 4, 5], &[5, 6], [false; 2]), one);
        assert_eq!(shapes(&[2, 3, 5, 4], &[5, 6], [true, false]).products(), 6);
        assert_eq!(shapes(&[2, 1 << 31, 1], &[1, 6], [false; 2]).products(), 2);
        assert_eq!(shapes(&[5], &[5, 6], [false; 2]).m, 1);
    }
}
