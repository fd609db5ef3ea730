//! Contents of an array: separate elements, or one tensor with all elements.

use super::{At, TensorArray};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::Lock;
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::scope::{Scope, ScopeHandle, innermost};
use crate::tensor::structure::{Part, Structure};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

pub(super) enum Content {
    /// Separate elements. Their indices are known during the trace, or the program is not traced.
    Apart(Lock<Vec<Slot>>),
    /// Tensor `[capacity, …element]`, and the number of valid elements if that is less than the capacity.
    Together(Tensor, Option<Tensor>),
}

#[derive(Clone)]
pub(super) enum Slot {
    Unwritten,
    Written(Tensor),
    /// Cleared by a read.
    Cleared,
}

impl Slot {
    fn written(&self) -> Option<&Tensor> {
        if let Slot::Written(tensor) = self { Some(tensor) } else { None }
    }
}

impl Content {
    pub(super) fn apart(elements: Vec<Tensor>) -> Content {
        Content::Apart(Lock::new(elements.into_iter().map(Slot::Written).collect()))
    }
}

impl Clone for Content {
    fn clone(&self) -> Content {
        match self {
            Content::Apart(slots) => Content::Apart(Lock::new(slots.lock().clone())),
            Content::Together(values, size) => Content::Together(values.clone(), size.clone()),
        }
    }
}

impl At<'_> {
    /// Returns the index as a number, or `None` if a trace computes it.
    pub(super) fn known(&self) -> Result<Option<i64>> {
        match self {
            At::Number(index) => Ok(Some(*index)),
            At::Tensor(index) if !index.dims().is_empty() => Err(not_indices(index)),
            At::Tensor(index) => Ok(known(index)?.and_then(|known| known.first().copied())),
        }
    }

    pub(super) fn tensor(&self, device: &Device) -> Tensor {
        match self {
            At::Number(index) => Tensor::scalar(device, *index),
            At::Tensor(index) => (*index).clone(),
        }
    }
}

fn not_indices(index: &Tensor) -> Error {
    Error::message(format!("an index of an array must be a scalar or a vector of i32 or i64, not {}", index.tensor_type()))
}

/// Returns the elements of an index tensor, or `None` if a trace computes it.
pub(super) fn known(index: &Tensor) -> Result<Option<Vec<i64>>> {
    if !matches!(index.dtype(), DType::I32 | DType::I64) || index.shape().rank() > 1 {
        return Err(not_indices(index));
    }
    match (index.buffer(), index.dtype()) {
        (Err(_), _) => Ok(None),
        (_, DType::I32) => Ok(Some(index.to_vec::<i32>()?.into_iter().map(i64::from).collect())),
        _ => index.to_vec().map(Some),
    }
}

/// Returns the number of slices of a tensor along its first axis.
pub(super) fn capacity(values: &Tensor) -> usize {
    values.dims().first().map_or(0, |&dim| dim as usize)
}

/// Returns the shape of a tensor's slices along its first axis.
pub(super) fn slice_shape(value: &Tensor) -> Result<Shape> {
    let dims =
        value.dims().get(1..).ok_or_else(|| Error::message("the elements of an array cannot be taken from a scalar, which has no axis"))?;
    Shape::new(dims)
}

/// Returns zeros. If there is a `scope`, an op in it computes them from a scalar, because a constant would be as large as the zeros.
pub(super) fn zeros(scope: Option<&ScopeHandle>, device: &Device, dtype: DType, dims: &[u32]) -> Result<Tensor> {
    let zero = Tensor::zeros(device, TensorType::new(dtype, Shape::SCALAR))?;
    match scope {
        Some(scope) => scope.emit_op(&ops::broadcast_to::OP, dims, &[&zero])?.pop().ok_or(Error::Internal),
        None => zero.broadcast_to(dims),
    }
}

impl TensorArray {
    /// Checks that an element of this type can be in the array.
    pub(super) fn check(&self, dtype: DType, shape: &Shape) -> Result<()> {
        if dtype != self.dtype {
            return Err(Error::message(format!("the elements of the array must be {}, not {dtype}", self.dtype)));
        }
        match self.element_shape().filter(|wanted| wanted != shape) {
            Some(wanted) => Err(Error::message(format!("the elements of the array must have the shape {wanted}, not {shape}"))),
            None => Ok(()),
        }
    }

    /// Checks an index to read and returns it as a position. The limit is the size, or the capacity if a trace computes the size.
    pub(super) fn place(&self, index: i64) -> Result<usize> {
        let room = if let Content::Together(values, _) = &self.content { capacity(values) } else { 0 };
        let size = self.known_size()?.unwrap_or(room);
        let wrong = || Error::message(format!("cannot read index {index} of an array of {size} elements"));
        usize::try_from(index).ok().filter(|&index| index < size).ok_or_else(wrong)
    }

