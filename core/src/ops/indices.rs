//! What ops share that are told by a tensor of i32 or i64 where elements lie.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::TensorType;
use crate::view::TensorView;

/// Fails unless input `input` has elements of i32 or i64.
pub(super) fn check_dtype(input: u8, indices: &TensorType) -> Result<()> {
    if matches!(indices.dtype, DType::I32 | DType::I64) { Ok(()) } else { Err(Error::DType { input }) }
}

/// The elements of a tensor of i32 or i64.
#[derive(Clone, Copy)]
pub(super) struct Indices<'a> {
    narrow: &'a [i32],
    wide: &'a [i64],
}

impl<'a> Indices<'a> {
    pub(super) fn new(view: &TensorView<'a>) -> Indices<'a> {
        let narrow = if view.dtype() == DType::I32 { view.slice() } else { &[] };
        let wide = if view.dtype() == DType::I64 { view.slice() } else { &[] };
        Indices { narrow, wide }
    }

    pub(super) fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    /// The index at `position`, which is one of them.
    #[inline]
    pub(super) fn get(&self, position: usize) -> i64 {
        match self.narrow.get(position) {
            Some(&index) => index.into(),
            None => self.wide.get(position).copied().unwrap_or(0),
        }
    }

    /// Fails with [`Error::IndexOutOfRange`] unless every index is less than `limit` and, unless those are `dropped`, none
    /// is negative.
    pub(super) fn check(&self, limit: usize, dropped: bool) -> Result<()> {
        let wrong = |index: i64| index >= limit as i64 || (index < 0 && !dropped);
        let found = (0..self.len()).find(|&position| wrong(self.get(position)));
        found.map_or(Ok(()), |position| Err(out_of_range(position, self.get(position), limit)))
    }
}

/// The error for an index that is not less than `limit`, or negative.
pub(super) fn out_of_range(position: usize, index: i64, limit: usize) -> Error {
    let value = index.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    Error::IndexOutOfRange { node: 0, position: position as u32, value, limit: limit as u32 }
}

/// The number of elements that some dimensions give.
pub(super) fn product(dims: &[u32]) -> usize {
    dims.iter().map(|&dim| dim as usize).product()
}
