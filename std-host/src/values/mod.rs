//! Values of sparse and ragged tensors: numbers or strings.

#[cfg(feature = "ndarray")]
pub(crate) mod arrays;
pub(crate) mod numbers;
pub(crate) mod ragged;
pub(crate) mod sparse;
pub(crate) mod strings;

use crate::values::strings::Strings;
use gradlet_core::{Error, Result, Shape, Tensor};

/// Values of a [`SparseTensor`](crate::tensor::SparseTensor) or a [`RaggedTensor`](crate::tensor::RaggedTensor).
#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers.
    Numbers(Tensor),
    /// Strings.
    Strings(Strings),
}

impl Values {
    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        match self {
            Values::Numbers(tensor) => tensor.shape(),
            Values::Strings(strings) => strings.shape(),
        }
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        self.shape().dims()
    }

    /// Returns the numbers. Fails if the values are strings.
    pub fn numbers(&self) -> Result<&Tensor> {
        match self {
            Values::Numbers(tensor) => Ok(tensor),
            Values::Strings(strings) => Err(Error::message(format!("the values are strings {}, not numbers", strings.shape()))),
        }
    }

    /// Returns the strings. Fails if the values are numbers.
    pub fn strings(&self) -> Result<&Strings> {
        match self {
            Values::Strings(strings) => Ok(strings),
            Values::Numbers(tensor) => Err(Error::message(format!("the values are {}, not strings", tensor.tensor_type()))),
        }
    }

    /// Returns the size of the outermost dimension. Fails on a scalar.
    pub(crate) fn rows(&self) -> Result<u32> {
        self.dims().first().copied().ok_or_else(|| Error::message("a scalar has no rows"))
    }
}

impl From<Tensor> for Values {
    fn from(tensor: Tensor) -> Values {
        Values::Numbers(tensor)
    }
}

impl From<Strings> for Values {
    fn from(strings: Strings) -> Values {
        Values::Strings(strings)
    }
}
