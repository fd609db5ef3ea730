//! Ops along one axis: their axis attribute, and iteration over lanes. A lane is the sequence of elements along the axis.

use super::elementwise::scaled;
use crate::base::dtype::{Element, Float};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, read_attributes};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::{
    base::dtype::DType,
    tensor::{Tensor, scope::Backward},
};
use bytemuck::{Pod, Zeroable};

/// Attribute words of an op along one axis.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// The axis, counted from the outermost.
    pub axis: u32,
}

/// Shape rule of an op on floats along one axis, with an output of the same type.
pub(in crate::ops) fn same(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    super::elementwise::float(0, inputs)?;
    let Attributes { axis } = read_attributes(attributes)?;
    if inputs.first().is_none_or(|x| axis as usize >= x.shape.rank()) {
        return Err(Error::Attribute { index: 0 });
    }
    super::elementwise::same(inputs, &[], outputs)
}

/// Returns the gradient of the output and the input in f32 if a device has computed the op in 16 bits. Their gradient is then as exact as
/// on a device that computes the op in f32.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn widened(of: &Backward<'_>) -> Result<Option<(Tensor, Tensor)>> {
    let x = &of.inputs[0];
    match x.dtype() {
        DType::F16 | DType::Bf16 => Ok(Some((of.dy()?.cast(DType::F32)?, x.cast(DType::F32)?))),
        _ => Ok(None),
    }
}

/// Returns the number of elements along `axis` of a tensor of `dims`, and the distance between them. Both are at least 1.
pub(in crate::ops) fn extent_stride(dims: &[u32], axis: usize) -> (usize, usize) {
    let extent = dims.get(axis).map_or(1, |&dim| dim as usize);
    let stride: usize = dims.iter().skip(axis + 1).map(|&dim| dim as usize).product();
    (extent.max(1), stride.max(1))
}

/// Copies each lane along `axis` from input 0 to output 0, unless the two share memory, and then calls `f` on it. `f` gets the slice from
/// the lane's first element on, and the distance between the lane's elements. `cost` is the number of instructions of `f` for an element.
#[inline(always)]
pub(in crate::ops) fn each<T: Element>(call: &mut Call<'_, '_>, axis: u32, cost: usize, mut f: impl FnMut(&mut [T], usize)) -> Result<()> {
    let x = call.input(0)?;
    let output = call.output()?;
    let (extent, stride) = extent_stride(output.dims(), axis as usize);
    let lanes = call.output()?.slice_mut::<T>().len() / extent;
    let copy = if x.in_place() { 0 } else { 9 };
    let rows = call.rows(lanes, 40 + (scaled::<T>(cost) + copy) * extent);
    let (x, output) = (x.slice::<T>(), call.output()?.slice_mut::<T>());
    for lane in rows {
        // The lanes of a block lie side by side.
        let first = lane / stride * extent * stride + lane % stride;
        let elements = first..first - lane % stride + extent * stride;
        let Some(lane) = output.get_mut(elements.clone()) else { break };
        if let Some(from) = x.get(elements) {
            lane.iter_mut().step_by(stride).zip(from.iter().step_by(stride)).for_each(|(to, from)| *to = *from);
        }
        f(lane, stride);
    }
    Ok(())
}

/// Returns the greatest element. Skips NaN. Without other elements, returns the least value of the type.
#[inline(always)]
pub(in crate::ops) fn greatest<'a, T: Float>(elements: impl Iterator<Item = &'a T>) -> T {
    elements.fold(T::LEAST, |greatest, &x| if x > greatest { x } else { greatest })
}

/// Replaces each element `x` of the lane with `exp(x - greatest)`, and returns the sum of the new elements. `greatest` is the
/// lane's greatest element, and `stride` the distance between its elements in `lane`.
pub(in crate::ops) fn exponentials<T: Float>(lane: &mut [T], stride: usize) -> T {
    let shift = greatest(lane.iter().step_by(stride));
    let mut sum = T::ZERO;
    for x in lane.iter_mut().step_by(stride) {
        *x = x.sub(shift).exp();
        sum = sum.add(*x);
    }
    sum
}
