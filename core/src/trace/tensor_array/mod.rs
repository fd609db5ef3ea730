//! Arrays of tensors that programs read and write by index, like TensorFlow's `TensorArray`.

mod content;

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::Lock;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::scope::Scope;
use alloc::format;
use alloc::vec::Vec;
use content::{Content, Slot, capacity, known, slice_shape};
use core::fmt;

/// Array of tensors with one element type, like TensorFlow's `TensorArray`. It is an immutable value: [`write`](TensorArray::write)
/// and similar methods return a new array.
///
/// ```
/// use gradlet_core::control::TensorArray;
/// use gradlet_core::{DType, Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let mut a = TensorArray::new(&scope, DType::F32, 3, false);
/// for i in 0..3 {
///     a = a.write(i, &Tensor::scalar(&scope.device(), i as f32))?;
/// }
/// assert_eq!(a.read(1)?.item::<f32>()?, 1.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// In a trace, an array can be the state of a loop, the result of a branch, or an argument or result of a function:
///
/// ```
/// use gradlet_core::control::{WhileOptions, while_loop};
/// use gradlet_core::control::TensorArray;
/// use gradlet_core::{DType, Eager, Function, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let squares = Function::new(|scope: &dyn Scope, n: Tensor| {
///     let state = (n.like(0.0)?, TensorArray::new(scope, DType::I32, 0, true).with_capacity(10));
///     let (_, a) = while_loop(scope, WhileOptions::default(), state, |(i, _)| i.mul(i)?.less(&n), |(i, a)| {
///         Ok((i.add_scalar(1.0)?, a.write(&i, &i.mul(&i)?)?))
///     })?;
///     Ok(a)
/// });
/// assert_eq!(squares.call(&scope, Tensor::scalar(&scope.device(), 30))?.stack()?.to_vec::<i32>()?, [0, 1, 4, 9, 16, 25]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
///
/// Elements that were never written are zeros, if the shape of the elements is known. An index that is a number is checked against
/// the size immediately. An index that a trace computes is checked at run time against the array's capacity, like the indices of
/// [`Tensor::gather`].
///
/// An array that grows by such an index needs a stated capacity. In that trace, [`stack`](TensorArray::stack) returns the whole
/// capacity, with zeros after the first [`size`](TensorArray::size) elements. Like TensorFlow's graphs, a trace does not clear
/// elements that are read.
///
/// If an element is read or gathered several times, its gradients are added, as in TensorFlow's eager arrays. TensorFlow's graphs
/// keep only one of them in the gradient of `gather`.
#[must_use = "an array does not change: writing returns a new one"]
#[doc(alias = "tf.TensorArray")]
pub struct TensorArray {
    dtype: DType,
    device: Device,
    /// True if the array was created in a trace.
    traced: bool,
    element: Option<Shape>,
    dynamic: bool,
    capacity: Option<u32>,
    clears: bool,
    infers: bool,
    content: Content,
}

/// Index of a [`TensorArray`]: a number, or a scalar tensor of i32 or i64.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// Number.
    Number(i64),
    /// Tensor.
    Tensor(&'a Tensor),
}

impl<'a> From<&'a Tensor> for At<'a> {
    fn from(index: &'a Tensor) -> At<'a> {
        At::Tensor(index)
    }
}

macro_rules! numbers {
    ($($ty:ty)*) => {$(
        impl From<$ty> for At<'_> {
            fn from(index: $ty) -> Self {
                At::Number(i64::try_from(index).unwrap_or(i64::MAX))
            }
        }
    )*};
}
numbers!(i32 u32 i64 usize);

impl fmt::Debug for TensorArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorArray({}, ", self.dtype)?;
        match self.known_size() {
            Ok(Some(size)) => write!(f, "{size} elements)"),
            _ => f.write_str("size computed in a trace)"),
        }
    }
}

impl TensorArray {
    /// Creates an array of `size` unwritten elements. With `dynamic_size`, the array grows when it is written past its end.
    pub fn new(scope: &dyn Scope, dtype: DType, size: u32, dynamic_size: bool) -> TensorArray {
        TensorArray {
            dtype,
            device: scope.device(),
            element: None,
            dynamic: dynamic_size,
            capacity: None,
            traced: scope.handle().recorder.traces(),
            clears: true,
            infers: true,
            content: Content::Apart(Lock::new(alloc::vec![Slot::Unwritten; size as usize])),
        }
    }

    /// Creates an array of `size` zeros of the type `element`. In a trace, they are one tensor from the start.
    pub(crate) fn zeros(scope: &dyn Scope, element: TensorType, size: u32) -> Result<TensorArray> {
        let (scope, dims) = (scope.handle(), element.shape.dims());
        if !scope.recorder.traces() {
            return TensorArray::new(&scope, element.dtype, size, false).with_element_shape(dims);
        }
        let values = content::zeros(Some(&scope), &scope.device(), element.dtype, &[&[size], dims].concat())?;
        let array = TensorArray::new(&scope, element.dtype, 0, false).with_element_shape(dims)?;
        Ok(TensorArray { content: Content::Together(values, None), ..array })
    }

