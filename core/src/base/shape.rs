//! Shapes, strides and NumPy broadcasting.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use bytemuck::{CheckedBitPattern, Pod, Zeroable};
use core::fmt;

/// Highest rank of a tensor.
pub const MAX_RANK: usize = 8;

/// Dimensions of a tensor, outermost first, at most [`MAX_RANK`] of them.
///
/// ```
/// use gradlet_core::Shape;
/// let shape = Shape::new(&[2, 3]).unwrap();
/// assert_eq!(shape.elements(), Some(6));
/// assert_eq!(shape.to_string(), "[2,3]");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Shape {
    rank: u32,
    dims: [u32; MAX_RANK],
}

impl Shape {
    /// Shape of a scalar: no dimensions, one element.
    pub const SCALAR: Shape = Shape { rank: 0, dims: [0; MAX_RANK] };

    /// Creates a shape with these dimensions. Fails with [`Error::Rank`] if there are more than [`MAX_RANK`].
    pub fn new(dims: &[u32]) -> Result<Shape> {
        let mut shape = Shape::SCALAR;
        shape.dims.get_mut(..dims.len()).ok_or(Error::Rank { input: 0 })?.copy_from_slice(dims);
        shape.rank = dims.len() as u32;
        Ok(shape)
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Returns the dimensions, outermost first.
    #[inline]
    pub fn dims(&self) -> &[u32] {
        self.dims.get(..self.rank as usize).unwrap_or(&[])
    }

    /// True if the shape has the form that [`Shape::new`] produces: at most [`MAX_RANK`] dimensions, and zeros in the unused entries.
    pub(crate) fn is_valid(&self) -> bool {
        self.dims.get(self.rank as usize..).is_some_and(|rest| rest.iter().all(|&dim| dim == 0))
    }

    /// Returns the dimensions as a mutable slice, outermost first.
    pub fn dims_mut(&mut self) -> &mut [u32] {
        self.dims.get_mut(..self.rank as usize).unwrap_or(&mut [])
    }

    /// Appends a dimension. Fails with [`Error::Rank`] if the rank would exceed [`MAX_RANK`].
    pub fn push(&mut self, dim: u32) -> Result<()> {
        *self.dims.get_mut(self.rank as usize).ok_or(Error::Rank { input: 0 })? = dim;
        self.rank += 1;
        Ok(())
    }

    /// Returns the dimension at index `from_end`, counted backward from the last dimension, which has index 0. Returns `None` if the rank
    /// is too low.
    pub fn back(&self, from_end: usize) -> Option<u32> {
        self.dims().iter().rev().nth(from_end).copied()
    }

    /// Returns the number of elements. Returns `None` if the product of the nonzero dimensions exceeds `usize`.
    pub fn elements(&self) -> Option<usize> {
        let mut product = 1usize;
        let mut empty = false;
        for &dim in self.dims() {
            match dim {
                0 => empty = true,
                dim => product = product.checked_mul(dim as usize)?,
            }
        }
        Some(if empty { 0 } else { product })
    }

    /// Returns the shape of an elementwise result over `self` and `other`, by NumPy's broadcasting rule. The shapes are aligned at the
    /// last dimension. Fails with [`Error::Dimension`] unless two aligned dimensions are equal or one of them is 1.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        let (long, short) = if self.rank >= other.rank { (self, other) } else { (other, self) };
        let mut result = *long;
        let skip = long.rank() - short.rank();
        for (axis, (dim, &from)) in result.dims_mut().iter_mut().skip(skip).zip(short.dims()).enumerate() {
            if *dim == 1 {
                *dim = from;
            } else if from != 1 && from != *dim {
                return Err(Error::Dimension { input: 1, axis: axis as u8, want: *dim, got: from });
            }
        }
        Ok(result)
    }
}

/// Returns the product of dimensions as one dimension. Fails with [`Error::TooLarge`] if it exceeds `u32`.
#[cfg(feature = "alloc")]
pub(crate) fn merged(dims: &[u32]) -> Result<u32> {
    Shape::new(dims)?.elements().and_then(|elements| u32::try_from(elements).ok()).ok_or(Error::TooLarge)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.dims().iter().enumerate() {
            if axis > 0 {
                f.write_str(",")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Logs the text of `Display`.
#[cfg(feature = "defmt")]
impl defmt::Format for Shape {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "[");
        for (axis, dim) in self.dims().iter().enumerate() {
            if axis > 0 {
                defmt::write!(f, ",");
            }
            defmt::write!(f, "{}", dim);
        }
        defmt::write!(f, "]");
    }
}

/// Element type and shape of a tensor, the input of every shape rule. Displays as `f32[2,3]`.
///
/// Its memory layout is that of an artifact's type record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, CheckedBitPattern)]
#[repr(C)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The dimensions.
    pub shape: Shape,
}

impl TensorType {
    /// Placeholder that fills an array of types before its entries are set.
    pub const EMPTY: TensorType = TensorType { dtype: DType::F32, shape: Shape::SCALAR };

    /// Type of a bool scalar, such as the condition of a branch or a loop.
    pub const BOOL: TensorType = TensorType { dtype: DType::Bool, shape: Shape::SCALAR };
    /// Type of an i32 scalar, such as an index or a counter.
    pub const I32: TensorType = TensorType { dtype: DType::I32, shape: Shape::SCALAR };

    /// Creates a type from its parts.
    pub const fn new(dtype: DType, shape: Shape) -> TensorType {
        TensorType { dtype, shape }
    }

    /// Returns the number of bytes of a tensor of this type, or `None` if it exceeds `usize`.
    pub fn bytes(&self) -> Option<usize> {
        self.shape.elements()?.checked_mul(self.dtype.size())
    }

    /// Returns the number of bytes of a tensor of this type, also if no machine can address them.
    #[cfg(feature = "alloc")]
    pub(crate) fn wide_bytes(&self) -> u128 {
        self.shape.dims().iter().fold(self.dtype.size() as u128, |product, &dim| product.saturating_mul(dim.into()))
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// Logs the text of `Display`.
#[cfg(feature = "defmt")]
impl defmt::Format for TensorType {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{}{}", self.dtype, self.shape);
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
