//! Index tensors, i32 or i64, for ops such as gather and scatter.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{Shape, TensorType};
use crate::base::view::TensorView;

/// Fails unless input `input` is i32 or i64.
pub(in crate::ops) fn check_dtype(input: u8, indices: &TensorType) -> Result<()> {
    if matches!(indices.dtype, DType::I32 | DType::I64) { Ok(()) } else { Err(Error::DType { input }) }
}

/// Elements of an index tensor, i32 or i64.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Indices<'a> {
    narrow: &'a [i32],
    wide: &'a [i64],
}

impl<'a> Indices<'a> {
    pub(in crate::ops) fn new(view: &TensorView<'a>) -> Indices<'a> {
        let narrow = if view.dtype() == DType::I32 { view.slice() } else { &[] };
        let wide = if view.dtype() == DType::I64 { view.slice() } else { &[] };
        Indices { narrow, wide }
    }

    pub(in crate::ops) fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    /// Returns the index at `position`, which must be within the tensor.
    #[inline]
    pub(in crate::ops) fn get(&self, position: usize) -> i64 {
        match self.narrow.get(position) {
            Some(&index) => index.into(),
            None => self.wide.get(position).copied().unwrap_or(0),
        }
    }

    /// Returns the index at `position`. Fails with [`Error::IndexOutOfRange`] if it is `limit` or more, or negative. With `dropped`, a
    /// negative index is `None`, because the op drops it.
    pub(in crate::ops) fn below(&self, limit: usize, position: usize, dropped: bool) -> Result<Option<usize>> {
        let index = self.get(position);
        match usize::try_from(index) {
            Ok(index) if index < limit => Ok(Some(index)),
            Err(_) if dropped && index < 0 => Ok(None),
            _ => Err(out_of_range(position, index, limit)),
        }
    }
}

/// Returns the error for an index that is negative, or `limit` or more.
pub(in crate::ops) fn out_of_range(position: usize, index: i64, limit: usize) -> Error {
    let value = index.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    Error::IndexOutOfRange { node: 0, position: Error::position(position), value, limit: Error::position(limit) }
}

/// Returns the product of the dimensions.
pub(in crate::ops) fn product(dims: &[u32]) -> usize {
    dims.iter().map(|&dim| dim as usize).product()
}

/// Slices of a tensor that are selected by an index tensor. Each row of the index tensor selects one slice.
pub(in crate::ops) struct Slices<'a> {
    indices: Indices<'a>,
    /// Dimensions of the leading axes of the tensor to which the indices refer. A row of the index tensor has one index for each of them.
    dims: &'a [u32],
    /// Number of slices.
    pub count: usize,
    /// Number of elements in each slice.
    pub size: usize,
}

impl<'a> Slices<'a> {
    /// Creates the list of the slices that `index` selects from a tensor of dimensions `dims`.
    pub(in crate::ops) fn new(index: &TensorView<'a>, dims: &'a [u32]) -> Slices<'a> {
        let (&depth, rows) = index.dims().split_last().unwrap_or((&0, &[]));
        let (dims, slice) = dims.split_at_checked(depth as usize).unwrap_or_default();
        Slices { indices: Indices::new(index), dims, count: product(rows), size: product(slice) }
    }

    /// Returns the shape of the tensor of all slices: the dimensions of `index` without the last, followed by the dimensions of one
    /// slice. `dims` are the dimensions of the sliced tensor, and `input` is the number of the input that holds `index`.
    pub(in crate::ops) fn shape(input: u8, index: &TensorType, dims: &[u32]) -> Result<Shape> {
        check_dtype(input, index)?;
        let (&depth, rows) = index.shape.dims().split_last().ok_or(Error::Rank { input })?;
        let last = Error::Dimension { input, axis: rows.len() as u8, want: dims.len() as u32, got: depth };
        collect(rows.iter().chain(dims.get(depth as usize..).ok_or(last)?))
    }

    /// Returns the position in the tensor of the first element of slice `row`. Fails with [`Error::IndexOutOfRange`] if the slice is not
    /// within the tensor.
    pub(in crate::ops) fn start(&self, row: usize) -> Result<usize> {
        let mut number = 0usize;
        for (position, &dim) in (row * self.dims.len()..).zip(self.dims) {
            number = number * dim as usize + self.indices.below(dim as usize, position, false)?.unwrap_or(0);
        }
        Ok(number * self.size)
    }

    /// Cost of [`Slices::start`] in instructions.
    pub(in crate::ops) fn cost(&self) -> usize {
        20 + 25 * self.dims.len()
    }
}

/// Collects dimensions into a shape.
pub(in crate::ops) fn collect<'a>(dims: impl Iterator<Item = &'a u32>) -> Result<Shape> {
    let mut shape = Shape::SCALAR;
    dims.into_iter().try_for_each(|&dim| shape.push(dim))?;
    Ok(shape)
}