    pub(super) fn too_large(&self, doing: &str, what: String) -> Error {
        let size = self.known_size().ok().flatten().unwrap_or(0);
        Error::message(format!("cannot {doing} {what}: the array has {size} elements, and its size is not dynamic"))
    }

    /// Returns the elements as separate slots, or `None` if they are in one tensor that a trace computes.
    pub(super) fn slots(&self) -> Result<Option<Vec<Slot>>> {
        match &self.content {
            Content::Apart(slots) => Ok(Some(slots.lock().clone())),
            Content::Together(values, _) if values.buffer().is_ok() && self.known_size()?.is_some() => {
                Ok(Some(self.stack()?.unstack(0)?.into_iter().map(Slot::Written).collect()))
            }
            Content::Together(..) => Ok(None),
        }
    }

    /// Sets slot `index` to `value`. A dynamic array grows if necessary. For any other array, an index past its end is an error.
    pub(super) fn set(&self, slots: &mut Vec<Slot>, index: i64, value: &Tensor) -> Result<()> {
        let wrong = |_| Error::message(format!("cannot write to index {index} of an array: it must be at least 0 and below 2^32"));
        let place = u32::try_from(index).map_err(wrong)? as usize;
        if place >= slots.len() {
            if !self.dynamic {
                return Err(self.too_large("write to", format!("index {index}")));
            }
            slots.try_reserve(place + 1 - slots.len()).map_err(|_| Error::TooLarge)?;
            slots.resize(place + 1, Slot::Unwritten);
        }
        slots[place] = Slot::Written(value.clone());
        Ok(())
    }

    /// Returns the elements at these positions. An unwritten element is zeros. Fails if an element was cleared, or if the shape of an
    /// unwritten element is not known.
    pub(super) fn elements(&self, slots: &[Slot], places: &[usize]) -> Result<Vec<Tensor>> {
        let written = slots.iter().filter_map(Slot::written);
        let element = || self.element.or(written.clone().next().map(|tensor| *tensor.shape()));
        let unwritten = || {
            let unknown = || Error::message("the element is unwritten, and the shape of elements is not known: use with_element_shape");
            let scope = innermost(&written.clone().collect::<Vec<_>>())?;
            zeros(scope.as_ref(), &self.device, self.dtype, element().ok_or_else(unknown)?.dims())
        };
        let get = |&place: &usize| match slots.get(place) {
            Some(Slot::Written(tensor)) => Ok(tensor.clone()),
            Some(Slot::Cleared) => Err(Error::message(format!(
                "element {place} was cleared by an earlier read: use clear_after_read(false) to read elements more than once"
            ))),
            _ => unwritten(),
        };
        places.iter().map(get).collect()
    }

    pub(super) fn all(&self, slots: &[Slot]) -> Result<Vec<Tensor>> {
        self.elements(slots, &(0..slots.len()).collect::<Vec<_>>())
    }

    pub(super) fn side_by_side(&self, elements: &[Tensor]) -> Result<Tensor> {
        let element = self.element.unwrap_or(Shape::SCALAR);
        if elements.is_empty() {
            zeros(None, &self.device, self.dtype, &[&[0], element.dims()].concat())
        } else {
            Tensor::stack(elements, 0)
        }
    }

    /// Returns all elements in one tensor, padded to the stated capacity, and their number if the tensor has padding. The padding is
    /// created in the innermost scope of the tensors `near`. `shape` is the shape of the elements if it is not known otherwise.
    pub(super) fn together(&self, near: &[&Tensor], shape: Option<Shape>) -> Result<(Tensor, Option<Tensor>)> {
        let scope = innermost(near)?;
        self.together_in(scope.as_ref(), shape)
    }

    fn together_in(&self, scope: Option<&ScopeHandle>, shape: Option<Shape>) -> Result<(Tensor, Option<Tensor>)> {
        let values = match &self.content {
            Content::Together(values, Some(size)) => return Ok((values.clone(), Some(size.clone()))),
            Content::Together(values, None) => Some(values.clone()),
            Content::Apart(slots) => {
                let slots = slots.lock();
                let some = slots.iter().any(|slot| !matches!(slot, Slot::Unwritten));
                let all = some.then(|| self.all(&slots)).transpose()?;
                drop(slots);
                all.map(|all| self.side_by_side(&all)).transpose()?
            }
        };
        let count = self.known_size()?.unwrap_or(0) as u32;
        let room = self.capacity.filter(|&capacity| self.dynamic && capacity > count).unwrap_or(count);
        let size = (room > count).then(|| Tensor::scalar(&self.device, count as i32));
        let known = values.as_ref().map(slice_shape).transpose()?.or(self.element).or(shape);
        let unknown = || Error::message("the shape of the array's elements is not known yet: use with_element_shape");
        let element = known.ok_or_else(unknown)?;
        let more = |count: u32| zeros(scope, &self.device, self.dtype, &[&[count], element.dims()].concat());
        let values = match values {
            None => more(room)?,
            Some(values) if room > count => Tensor::concat(&[values, more(room - count)?], 0)?,
            Some(values) => values,
        };
        Ok((values, size))
    }

