//! Gradients of variables: of all elements, or of some rows only.

use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::tensor::Tensor;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Gradient of a variable: a tensor of the variable's shape, or the gradient of some of its rows.
#[derive(Clone, Debug)]
pub struct Gradient {
    values: Tensor,
    rows: Option<Rows>,
}

#[derive(Clone, Debug)]
struct Rows {
    indices: Tensor,
    /// Number of rows of the variable. It is 0 until `Gradient::fitted` sets it.
    of: u32,
}

impl From<Tensor> for Gradient {
    fn from(values: Tensor) -> Gradient {
        Gradient { values, rows: None }
    }
}

impl Gradient {
    /// Creates the gradient of the rows `indices[n]` (i32 or i64) of a variable from their values `values[n, …]`. The gradient of
    /// all other rows is 0. This is TensorFlow's `IndexedSlices`. The gradients of a row that occurs several times are added. As in
    /// TensorFlow, a rule that squares gradients does so before this addition.
    pub fn of_rows(indices: Tensor, values: Tensor) -> Gradient {
        Gradient { values, rows: Some(Rows { indices, of: 0 }) }
    }

    /// Returns the gradient in the element type of `wanted`, which is the type of the variable `name`. Fails if the shape of the
    /// gradient does not fit the variable.
    pub(super) fn fitted(&self, name: &str, wanted: TensorType) -> Result<Gradient> {
        let values = if self.values.dtype() == wanted.dtype { self.values.clone() } else { self.values.cast(wanted.dtype)? };
        match (&self.rows, values.dims(), wanted.shape.dims()) {
            (None, got, dims) if got == dims => Ok(values.into()),
            (Some(rows), [count, got @ ..], [of, dims @ ..]) if got == dims && rows.indices.dims() == [*count] => {
                let rows = Rows { indices: rows.indices.clone(), of: *of };
                Ok(Gradient { rows: Some(rows), values })
            }
            (rows, ..) => {
                let rows = rows.as_ref().map_or(String::new(), |rows| format!(" for the rows {}", rows.indices.tensor_type()));
                let got = self.values.tensor_type();
                Err(Error::message(format!("the gradient of variable {name:?} must have the type {wanted}, but it is {got}{rows}")))
            }
        }
    }

    /// Returns the stored values: the gradient of the whole variable, or of the listed rows only.
    pub(super) fn values(&self) -> &Tensor {
        &self.values
    }

    /// Returns a gradient of the same rows with other values.
    pub(super) fn with_values(&self, values: Tensor) -> Gradient {
        Gradient { values, rows: self.rows.clone() }
    }

    /// True if this is a gradient of some rows only.
    pub fn is_of_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// Returns the gradient in the shape of the variable. For a gradient of some rows, all other rows are 0.
    pub fn dense(&self) -> Result<Tensor> {
        self.map(|values| Ok(values.clone()))
    }

    /// Applies `f` to the stored values, and returns the result in the shape of the variable. For a gradient of some rows, all
    /// other rows are 0, and the results for a row that occurs several times are added.
    pub fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let values = f(&self.values)?;
        match &self.rows {
            Some(rows) => values.unsorted_segment_sum(&rows.indices, rows.of),
            None => Ok(values),
        }
    }
}

/// Converts the gradients that a tape returns from tensors to [`Gradient`]s. `None` stays `None`.
pub(super) fn of_tensors<V: Clone>(gradients: &[(V, Option<Tensor>)]) -> Vec<(V, Option<Gradient>)> {
    gradients.iter().map(|(variable, gradient)| (variable.clone(), gradient.clone().map(Gradient::from))).collect()
}
