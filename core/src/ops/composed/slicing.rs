//! Functions that slice, split and reorder tensors, also with Python-like indices. They are composed of
//! [`strided_slice`](crate::ops::strided_slice) and [`concat`](crate::ops::concat).

use crate::base::error::{Error, Result};
use crate::base::shape::{MAX_RANK, Shape};
use crate::ops::shared::reduce;
use crate::ops::strided_slice::Axis;
use crate::tensor::Tensor;
use alloc::format;
use alloc::vec::Vec;
use core::ops::{Range, RangeFrom, RangeFull, RangeTo};

/// Argument of [`Tensor::index`] for one axis. `i32` numbers and ranges of `i32` convert to it. Negative numbers count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One element. The axis is removed.
    At(i64),
    /// The elements from `start` on, before `end`, `step` apart: Python's `start:end:step`.
    Slice {
        /// First element. By default it is the axis's first, or its last if the step is negative.
        start: Option<i64>,
        /// End of the slice, not included. By default it is the end of the axis, or before its beginning if the step is negative.
        end: Option<i64>,
        /// Distance from one element to the next. It is negative to go backwards, and never 0.
        step: i64,
    },
    /// A new axis of dimension 1.
    NewAxis,
    /// All elements of all axes to which no other index applies: Python's `...`.
    Ellipsis,
}

impl Index {
    /// Creates a slice of the elements of `range`, `step` apart. For example, `Index::step(.., -1)` is the whole axis in reverse.
    /// Returns any index that is not a range unchanged.
    pub fn step(range: impl Into<Index>, step: i64) -> Index {
        match range.into() {
            Index::Slice { start, end, .. } => Index::Slice { start, end, step },
            other => other,
        }
    }

    fn slice(start: Option<i32>, end: Option<i32>) -> Index {
        Index::Slice { start: start.map(i64::from), end: end.map(i64::from), step: 1 }
    }

    /// Returns the slice that this index selects from an axis with `dim` elements, and whether the result keeps the axis (true) or
    /// drops it (false). Returns `None` if the index is out of range, or if the step is 0 or too large.
    fn of(self, dim: u32) -> Option<(Axis, bool)> {
        let size = i64::from(dim);
        let (start, end, step) = match self {
            Index::Slice { start, end, step } => (start, end, step),
            Index::At(at) => {
                let begin = u32::try_from(if at < 0 { at + size } else { at }).ok().filter(|&begin| begin < dim)?;
                return Some((Axis { begin, step: 1, dim: 1 }, false));
            }
            Index::NewAxis | Index::Ellipsis => return Some((Axis { begin: 0, step: 1, dim }, true)),
        };
        // As in Python, bounds outside the axis are clipped. For a negative step, the end may be before the first element.
        let (least, most) = if step > 0 { (0, size) } else { (-1, size - 1) };
        let place = |at: i64| if at < 0 { at.saturating_add(size) } else { at }.clamp(least, most);
        let begin = start.map_or(if step > 0 { least } else { most }, place);
        let end = end.map_or(if step > 0 { most } else { least }, place);
        let distance = if step > 0 { end - begin } else { begin - end };
        let count = distance.max(0).unsigned_abs().div_ceil(Some(step.unsigned_abs()).filter(|&step| step > 0)?);
        let begin = if count > 0 { begin as u32 } else { 0 };
        let step = if count > 1 { i32::try_from(step).ok()? } else { 1 };
        Some((Axis { begin, step, dim: count as u32 }, true))
    }
}

impl From<i32> for Index {
    fn from(at: i32) -> Index {
        Index::At(at.into())
    }
}

impl From<Range<i32>> for Index {
    fn from(range: Range<i32>) -> Index {
        Index::slice(Some(range.start), Some(range.end))
    }
}

impl From<RangeFrom<i32>> for Index {
    fn from(range: RangeFrom<i32>) -> Index {
        Index::slice(Some(range.start), None)
    }
}

impl From<RangeTo<i32>> for Index {
    fn from(range: RangeTo<i32>) -> Index {
        Index::slice(None, Some(range.end))
    }
}

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Index {
        Index::slice(None, None)
    }
}

/// Argument of [`Tensor::index`]: one value that converts to [`Index`], a tuple of them, or a slice of [`Index`].
pub trait Indices {
    /// Returns the indices in order, as a list.
    fn list(self) -> Vec<Index>;
}

impl<T: Into<Index>> Indices for T {
    fn list(self) -> Vec<Index> {
        alloc::vec![self.into()]
    }
}

