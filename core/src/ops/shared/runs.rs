//! Walking a tensor in row-major order beside another one, in which its neighbours lie elsewhere: run by run.

use crate::base::shape::MAX_RANK;
use heapless::Vec;

/// Neighbouring axes that are walked as one.
struct Group {
    extent: usize,
    /// How far apart the neighbours in this group lie in the other tensor; negative where they lie backwards.
    stride: isize,
    count: usize,
}

/// Walks the elements of a tensor in row-major order, and gives their positions in another tensor: what it was broadcast
/// from, its sum over some axes, what it is a transpose or a part of.
///
/// It goes by runs: neighbours that lie at one distance from one another in the other tensor.
pub(in crate::ops) struct Runs {
    groups: Vec<Group, MAX_RANK>,
    /// How many of the groups, from the innermost, were taken off.
    taken: usize,
    position: usize,
}

impl Runs {
    /// For axes of these extents and strides, from the innermost; the first element lies at `start`. No extent is 0.
    pub(in crate::ops) fn new(start: usize, axes: impl Iterator<Item = (usize, isize)>) -> Runs {
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
        Runs { groups, taken: 0, position: start }
    }

    /// For a tensor of `dims`, beside one that lacks the axes for which `lacks` is true.
    pub(in crate::ops) fn lacking(dims: &[u32], lacks: impl Fn(usize) -> bool) -> Runs {
        let mut stride = 1isize;
        let axes = dims.iter().enumerate().rev().map(|(axis, &dim)| {
            let own = if lacks(axis) { 0 } else { stride };
            if own != 0 {
                stride = stride.wrapping_mul(dim as isize);
            }
            (dim as usize, own)
        });
        Runs::new(0, axes)
    }

    /// Takes the innermost group off: how many neighbours it has (at least 1), and how far apart they lie.
    pub(in crate::ops) fn take(&mut self) -> (usize, isize) {
        let Some(group) = self.groups.get(self.taken) else { return (1, 0) };
        self.taken += 1;
        (group.extent.max(1), group.stride)
    }

    /// Takes the innermost group off if its neighbours all lie at one place; gives how many there are.
    pub(in crate::ops) fn take_repeats(&mut self) -> usize {
        if self.groups.get(self.taken).is_some_and(|group| group.stride == 0) { self.take().0 } else { 1 }
    }

    /// The position of this run in the other tensor; then goes on to the next.
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

/// Copies the elements at the positions of `runs` in `from` to `to`, which is not empty.
pub(in crate::ops) fn collect<T: Copy>(mut runs: Runs, from: &[T], to: &mut [T]) {
    let (extent, stride) = runs.take();
    for run in to.chunks_exact_mut(extent) {
        let mut at = runs.advance();
        if stride == 1 {
            run.iter_mut().zip(from.get(at..).unwrap_or(&[])).for_each(|(to, &from)| *to = from);
            continue;
        }
        for to in run {
            if let Some(&from) = from.get(at) {
                *to = from;
            }
            at = at.wrapping_add_signed(stride);
        }
    }
}

/// Copies the elements of `from`, which is not empty, to the positions of `runs` in `to`.
pub(in crate::ops) fn distribute<T: Copy>(mut runs: Runs, from: &[T], to: &mut [T]) {
    let (extent, stride) = runs.take();
    for run in from.chunks_exact(extent) {
        let mut at = runs.advance();
        for &from in run {
            if let Some(to) = to.get_mut(at) {
                *to = from;
            }
            at = at.wrapping_add_signed(stride);
        }
    }
}

/// The extent of an axis of a tensor of `dims`, and how far apart its neighbours lie.
pub(in crate::ops) fn axis(dims: &[u32], axis: usize) -> (usize, isize) {
    let extent = dims.get(axis).map_or(1, |&dim| dim as usize);
    (extent, dims.iter().skip(axis + 1).fold(1isize, |stride, &dim| stride.wrapping_mul(dim as isize)))
}

/// Bytes as elements of a size; `T` is an unsigned integer of that size.
pub(in crate::ops) fn elements<T: bytemuck::Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or(&[])
}

/// As [`elements`], to be written.
pub(in crate::ops) fn elements_mut<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or(&mut [])
}