    /// Returns the array with this element shape. Without it, the first element that is written determines the shape.
    ///
    /// Fails if there are more dimensions than a tensor can have.
    pub fn with_element_shape(self, dims: &[u32]) -> Result<TensorArray> {
        Ok(TensorArray { element: Some(Shape::new(dims)?), ..self })
    }

    /// Returns the array with room for `capacity` elements in a trace, where a dynamic array cannot grow further. A device reserves
    /// memory for this capacity.
    pub fn with_capacity(self, capacity: u32) -> TensorArray {
        TensorArray { capacity: Some(capacity), ..self }
    }

    /// Returns the array with elements that can be read only once (the default), or any number of times if `clear_after_read` is
    /// false. A trace always allows any number of reads.
    pub fn clear_after_read(self, clear_after_read: bool) -> TensorArray {
        TensorArray { clears: clear_after_read, ..self }
    }

    /// Returns the array with a check that all elements have the shape of the first one written (the default), or without it if
    /// `infer_shape` is false.
    pub fn infer_shape(self, infer_shape: bool) -> TensorArray {
        TensorArray { infers: infer_shape, ..self }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// True if the array grows when it is written past its end.
    pub fn dynamic_size(&self) -> bool {
        self.dynamic
    }

    /// Returns the shape of the elements, if it was stated or an element was written.
    pub fn element_shape(&self) -> Option<Shape> {
        match &self.content {
            Content::Together(values, _) => Shape::new(values.dims().get(1..)?).ok(),
            Content::Apart(_) => self.element,
        }
    }

    /// Returns the number of elements as an i32 scalar.
    pub fn size(&self) -> Result<Tensor> {
        match &self.content {
            Content::Together(_, Some(size)) => Ok(size.clone()),
            _ => Ok(Tensor::scalar(&self.device, self.known_size()?.unwrap_or(0) as i32)),
        }
    }

    /// Returns the number of elements, or `None` if a trace computes it.
    fn known_size(&self) -> Result<Option<usize>> {
        match &self.content {
            Content::Apart(slots) => Ok(Some(slots.lock().len())),
            Content::Together(values, None) => Ok(Some(capacity(values))),
            Content::Together(_, Some(size)) => Ok(known(size)?.and_then(|size| size.first().map(|&size| size as usize))),
        }
    }

    /// Returns the element at `index`.
    ///
    /// Fails if there is no such element, or if an earlier read cleared it. Also fails if the element was never written and the shape
    /// of the elements is not known.
    pub fn read<'a>(&self, index: impl Into<At<'a>>) -> Result<Tensor> {
        let index = index.into();
        let known = index.known()?.map(|known| self.place(known)).transpose()?;
        if let (Some(known), Content::Apart(slots)) = (known, &self.content) {
            let element = self.elements(&slots.lock(), &[known])?.pop().ok_or(Error::Internal)?;
            if let (true, Some(slot)) = (self.clears && !self.traced && element.buffer().is_ok(), slots.lock().get_mut(known)) {
                *slot = Slot::Cleared;
            }
            return Ok(element);
        }
        let index = index.tensor(&self.device);
        self.together(&[&index], None)?.0.gather(&index, 0)
    }

    /// Returns the elements at `indices`, a vector of i32 or i64, stacked along a new first axis.
    ///
    /// Fails like [`TensorArray::read`], but clears nothing.
    pub fn gather(&self, indices: &Tensor) -> Result<Tensor> {
        let places = known(indices)?.map(|known| known.into_iter().map(|index| self.place(index)).collect::<Result<Vec<_>>>());
        match (places.transpose()?, &self.content) {
            (Some(places), Content::Apart(slots)) => {
                let elements = self.elements(&slots.lock(), &places)?;
                self.side_by_side(&elements)
            }
            _ => self.together(&[indices], None)?.0.gather(indices, 0),
        }
    }

    /// Returns all elements, stacked along a new first axis.
    ///
    /// Fails if an element was cleared, if the shape of unwritten elements is not known, or if shapes differ.
    pub fn stack(&self) -> Result<Tensor> {
        match &self.content {
            Content::Apart(slots) => {
                let all = self.all(&slots.lock())?;
                self.side_by_side(&all)
            }
            Content::Together(values, _) => match self.known_size()?.filter(|&size| size < capacity(values)) {
                Some(size) => values.index(..size as i32),
                None => Ok(values.clone()),
            },
        }
    }

