//! Batches of elements with different lengths, as ragged tensors without padding.

use super::element::{Batch, by_name, in_component};
use super::spec::dims_text;
use super::{Dataset, ElementSpec};
use crate::values::Values;
use crate::values::ragged::RaggedTensor;
use crate::values::strings::Strings;
use gradlet_core::{Error, Result, Shape, Tensor, TensorType};
use std::collections::BTreeMap;

/// Elements that can be combined into a batch although some of their dimensions differ.
pub trait RaggedBatch: Batch {
    /// Type of a batch of elements.
    type Ragged: Send + 'static;
    /// Combines elements, of which there is at least one. `spec` is their type; dimensions that are unknown in it may differ. Without
    /// `spec`, only the first dimension may differ. Fails if an element does not have this type.
    fn ragged_batch(elements: Vec<Self>, spec: Option<&ElementSpec>) -> Result<Self::Ragged>;
}

/// Returns the dimensions of the elements, with `None` for those that may differ. `first` is the shape of the first element.
fn open_dims(spec: Option<&ElementSpec>, first: &[u32]) -> Vec<Option<u32>> {
    let closed = || first.iter().copied().map(Some);
    match spec {
        Some(ElementSpec::Strings(dims)) => dims.clone(),
        // Tensors of unknown rank are combined like dense ones, as TensorFlow does.
        Some(ElementSpec::Tensor(spec)) => spec.dims().map_or_else(|| closed().collect(), <[_]>::to_vec),
        _ => closed().enumerate().map(|(axis, dim)| dim.filter(|_| axis > 0)).collect(),
    }
}

/// Returns the row splits of each ragged dimension and the shape of the concatenated values. `parts` are the shapes of the elements. The
/// last dimension that may differ, and all dimensions before it, are ragged.
fn rows(parts: &[&[u32]], spec: Option<&ElementSpec>) -> Result<(Vec<Vec<i64>>, Vec<u32>)> {
    let first = parts.first().ok_or_else(|| Error::message("a batch must have at least one element"))?;
    let open = open_dims(spec, first);
    let fits = |part: &[u32]| part.len() == open.len() && open.iter().zip(part).all(|(open, dim)| open.is_none_or(|open| open == *dim));
    if let Some(other) = parts.iter().find(|part| !fits(part)) {
        let (open, other) = (dims_text(&open), other.iter().copied().map(Some).collect::<Vec<_>>());
        return Err(Error::message(format!(
            "expected elements of shape {open}, which may differ only at `?`, but got {}; `with_spec` sets the expected shape",
            dims_text(&other)
        )));
    }
    let Some(last) = open.iter().rposition(Option::is_none) else { return Ok((Vec::new(), [&[parts.len() as u32], *first].concat())) };
    let (mut splits, mut total) = (vec![vec![0]; last + 1], 0u32);
    for part in parts {
        let mut rows = 1u32;
        for (splits, &length) in splits.iter_mut().zip(*part) {
            let end = splits.last().copied().unwrap_or(0);
            splits.extend((1..=i64::from(rows)).map(|row| end + row * i64::from(length)));
            rows = rows.checked_mul(length).ok_or(Error::TooLarge)?;
        }
        total = total.checked_add(rows).ok_or(Error::TooLarge)?;
    }
    Ok((splits, [&[total], &first[last + 1..]].concat()))
}

fn ragged(values: impl Into<Values>, row_splits: Vec<Vec<i64>>) -> Result<RaggedTensor> {
    if row_splits.is_empty() { RaggedTensor::dense(values) } else { RaggedTensor::new(values, row_splits) }
}

impl RaggedBatch for Tensor {
    type Ragged = RaggedTensor;

    fn ragged_batch(elements: Vec<Tensor>, spec: Option<&ElementSpec>) -> Result<RaggedTensor> {
        let first = elements.first().ok_or_else(|| Error::message("a batch must have at least one element"))?;
        if let Some(other) = elements.iter().find(|other| other.dtype() != first.dtype()) {
            return Err(Error::message(format!("Cannot batch {} and {}", first.dtype(), other.dtype())));
        }
        let (splits, dims) = rows(&elements.iter().map(Tensor::dims).collect::<Vec<_>>(), spec)?;
        let tensor_type = TensorType::new(first.dtype(), Shape::new(&dims)?);
        let parts = elements.iter().map(Tensor::bytes).collect::<Result<Vec<_>>>()?;
        ragged(Tensor::from_parts(&first.device()?, tensor_type, &parts)?, splits)
    }
}

