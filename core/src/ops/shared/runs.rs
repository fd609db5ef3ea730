//! Row-major iteration over a tensor together with a second tensor, in which the same elements have other positions. The iteration
//! proceeds in runs of elements.

use crate::base::error::Result;
use crate::base::op::Call;
use crate::base::shape::MAX_RANK;
use core::ops::Range;
use heapless::Vec;

/// Neighbouring axes of the walked tensor that are walked as one axis, because their elements have equal distances in the other tensor.
struct Group {
    extent: usize,
    /// Distance in the other tensor between neighbouring elements of this group. It is negative if the other tensor holds them in
    /// reverse order.
    stride: isize,
    count: usize,
}

/// Walks the elements of a tensor in row-major order, and returns their positions in another tensor. For example, the walked tensor
/// is a broadcast, a transpose or a slice of the other tensor, or the other tensor is a sum of the walked tensor over some axes.
///
/// The walk proceeds in runs. A run is a sequence of neighbours with equal distances in the other tensor.
pub(in crate::ops) struct Runs {
    groups: Vec<Group, MAX_RANK>,
    /// Number of groups that [`Runs::take`] has removed, from the innermost on. The elements of these groups form a run.
    taken: usize,
    position: usize,
}

impl Runs {
    /// Creates a walk over axes with these pairs of extent and stride, from the innermost axis on. The stride is the distance in
    /// the other tensor.
    pub(in crate::ops) fn new(axes: impl Iterator<Item = (usize, isize)>) -> Runs {
        let mut groups: Vec<Group, MAX_RANK> = Vec::new();
        for (extent, stride) in axes {
            match groups.last_mut() {
                _ if extent == 1 => {}
                Some(group) if group.stride.wrapping_mul(group.extent as isize) == stride => group.extent *= extent,
                _ => {
                    let _ = groups.push(Group { extent, stride, count: 0 });
                }
            }
        }
        Runs { groups, taken: 0, position: 0 }
    }

    /// Sets the position of the first element in the other tensor, which is otherwise 0.
    pub(in crate::ops) fn begin(&mut self, position: usize) {
        self.position = position;
    }

    /// Creates a walk over a tensor of `dims`. The other tensor has the same axes, except those for which `lacks` returns true.
    pub(in crate::ops) fn lacking(dims: &[u32], lacks: impl Fn(usize) -> bool) -> Runs {
        let mut stride = 1isize;
        let axes = dims.iter().enumerate().rev().map(|(axis, &dim)| {
            let own = if lacks(axis) { 0 } else { stride };
            if own != 0 {
                stride = stride.wrapping_mul(dim as isize);
            }
            (dim as usize, own)
        });
        Runs::new(axes)
    }

    /// Removes the innermost group from the walk and makes it part of each run. Returns the group's number of elements, at least 1,
    /// and their distance in the other tensor. Without groups, returns (1, 0).
    pub(in crate::ops) fn take(&mut self) -> (usize, isize) {
        let Some(group) = self.groups.get(self.taken) else { return (1, 0) };
        self.taken += 1;
        (group.extent.max(1), group.stride)
    }

    /// Removes the innermost group if all its elements have the same position in the other tensor. Returns their number, or 1 if
    /// the innermost group is of another kind.
    pub(in crate::ops) fn take_repeats(&mut self) -> usize {
        if self.groups.get(self.taken).is_some_and(|group| group.stride == 0) { self.take().0 } else { 1 }
    }

    /// Calls `f` for each run, or part of a run, of the `elements` of the walked tensor. `innermost` is the group that [`Runs::take`] has
    /// removed last. `f` gets the elements, and the position of the first one in the other tensor.
    #[inline(always)]
    pub(in crate::ops) fn each(
        &mut self,
        (extent, stride): (usize, isize),
        elements: Range<usize>,
        mut f: impl FnMut(Range<usize>, usize),
    ) {
        let Range { mut start, end } = elements;
        let (mut next, mut skipped) = (start + extent, 0);
        if start > 0 {
            let offset = start % extent.max(1);
            self.seek(start / extent.max(1));
            (next, skipped) = (next - offset, stride.wrapping_mul(offset as isize));
        }
        while start < end {
            let position = self.advance().wrapping_add_signed(skipped);
            f(start..next.min(end), position);
            (start, next, skipped) = (next, next + extent, 0);
        }
    }

    /// Moves from the first run to run `run`.
    fn seek(&mut self, mut run: usize) {
        for group in self.groups.iter_mut().skip(self.taken) {
            let extent = group.extent.max(1);
            group.count = run % extent;
            self.position = self.position.wrapping_add((group.stride as usize).wrapping_mul(group.count));
            run /= extent;
        }
    }

    /// Returns the position in the other tensor of the first element of this run, and advances to the next run.
    pub(in crate::ops) fn advance(&mut self) -> usize {
        let now = self.position;
        for group in self.groups.iter_mut().skip(self.taken) {
            group.count += 1;
            self.position = self.position.wrapping_add_signed(group.stride);
            if group.count < group.extent {
                break;
            }
            group.count = 0;
            self.position = self.position.wrapping_sub((group.stride as usize).wrapping_mul(group.extent));
        }
        now
    }
}

/// Fills output 0, which is walked by `runs`, with the elements of input 0 at the positions of the walk. `T` is an unsigned integer of the
/// element's size.
pub(in crate::ops) fn collect<T: bytemuck::Pod>(call: &mut Call<'_, '_>, mut runs: Runs) -> Result<()> {
    let x = call.input(0)?;
    let from = elements::<T>(x.bytes());
    let innermost = runs.take();
    let total = call.output()?.data.len() / size_of::<T>();
    let rows = call.rows(total, if matches!(innermost.1, 0 | 1) { 6 } else { 10 } + run_cost(innermost));
    let to = elements_mut::<T>(call.output()?.data);
    runs.each(innermost, rows, |run, mut at| {
        let Some(run) = to.get_mut(run) else { return };
        match innermost.1 {
            0 => run.fill(from.get(at).copied().unwrap_or(T::zeroed())),
            1 => run.iter_mut().zip(from.get(at..).unwrap_or_default()).for_each(|(to, &from)| *to = from),
            stride => {
                for to in run {
                    if let Some(&from) = from.get(at) {
                        *to = from;
                    }
                    at = at.wrapping_add_signed(stride);
                }
            }
        }
    });
    Ok(())
}

/// Cost of the beginning of a run, in instructions, for each element of the run. `innermost` is the innermost group.
pub(in crate::ops) fn run_cost((extent, _): (usize, isize)) -> usize {
    90 / extent.max(1)
}

/// Returns the extent of an axis of a tensor of `dims`, and the distance between neighbours along the axis, in elements.
pub(in crate::ops) fn axis(dims: &[u32], axis: usize) -> (usize, isize) {
    let extent = dims.get(axis).map_or(1, |&dim| dim as usize);
    (extent, dims.iter().skip(axis + 1).fold(1isize, |stride, &dim| stride.wrapping_mul(dim as isize)))
}

/// Returns `bytes` as a slice of elements. `T` is an unsigned integer of the element's size.
pub(in crate::ops) fn elements<T: bytemuck::Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or(&[])
}

/// Mutable version of [`elements`].
pub(in crate::ops) fn elements_mut<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or(&mut [])
}