    /// Returns all elements, concatenated along their first axis. Fails like [`TensorArray::stack`], and if the elements are scalars.
    pub fn concat(&self) -> Result<Tensor> {
        let scalar = || Error::message("concat joins elements along their first axis, and scalars have none: stack them");
        if let Content::Apart(slots) = &self.content {
            let elements = self.all(&slots.lock())?;
            let wrong = elements.iter().any(|element| element.dims().is_empty());
            return if wrong { Err(scalar()) } else { Tensor::concat(&elements, 0) };
        }
        let values = self.stack()?;
        let [count, first, rest @ ..] = values.dims() else { return Err(scalar()) };
        values.reshape(&[&[count * first], rest].concat())
    }

    /// Returns the array with `value` as the element at `index`.
    ///
    /// Fails if the element type or the shape differs, if the index is negative, or if it is too large for an array that is not
    /// dynamic.
    pub fn write<'a>(&self, index: impl Into<At<'a>>, value: &Tensor) -> Result<TensorArray> {
        let index = index.into();
        self.check(value.dtype(), value.shape())?;
        let element = self.element.or(self.infers.then_some(*value.shape()));
        if let (Some(known), Some(mut slots)) = (index.known()?, self.slots()?) {
            self.set(&mut slots, known, value)?;
            return Ok(TensorArray { content: Content::Apart(Lock::new(slots)), element, ..self.clone() });
        }
        let at = index.tensor(&self.device);
        let (values, size) = self.room(index.known()?, &[&at, value], *value.shape())?;
        let values = values.tensor_scatter_update(&at.reshape(&[1, 1])?, &value.expand_dims(0)?)?;
        let end = || at.cast(DType::I32)?.add_scalar(1.0);
        let size = size.map(|size| size.maximum(&end()?)).transpose()?;
        Ok(TensorArray { content: Content::Together(values, size), element, ..self.clone() })
    }

    /// Returns the array with the slices of `value` along its first axis as the elements at `indices`, a vector of i32 or i64.
    ///
    /// Fails like [`TensorArray::write`], and if the number of slices differs from the number of indices.
    pub fn scatter(&self, indices: &Tensor, value: &Tensor) -> Result<TensorArray> {
        let known = known(indices)?;
        let shape = slice_shape(value)?;
        self.check(value.dtype(), &shape)?;
        if indices.dims() != &value.dims()[..1] {
            let (indices, value) = (indices.tensor_type(), value.tensor_type());
            return Err(Error::message(format!("scatter needs one index for each slice of {value}, but got the indices {indices}")));
        }
        let element = self.element.or(self.infers.then_some(shape));
        if let (Some(known), Some(mut slots)) = (&known, self.slots()?) {
            known.iter().zip(value.unstack(0)?).try_for_each(|(&index, value)| self.set(&mut slots, index, &value))?;
            return Ok(TensorArray { content: Content::Apart(Lock::new(slots)), element, ..self.clone() });
        }
        let last = known.map(|known| known.into_iter().max().unwrap_or(0));
        let (values, size) = self.room(last, &[indices, value], shape)?;
        let values = values.tensor_scatter_update(&indices.expand_dims(1)?, value)?;
        let end = || indices.cast(DType::I32)?.max(&[0], false)?.add_scalar(1.0);
        let size = size.map(|size| size.maximum(&end()?)).transpose()?;
        Ok(TensorArray { content: Content::Together(values, size), element, ..self.clone() })
    }

    /// Returns the array with the slices of `value` along its first axis as its elements.
    ///
    /// Fails if the element type or the shape differs, or if an array that is not dynamic has too few elements.
    pub fn unstack(&self, value: &Tensor) -> Result<TensorArray> {
        self.check(value.dtype(), &slice_shape(value)?)?;
        if !self.dynamic && self.known_size()?.is_some_and(|size| capacity(value) > size) {
            return Err(self.too_large("unstack", format!("{} slices", capacity(value))));
        }
        let content = match self.traced || value.buffer().is_err() {
            true => Content::Together(value.clone(), None),
            false => Content::apart(value.unstack(0)?),
        };
        Ok(TensorArray { content, ..self.clone() })
    }

    /// Returns the array with parts of `value` along its first axis as its elements. `lengths` holds the length of each part.
    ///
    /// Fails if the element type or the shape differs, or if the lengths do not add up to the axis. Also fails if the number of
    /// lengths differs from the size of an array that is not dynamic.
    pub fn split(&self, value: &Tensor, lengths: &[u32]) -> Result<TensorArray> {
        slice_shape(value)?;
        if !self.dynamic && self.known_size()?.is_some_and(|size| lengths.len() != size) {
            return Err(self.too_large("split", format!("{} lengths", lengths.len())));
        }
        let parts = value.split_sizes(&lengths.iter().map(|&length| length.into()).collect::<Vec<_>>(), 0)?;
        parts.iter().try_for_each(|part| self.check(part.dtype(), part.shape()))?;
        Ok(TensorArray { content: Content::apart(parts), ..self.clone() })
    }
}
