//! Arrays of tensors that programs write and read by index: TensorFlow's `TensorArray`.

mod content;

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::base::sync::Lock;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::scope::Scope;
use alloc::format;
use alloc::vec::Vec;
use content::{Content, Slot, capacity, known, slice_shape};
use core::fmt;

/// An array of tensors of one element type: TensorFlow's `TensorArray`. It is a value: [`write`](TensorArray::write) and its like
/// give a new array, and leave this one as it is.
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
/// In a trace, an array can be the state of a loop, the result of a branch, an argument or a result of a function:
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
/// Elements that nobody wrote are zeros, once the shape of elements is known. A number is checked against the size at once. In a trace,
/// an index that is computed there is checked when it runs, as those of [`Tensor::gather`] are, against the array's capacity; and an
/// array that grows by such an index needs a stated capacity: [`stack`](TensorArray::stack) in that trace gives all of it, with zeros
/// after the [`size`](TensorArray::size). As TensorFlow's graphs, a trace does not clear what is read.
///
/// Gradients of an element that is read or gathered several times are added up, as TensorFlow's eager arrays do; in the
/// gradient of `gather`, its graphs keep only one of them.
#[must_use = "an array does not change: writing gives a new one"]
pub struct TensorArray {
    dtype: DType,
    device: Device,
    /// Made in a trace.
    traced: bool,
    element: Option<Shape>,
    dynamic: bool,
    capacity: Option<u32>,
    clears: bool,
    infers: bool,
    content: Content,
}

/// An index of a [`TensorArray`]: a number, or a scalar tensor of i32 or i64.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// A number.
    Number(i64),
    /// A tensor.
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
            _ => f.write_str("as many elements as its trace computes)"),
        }
    }
}

impl TensorArray {
    /// An array of `size` elements, which nobody wrote yet; a dynamic one grows where it is written past its end.
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

    /// The same with elements of this shape only. Without, the first that is written says it.
    ///
    /// Fails where there are more dimensions than a tensor can have.
    pub fn with_element_shape(self, dims: &[u32]) -> Result<TensorArray> {
        Ok(TensorArray { element: Some(Shape::new(dims)?), ..self })
    }

    /// The same with room for so many elements in a trace, where a dynamic array cannot grow further: what a device plans for.
    pub fn with_capacity(self, capacity: u32) -> TensorArray {
        TensorArray { capacity: Some(capacity), ..self }
    }

    /// The same whose elements can be read once only, as at first; or as often as one likes, as in a trace always.
    pub fn clear_after_read(self, clear_after_read: bool) -> TensorArray {
        TensorArray { clears: clear_after_read, ..self }
    }

    /// The same whose elements need not all have the shape of the first that is written; at first they need.
    pub fn infer_shape(self, infer_shape: bool) -> TensorArray {
        TensorArray { infers: infer_shape, ..self }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether the array grows where it is written past its end.
    pub fn dynamic_size(&self) -> bool {
        self.dynamic
    }

    /// The shape of the elements, if it was stated or something was written.
    pub fn element_shape(&self) -> Option<Shape> {
        match &self.content {
            Content::Together(values, _) => Shape::new(values.dims().get(1..)?).ok(),
            Content::Apart(_) => self.element,
        }
    }

    /// The number of elements, i32.
    pub fn size(&self) -> Result<Tensor> {
        match &self.content {
            Content::Together(_, Some(size)) => Ok(size.clone()),
            _ => Ok(Tensor::scalar(&self.device, self.known_size()?.unwrap_or(0) as i32)),
        }
    }

    /// The number of elements, unless it is computed in a trace.
    fn known_size(&self) -> Result<Option<usize>> {
        match &self.content {
            Content::Apart(slots) => Ok(Some(slots.lock().len())),
            Content::Together(values, None) => Ok(Some(capacity(values))),
            Content::Together(_, Some(size)) => Ok(known(size)?.and_then(|size| size.first().map(|&size| size as usize))),
        }
    }

    /// The element at `index`.
    ///
    /// Fails where there is none, where it was read before and thereby cleared, and where nobody wrote it and the shape of elements is
    /// not known.
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

    /// The elements at `indices`, a vector of i32 or i64, one after the other along a new first axis.
    ///
    /// Fails as [`TensorArray::read`], but clears nothing.
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

    /// All elements, one after the other along a new first axis.
    ///
    /// Fails where one was cleared, the shape of unwritten ones is not known, or shapes differ.
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

    /// All elements, one after the other along their first axis. Fails as [`TensorArray::stack`], and where they have none.
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

    /// The array with `value` as the element at `index`.
    ///
    /// Fails where the element type or the shape is another one, where the index is negative, or too large for an array that is not
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

    /// The array with the slices of `value` along its first axis as the elements at `indices`, a vector of i32 or i64.
    ///
    /// Fails as [`TensorArray::write`], and where there are not as many slices as indices.
    pub fn scatter(&self, indices: &Tensor, value: &Tensor) -> Result<TensorArray> {
        let known = known(indices)?;
        let shape = slice_shape(value)?;
        self.check(value.dtype(), &shape)?;
        if indices.dims() != &value.dims()[..1] {
            let (indices, value) = (indices.tensor_type(), value.tensor_type());
            return Err(Error::message(format!("scatter takes an index for each slice of {value}, not {indices}")));
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

    /// The array with the slices of `value` along its first axis as its elements.
    ///
    /// Fails where the element type or the shape is another one, and where there are more slices than an array that is not dynamic has
    /// elements.
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

    /// The array with parts of `value` of these lengths along its first axis as its elements.
    ///
    /// Fails where the element type or the shape is another one, the lengths do not make up the axis, or are not as many as an array
    /// that is not dynamic has elements.
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
