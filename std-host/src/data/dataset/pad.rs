//! Batches of elements with different shapes, padded to a common shape.

use super::element::{Batch, by_name, in_component};
use super::spec::dims_text;
use super::{Dataset, ElementSpec};
use crate::values::Values;
use crate::values::strings::Strings;
use bytes::Bytes;
use gradlet_core::{Error, Result, Shape, Tensor, TensorType};
use std::collections::BTreeMap;

/// Arguments of [`Dataset::padded_batch`]. Shapes and padding values are in the order of the components of an element. The components of a
/// tuple are in the order of the tuple, those of a map in the order of their names.
#[derive(Clone, Debug)]
pub struct PaddedBatch {
    batch_size: usize,
    drop_remainder: bool,
    shapes: Vec<Option<Vec<Option<u32>>>>,
    values: Vec<Option<Values>>,
    /// Size to which dimensions of unknown size are padded. `None`: the largest size in each batch.
    open: Option<u32>,
}

impl PaddedBatch {
    /// Creates options for batches of `batch_size` elements. By default each batch is padded to its largest element, with zeros or empty
    /// strings.
    pub fn new(batch_size: usize) -> PaddedBatch {
        PaddedBatch { batch_size, drop_remainder: false, shapes: Vec::new(), values: Vec::new(), open: None }
    }

    pub(super) fn batch_size(self, batch_size: usize) -> PaddedBatch {
        PaddedBatch { batch_size, ..self }
    }

    /// Sets the size to which dimensions of unknown size are padded, instead of the largest size in each batch. If the shape of a
    /// component is unknown, only its first dimension is padded to this size.
    pub(super) fn open_dims(self, dim: u32) -> PaddedBatch {
        PaddedBatch { open: Some(dim), ..self }
    }

    /// Sets the padded shape of the next component. The first call sets the shape of the first component, and so on. A dimension of
    /// `None` is padded to the largest size in each batch.
    pub fn padded_shape(mut self, dims: &[Option<u32>]) -> PaddedBatch {
        self.shapes.push(Some(dims.into()));
        self
    }

    /// Sets the padded shapes of all components. `None` pads each dimension of a component to the largest size in each batch.
    pub fn padded_shapes(self, shapes: Vec<Option<Vec<Option<u32>>>>) -> PaddedBatch {
        PaddedBatch { shapes, ..self }
    }

    /// Sets the padding value of the next component: a scalar of its type. The first call sets the value of the first component, and so
    /// on.
    pub fn padding_value(mut self, value: impl Into<Values>) -> PaddedBatch {
        self.values.push(Some(value.into()));
        self
    }

    /// Sets the padding values of all components. `None` stands for zero or the empty string.
    pub fn padding_values(self, values: Vec<Option<Values>>) -> PaddedBatch {
        PaddedBatch { values, ..self }
    }

    /// If true, an incomplete last batch is dropped.
    pub fn drop_remainder(self, drop_remainder: bool) -> PaddedBatch {
        PaddedBatch { drop_remainder, ..self }
    }

    /// Fills in missing padded shapes from the element type `spec`. Returns the type of the padded elements, and an error if a shape or
    /// padding value does not fit `spec`.
    fn fill(&mut self, spec: &ElementSpec) -> (ElementSpec, Result<()>) {
        let (mut component, mut problem) = (0, Ok(()));
        self.shapes.resize(spec.leaves().len(), None);
        let shapes = &mut self.shapes;
        let padded = spec.each(&mut |dims| {
            let shape = shapes[component].get_or_insert_with(|| dims.to_vec()).clone();
            component += 1;
            let fits = |(padded, own): (&Option<u32>, &Option<u32>)| padded.is_none_or(|padded| own.is_none_or(|own| own <= padded));
            if shape.len() != dims.len() || !shape.iter().zip(dims).all(fits) {
                problem = Err(Error::message(format!(
                    "The padded shape {} is not compatible with the shape {} of the corresponding input component.",
                    dims_text(&shape),
                    dims_text(dims)
                )));
            }
            shape
        });
        let values = spec.leaves().into_iter().zip(&self.values).try_for_each(|(leaf, value)| match (leaf, value) {
            (ElementSpec::Tensor(spec), Some(value)) => numbers(value, spec.dtype()).map(|_| ()),
            (ElementSpec::Strings(_), Some(value)) => value.strings().map(|_| ()),
            _ => Ok(()),
        });
        (padded, problem.and(values))
    }
}

/// Iterator over the padding options of the components of an element.
pub struct Components<'a> {
    options: &'a PaddedBatch,
    next: usize,
}

