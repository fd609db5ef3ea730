//! Ops that move elements. Their kernels know only the size of an element.

use super::scatter::Rows;
use super::{Family, Job, Target};
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::Code;
use gradlet_core::custom_op::{OpDef, read_attributes};
use gradlet_core::ops::strided_slice::Axis;
use gradlet_core::ops::{code, gather};
use gradlet_core::tensor::MAX_RANK;
use gradlet_core::{DType, Error, Result, TensorType};

pub(super) const FAMILY: Family = Family { has_kernel, lower };

/// Width and height of the tiles of the kernel `transpose`, and the height of its blocks.
const TILE: u32 = 32;
const TILE_ROWS: u32 = 8;
/// Largest number of blocks of the kernel `transpose`, whose blocks loop over tiles.
const MAX_BLOCKS: u64 = 1 << 16;

fn has_kernel(op: &OpDef, _: DType, _: &Target) -> bool {
    matches!(
        op.code,
        code::reshape
            | code::transpose
            | code::broadcast_to
            | code::concat
            | code::strided_slice
            | code::pad
            | code::gather
            | code::gather_nd
    )
}

fn lower(job: &Job<'_>) -> Result<Vec<KernelCall>> {
    let ([x, ..], [y]) = (job.inputs, job.outputs) else { return Err(Error::Internal) };
    let (from, to) = (x.shape.dims(), y.shape.dims());
    match job.op.code {
        code::reshape => Ok(vec![collect(y, &Walk::new(0, axes(to, &distances(to))))?]),
        code::broadcast_to => Ok(vec![collect(y, &broadcast(from, to))?]),
        code::transpose => Ok(vec![transpose(y, Walk::new(0, permuted(from, job.attributes)))?]),
        code::strided_slice => Ok(vec![collect(y, &strided(job.attributes, from, to)?)?]),
        code::pad => pad(job.attributes, x, y),
        code::concat => concat(job, y),
        code::gather => {
            let gather::Attributes { axis, batch_dims, negative } = read_attributes(job.attributes)?;
            gathered(job, y, |index| Rows::along(from, axis, batch_dims, index, negative == 1))
        }
        code::gather_nd => gathered(job, y, |index| Rows::at(from, index)),
        _ => Err(Error::Internal),
    }
}

/// Walk over a tensor in row-major order, which gives the positions of its elements in another tensor.
#[derive(Clone, Debug, PartialEq)]
struct Walk {
    /// Position in the other tensor of the first element.
    begin: i64,
    /// From the innermost on: groups of neighbouring axes that are walked as one axis. Of each group, the number of its elements, and the
    /// distance between neighbours in the other tensor.
    groups: Vec<(u32, i64)>,
}

impl Walk {
    /// Creates a walk over axes, from the innermost on, with these dimensions and distances.
    fn new(begin: i64, axes: impl Iterator<Item = (u32, i64)>) -> Walk {
        let mut groups: Vec<(u32, i64)> = Vec::new();
        for (dim, distance) in axes.filter(|(dim, _)| *dim != 1) {
            match groups.last_mut() {
                Some((extent, inner)) if inner.wrapping_mul((*extent).into()) == distance && extent.checked_mul(dim).is_some() => {
                    *extent *= dim;
                }
                _ => groups.push((dim, distance)),
            }
        }
        if groups.is_empty() {
            groups.push((1, 0));
        }
        Walk { begin, groups }
    }

    /// Returns this walk over elements of `size` bytes as a walk over pieces of neighbouring elements, with the size of a piece. It is at
    /// most 16 bytes, and the pieces stay whole in the other tensor.
    fn in_pieces(&self, size: usize) -> (Walk, usize) {
        let even = |&(extent, distance): &(u32, i64)| extent % 2 == 0 && distance == 1;
        let halves = self.groups.first().is_some_and(even) && self.begin % 2 == 0;
        if size >= 16 || !halves || self.groups[1..].iter().any(|(_, distance)| distance % 2 != 0) {
            return (self.clone(), size);
        }
        let mut walk = Walk { begin: self.begin / 2, groups: self.groups.clone() };
        walk.groups[0].0 /= 2;
        walk.groups[1..].iter_mut().for_each(|(_, distance)| *distance /= 2);
        walk.in_pieces(2 * size)
    }

    /// Returns the words of the kernels' `Walk`.
    fn words(&self) -> Argument {
        let padded = |word: fn(u32, i64) -> u32| (0..MAX_RANK).map(move |at| self.groups.get(at).map_or(0, |group| word(group.0, group.1)));
        let (extents, low) = (padded(|extent, _| extent), padded(|_, distance| distance as u32));
        let high = padded(|_, distance| (distance >> 32) as u32);
        Argument::Words([self.groups.len() as u32].into_iter().chain(extents).chain(low).chain(high).collect())
    }

