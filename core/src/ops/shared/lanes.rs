//! What ops along one axis share: the axis attribute, and the lanes along it.

use crate::base::dtype::Float;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, read_attributes};
use crate::base::shape::TensorType;
use bytemuck::{Pod, Zeroable};

/// The attribute words of an op along one axis.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// The axis, counted from the outermost.
    pub axis: u32,
}

/// The shape rule of an op on floats along one axis whose output has the same type.
pub(in crate::ops) fn same(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    super::elementwise::float(0, inputs)?;
    let Attributes { axis } = read_attributes(attributes)?;
    if inputs.first().is_none_or(|x| axis as usize >= x.shape.rank()) {
        return Err(Error::Attribute { index: 0 });
    }
    super::elementwise::same(inputs, &[], outputs)
}

/// Of a tensor of `dims`: how many elements lie along `axis`, and how far apart they are; at least 1.
pub(in crate::ops) fn extent_stride(dims: &[u32], axis: usize) -> (usize, usize) {
    let extent = dims.get(axis).map_or(1, |&dim| dim as usize);
    let stride: usize = dims.iter().skip(axis + 1).map(|&dim| dim as usize).product();
    (extent.max(1), stride.max(1))
}

/// Copies input 0 to output 0, unless it is there, and calls `f` on each lane of it along the axis of the attributes:
/// with the slice that begins at the lane's first element, and the distance between its elements.
#[inline(always)]
pub(in crate::ops) fn each<T: Float>(call: &mut Call<'_, '_>, f: impl Fn(&mut [T], usize)) -> Result<()> {
    let Attributes { axis } = call.attributes()?;
    super::elementwise::copy(call)?;
    let output = call.output()?;
    let (extent, stride) = extent_stride(output.dims(), axis as usize);
    for block in output.slice_mut::<T>().chunks_exact_mut((extent * stride).max(1)) {
        for start in 0..stride {
            if let Some(lane) = block.get_mut(start..) {
                f(lane, stride);
            }
        }
    }
    Ok(())
}

/// The greatest of the elements; NaN is passed over.
#[inline(always)]
pub(in crate::ops) fn greatest<'a, T: Float>(elements: impl Iterator<Item = &'a T>) -> T {
    elements.fold(T::LEAST, |greatest, &x| if x > greatest { x } else { greatest })
}

/// Makes each `x` of the lane `exp(x - greatest)`, and gives their sum.
pub(in crate::ops) fn exponentials<T: Float>(lane: &mut [T], stride: usize) -> T {
    let shift = greatest(lane.iter().step_by(stride));
    let mut sum = T::ZERO;
    for x in lane.iter_mut().step_by(stride) {
        *x = x.sub(shift).exp();
        sum = sum.add(*x);
    }
    sum
}
