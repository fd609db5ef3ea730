//! Gradients of variables, of all of their elements or of some of their rows.

use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::tensor::Tensor;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The gradient of a variable: a tensor of its shape, or one of some rows only.
#[derive(Clone, Debug)]
pub struct Gradient {
    values: Tensor,
    rows: Option<Rows>,
}

#[derive(Clone, Debug)]
struct Rows {
    indices: Tensor,
    /// How many rows the variable has.
    of: u32,
}

impl From<Tensor> for Gradient {
    fn from(values: Tensor) -> Gradient {
        Gradient { values, rows: None }
    }
}

impl Gradient {
    /// The gradient of the rows `indices[n]` (i32 or i64) of a variable, `values[n, …]`; that of all others is 0: TensorFlow's
    /// `IndexedSlices`. The gradients of a row that occurs several times are added; but as in TensorFlow, a rule squares them
    /// before that.
    pub fn of_rows(indices: Tensor, values: Tensor) -> Gradient {
        Gradient { values, rows: Some(Rows { indices, of: 0 }) }
    }

    /// The gradient for a variable called `name`, in its element type. Fails where the shape does not fit.
    pub(super) fn fitted(&self, name: &str, wanted: TensorType) -> Result<Gradient> {
        let values = if self.values.dtype() == wanted.dtype { self.values.clone() } else { self.values.cast(wanted.dtype)? };
        match (&self.rows, values.dims(), wanted.shape.dims()) {
            (None, got, dims) if got == dims => Ok(values.into()),
            (Some(rows), [count, got @ ..], [of, dims @ ..]) if got == dims && rows.indices.dims() == [*count] => {
                let rows = Rows { indices: rows.indices.clone(), of: *of };
                Ok(Gradient { rows: Some(rows), values })
            }
            (rows, ..) => {
                let rows = rows.as_ref().map_or(String::new(), |rows| format!(" of the rows {}", rows.indices.tensor_type()));
                let got = self.values.tensor_type();
                Err(Error::message(format!("the gradient of variable {name:?} must be of its type {wanted}, it is {got}{rows}")))
            }
        }
    }

    /// What is there: all elements, or those of the rows.
    pub(super) fn values(&self) -> &Tensor {
        &self.values
    }

    /// The same rows with other values.
    pub(super) fn with_values(&self, values: Tensor) -> Gradient {
        Gradient { values, rows: self.rows.clone() }
    }

    /// True if the gradient is one of some rows.
    pub fn is_of_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// The gradient of all elements.
    pub fn dense(&self) -> Result<Tensor> {
        self.map(|values| Ok(values.clone()))
    }

    /// `f` of each element; of those of rows, the sum for each row.
    pub fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let values = f(&self.values)?;
        match &self.rows {
            Some(rows) => values.unsorted_segment_sum(&rows.indices, rows.of),
            None => Ok(values),
        }
    }
}

/// Gradients for variables, as a tape gives them.
pub(super) fn of_tensors<V: Clone>(gradients: &[(V, Option<Tensor>)]) -> Vec<(V, Option<Gradient>)> {
    gradients.iter().map(|(variable, gradient)| (variable.clone(), gradient.clone().map(Gradient::from))).collect()
}
