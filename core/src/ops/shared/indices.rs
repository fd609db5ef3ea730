//! What ops share that are told by a tensor of i32 or i64 where elements lie.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::{Shape, TensorType};
use crate::base::view::TensorView;

/// Fails unless input `input` has elements of i32 or i64.
pub(in crate::ops) fn check_dtype(input: u8, indices: &TensorType) -> Result<()> {
    if matches!(indices.dtype, DType::I32 | DType::I64) { Ok(()) } else { Err(Error::DType { input }) }
}

/// The elements of a tensor of i32 or i64.
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

    /// The index at `position`, which is one of them.
    #[inline]
    pub(in crate::ops) fn get(&self, position: usize) -> i64 {
        match self.narrow.get(position) {
            Some(&index) => index.into(),
            None => self.wide.get(position).copied().unwrap_or(0),
        }
    }

    /// Fails with [`Error::IndexOutOfRange`] unless every index is less than `limit` and, unless those are `dropped`, none
    /// is negative.
    pub(in crate::ops) fn check(&self, limit: usize, dropped: bool) -> Result<()> {
        let wrong = |index: i64| index >= limit as i64 || (index < 0 && !dropped);
        let found = (0..self.len()).find(|&position| wrong(self.get(position)));
        found.map_or(Ok(()), |position| Err(out_of_range(position, self.get(position), limit)))
    }
}

/// The error for an index that is not less than `limit`, or negative.
pub(in crate::ops) fn out_of_range(position: usize, index: i64, limit: usize) -> Error {
    let value = index.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    Error::IndexOutOfRange { node: 0, position: position as u32, value, limit: limit as u32 }
}

/// The number of elements that some dimensions give.
pub(in crate::ops) fn product(dims: &[u32]) -> usize {
    dims.iter().map(|&dim| dim as usize).product()
}

/// The slices of a tensor that the rows of a tensor of indices name.
pub(in crate::ops) struct Slices<'a> {
    indices: Indices<'a>,
    /// The dimensions that a row has an index for.
    dims: &'a [u32],
    /// How many slices there are.
    pub count: usize,
    /// The elements of each.
    pub size: usize,
}

impl<'a> Slices<'a> {
    /// The slices of a tensor of `dims`.
    pub(in crate::ops) fn new(index: &TensorView<'a>, dims: &'a [u32]) -> Slices<'a> {
        let (&depth, rows) = index.dims().split_last().unwrap_or((&0, &[]));
        let (dims, slice) = dims.split_at_checked(depth as usize).unwrap_or_default();
        Slices { indices: Indices::new(index), dims, count: product(rows), size: product(slice) }
    }

    /// The dimensions of all slices of a tensor of `dims` together: those of the rows of `index`, which is input `input`, and
    /// then those of a slice.
    pub(in crate::ops) fn shape(input: u8, index: &TensorType, dims: &[u32]) -> Result<Shape> {
        check_dtype(input, index)?;
        let (&depth, rows) = index.shape.dims().split_last().ok_or(Error::Rank { input })?;
        let last = Error::Dimension { input, axis: rows.len() as u8, want: dims.len() as u32, got: depth };
        collect(rows.iter().chain(dims.get(depth as usize..).ok_or(last)?))
    }

    /// Fails with [`Error::IndexOutOfRange`] unless all slices lie within the tensor.
    pub(in crate::ops) fn check(&self) -> Result<()> {
        for row in 0..self.count {
            for (column, &dim) in self.dims.iter().enumerate() {
                let position = row * self.dims.len() + column;
                let index = self.indices.get(position);
                if index < 0 || index >= i64::from(dim) {
                    return Err(out_of_range(position, index, dim as usize));
                }
            }
        }
        Ok(())
    }

    /// The position of the first element of slice `row`. All were checked.
    pub(in crate::ops) fn start(&self, row: usize) -> usize {
        let index = |column: usize| self.indices.get(row * self.dims.len() + column) as usize;
        let number = self.dims.iter().enumerate().fold(0usize, |number, (column, &dim)| number * dim as usize + index(column));
        number * self.size
    }
}

/// A shape of these dimensions.
pub(in crate::ops) fn collect<'a>(dims: impl Iterator<Item = &'a u32>) -> Result<Shape> {
    let mut shape = Shape::SCALAR;
    dims.into_iter().try_for_each(|&dim| shape.push(dim))?;
    Ok(shape)
}
