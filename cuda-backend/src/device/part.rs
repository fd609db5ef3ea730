//! The part of a device in a collective operation.

use super::Shared;
use gradlet_core::device::Launch;
use gradlet_core::{DType, Error, Result};
use std::sync::Arc;

/// Tensors of a device that a collective op combines with those of other devices, each for itself. The tensors belong to one step of a
/// program, or to several steps with the same op, the same attributes and the same element type.
pub struct Part {
    pub(crate) device: Arc<Shared>,
    attributes: Vec<u32>,
    dtype: DType,
    /// For each tensor the address of the input, that of the output, which may be the same, and the number of elements.
    pub(crate) tensors: Vec<[u64; 3]>,
}

impl Part {
    /// Creates the part of a device in one or more launches of a collective op.
    pub(super) fn new(device: &Arc<Shared>, launches: &[Launch<'_>]) -> Result<Part> {
        let tensor = |launch: &Launch<'_>| {
            let ([input], [output]) = (launch.inputs, launch.outputs) else { return None };
            let bytes = input.tensor_type.bytes()?;
            Some([input.address, output.address, (bytes / input.tensor_type.dtype.size()) as u64])
        };
        let tensors = launches.iter().map(tensor).collect::<Option<_>>().ok_or(Error::Internal)?;
        let first = launches.first().ok_or(Error::Internal)?;
        let dtype = first.inputs.first().ok_or(Error::Internal)?.tensor_type.dtype;
        Ok(Part { device: device.clone(), attributes: first.attributes.to_vec(), dtype, tensors })
    }

    /// Returns the attribute words of the op.
    pub fn attributes(&self) -> &[u32] {
        &self.attributes
    }

    /// Returns the element type of the tensors.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the size of the first tensor in bytes.
    pub fn bytes(&self) -> usize {
        self.tensors.first().map_or(0, |[.., elements]| *elements as usize * self.dtype.size())
    }

    /// True if `other` has the same op and tensors of the same sizes.
    pub(crate) fn fits(&self, other: &Part) -> bool {
        let elements = |part: &Part| part.tensors.iter().map(|[.., elements]| *elements).collect::<Vec<u64>>();
        self.attributes == other.attributes && self.dtype == other.dtype && elements(self) == elements(other)
    }
}
