//! Operations of stages on elements: combining elements into batches and splitting them.

use super::ElementSpec;
use crate::values::strings::Strings;
use bytes::Bytes;
use gradlet_core::{DType, Error, Result, Shape, Tensor, TensorSpec, TensorType};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Element of a dataset that can report its type.
pub trait Element: Send + 'static {
    /// Returns the type of the element, or `None` if an [`ElementSpec`] cannot express it.
    fn spec(&self) -> Option<ElementSpec>;
}

/// Element that can be split along its first axis: a tensor, strings, a vector, or a tuple or map of these.
pub trait Slices: Element + Sync {
    /// Type of one slice.
    type Slice: Send + 'static;
    /// Returns the number of slices. Fails for a scalar, and if the components differ in their first dimension.
    fn length(&self) -> Result<usize>;
    /// Returns slice `index`. Fails if it is out of range.
    fn slice(&self, index: usize) -> Result<Self::Slice>;
}

/// Element that can be combined with others along a new first axis. Tensors and numbers become tensors. Byte strings become [`Strings`].
/// Texts and paths become vectors. Tuples and maps become tuples and maps of these.
///
/// ```
/// use gradlet::data::{Batch, Dataset};
/// use gradlet::{Result, Tensor};
/// struct Sample { image: Tensor, label: i32 }
/// impl Batch for Sample {
///     type Batched = (Tensor, Tensor);
///     fn batch(samples: Vec<Sample>) -> Result<(Tensor, Tensor)> {
///         Batch::batch(samples.into_iter().map(|sample| (sample.image, sample.label)).collect())
///     }
/// }
/// # let blank = Tensor::full(&gradlet::cpu(), 0.0f32, &[2, 2])?;
/// let samples = Dataset::range(0..10).map(move |x| Ok(Sample { image: blank.clone(), label: x as i32 }));
/// let (images, labels) = samples.batch(10).get_single_element()?;
/// assert_eq!((images.dims(), labels.dims()), (&[10, 2, 2][..], &[10][..]));
/// # Ok::<(), gradlet::Error>(())
/// ```
pub trait Batch: Sized + Send + 'static {
    /// Type of a batch of elements.
    type Batched: Send + 'static;
    /// Combines elements, of which there is at least one. Fails if their shapes differ.
    fn batch(elements: Vec<Self>) -> Result<Self::Batched>;
}

fn row_type(tensor: &Tensor) -> Result<TensorType> {
    match tensor.dims() {
        [] => Err(Error::message("Unbatching a tensor is only supported for rank >= 1")),
        [_, inner @ ..] => Ok(TensorType::new(tensor.dtype(), Shape::new(inner)?)),
    }
}

impl Element for Tensor {
    fn spec(&self) -> Option<ElementSpec> {
        Some(TensorSpec::from(self.tensor_type()).into())
    }
}

impl Slices for Tensor {
    type Slice = Tensor;

    fn length(&self) -> Result<usize> {
        row_type(self)?;
        Ok(self.dims()[0] as usize)
    }

    fn slice(&self, index: usize) -> Result<Tensor> {
        let row = row_type(self)?;
        let size = row.bytes().ok_or(Error::TooLarge)?;
        let all = self.bytes()?;
        let bytes = all.get(index * size..).and_then(|bytes| bytes.get(..size));
        let bytes = bytes.ok_or_else(|| Error::message(format!("slice {index} is out of range for {}", self.tensor_type())))?;
        Tensor::from_bytes(&self.device()?, row, bytes)
    }
}

impl Batch for Tensor {
    type Batched = Tensor;

    fn batch(elements: Vec<Tensor>) -> Result<Tensor> {
        let first = elements.first().ok_or_else(|| Error::message("a batch must have at least one element"))?;
        let element = first.tensor_type();
        if let Some((index, other)) = elements.iter().enumerate().find(|(_, other)| other.tensor_type() != element) {
            return Err(Error::message(format!(
                "Cannot batch tensors with different shapes. First element had shape {element} and element {index} had shape {}. \
                     padded_batch pads them",
                other.tensor_type()
            )));
        }
        let mut shape = Shape::new(&[elements.len() as u32])?;
        element.shape.dims().iter().try_for_each(|&dim| shape.push(dim))?;
        let rows = elements.iter().map(Tensor::bytes).collect::<Result<Vec<_>>>()?;
        Tensor::from_parts(&first.device()?, TensorType::new(element.dtype, shape), &rows)
    }
}