    /// Returns this walk and that of the same elements in y, for the kernel `transpose`, with the number of tiles. Group 0 is then the
    /// innermost of y, and group 1 that of x. Returns `None` if they are the same, or too short for tiles.
    fn tiles(&self) -> Option<(Walk, Walk, u64)> {
        let inner = self.groups.iter().position(|(_, distance)| *distance == 1)?;
        let sides = [self.groups[0].0, self.groups[inner].0];
        if inner == 0 || sides.iter().any(|&side| side < TILE / 2) {
            return None;
        }
        let (mut from, mut to, mut distance) = (self.clone(), self.clone(), 1i64);
        for group in &mut to.groups {
            *group = (group.0, distance);
            distance = distance.wrapping_mul(group.0.into());
        }
        for walk in [&mut from, &mut to] {
            walk.groups[1..=inner].rotate_right(1);
        }
        let others: u64 = from.groups[2..].iter().map(|&(extent, _)| u64::from(extent)).product();
        let tiles = sides.iter().fold(others, |tiles, side| tiles * u64::from(side.div_ceil(TILE)));
        Some((from, to, tiles))
    }
}

/// Returns the distances between neighbours along each axis of a tensor of `dims`.
fn distances(dims: &[u32]) -> Vec<i64> {
    let inner = |axis: usize| dims[axis + 1..].iter().fold(1i64, |distance, &dim| distance.wrapping_mul(dim.into()));
    (0..dims.len()).map(inner).collect()
}

/// Returns the axes of `dims` with these distances, from the innermost on.
fn axes(dims: &[u32], distances: &[i64]) -> impl Iterator<Item = (u32, i64)> {
    dims.iter().copied().zip(distances.iter().copied()).rev()
}

/// Returns the walk over a tensor of dimensions `to`, to which a tensor of dimensions `from` is broadcast.
fn broadcast(from: &[u32], to: &[u32]) -> Walk {
    let own = from.iter().zip(distances(from)).map(|(&dim, distance)| if dim == 1 { 0 } else { distance });
    let new = to.len().saturating_sub(from.len());
    Walk::new(0, axes(to, &std::iter::repeat_n(0, new).chain(own).collect::<Vec<_>>()))
}

/// Returns the axes of a transpose, from the innermost on, with their distances in the tensor of dimensions `from`.
fn permuted(from: &[u32], order: &[u32]) -> impl Iterator<Item = (u32, i64)> {
    let distances = distances(from);
    order.iter().rev().map(move |&axis| (from[axis as usize], distances[axis as usize]))
}

/// Returns the walk over the smaller tensor of a strided slice or of a padding, inside the larger one.
fn strided(attributes: &[u32], large: &[u32], small: &[u32]) -> Result<Walk> {
    let (mut begin, mut steps) = (0i64, Vec::new());
    for (words, distance) in attributes.chunks(3).zip(distances(large)) {
        let axis: Axis = read_attributes(words)?;
        begin = begin.wrapping_add(distance.wrapping_mul(axis.begin.into()));
        steps.push(distance.wrapping_mul(axis.step.into()));
    }
    Ok(Walk::new(begin, axes(small, &steps)))
}

/// Returns the number of elements of a tensor.
pub(super) fn elements(tensor: &TensorType) -> Result<u64> {
    tensor.shape.elements().map(|elements| elements as u64).ok_or(Error::TooLarge)
}

/// Names the kernel for elements of `size` bytes.
fn kernel(name: &str, size: usize) -> Code {
    Code::stored("array", format!("{name}_{size}"))
}

/// Fills output 0, which is walked, with the elements of input 0.
fn collect(y: &TensorType, walk: &Walk) -> Result<KernelCall> {
    moved("collect", y, 0, walk)
}

/// Moves all elements of the walked tensor, `walked`, from input `input` to output 0.
fn moved(name: &str, walked: &TensorType, input: usize, walk: &Walk) -> Result<KernelCall> {
    let (walk, size) = walk.in_pieces(walked.dtype.size());
    let total = elements(walked)? / (size / walked.dtype.size()) as u64;
    let operands = [Argument::Output(0), Argument::Input(input), Argument::Wide(total), Argument::Wide(walk.begin as u64), walk.words()];
    Ok(KernelCall::over(total, kernel(name, size), operands.into()))
}

fn transpose(y: &TensorType, walk: Walk) -> Result<KernelCall> {
    let Some((from, to, tiles)) = walk.tiles() else { return collect(y, &walk) };
    Ok(KernelCall {
        code: kernel("transpose", y.dtype.size()),
        grid: [tiles.min(MAX_BLOCKS) as u32, 1, 1],
        block: [TILE, TILE_ROWS, 1],
        shared: 0,
        arguments: vec![Argument::Output(0), Argument::Input(0), Argument::Wide(tiles), from.words(), to.words()],
    })
}