impl RaggedBatch for Strings {
    type Ragged = RaggedTensor;

    fn ragged_batch(elements: Vec<Strings>, spec: Option<&ElementSpec>) -> Result<RaggedTensor> {
        let (splits, dims) = rows(&elements.iter().map(Strings::dims).collect::<Vec<_>>(), spec)?;
        let values = elements.into_iter().flat_map(Strings::into_values).collect();
        ragged(Strings::new(values, &dims)?, splits)
    }
}

macro_rules! tuples {
    ($(($($name:ident $values:ident $index:tt),*))*) => {$(
        impl<$($name: RaggedBatch),*> RaggedBatch for ($($name,)*) {
            type Ragged = ($($name::Ragged,)*);

            fn ragged_batch(elements: Vec<Self>, spec: Option<&ElementSpec>) -> Result<Self::Ragged> {
                let parts: &[ElementSpec] = if let Some(ElementSpec::Tuple(parts)) = spec { parts } else { &[] };
                $(let mut $values = Vec::with_capacity(elements.len());)*
                for element in elements {
                    $($values.push(element.$index);)*
                }
                Ok(($(in_component($index, $name::ragged_batch($values, parts.get($index)))?,)*))
            }
        }
    )*};
}
tuples! { (A a 0) (A a 0, B b 1) (A a 0, B b 1, C c 2) }

impl<T: RaggedBatch> RaggedBatch for BTreeMap<String, T> {
    type Ragged = BTreeMap<String, T::Ragged>;

    fn ragged_batch(elements: Vec<Self>, spec: Option<&ElementSpec>) -> Result<Self::Ragged> {
        let part = |name: &str| if let Some(ElementSpec::Dict(parts)) = spec { parts.get(name) } else { None };
        by_name(elements, |name, values| T::ragged_batch(values, part(name)))
    }
}