impl<'a> Components<'a> {
    /// Returns the padded shape and the padding value of the next component, whose elements have rank `rank`. A shape or dimension of
    /// `None` is padded to the largest size in the batch. A value of `None` stands for zero or the empty string.
    fn next(&mut self, rank: usize) -> (Option<Vec<Option<u32>>>, Option<&'a Values>) {
        let index = self.next;
        self.next += 1;
        let PaddedBatch { shapes, values, open, .. } = self.options;
        let shape = shapes.get(index).cloned().flatten();
        let shape = match (shape, open) {
            (Some(shape), Some(open)) => Some(shape.into_iter().map(|dim| dim.or(Some(*open))).collect()),
            // The length of a sequence is the size of its first axis.
            (None, Some(open)) => Some((0..rank).map(|axis| (axis == 0).then_some(*open)).collect()),
            (shape, None) => shape,
        };
        (shape, values.get(index).and_then(Option::as_ref))
    }
}

/// Elements that can be padded to a common shape.
pub trait Pad: Batch {
    /// Combines elements into a batch, padded as `components` specifies.
    fn pad(elements: Vec<Self>, components: &mut Components<'_>) -> Result<Self::Batched>;
}

fn numbers(value: &Values, dtype: gradlet_core::DType) -> Result<&Tensor> {
    let other = |text: String| {
        Error::message(format!(
            "Invalid `padding_values`. `padding_values` values type {text} does not match type {dtype} \
                 of the corresponding input component."
        ))
    };
    match value {
        Values::Numbers(tensor) if tensor.dtype() != dtype => Err(other(tensor.dtype().to_string())),
        Values::Numbers(tensor) if !tensor.dims().is_empty() => {
            Err(Error::message(format!("Invalid `padding_values`: each must be a scalar, not {}", tensor.tensor_type())))
        }
        Values::Numbers(tensor) => Ok(tensor),
        Values::Strings(_) => Err(other("string".into())),
    }
}

/// Returns the dimensions to which all of `parts` are padded: those of `shape`, or the largest ones in `parts` where `shape` has none.
/// The batch dimension is not included.
fn padded_dims<'d>(shape: Option<Vec<Option<u32>>>, parts: impl Iterator<Item = &'d [u32]> + Clone) -> Result<Vec<u32>> {
    let rank = shape.as_ref().map_or_else(|| parts.clone().next().map_or(0, <[u32]>::len), Vec::len);
    let mut dims = vec![0; rank];
    for (index, part) in parts.enumerate() {
        if part.len() != rank {
            return Err(Error::message(format!(
                "All elements in a batch must have the same rank as the padded shape: expected rank {rank} \
                 but got element {index} with rank {}",
                part.len()
            )));
        }
        dims.iter_mut().zip(part).for_each(|(dim, &own)| *dim = own.max(*dim));
    }
    for (dim, wanted) in dims.iter_mut().zip(shape.unwrap_or_default()) {
        match wanted {
            Some(wanted) if wanted < *dim => {
                return Err(Error::message(format!(
                    "Attempted to pad to a smaller size than the input element. An element is {dim} long where {wanted} was asked for"
                )));
            }
            Some(wanted) => *dim = wanted,
            None => {}
        }
    }
    Ok(dims)
}

/// Copies a block with the dimensions `part` to the beginning (index 0 of each axis) of a block with the dimensions `whole`.
fn place<T: Clone>(into: &mut [T], whole: &[usize], from: &[T], part: &[usize]) {
    match (whole, part) {
        ([_, whole @ ..], [count, part @ ..]) if !part.is_empty() => {
            let (into_row, from_row): (usize, usize) = (whole.iter().product(), part.iter().product());
            for row in 0..*count {
                place(&mut into[row * into_row..][..into_row], whole, &from[row * from_row..][..from_row], part);
            }
        }
        _ => into[..from.len()].clone_from_slice(from),
    }
}

/// Returns the dimensions of a tensor's byte array: the tensor's dimensions, followed by the element size.
fn byte_dims(dims: &[u32], size: usize) -> Vec<usize> {
    dims.iter().map(|&dim| dim as usize).chain([size]).collect()
}