impl Indices for &[Index] {
    fn list(self) -> Vec<Index> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($(($($name:ident),*);)*) => {$(
        #[allow(non_snake_case)]
        impl<$($name: Into<Index>),*> Indices for ($($name,)*) {
            fn list(self) -> Vec<Index> {
                let ($($name,)*) = self;
                alloc::vec![$($name.into()),*]
            }
        }
    )*};
}
tuples! { (A, B); (A, B, C); (A, B, C, D); (A, B, C, D, E); (A, B, C, D, E, F); }

impl Tensor {
    /// Returns the part that `indices` select, with one index for each axis from the outermost. A number selects one element and
    /// removes the axis. A range selects a slice. Axes without an index stay whole. Like indexing a `tf.Tensor` in Python.
    ///
    /// Fails if a number is out of range, if there are more indices than axes, or if there is more than one ellipsis. Ranges are
    /// clipped to the axis.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::ops::slicing::Index;
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.index(1)?.to_vec::<i32>()?, [4, 5, 6]);
    /// assert_eq!(x.index((.., -1))?.to_vec::<i32>()?, [3, 6]);
    /// assert_eq!(x.index((0, 1..))?.to_vec::<i32>()?, [2, 3]);
    /// assert_eq!(x.index((0, Index::step(.., -1)))?.to_vec::<i32>()?, [3, 2, 1]);
    /// assert_eq!(x.index((Index::Ellipsis, Index::NewAxis, 0))?.dims(), [2, 1]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn index(&self, indices: impl Indices) -> Result<Tensor> {
        let indices = indices.list();
        let named = indices.iter().filter(|index| matches!(index, Index::At(_) | Index::Slice { .. })).count();
        let open = indices.iter().filter(|index| matches!(index, Index::Ellipsis)).count();
        let rank = self.shape().rank();
        if named > rank || open > 1 {
            return Err(Error::message(format!("{indices:?} cannot index {}: too many indices", self.tensor_type())));
        }
        let whole = |count| core::iter::repeat_n(Index::from(..), count);
        let mut flat: Vec<Index> = Vec::new();
        for index in indices {
            match index {
                Index::Ellipsis => flat.extend(whole(rank - named)),
                index => flat.push(index),
            }
        }
        flat.extend(whole(if open == 0 { rank - named } else { 0 }));
        let mut axes = heapless::Vec::<Axis, MAX_RANK>::new();
        let mut shape = Shape::SCALAR;
        for index in flat {
            if index == Index::NewAxis {
                shape.push(1)?;
                continue;
            }
            let dim = self.dims()[axes.len()];
            let wrong = || Error::message(format!("{index:?} is not within axis {} of {}", axes.len(), self.tensor_type()));
            let (axis, stays) = index.of(dim).ok_or_else(wrong)?;
            if stays {
                shape.push(axis.dim)?;
            }
            let _ = axes.push(axis);
        }
        self.strided(&axes)?.reshape(shape.dims())
    }

    /// Returns `size` elements of each axis from `begin` on. A size of -1 means all elements up to the end of the axis.
    ///
    /// Fails if the length of a list differs from the rank, or if the part is not within `self`. Like `tf.slice`.
    pub fn slice(&self, begin: &[u32], size: &[i64]) -> Result<Tensor> {
        let wrong = || Error::message(format!("{} has no slice from {begin:?} of size {size:?}", self.tensor_type()));
        if begin.len() != self.shape().rank() || size.len() != begin.len() {
            return Err(wrong());
        }
        let mut axes = heapless::Vec::<Axis, MAX_RANK>::new();
        for ((&begin, &size), &dim) in begin.iter().zip(size).zip(self.dims()) {
            let left = dim.checked_sub(begin).ok_or_else(wrong)?;
            let dim = if size == -1 { Some(left) } else { u32::try_from(size).ok().filter(|&size| size <= left) };
            let _ = axes.push(Axis { begin, step: 1, dim: dim.ok_or_else(wrong)? });
        }
        self.strided(&axes)
    }

    /// Splits the tensor into `count` equal parts along `axis`. A negative axis counts from the end.
    ///
    /// Fails if the axis cannot be divided into `count` equal parts. Like `tf.split`.
    pub fn split(&self, count: u32, axis: i32) -> Result<Vec<Tensor>> {
        let dim = self.dims()[reduce::axis(self, axis)? as usize];
        match dim.checked_rem(count) {
            Some(0) => self.split_sizes(&alloc::vec![i64::from(dim / count); count as usize], axis),
            _ => Err(Error::message(format!("axis {axis} of {} cannot be split into {count} equal parts", self.tensor_type()))),
        }
    }

    /// Splits the tensor into parts of these sizes along `axis`. A negative axis counts from the end. One size may be -1. It is
    /// then computed from the other sizes.
    ///
    /// Fails if the sizes do not add up to the axis's dimension. Like `tf.split`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[6])?;
    /// let parts = x.split_sizes(&[1, -1, 2], 0)?;
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn split_sizes(&self, sizes: &[i64], axis: i32) -> Result<Vec<Tensor>> {
        let at = reduce::axis(self, axis)? as usize;
        let open = sizes.iter().filter(|&&size| size == -1).count();
        let given = sizes.iter().filter(|&&size| size != -1).try_fold(0u32, |sum, &size| sum.checked_add(u32::try_from(size).ok()?));
        let left = given.and_then(|given| self.dims()[at].checked_sub(given)).filter(|&left| open == 1 || (open == 0 && left == 0));
        let wrong = || Error::message(format!("axis {axis} of {} cannot be split into parts of sizes {sizes:?}", self.tensor_type()));
        let left = left.ok_or_else(wrong)?;
        let mut first = 0;
        let part = |&size: &i64| {
            let (begin, size) = (first, u32::try_from(size).unwrap_or(left));
            first += size;
            self.part(|index, dim| if index == at { (begin, size) } else { (0, dim) })
        };
        sizes.iter().map(part).collect()
    }

    /// Returns the slices along `axis`, without that axis. A negative axis counts from the end. Like `tf.unstack`.
    pub fn unstack(&self, axis: i32) -> Result<Vec<Tensor>> {
        let at = reduce::axis(self, axis)? as usize;
        let rest: Vec<u32> = self.dims().iter().enumerate().filter(|(index, _)| *index != at).map(|(_, &dim)| dim).collect();
        self.split(self.dims()[at].max(1), axis)?.iter().take(self.dims()[at] as usize).map(|slice| slice.reshape(&rest)).collect()
    }

    /// Reverses the elements along each of `axes`. Negative axes count from the end.
    ///
    /// Fails if an axis is out of range or listed twice. Like `tf.reverse`.
    pub fn reverse(&self, axes: &[i32]) -> Result<Tensor> {
        let listed = reduce::listed(self, axes)?;
        let axis = |(&dim, listed): (&u32, &bool)| match (listed, dim) {
            (true, 1..) => Axis { begin: dim - 1, step: -1, dim },
            _ => Axis { begin: 0, step: 1, dim },
        };
        let axes: heapless::Vec<Axis, MAX_RANK> = self.dims().iter().zip(&listed).map(axis).collect();
        self.strided(&axes)
    }

    /// Moves the elements by `shifts[i]` positions along the axis `axes[i]`, for each i. Elements that pass the end reappear at the
    /// beginning. Negative axes count from the end.
    ///
    /// Fails if the two lists differ in length, or if an axis is out of range. Like `tf.roll`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], &[4])?;
    /// assert_eq!(x.roll(&[1], &[0])?.to_vec::<i32>()?, [4, 1, 2, 3]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn roll(&self, shifts: &[i64], axes: &[i32]) -> Result<Tensor> {
        if shifts.len() != axes.len() {
            return Err(Error::message(format!("roll needs one shift for each axis, but got the shifts {shifts:?} for the axes {axes:?}")));
        }
        let mut result = self.clone();
        for (&shift, &axis) in shifts.iter().zip(axes) {
            let dim = i64::from(self.dims()[reduce::axis(self, axis)? as usize]);
            let shift = if dim == 0 { 0 } else { shift.rem_euclid(dim) };
            if shift != 0 {
                let mut parts = result.split_sizes(&[dim - shift, shift], axis)?;
                parts.reverse();
                result = Tensor::concat(&parts, axis)?;
            }
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::device;

    fn digits(dims: &[u32]) -> Tensor {
        let elements: Vec<i32> = (0..dims.iter().product::<u32>() as i32).collect();
        Tensor::new(device(), &elements, dims).unwrap()
    }

    fn elements(tensor: Result<Tensor>) -> Vec<i32> {
        tensor.unwrap().to_vec().unwrap()
    }

    /// Returns the indices that Python's `start:end:step` selects from an axis of `size` elements, found one step at a time.
    fn naive(size: i64, start: Option<i64>, end: Option<i64>, step: i64) -> Vec<i32> {
        let inside = |at: i64| (0..size).contains(&at);
        let counted = |at: i64| if at < 0 { at + size } else { at };
        let mut at = start.map_or(if step > 0 { 0 } else { size - 1 }, counted);
        while !inside(at) && (-20..20).contains(&at) && start.is_some_and(|_| (at < 0) == (step > 0)) {
            // A start outside the axis is clipped to the nearest element. Steps count from there.
            at += step.signum();
        }
        let mut found = Vec::new();
        while inside(at) && end.map(counted).is_none_or(|end| if step > 0 { at < end } else { at > end }) {
            found.push(at as i32);
            at += step;
        }
        found
    }

    #[test]
    fn slices_are_pythons() {
        let places: Vec<Option<i64>> = (-7..=7).map(Some).chain([None]).collect();
        for size in [0u32, 1, 2, 5] {
            let x = digits(&[size]);
            for &start in &places {
                for &end in &places {
                    for step in [-6, -2, -1, 1, 2, 6] {
                        let index = Index::Slice { start, end, step };
                        assert_eq!(elements(x.index(index)), naive(size.into(), start, end, step), "{size} {index:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn indices_of_every_kind() {
        let x = digits(&[2, 3, 4]);
        assert_eq!(elements(x.index((1, -1, 2))), [22]);
        assert_eq!(x.index((Index::Ellipsis, 1)).unwrap().dims(), [2, 3]);
        assert_eq!(x.index((1, Index::Ellipsis, Index::NewAxis, ..2)).unwrap().dims(), [3, 1, 2]);
        assert_eq!(elements(x.index((0, Index::Ellipsis, Index::step(.., -3)))), [3, 0, 7, 4, 11, 8]);
        assert_eq!(x.index((0, 0, 0, Index::Ellipsis)).unwrap().dims(), []);
        assert_eq!(x.index(&[Index::NewAxis; 3][..]).unwrap().dims(), [1, 1, 1, 2, 3, 4]);
        assert!(x.index((0, 0, 0, 0)).is_err() && x.index((Index::Ellipsis, Index::Ellipsis)).is_err());
        assert!(x.index(2).is_err() && x.index(-3).is_err());
        assert!(x.index(Index::step(.., 0)).is_err());
        assert!(x.index(&[Index::NewAxis; 6][..]).is_err());
    }

    #[test]
    fn parts() {
        let x = digits(&[2, 4]);
        assert_eq!(elements(x.slice(&[1, 1], &[1, -1])), [5, 6, 7]);
        assert!(x.slice(&[0], &[1]).is_err() && x.slice(&[3, 0], &[-1, -1]).is_err() && x.slice(&[0, 0], &[1, 5]).is_err());
        assert_eq!(x.slice(&[0, 0], &[-2, 1]).unwrap_err().root().clone(), x.slice(&[0, 0], &[-2, 1]).unwrap_err());
        let sizes = |sizes: &[i64]| x.split_sizes(sizes, 1).map(|parts| parts.iter().map(|part| part.dims()[1]).collect::<Vec<_>>());
        assert_eq!(sizes(&[1, -1]).unwrap(), [1, 3]);
        assert_eq!(sizes(&[4, -1]).unwrap(), [4, 0]);
        assert!(sizes(&[1, 2]).is_err() && sizes(&[-1, -1]).is_err() && sizes(&[5, -1]).is_err() && sizes(&[-2, 6]).is_err());
        assert!(x.split(3, 1).is_err() && x.split(0, 1).is_err() && x.split(2, 2).is_err());
        assert_eq!(elements(Ok(x.unstack(-1).unwrap()[2].clone())), [2, 6]);
        assert!(digits(&[0, 2]).unstack(0).unwrap().is_empty());
    }

    #[test]
    fn turned_and_moved() {
        let x = digits(&[2, 3]);
        assert_eq!(elements(x.reverse(&[0, -1])), [5, 4, 3, 2, 1, 0]);
        assert_eq!(elements(x.reverse(&[])), [0, 1, 2, 3, 4, 5]);
        assert!(x.reverse(&[1, -1]).is_err());
        assert_eq!(elements(x.roll(&[-1, 1], &[1, 0])), [4, 5, 3, 1, 2, 0]);
        assert_eq!(elements(x.roll(&[2, 2], &[1, 1])), [2, 0, 1, 5, 3, 4]);
        assert!(x.roll(&[1], &[2]).is_err() && x.roll(&[1], &[]).is_err());
        assert_eq!(digits(&[0, 3]).roll(&[1], &[0]).unwrap().dims(), [0, 3]);
    }
}
