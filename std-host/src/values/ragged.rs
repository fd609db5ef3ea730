//! Tensors whose rows have different lengths.

use crate::values::Values;
use gradlet_core::{Error, Result};

/// A tensor whose rows have different lengths: the rows one after another, and where each begins and ends.
///
/// With several lists of splits, rows are divided into rows again: the first list divides the rows of the second one. Their number is the
/// ragged rank; without any, the values are a [dense](RaggedTensor::dense) tensor.
///
/// ```
/// use gradlet::{RaggedTensor, Tensor};
/// let values = Tensor::new(&gradlet::cpu(), &[1i64, 2, 3], &[3])?;
/// let ragged = RaggedTensor::new(values, vec![vec![0, 2, 2, 3]])?; // [[1, 2], [], [3]]
/// assert_eq!(ragged.rows(), 3);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RaggedTensor {
    values: Values,
    row_splits: Vec<Vec<i64>>,
}

impl RaggedTensor {
    /// Rows of `values`, whose outermost dimension the last of `row_splits` divides.
    ///
    /// Each list begins with 0, never falls, and ends with the number of rows that it divides. Fails where that is not so,
    /// or there is no list.
    pub fn new(values: impl Into<Values>, row_splits: Vec<Vec<i64>>) -> Result<RaggedTensor> {
        let values = values.into();
        let mut divided = i64::from(values.rows()?);
        for splits in row_splits.iter().rev() {
            if splits.first() != Some(&0) || splits.last() != Some(&divided) || !splits.is_sorted() {
                return Err(Error::message(format!(
                    "row splits rise from 0 to the {divided} rows that they divide; these do not: {splits:?}"
                )));
            }
            divided = splits.len() as i64 - 1;
        }
        if row_splits.is_empty() {
            return Err(Error::message("a ragged tensor needs at least one list of row splits"));
        }
        Ok(RaggedTensor { values, row_splits })
    }

    /// A dense tensor: rows of one length, and a ragged rank of 0. Fails for scalars, which have no rows.
    ///
    /// ```
    /// use gradlet::{RaggedTensor, Tensor};
    /// let dense = RaggedTensor::dense(Tensor::new(&gradlet::cpu(), &[1i64, 2, 3, 4], &[2, 2])?)?;
    /// assert_eq!((dense.ragged_rank(), dense.rows()), (0, 2));
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn dense(values: impl Into<Values>) -> Result<RaggedTensor> {
        let values = values.into();
        values.rows()?;
        Ok(RaggedTensor { values, row_splits: Vec::new() })
    }

    /// How many dimensions, after the first, have rows of different lengths or hold such: the number of lists of splits.
    pub fn ragged_rank(&self) -> usize {
        self.row_splits.len()
    }

    /// All rows, one after another: of a dense tensor, the tensor itself.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Where rows begin and end, outermost first: row `i` goes from `splits[i]` to `splits[i + 1]`.
    pub fn row_splits(&self) -> &[Vec<i64>] {
        &self.row_splits
    }

    /// How many rows there are, in the outermost dimension.
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
    use crate::Strings;

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
