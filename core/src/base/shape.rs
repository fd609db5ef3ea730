//! Shapes, strides and NumPy broadcasting.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use bytemuck::{CheckedBitPattern, Pod, Zeroable};
use core::fmt;

/// The highest rank a tensor can have.
pub const MAX_RANK: usize = 8;

/// The dimensions of a tensor, outermost first: at most [`MAX_RANK`] of them.
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
    /// The shape of a scalar: no dimensions, one element.
    pub const SCALAR: Shape = Shape { rank: 0, dims: [0; MAX_RANK] };

    /// A shape with these dimensions. Fails with [`Error::Rank`] beyond [`MAX_RANK`].
    pub fn new(dims: &[u32]) -> Result<Shape> {
        let mut shape = Shape::SCALAR;
        shape.dims.get_mut(..dims.len()).ok_or(Error::Rank { input: 0 })?.copy_from_slice(dims);
        shape.rank = dims.len() as u32;
        Ok(shape)
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The dimensions, outermost first.
    #[inline]
    pub fn dims(&self) -> &[u32] {
        self.dims.get(..self.rank as usize).unwrap_or(&[])
    }

    /// True if this is as [`Shape::new`] makes one: at most [`MAX_RANK`] dimensions, and zeros after them.
    pub(crate) fn is_valid(&self) -> bool {
        self.dims.get(self.rank as usize..).is_some_and(|rest| rest.iter().all(|&dim| dim == 0))
    }

    /// The dimensions, to be changed in place.
    pub fn dims_mut(&mut self) -> &mut [u32] {
        self.dims.get_mut(..self.rank as usize).unwrap_or(&mut [])
    }

    /// Appends a dimension. Fails with [`Error::Rank`] beyond [`MAX_RANK`].
    pub fn push(&mut self, dim: u32) -> Result<()> {
        *self.dims.get_mut(self.rank as usize).ok_or(Error::Rank { input: 0 })? = dim;
        self.rank += 1;
        Ok(())
    }

    /// The dimension `from_end` places before the last one.
    pub fn back(&self, from_end: usize) -> Option<u32> {
        self.dims().iter().rev().nth(from_end).copied()
    }

    /// The number of elements, or `None` where it, or the product of the dimensions that are not zero, passes `u32`.
    pub fn elements(&self) -> Option<u32> {
        let mut product = 1u32;
        let mut empty = false;
        for &dim in self.dims() {
            match dim {
                0 => empty = true,
                dim => product = product.checked_mul(dim)?,
            }
        }
        Some(if empty { 0 } else { product })
    }

    /// The shape of an elementwise result over `self` and `other` by NumPy's rule: aligned at the last dimension, equal
    /// or one of them 1.
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

/// An element type and a shape: all that shape rules work on. Displays as `f32[2,3]`.
///
/// Its layout is that of an artifact's type record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, CheckedBitPattern)]
#[repr(C)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The dimensions.
    pub shape: Shape,
}

impl TensorType {
    /// What an array of types is filled with before it is set.
    pub const EMPTY: TensorType = TensorType { dtype: DType::F32, shape: Shape::SCALAR };

    /// A scalar of bool: what branches and loops are decided by.
    pub const BOOL: TensorType = TensorType { dtype: DType::Bool, shape: Shape::SCALAR };
    /// A scalar of i32: an index, a counter.
    pub const I32: TensorType = TensorType { dtype: DType::I32, shape: Shape::SCALAR };

    /// A type from its parts.
    pub const fn new(dtype: DType, shape: Shape) -> TensorType {
        TensorType { dtype, shape }
    }

    /// The bytes of a tensor of this type, or `None` past `u32`.
    pub fn bytes(&self) -> Option<u32> {
        self.shape.elements()?.checked_mul(self.dtype.size() as u32)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