/// Pads input 0 with input 1, a scalar.
fn pad(attributes: &[u32], x: &TensorType, y: &TensorType) -> Result<Vec<KernelCall>> {
    let (from, to, total) = (x.shape.dims(), y.shape.dims(), elements(y)?);
    if let Some(embedded) = Embedded::new(attributes, from, to)? {
        return Ok(vec![embedded.call(y)?]);
    }
    let fill =
        KernelCall::over(total, kernel("fill", y.dtype.size()), vec![Argument::Output(0), Argument::Input(1), Argument::Wide(total)]);
    let mut calls = vec![fill];
    if elements(x)? > 0 {
        calls.push(moved("place", x, 0, &strided(attributes, to, from)?)?);
    }
    Ok(calls)
}

/// A tensor that is padded along one axis, with its elements side by side: rows of a larger tensor.
#[derive(Debug, PartialEq)]
struct Embedded {
    /// Number of elements of a row.
    row: u64,
    /// Numbers of rows of the larger and of the smaller tensor, and the place of the first of the latter.
    rows: [u64; 3],
}

impl Embedded {
    /// Returns `None` if more axes are padded, or with gaps.
    fn new(attributes: &[u32], small: &[u32], large: &[u32]) -> Result<Option<Embedded>> {
        let mut found = None;
        for (axis, words) in attributes.chunks(3).enumerate() {
            let Axis { begin, step, .. } = read_attributes(words)?;
            let (Some(&small), Some(&dim)) = (small.get(axis), large.get(axis)) else { return Err(Error::Internal) };
            if small == dim && (step == 1 || dim == 1) {
                continue;
            }
            if step != 1 || small == 0 || found.is_some() {
                return Ok(None);
            }
            let row = large[axis + 1..].iter().map(|&dim| u64::from(dim)).product();
            found = Some(Embedded { row, rows: [dim, small, begin].map(u64::from) });
        }
        Ok(found)
    }

    /// Returns these rows of elements of `size` bytes as rows of pieces of 16 bytes, if possible.
    fn in_pieces(mut self, size: usize) -> (Embedded, usize) {
        let each = (16 / size) as u64;
        if self.row.is_multiple_of(each) {
            self.row /= each;
        } else if self.row == 1 && self.rows.iter().all(|rows| rows.is_multiple_of(each)) {
            self.rows = self.rows.map(|rows| rows / each);
        } else {
            return (self, size);
        }
        (self, 16)
    }

    fn call(self, y: &TensorType) -> Result<KernelCall> {
        let bytes = y.dtype.size();
        let (Embedded { row, rows }, size) = self.in_pieces(bytes);
        let total = elements(y)? / (size / bytes) as u64;
        let mut arguments = vec![Argument::Output(0), Argument::Input(0), Argument::Input(1), Argument::Words(vec![bytes as u32])];
        arguments.extend([total, row].into_iter().chain(rows).map(Argument::Wide));
        Ok(KernelCall::over(total, kernel("embed", size), arguments))
    }
}

fn concat(job: &Job<'_>, y: &TensorType) -> Result<Vec<KernelCall>> {
    let [axis]: [u32; 1] = read_attributes(job.attributes)?;
    let (distances, axis) = (distances(y.shape.dims()), axis as usize);
    let (mut begin, mut calls) = (0i64, Vec::new());
    for (index, part) in job.inputs.iter().enumerate() {
        let dims = part.shape.dims();
        if elements(part)? > 0 {
            calls.push(moved("place", part, index, &Walk::new(begin, axes(dims, &distances)))?);
        }
        begin = begin.wrapping_add(distances[axis].wrapping_mul(dims[axis].into()));
    }
    Ok(calls)
}

