//! Borrowed tensors, the only form in which a CPU kernel receives its operands.

use crate::base::dtype::{DType, Element};
use crate::base::shape::TensorType;

/// Read-only view of a tensor: an element type, dimensions, and row-major bytes.
///
/// The creator of a view checks that the byte count matches the type and that the bytes are aligned for it. The accessors therefore
/// never fail. If the creator broke that promise, they return fewer elements.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    /// The element type and shape.
    pub tensor_type: &'a TensorType,
    /// The bytes, or `None` if the input shares the bytes of an output.
    pub data: Option<&'a [u8]>,
}

impl<'a> TensorView<'a> {
    /// True if this input shares the bytes of an output.
    #[inline]
    pub fn in_place(&self) -> bool {
        self.data.is_none()
    }

    /// Returns the element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.tensor_type.dtype
    }

    /// Returns the dimensions, outermost first.
    #[inline]
    pub fn dims(&self) -> &'a [u32] {
        self.tensor_type.shape.dims()
    }

    /// Returns the bytes, or an empty slice if this input shares the bytes of an output.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.data.unwrap_or(&[])
    }

    /// Returns the elements in row-major order, or an empty slice if this input shares the bytes of an output.
    #[inline]
    pub fn slice<T: Element>(&self) -> &'a [T] {
        // A whole number of elements: the cast then checks only the alignment, in half the instructions.
        let bytes = self.bytes();
        let whole = bytes.len() - bytes.len() % size_of::<T>();
        bytes.get(..whole).and_then(|bytes| bytemuck::try_cast_slice(bytes).ok()).unwrap_or_default()
    }

    /// Returns the first element, which is the value of a scalar. Returns 0 if there are no elements.
    #[inline]
    pub fn scalar<T: Element>(&self) -> T {
        self.slice().first().copied().unwrap_or(T::zeroed())
    }

    /// Returns the number of elements, computed from the dimensions.
    pub fn elements(&self) -> usize {
        self.dims().iter().map(|&dim| dim as usize).product()
    }

    /// Returns dimension `axis`, or 1 if the rank is too low.
    #[inline]
    pub fn dim(&self, axis: usize) -> usize {
        self.dims().get(axis).map_or(1, |&dim| dim as usize)
    }
}

/// Mutable view of a tensor, with the same rules as [`TensorView`].
pub struct TensorViewMut<'a> {
    /// The element type and shape.
    pub tensor_type: &'a TensorType,
    /// The bytes.
    pub data: &'a mut [u8],
}

impl<'a> TensorViewMut<'a> {
    /// Returns the element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.tensor_type.dtype
    }

    /// Returns the dimensions, outermost first.
    #[inline]
    pub fn dims(&self) -> &'a [u32] {
        self.tensor_type.shape.dims()
    }

    /// Returns the elements in row-major order.
    #[inline]
    pub fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        let whole = self.data.len() - self.data.len() % size_of::<T>();
        self.data.get_mut(..whole).and_then(|data| bytemuck::try_cast_slice_mut(data).ok()).unwrap_or_default()
    }

    /// Returns dimension `axis`, or 1 if the rank is too low.
    #[inline]
    pub fn dim(&self, axis: usize) -> usize {
        self.dims().get(axis).map_or(1, |&dim| dim as usize)
    }
}
