//! Products of matrices as cuBLASLt computes them.

use super::Job;
use super::linalg::{Batch, Shapes};
use gradlet_core::ops::code;
use gradlet_core::{DType, Result};

/// Products y[m,n] of matrices a[m,k] and b[k,n], with sums in f32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    pub dtype: DType,
    /// True if f32 may be rounded to TF32.
    pub tf32: bool,
    pub m: u32,
    pub k: u32,
    pub n: u32,
    /// True for an operand whose matrices are stored transposed.
    pub flipped: [bool; 2],
    /// Number of products, and the operands that have a matrix for each of them.
    pub count: u32,
    pub in_batch: [bool; 2],
    /// True if a bias is added to each row.
    pub bias: bool,
}

impl Product {
    /// Returns the product that an op is. Returns `None` if it is none, if it is empty, or on a strict device.
    pub(crate) fn of(job: &Job<'_>) -> Result<Option<Product>> {
        let dtype = job.dtype();
        let is_product = [code::matmul, code::dense].contains(&job.op.code) && matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
        if job.target.strict || !is_product {
            return Ok(None);
        }
        let Shapes { m, k, n, flipped, batch } = Shapes::of(job)?;
        let (count, in_batch) = match batch[..] {
            [] => (1, [true; 2]),
            [Batch { dim, in_a, in_b }] => (dim, [in_a, in_b]),
            _ => return Ok(None),
        };
        let numbers = [m, k, n, count].iter().all(|&number| number > 0 && i32::try_from(number).is_ok());
        let tf32 = job.target.tf32 && dtype == DType::F32;
        Ok(numbers.then_some(Product { dtype, tf32, m, k, n, flipped, count, in_batch, bias: job.inputs.len() > 2 }))
    }

    /// Returns the name of the plan.
    pub(crate) fn name(&self) -> &'static str {
        if self.tf32 { "cublasLt_tf32" } else { "cublasLt" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::Target;
    use gradlet_core::ops::matmul;
    use gradlet_core::{Shape, TensorType};

    #[test]
    fn products_have_at_most_one_batch_dimension() {
        let product = |dims: [&[u32]; 2], target: Target| {
            let inputs = dims.map(|dims| TensorType::new(DType::F32, Shape::new(dims).unwrap()));
            Product::of(&Job { op: &matmul::DEF, attributes: &[1, 0], inputs: &inputs, outputs: &[], target }).unwrap()
        };
        let plain = product([&[3, 2], &[3, 4]], Target::ORIN).unwrap();
        let Product { m, k, n, flipped, count, .. } = plain;
        assert_eq!((m, k, n, flipped, count), (2, 3, 4, [true, false], 1));
        let batch = product([&[5, 3, 2], &[3, 4]], Target::ORIN).unwrap();
        assert_eq!((batch.count, batch.in_batch), (5, [true, false]));
        assert_eq!(product([&[5, 1, 3, 2], &[6, 3, 4]], Target::ORIN), None);
        assert_eq!(product([&[0, 2], &[0, 4]], Target::ORIN), None);
        assert_eq!(product([&[3, 2], &[3, 4]], Target { strict: true, ..Target::ORIN }), None);
    }
}