    /// Returns all elements like [`TensorArray::together`], with room for a write at `index`. `None` stands for an index that a trace
    /// computes.
    pub(super) fn room(&self, index: Option<i64>, near: &[&Tensor], shape: Shape) -> Result<(Tensor, Option<Tensor>)> {
        let (values, size) = self.together(near, Some(shape))?;
        let room = capacity(&values) as i64;
        match index {
            Some(index) if index < 0 => Err(Error::message(format!("cannot write to index {index} of an array: it must be at least 0"))),
            Some(index) if index >= room && !self.dynamic => Err(self.too_large("write to", format!("index {index}"))),
            Some(index) if index >= room && size.is_some() => Err(Error::message(format!(
                "cannot write to index {index}: the array has room for {room} elements: use with_capacity for more"
            ))),
            Some(index) if index >= room => {
                let more = u32::try_from(index + 1 - room).map_err(|_| Error::TooLarge)?;
                let more = zeros(innermost(near)?.as_ref(), &self.device, self.dtype, &[&[more], shape.dims()].concat())?;
                Ok((Tensor::concat(&[values, more], 0)?, None))
            }
            None if self.dynamic && self.capacity.is_none() => {
                Err(Error::message("in a trace, an array that grows needs a stated capacity: use with_capacity"))
            }
            _ => Ok((values, size)),
        }
    }
}

impl Clone for TensorArray {
    fn clone(&self) -> TensorArray {
        TensorArray { device: self.device.clone(), content: self.content.clone(), ..*self }
    }
}

/// The properties of the array are host values. While the elements are separate, their positions are host values too.
impl Structure for TensorArray {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        let mut host = |value: u64| visit(Part::Host(value));
        host(self.dtype as u64);
        host(self.capacity.map_or(u64::MAX, u64::from));
        host(u64::from(self.dynamic) | u64::from(self.clears) << 1 | u64::from(self.infers) << 2);
        match &self.content {
            Content::Apart(slots) => {
                let slots = slots.lock().clone();
                host(slots.len() as u64);
                host(self.element.map_or(u64::MAX, |shape| shape.rank() as u64));
                self.element.iter().flat_map(|shape| shape.dims()).for_each(|&dim| host(dim.into()));
                for slot in slots {
                    visit(Part::Host(match slot {
                        Slot::Unwritten => 0,
                        Slot::Written(_) => 1,
                        Slot::Cleared => 2,
                    }));
                    slot.written().into_iter().for_each(|tensor| visit(Part::Tensor(tensor)));
                }
            }
            Content::Together(values, size) => {
                visit(Part::Tensor(values));
                size.iter().for_each(|size| visit(Part::Tensor(size)));
            }
        }
    }

    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> TensorArray {
        let mut other = |slot: &Slot| if slot.written().is_some() { Slot::Written(next()) } else { slot.clone() };
        let content = match &self.content {
            Content::Apart(slots) => Content::Apart(Lock::new(slots.lock().iter().map(&mut other).collect())),
            Content::Together(_, size) => {
                let values = next();
                Content::Together(values, size.as_ref().map(|_| next()))
            }
        };
        TensorArray { content, ..self.clone() }
    }

    /// Puts all elements into one tensor, if their shape is known.
    fn carried(self, scope: &dyn Scope, like: Option<&TensorArray>) -> Result<TensorArray> {
        let mut shape = self.element_shape().or(like.and_then(TensorArray::element_shape));
        if let Content::Apart(slots) = &self.content {
            let slots = slots.lock();
            let mut written = slots.iter().filter_map(Slot::written).map(|tensor| *tensor.shape());
            shape = shape.or(written.clone().next());
            if shape.is_none_or(|shape| written.any(|other| other != shape)) {
                drop(slots);
                return Ok(self);
            }
        }
        let (values, size) = self.together_in(Some(&scope.handle()), shape)?;
        Ok(TensorArray { content: Content::Together(values, size), ..self })
    }
}