macro_rules! numbers {
    ($($ty:ty)*) => {$(
        impl Element for $ty {
            fn spec(&self) -> Option<ElementSpec> {
                Some(TensorSpec::new(<$ty as gradlet_core::tensor::Element>::DTYPE, &[]).into())
            }
        }

        impl Batch for $ty {
            type Batched = Tensor;
            fn batch(elements: Vec<$ty>) -> Result<Tensor> {
                Tensor::new(&crate::compute::devices::cpu(), &elements, &[elements.len() as u32])
            }
        }
    )*};
}
numbers! { f32 f64 i8 u8 i32 i64 }

impl Element for bool {
    fn spec(&self) -> Option<ElementSpec> {
        Some(TensorSpec::new(DType::Bool, &[]).into())
    }
}

impl Batch for bool {
    type Batched = Tensor;
    fn batch(elements: Vec<bool>) -> Result<Tensor> {
        Tensor::constant(&crate::compute::devices::cpu(), elements)
    }
}

impl Element for Bytes {
    fn spec(&self) -> Option<ElementSpec> {
        Some(ElementSpec::Strings(Vec::new()))
    }
}

impl Batch for Bytes {
    type Batched = Strings;
    fn batch(elements: Vec<Bytes>) -> Result<Strings> {
        let dims = [elements.len() as u32];
        Strings::new(elements, &dims)
    }
}

impl Element for Strings {
    fn spec(&self) -> Option<ElementSpec> {
        Some(ElementSpec::Strings(self.dims().iter().copied().map(Some).collect()))
    }
}

impl Slices for Strings {
    type Slice = Strings;

    fn length(&self) -> Result<usize> {
        let scalar = || Error::message("Unbatching a tensor is only supported for rank >= 1");
        self.dims().first().map(|&dim| dim as usize).ok_or_else(scalar)
    }

    fn slice(&self, index: usize) -> Result<Strings> {
        let inner = self.dims().get(1..).unwrap_or(&[]);
        let size: usize = inner.iter().map(|&dim| dim as usize).product();
        let part = self.values().get(index * size..).and_then(|values| values.get(..size));
        let part = part.ok_or_else(|| Error::message(format!("slice {index} is out of range for strings {:?}", self.dims())))?;
        Strings::new(part.to_vec(), inner)
    }
}

impl Batch for Strings {
    type Batched = Strings;

    fn batch(elements: Vec<Strings>) -> Result<Strings> {
        let first = elements.first().ok_or_else(|| Error::message("a batch must have at least one element"))?;
        if let Some((index, other)) = elements.iter().enumerate().find(|(_, other)| other.dims() != first.dims()) {
            return Err(Error::message(format!(
                "Cannot batch strings with different shapes. First element had shape {} and element {index} had shape {}. \
                     padded_batch pads them",
                first.shape(),
                other.shape()
            )));
        }
        let dims = [&[elements.len() as u32], first.dims()].concat();
        Strings::new(elements.iter().flat_map(|strings| strings.values().iter().cloned()).collect(), &dims)
    }
}

macro_rules! texts {
    ($($ty:ty)*) => {$(
        impl Element for $ty {
            fn spec(&self) -> Option<ElementSpec> {
                Some(ElementSpec::Strings(Vec::new()))
            }
        }

        impl Batch for $ty {
            type Batched = Vec<$ty>;
            fn batch(elements: Vec<$ty>) -> Result<Vec<$ty>> {
                Ok(elements)
            }
        }
    )*};
}
texts! { String PathBuf }

/// The slices of a vector are its elements.
impl<T: Element + Clone + Sync> Element for Vec<T> {
    fn spec(&self) -> Option<ElementSpec> {
        Some(self.first()?.spec()?.batched(Some(self.len() as u32)))
    }
}