/// Gathers rows of input 0, which input 1 selects.
fn gathered(job: &Job<'_>, y: &TensorType, rows: impl Fn(&TensorType) -> Rows) -> Result<Vec<KernelCall>> {
    let index = job.inputs.get(1).ok_or(Error::Internal)?;
    let (rows, size) = rows(index).in_pieces(y.dtype.size());
    let total = elements(y)? / (size / y.dtype.size()) as u64;
    let mut arguments = vec![Argument::Output(0), Argument::Input(0), Argument::Input(1)];
    arguments.extend(rows.arguments(total));
    Ok(vec![KernelCall::over(total, Code::stored("array", format!("gather_{size}_{}", index.dtype)), arguments)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_axes_are_one_group() {
        let whole = |dims: &[u32]| Walk::new(0, axes(dims, &distances(dims))).groups;
        assert_eq!(whole(&[]), [(1, 0)]);
        assert_eq!(whole(&[2, 1, 3, 5]), [(30, 1)]);
        assert_eq!(whole(&[1 << 20, 1 << 20]), [(1 << 20, 1), (1 << 20, 1 << 20)]);
        assert_eq!(broadcast(&[2, 1, 5], &[4, 2, 3, 5]).groups, [(5, 1), (3, 0), (2, 5), (4, 0)]);
        assert_eq!(broadcast(&[1, 5], &[4, 3, 5]).groups, [(5, 1), (12, 0)]);
        assert_eq!(Walk::new(0, permuted(&[2, 3, 4, 5], &[2, 3, 0, 1])).groups, [(6, 20), (20, 1)]);
    }

    #[test]
    fn neighbours_move_in_pieces() {
        let pieces = |dims: &[u32], large: &[u32], begin: i64, size: usize| {
            let (walk, size) = Walk::new(begin, axes(dims, &distances(large))).in_pieces(size);
            (walk.begin, walk.groups, size)
        };
        assert_eq!(pieces(&[3, 8], &[3, 12], 4, 4), (1, vec![(2, 1), (3, 3)], 16));
        assert_eq!(pieces(&[3, 8], &[3, 12], 2, 4), (1, vec![(4, 1), (3, 6)], 8));
        assert_eq!(pieces(&[3, 8], &[3, 9], 4, 4), (4, vec![(8, 1), (3, 9)], 4));
        assert_eq!(pieces(&[32], &[32], 0, 1), (0, vec![(2, 1)], 16));
        assert_eq!(pieces(&[7], &[7], 0, 2), (0, vec![(7, 1)], 2));
        assert_eq!(broadcast(&[4, 1], &[4, 4]).in_pieces(4), (broadcast(&[4, 1], &[4, 4]), 4));
    }

    #[test]
    fn slices_have_signed_steps() {
        let words = [1, 1, 2, 4, -2i32 as u32, 3, 0, i32::MIN as u32, 1];
        let walk = strided(&words, &[3, 5, 1], &[2, 3, 1]).unwrap();
        assert_eq!(walk, Walk { begin: 9, groups: vec![(3, -2), (2, 5)] });
        let Argument::Words(words) = walk.words() else { panic!("{walk:?}") };
        assert_eq!((words.len(), &words[..3], words[1 + MAX_RANK], words[1 + 2 * MAX_RANK]), (25, &[2, 3, 2][..], -2i32 as u32, u32::MAX));
    }

    #[test]
    fn a_tensor_is_embedded_along_one_axis() {
        let padded = |axes: &[[u32; 3]], small: &[u32], large: &[u32]| Embedded::new(axes.as_flattened(), small, large).unwrap();
        let gates = Embedded { row: 1, rows: [256, 64, 128] };
        assert_eq!(padded(&[[0, 1, 32], [128, 1, 64]], &[32, 64], &[32, 256]), Some(Embedded { row: 1, rows: [256, 64, 128] }));
        assert_eq!(gates.in_pieces(4), (Embedded { row: 1, rows: [64, 16, 32] }, 16));
        assert_eq!(padded(&[[3, 1, 2], [0, 1, 6]], &[2, 6], &[9, 6]), Some(Embedded { row: 6, rows: [9, 2, 3] }));
        assert_eq!(Embedded { row: 6, rows: [9, 2, 3] }.in_pieces(4), (Embedded { row: 6, rows: [9, 2, 3] }, 4));
        // Two axes, gaps, the other direction, and no padding at all.
        assert_eq!(padded(&[[1, 1, 2], [1, 1, 2]], &[2, 2], &[4, 4]), None);
        assert_eq!(padded(&[[0, 2, 2]], &[2], &[3]), None);
        assert_eq!(padded(&[[1, u32::MAX, 2]], &[2], &[4]), None);
        assert_eq!(padded(&[[1, u32::MAX, 2], [0, 1, 3]], &[2, 3], &[2, 5]), None);
    }

    #[test]
    fn long_sides_are_transposed_in_tiles() {
        let tiles = |dims: &[u32], order: &[u32]| Walk::new(0, permuted(dims, order)).tiles();
        assert_eq!(tiles(&[100, 15], &[1, 0]), None);
        assert_eq!(tiles(&[100, 33, 40], &[1, 0, 2]), None);
        let (from, to, number) = tiles(&[7, 33, 5, 64], &[0, 3, 2, 1]).unwrap();
        assert_eq!(from.groups, [(33, 320), (64, 1), (5, 64), (7, 10560)]);
        assert_eq!(to.groups, [(33, 1), (64, 165), (5, 33), (7, 10560)]);
        assert_eq!(number, 2 * 2 * 35);
    }
}
