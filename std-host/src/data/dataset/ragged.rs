//! Batches of elements with different lengths, without padding.

use super::element::{Batch, by_name, in_component};
use super::{Dataset, ElementSpec};
use crate::values::ragged::RaggedTensor;
use crate::values::strings::Strings;
use gradlet_core::{Error, Result, Shape, Tensor, TensorType};
use std::collections::BTreeMap;

/// Elements that can be put together though their first dimensions differ.
pub trait RaggedBatch: Batch {
    /// What several elements become.
    type Ragged: Send + 'static;
    /// Puts elements together; there is at least one. Fails where other dimensions than the first differ.
    fn ragged_batch(elements: Vec<Self>) -> Result<Self::Ragged>;
}

/// Where rows of these dimensions begin and end, and the dimensions of all of them together.
fn rows<'d>(mut parts: impl Iterator<Item = &'d [u32]>) -> Result<(Vec<i64>, Vec<u32>)> {
    let mut splits = vec![0];
    let mut inner: Option<&[u32]> = None;
    let total = parts.try_fold(0u32, |total, dims| {
        let [first, rest @ ..] = dims else {
            return Err(Error::message("a ragged batch needs elements with at least one axis; these are scalars"));
        };
        if *inner.get_or_insert(rest) != rest {
            let text = format!("the elements of a ragged batch may differ in their first dimension only: [_, {inner:?}] and {dims:?}");
            return Err(Error::message(text));
        }
        let total = total.checked_add(*first).ok_or(Error::TooLarge)?;
        splits.push(total.into());
        Ok(total)
    })?;
    Ok((splits, [&[total], inner.unwrap_or(&[])].concat()))
}

impl RaggedBatch for Tensor {
    type Ragged = RaggedTensor;

    fn ragged_batch(elements: Vec<Tensor>) -> Result<RaggedTensor> {
        let first = elements.first().ok_or_else(|| Error::message("there is nothing to batch"))?;
        if let Some(other) = elements.iter().find(|other| other.dtype() != first.dtype()) {
            return Err(Error::message(format!("Cannot batch {} and {}", first.dtype(), other.dtype())));
        }
        let (splits, dims) = rows(elements.iter().map(Tensor::dims))?;
        let tensor_type = TensorType::new(first.dtype(), Shape::new(&dims)?);
        let parts = elements.iter().map(Tensor::bytes).collect::<Result<Vec<_>>>()?;
        let values = Tensor::from_parts(&first.device()?, tensor_type, &parts)?;
        RaggedTensor::new(values, vec![splits])
    }
}

impl RaggedBatch for Strings {
    type Ragged = RaggedTensor;

    fn ragged_batch(elements: Vec<Strings>) -> Result<RaggedTensor> {
        let (splits, dims) = rows(elements.iter().map(Strings::dims))?;
        let values = elements.into_iter().flat_map(Strings::into_values).collect();
        RaggedTensor::new(Strings::new(values, &dims)?, vec![splits])
    }
}

macro_rules! tuples {
    ($(($($name:ident $values:ident $index:tt),*))*) => {$(
        impl<$($name: RaggedBatch),*> RaggedBatch for ($($name,)*) {
            type Ragged = ($($name::Ragged,)*);

            fn ragged_batch(elements: Vec<Self>) -> Result<Self::Ragged> {
                $(let mut $values = Vec::with_capacity(elements.len());)*
                for element in elements {
                    $($values.push(element.$index);)*
                }
                Ok(($(in_component($index, $name::ragged_batch($values))?,)*))
            }
        }
    )*};
}
tuples! { (A a 0) (A a 0, B b 1) (A a 0, B b 1, C c 2) }

impl<T: RaggedBatch> RaggedBatch for BTreeMap<String, T> {
    type Ragged = BTreeMap<String, T::Ragged>;

    fn ragged_batch(elements: Vec<Self>) -> Result<Self::Ragged> {
        by_name(elements, |_, values| T::ragged_batch(values))
    }
}

impl<T: RaggedBatch> Dataset<T> {
    /// Batches of elements whose first dimensions differ, as ragged tensors: nothing is padded.
    ///
    /// ```
    /// use gradlet::{Tensor, data::Dataset};
    /// let cpu = gradlet::cpu();
    /// let rows = Dataset::range(1..4).map(move |x| Tensor::full(&cpu, x, &[x as u32]));
    /// let batch = rows.ragged_batch(3, false).get_single_element()?;
    /// assert_eq!(batch.row_splits(), [[0, 1, 3, 6]]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn ragged_batch(&self, batch_size: usize, drop_remainder: bool) -> Dataset<T::Ragged> {
        let groups = self.grouped("ragged_batch", batch_size, drop_remainder);
        let spec = groups.element_spec().map(ElementSpec::ragged);
        groups.in_place(T::ragged_batch).with_any_spec(spec)
    }
}
