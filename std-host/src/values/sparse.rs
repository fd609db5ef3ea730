//! Tensors that store only some of their elements.

use crate::values::Values;
use gradlet_core::{DType, Error, Result, Shape, Tensor};

/// A tensor that stores only some of its elements, each with its index.
///
/// ```
/// use gradlet::{Shape, Tensor};
/// use gradlet::tensor::SparseTensor;
/// let device = gradlet::cpu();
/// let indices = Tensor::new(&device, &[0i64, 0, 2, 1], &[2, 2])?;
/// let sparse = SparseTensor::new(indices, Tensor::new(&device, &[3i64, 4], &[2])?, Shape::new(&[3, 2])?)?;
/// assert_eq!(sparse.values().numbers()?.to_vec::<i64>()?, [3, 4]);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "tf.SparseTensor")]
pub struct SparseTensor {
    indices: Tensor,
    values: Values,
    dense_shape: Shape,
}

impl SparseTensor {
    /// Creates a tensor of the shape `dense_shape` with the values `[n]` at `indices` (i64 `[n, rank]`).
    ///
    /// Fails if these do not fit together, or if an index is outside the shape.
    pub fn new(indices: Tensor, values: impl Into<Values>, dense_shape: Shape) -> Result<SparseTensor> {
        let values = values.into();
        let &[count] = values.dims() else {
            return Err(Error::message(format!("the values of a sparse tensor must have one dimension, not the shape {}", values.shape())));
        };
        let rank = dense_shape.rank();
        if indices.dtype() != DType::I64 || indices.dims() != [count, rank as u32] {
            let got = indices.tensor_type();
            return Err(Error::message(format!("{count} values in {dense_shape} need indices i64[{count},{rank}], not {got}")));
        }
        let all = indices.to_vec::<i64>()?;
        let outside = |index: &&[i64]| index.iter().zip(dense_shape.dims()).any(|(&at, &dim)| at < 0 || at >= i64::from(dim));
        if let Some(index) = all.chunks_exact(rank.max(1)).find(outside) {
            return Err(Error::message(format!("the index {index:?} is outside the shape {dense_shape}")));
        }
        Ok(SparseTensor { indices, values, dense_shape })
    }

    /// Returns the indices of the values: i64 `[n, rank]`.
    pub fn indices(&self) -> &Tensor {
        &self.indices
    }

    /// Returns the stored elements: `[n]`.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Returns the shape of the whole tensor.
    pub fn dense_shape(&self) -> &Shape {
        &self.dense_shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::devices::cpu;

    #[test]
    fn parts_must_fit_together() {
        let make = |index: &[i64], dims: &[u32], count: u32| {
            let indices = Tensor::new(&cpu(), index, &[count, dims.len() as u32])?;
            SparseTensor::new(indices, Tensor::new(&cpu(), &[1i64, 2], &[2])?, Shape::new(dims)?)
        };
        assert!(make(&[0, 4], &[5], 2).is_ok());
        assert!(make(&[0, 5], &[5], 2).unwrap_err().to_string().contains("the index [5] is outside the shape [5]"));
        assert!(make(&[0, -1], &[5], 2).is_err());
        assert!(make(&[0], &[5], 1).unwrap_err().to_string().contains("need indices i64[2,1]"));
    }
}