impl<T: RaggedBatch> Dataset<T> {
    /// Combines elements whose dimensions differ into ragged tensors, without padding. Equivalent of TensorFlow's `Dataset.ragged_batch`.
    ///
    /// The [type of the elements](Dataset::element_spec) determines which dimensions may differ: those that are `None` in it. The last of
    /// them determines the ragged rank. `[None, 3]` results in batches of ragged rank 1, `[None, None]` in ragged rank 2, and a type
    /// without unknown dimensions in dense batches. If the type is unknown, for instance after a function, only the first dimension may
    /// differ. [`Dataset::with_spec`] sets the type.
    ///
    /// ```
    /// use gradlet::{DType, Tensor, TensorSpec, data::Dataset};
    /// let cpu = gradlet::cpu();
    /// let squares = Dataset::range(1..3).map(move |x| Tensor::full(&cpu, x, &[x as u32, x as u32]));
    /// let open = squares.with_spec(TensorSpec::new(DType::I64, &[None, None]).into());
    /// let batch = open.ragged_batch(2, false).get_single_element()?; // [[[1]], [[2, 2], [2, 2]]]
    /// assert_eq!(batch.row_splits(), [vec![0, 1, 3], vec![0, 1, 3, 5]]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn ragged_batch(&self, batch_size: usize, drop_remainder: bool) -> Dataset<T::Ragged> {
        let size = drop_remainder.then_some(batch_size as u32);
        let (own, spec) = (self.element_spec().cloned(), self.element_spec().map(|spec| spec.ragged_batched(size)));
        let groups = self.grouped("ragged_batch", batch_size, drop_remainder);
        groups.in_place(move |elements| T::ragged_batch(elements, own.as_ref())).with_any_spec(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{DType, TensorSpec};

    fn spec(dims: &[Option<u32>]) -> ElementSpec {
        TensorSpec::new(DType::I64, dims).into()
    }

    /// Creates elements of these shapes whose values count up from 0.
    fn elements(all: &[&[u32]]) -> Dataset<Tensor> {
        let tensor = |dims: &&[u32]| {
            let values: Vec<i64> = (0..dims.iter().product::<u32>()).map(i64::from).collect();
            Tensor::new(&crate::compute::devices::cpu(), &values, dims).unwrap()
        };
        all.iter().map(tensor).collect::<Vec<_>>().into_iter().collect()
    }

    /// Returns the row splits and the shape of the values of a batch of all elements, and the type of the batch.
    fn batch(all: &[&[u32]], own: &[Option<u32>]) -> (Vec<Vec<i64>>, Vec<u32>, String) {
        let batches = elements(all).with_spec(spec(own)).ragged_batch(all.len(), false);
        let batch = batches.get_single_element().unwrap();
        (batch.row_splits().to_vec(), batch.values().dims().to_vec(), batches.element_spec().unwrap().to_string())
    }

    /// The expected values come from TensorFlow 2.21.
    #[test]
    fn a_ragged_batch_of_a_defined_type_is_dense() {
        assert_eq!(batch(&[&[2], &[2]], &[Some(2)]), (vec![], vec![2, 2], "i64[?,2]".into()));
        assert_eq!(batch(&[&[], &[], &[]], &[]), (vec![], vec![3], "i64[?]".into()));
        let pairs = elements(&[&[], &[]]).zip(&elements(&[&[1], &[2]])).with_spec(ElementSpec::Tuple(vec![spec(&[]), spec(&[None])]));
        let batches = pairs.ragged_batch(2, true);
        assert_eq!(batches.element_spec().unwrap().to_string(), "(i64[2], ragged i64[2,?])");
        let (labels, rows) = batches.get_single_element().unwrap();
        assert_eq!((labels.ragged_rank(), labels.rows(), rows.ragged_rank()), (0, 2, 1));
    }

    /// The expected values come from TensorFlow 2.21.
    #[test]
    fn the_last_open_dimension_gives_the_ragged_rank() {
        let two = (vec![vec![0, 1, 3], vec![0, 2, 3, 4]], vec![4], "ragged i64[?,?,?]".into());
        assert_eq!(batch(&[&[1, 2], &[2, 1]], &[None, None]), two);
        let inner = (vec![vec![0, 2, 4], vec![0, 2, 4, 5, 6]], vec![6], "ragged i64[?,2,?]".into());
        assert_eq!(batch(&[&[2, 2], &[2, 1]], &[Some(2), None]), inner);
        let three = (vec![vec![0, 1, 2], vec![0, 2, 4], vec![0, 2, 4, 5, 6]], vec![6], "ragged i64[?,?,2,?]".into());
        assert_eq!(batch(&[&[1, 2, 2], &[1, 2, 1]], &[None, Some(2), None]), three);
        assert_eq!(batch(&[&[1, 2], &[2, 2]], &[None, Some(2)]), (vec![vec![0, 1, 3]], vec![3, 2], "ragged i64[?,?,2]".into()));
        assert_eq!(batch(&[&[0, 3], &[2, 0]], &[None, None]).0, [vec![0, 0, 2], vec![0, 0, 0]]);
        let strings = [Strings::vector(["a"]), Strings::vector(["b", "c"])].into_iter().collect::<Dataset<_>>();
        let strings = strings.with_spec(ElementSpec::Strings(vec![None])).ragged_batch(2, false).get_single_element().unwrap();
        assert_eq!(strings.row_splits(), [[0, 1, 3]]);
    }

    #[test]
    fn elements_of_another_type_are_refused() {
        let error = |own: &[Option<u32>]| {
            let batches = elements(&[&[1, 2], &[2, 1]]).with_spec(spec(own)).ragged_batch(2, false);
            batches.get_single_element().unwrap_err().to_string()
        };
        let text = error(&[None, Some(2)]);
        assert!(text.contains("of shape [?,2], which may differ only at `?`, but got [2,1]"), "{text}");
        assert!(error(&[None]).contains("of shape [?], which"), "{}", error(&[None]));
        let unknown = Dataset::range(1..3).map(|x| Tensor::full(&crate::compute::devices::cpu(), x, &[x as u32, 3]));
        assert_eq!(unknown.ragged_batch(2, false).get_single_element().unwrap().row_splits(), [[0, 1, 3]]);
    }
}