impl<T: Element + Clone + Sync> Slices for Vec<T> {
    type Slice = T;

    fn length(&self) -> Result<usize> {
        Ok(self.len())
    }

    fn slice(&self, index: usize) -> Result<T> {
        self.get(index).cloned().ok_or_else(|| Error::message(format!("index {index} is out of range for length {}", self.len())))
    }
}

fn same_lengths(mut lengths: impl Iterator<Item = Result<usize>>) -> Result<usize> {
    let first = lengths.next().ok_or_else(|| Error::message("a tuple or map without components cannot be split"))??;
    lengths.try_fold(first, |first, length| match length? {
        length if length == first => Ok(first),
        length => Err(Error::message(format!("Dimensions {first} and {length} are not compatible"))),
    })
}

macro_rules! tuples {
    ($(($($name:ident $values:ident $index:tt),*))*) => {$(
        impl<$($name: Element),*> Element for ($($name,)*) {
            fn spec(&self) -> Option<ElementSpec> {
                Some(ElementSpec::Tuple(vec![$(self.$index.spec()?),*]))
            }
        }

        impl<$($name: Slices),*> Slices for ($($name,)*) {
            type Slice = ($($name::Slice,)*);

            fn length(&self) -> Result<usize> {
                same_lengths([$(self.$index.length()),*].into_iter())
            }

            fn slice(&self, index: usize) -> Result<Self::Slice> {
                Ok(($(self.$index.slice(index)?,)*))
            }
        }

        impl<$($name: Batch),*> Batch for ($($name,)*) {
            type Batched = ($($name::Batched,)*);

            fn batch(elements: Vec<Self>) -> Result<Self::Batched> {
                $(let mut $values = Vec::with_capacity(elements.len());)*
                for element in elements {
                    $($values.push(element.$index);)*
                }
                Ok(($(in_component($index, $name::batch($values))?,)*))
            }
        }
    )*};
}
tuples! { (A a 0) (A a 0, B b 1) (A a 0, B b 1, C c 2) (A a 0, B b 1, C c 2, D d 3) }

/// Adds `index`, the index of a tuple component, to the error in `result`, if it is one.
pub(super) fn in_component<T>(index: usize, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.context(format!("component {index}")))
}

impl<T: Element> Element for BTreeMap<String, T> {
    fn spec(&self) -> Option<ElementSpec> {
        let parts = self.iter().map(|(name, part)| Some((name.clone(), part.spec()?)));
        Some(ElementSpec::Dict(parts.collect::<Option<_>>()?))
    }
}

impl<T: Slices> Slices for BTreeMap<String, T> {
    type Slice = BTreeMap<String, T::Slice>;

    fn length(&self) -> Result<usize> {
        same_lengths(self.values().map(Slices::length))
    }

    fn slice(&self, index: usize) -> Result<Self::Slice> {
        self.iter().map(|(name, part)| Ok((name.clone(), part.slice(index)?))).collect()
    }
}

impl<T: Batch> Batch for BTreeMap<String, T> {
    type Batched = BTreeMap<String, T::Batched>;

    fn batch(elements: Vec<Self>) -> Result<Self::Batched> {
        by_name(elements, |name, values| T::batch(values).map_err(|error| error.context(format!("component {name:?}"))))
    }
}

/// Calls `put` with each name and the values that the maps have under it. Returns the results by name. Fails if the maps have different
/// names.
pub(super) fn by_name<T, U>(
    elements: Vec<BTreeMap<String, T>>,
    mut put: impl FnMut(&str, Vec<T>) -> Result<U>,
) -> Result<BTreeMap<String, U>> {
    let count = elements.len();
    let mut columns = BTreeMap::<String, Vec<T>>::new();
    for (name, value) in elements.into_iter().flatten() {
        columns.entry(name).or_default().push(value);
    }
    let put = |(name, values): (String, Vec<T>)| match values.len() == count {
        true => Ok((name.clone(), put(&name, values)?)),
        false => Err(Error::message(format!("only {} of {count} elements of the batch have a component {name:?}", values.len()))),
    };
    columns.into_iter().map(put).collect()
}
