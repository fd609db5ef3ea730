//! Borrowed tensors: all that a CPU kernel ever sees.

use crate::base::dtype::{DType, Element};
use crate::base::shape::TensorType;

/// A tensor to be read: an element type, dimensions and row-major bytes.
///
/// Who makes one has checked that the bytes are as many as the type needs and are aligned for it; so the accessors
/// do not fail, and answer an empty slice where that promise was broken.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    /// The element type and shape.
    pub tensor_type: &'a TensorType,
    /// The bytes; `None` if they are those of the output that this input shares.
    pub data: Option<&'a [u8]>,
}

impl<'a> TensorView<'a> {
    /// True if this input has its bytes in the output that it shares.
    #[inline]
    pub fn in_place(&self) -> bool {
        self.data.is_none()
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.tensor_type.dtype
    }

    /// The dimensions, outermost first.
    #[inline]
    pub fn dims(&self) -> &'a [u32] {
        self.tensor_type.shape.dims()
    }

    /// The bytes; none of an input in place.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.data.unwrap_or(&[])
    }

    /// The elements, in row-major order; none of an input in place.
    #[inline]
    pub fn slice<T: Element>(&self) -> &'a [T] {
        bytemuck::try_cast_slice(self.bytes()).unwrap_or(&[])
    }

    /// The first element: the value of a scalar.
    #[inline]
    pub fn scalar<T: Element>(&self) -> T {
        self.slice().first().copied().unwrap_or(T::zeroed())
    }

    /// The number of elements that the dimensions give.
    pub fn elements(&self) -> usize {
        self.dims().iter().map(|&dim| dim as usize).product()
    }

    /// Dimension `axis`, or 1 where there is none.
    #[inline]
    pub fn dim(&self, axis: usize) -> usize {
        self.dims().get(axis).map_or(1, |&dim| dim as usize)
    }
}

/// A tensor to be written: as [`TensorView`].
pub struct TensorViewMut<'a> {
    /// The element type and shape.
    pub tensor_type: &'a TensorType,
    /// The bytes.
    pub data: &'a mut [u8],
}

impl<'a> TensorViewMut<'a> {
    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.tensor_type.dtype
    }

    /// The dimensions, outermost first.
    #[inline]
    pub fn dims(&self) -> &'a [u32] {
        self.tensor_type.shape.dims()
    }

    /// The elements, in row-major order.
    #[inline]
    pub fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        bytemuck::try_cast_slice_mut(self.data).unwrap_or(&mut [])
    }

    /// The two words that a control op is given instead of an output.
    #[inline]
    pub fn words_mut(&mut self) -> Option<&mut [u32; 2]> {
        bytemuck::try_from_bytes_mut(self.data).ok()
    }

    /// Dimension `axis`, or 1 where there is none.
    #[inline]
    pub fn dim(&self, axis: usize) -> usize {
        self.dims().get(axis).map_or(1, |&dim| dim as usize)
    }
}
