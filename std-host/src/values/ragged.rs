//! Tensors whose rows have different lengths.

use crate::values::Values;
use gradlet_core::{Error, Result};

/// A tensor whose rows have different lengths. It stores the rows one after another, and the row splits: the positions where each
/// row begins and ends.
///
/// With several lists of splits, the rows contain rows: the first list divides the rows of the second. The number of lists is the
/// ragged rank. Without any list, the values are a [dense](RaggedTensor::dense) tensor.
///
/// ```
/// use gradlet::Tensor;
/// use gradlet::tensor::RaggedTensor;
/// let values = Tensor::new(&gradlet::cpu(), &[1i64, 2, 3], &[3])?;
/// let ragged = RaggedTensor::new(values, vec![vec![0, 2, 2, 3]])?; // [[1, 2], [], [3]]
/// assert_eq!(ragged.rows(), 3);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "tf.RaggedTensor")]
pub struct RaggedTensor {
    values: Values,
    row_splits: Vec<Vec<i64>>,
}

impl RaggedTensor {
    /// Creates a tensor from its values and row splits. The last list of `row_splits` divides the outermost dimension of `values`.
    ///
    /// Each list begins with 0, never decreases, and ends with the number of rows that it divides. Fails if a list does not, or if
    /// there is no list.
    pub fn new(values: impl Into<Values>, row_splits: Vec<Vec<i64>>) -> Result<RaggedTensor> {
        let values = values.into();
        let mut divided = i64::from(values.rows()?);
        for splits in row_splits.iter().rev() {
            if splits.first() != Some(&0) || splits.last() != Some(&divided) || !splits.is_sorted() {
                return Err(Error::message(format!(
                    "row splits must rise from 0 to {divided}, the number of rows that they divide, but they are {splits:?}"
                )));
            }
            divided = splits.len() as i64 - 1;
        }
        if row_splits.is_empty() {
            return Err(Error::message("a ragged tensor needs at least one list of row splits"));
        }
        Ok(RaggedTensor { values, row_splits })
    }

    /// Creates a dense tensor, whose rows have the same length and whose ragged rank is 0. Fails for scalars, which have no rows.
    ///
    /// ```
    /// use gradlet::Tensor;
    /// use gradlet::tensor::RaggedTensor;
    /// let dense = RaggedTensor::dense(Tensor::new(&gradlet::cpu(), &[1i64, 2, 3, 4], &[2, 2])?)?;
    /// assert_eq!((dense.ragged_rank(), dense.rows()), (0, 2));
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn dense(values: impl Into<Values>) -> Result<RaggedTensor> {
        let values = values.into();
        values.rows()?;
        Ok(RaggedTensor { values, row_splits: Vec::new() })
    }

    /// Returns the ragged rank: the number of lists of splits. It counts the dimensions, after the first, up to the innermost one
    /// with rows of different lengths.
    pub fn ragged_rank(&self) -> usize {
        self.row_splits.len()
    }

    /// Returns all rows, one after another. For a dense tensor, this is the tensor itself.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Returns the row splits, outermost first. Row `i` extends from `splits[i]` to `splits[i + 1]`.
    pub fn row_splits(&self) -> &[Vec<i64>] {
        &self.row_splits
    }

    /// Returns the number of rows in the outermost dimension.
    pub fn rows(&self) -> usize {
        match self.row_splits.first() {
            Some(splits) => splits.len() - 1,
            None => self.values.dims()[0] as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::strings::Strings;

    #[test]
    fn splits_must_divide_the_values() {
        let make = |splits: &[&[i64]]| RaggedTensor::new(Strings::vector(["a", "b", "c"]), splits.iter().map(|s| s.to_vec()).collect());
        assert_eq!(make(&[&[0, 1, 3]]).unwrap().rows(), 2);
        assert_eq!(make(&[&[0, 2], &[0, 1, 3]]).unwrap().rows(), 1);
        let wrongs: [&[&[i64]]; 6] = [&[], &[&[]], &[&[1, 3]], &[&[0, 2]], &[&[0, 4, 3]], &[&[0, 3], &[0, 1, 3]]];
        for wrong in wrongs {
            assert!(make(wrong).is_err(), "{wrong:?}");
        }
        assert!(RaggedTensor::new(Strings::scalar("a"), vec![vec![0, 1]]).is_err());
    }
}
