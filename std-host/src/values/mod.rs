//! Numbers or strings: what sparse and ragged tensors hold.

pub(crate) mod arrays;
pub(crate) mod numbers;
pub(crate) mod ragged;
pub(crate) mod sparse;
pub(crate) mod strings;

use crate::values::strings::Strings;
use gradlet_core::{Error, Result, Shape, Tensor};

/// The values of a [`SparseTensor`](crate::SparseTensor) or a [`RaggedTensor`](crate::RaggedTensor).
#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers.
    Numbers(Tensor),
    /// Strings.
    Strings(Strings),
}

impl Values {
    /// The shape.
    pub fn shape(&self) -> &Shape {
        match self {
            Values::Numbers(tensor) => tensor.shape(),
            Values::Strings(strings) => strings.shape(),
        }
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        self.shape().dims()
    }

    /// The numbers. Fails where these are strings.
    pub fn numbers(&self) -> Result<&Tensor> {
        match self {
            Values::Numbers(tensor) => Ok(tensor),
            Values::Strings(strings) => Err(Error::message(format!("the values are strings {}, not numbers", strings.shape()))),
        }
    }

    /// The strings. Fails where these are numbers.
    pub fn strings(&self) -> Result<&Strings> {
        match self {
            Values::Strings(strings) => Ok(strings),
            Values::Numbers(tensor) => Err(Error::message(format!("the values are {}, not strings", tensor.tensor_type()))),
        }
    }

    /// The size of the outermost dimension. Fails on a scalar.
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