impl Pad for Tensor {
    fn pad(elements: Vec<Tensor>, components: &mut Components<'_>) -> Result<Tensor> {
        let first = elements.first().ok_or_else(|| Error::message("a batch must have at least one element"))?;
        let (shape, value) = components.next(first.dims().len());
        let dtype = first.dtype();
        if let Some(other) = elements.iter().find(|other| other.dtype() != dtype) {
            return Err(Error::message(format!("Cannot batch {dtype} and {}", other.dtype())));
        }
        let inner = padded_dims(shape, elements.iter().map(Tensor::dims))?;
        let dims = [&[elements.len() as u32], inner.as_slice()].concat();
        let whole = byte_dims(&inner, dtype.size());
        let value = value.map(|value| numbers(value, dtype)).transpose()?;
        Tensor::written(&first.device()?, TensorType::new(dtype, Shape::new(&dims)?), |bytes| {
            if let Some(value) = &value {
                let value = value.bytes()?;
                bytes.chunks_exact_mut(value.len()).for_each(|element| element.copy_from_slice(&value));
            }
            let rows = bytes.chunks_exact_mut(whole.iter().product::<usize>().max(1));
            rows.zip(&elements).try_for_each(|(row, element)| {
                place(row, &whole, &element.bytes()?, &byte_dims(element.dims(), dtype.size()));
                Ok(())
            })
        })
    }
}

impl Pad for Strings {
    fn pad(elements: Vec<Strings>, components: &mut Components<'_>) -> Result<Strings> {
        let (shape, value) = components.next(elements.first().map_or(0, |first| first.dims().len()));
        let value = value.map(|value| value.strings()?.item().cloned()).transpose()?.unwrap_or_default();
        let inner = padded_dims(shape, elements.iter().map(Strings::dims))?;
        let dims = [&[elements.len() as u32], inner.as_slice()].concat();
        let count = Shape::new(&dims)?.elements().ok_or(Error::TooLarge)?;
        let mut values = vec![value; count];
        let whole = byte_dims(&inner, 1);
        for (row, element) in values.chunks_exact_mut(whole.iter().product::<usize>().max(1)).zip(&elements) {
            place(row, &whole, element.values(), &byte_dims(element.dims(), 1));
        }
        Strings::new(values, &dims)
    }
}

macro_rules! scalars {
    ($($ty:ty)*) => {$(
        impl Pad for $ty {
            fn pad(elements: Vec<$ty>, components: &mut Components<'_>) -> Result<Self::Batched> {
                components.next(0);
                Batch::batch(elements)
            }
        }
    )*};
}
scalars! { f32 f64 i8 u8 i32 i64 bool Bytes }

macro_rules! tuples {
    ($(($($name:ident $values:ident $index:tt),*))*) => {$(
        impl<$($name: Pad),*> Pad for ($($name,)*) {
            fn pad(elements: Vec<Self>, components: &mut Components<'_>) -> Result<Self::Batched> {
                $(let mut $values = Vec::with_capacity(elements.len());)*
                for element in elements {
                    $($values.push(element.$index);)*
                }
                Ok(($(in_component($index, $name::pad($values, components))?,)*))
            }
        }
    )*};
}
tuples! { (A a 0) (A a 0, B b 1) (A a 0, B b 1, C c 2) (A a 0, B b 1, C c 2, D d 3) }

impl<T: Pad> Pad for BTreeMap<String, T> {
    fn pad(elements: Vec<Self>, components: &mut Components<'_>) -> Result<Self::Batched> {
        by_name(elements, |_, values| T::pad(values, components))
    }
}

impl<T: Pad> Dataset<T> {
    /// Combines elements of different shapes into batches. Each element is padded at its end, to the largest element of the batch or to a
    /// given shape.
    ///
    /// An error takes the place of a batch if an element is larger than the given shape or has another rank.
    ///
    /// ```
    /// use gradlet::{Tensor, data::{Dataset, PaddedBatch}};
    /// let cpu = gradlet::cpu();
    /// let rows = Dataset::range(1..4).map(move |x| Tensor::full(&cpu, x, &[x as u32]));
    /// let batch = rows.padded_batch(PaddedBatch::new(3)).get_single_element()?;
    /// assert_eq!(batch.to_nested::<[[i64; 3]; 3]>()?, [[1, 0, 0], [2, 2, 0], [3, 3, 3]]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn padded_batch(&self, mut options: PaddedBatch) -> Dataset<T::Batched> {
        let size = options.drop_remainder.then_some(options.batch_size as u32);
        let (spec, check) = match self.element_spec().map(|spec| options.fill(spec)) {
            Some((spec, check)) => (Some(spec.batched(size)), check),
            None => (None, Ok(())),
        };
        let groups = self.grouped("padded_batch", options.batch_size, options.drop_remainder).checked(check).with_any_spec(spec);
        groups.in_place(move |group| T::pad(group, &mut Components { options: &options, next: 0 }))
    }
}
