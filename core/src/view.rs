//! Borrowed tensors: all that a CPU kernel ever sees.

use crate::dtype::{DType, Element};
use crate::shape::{Shape, TensorType};

/// A tensor to be read: an element type, dimensions and row-major bytes.
///
/// Who makes one has checked that the bytes are as many as the type needs and are aligned for it; so the accessors
/// do not fail, and answer an empty slice where that promise was broken.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    /// The element type.
    pub dtype: DType,
    /// True if this input has its bytes in the output that it shares; then `data` is empty.
    pub in_place: bool,
    /// The dimensions, outermost first.
    pub dims: &'a [u32],
    /// The bytes.
    pub data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The elements, in row-major order.
    #[inline]
    pub fn slice<T: Element>(&self) -> &'a [T] {
        bytemuck::try_cast_slice(self.data).unwrap_or(&[])
    }

    /// The first element: the value of a scalar.
    #[inline]
    pub fn scalar<T: Element>(&self) -> T {
        self.slice().first().copied().unwrap_or(T::zeroed())
    }

    /// The number of elements that the dimensions give.
    pub fn elements(&self) -> usize {
        self.dims.iter().map(|&dim| dim as usize).product()
    }

    /// Dimension `axis`, or 1 where there is none.
    #[inline]
    pub fn dim(&self, axis: usize) -> usize {
        self.dims.get(axis).map_or(1, |&dim| dim as usize)
    }

    /// The element type and shape.
    pub fn tensor_type(&self) -> TensorType {
        TensorType::new(self.dtype, Shape::new(self.dims).unwrap_or(Shape::SCALAR))
    }
}

/// A tensor to be written: as [`TensorView`].
pub struct TensorViewMut<'a> {
    /// The element type.
    pub dtype: DType,
    /// The dimensions, outermost first.
    pub dims: &'a [u32],
    /// The bytes.
    pub data: &'a mut [u8],
}

impl TensorViewMut<'_> {
    /// The elements, in row-major order.
    #[inline]
    pub fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        bytemuck::try_cast_slice_mut(self.data).unwrap_or(&mut [])
    }

    /// Dimension `axis`, or 1 where there is none.
    #[inline]
    pub fn dim(&self, axis: usize) -> usize {
        self.dims.get(axis).map_or(1, |&dim| dim as usize)
    }
}
