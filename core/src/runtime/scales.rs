//! The scales and zero points that a program has for its tensors.

use crate::base::quantization::Quantization;
use crate::runtime::program::{Program, TensorRecord};

impl<'a> Program<'a> {
    /// Returns the scales and zero points of a tensor: their axis, the bits of the scales, and the zero points. Returns `None` if it has
    /// none, or if their record is damaged.
    pub(crate) fn quantization(&self, record: &TensorRecord) -> Option<(u32, &'a [u32], &'a [u32])> {
        let words = self.data.get(record.quantization as usize..)?;
        let words: &[u32] = bytemuck::try_cast_slice(words.get(..words.len() / 4 * 4)?).ok()?;
        let (&[axis, count], words) = words.split_first_chunk()?;
        let (scales, rest) = words.split_at_checked(count as usize)?;
        Some((axis, scales, rest.get(..count as usize)?))
    }

    /// Returns the scale and zero point of all elements of a tensor. Returns `None` if it has none or several, or if the scale is not
    /// positive and finite.
    pub(crate) fn whole_quantization(&self, record: &TensorRecord) -> Option<Quantization> {
        let (_, &[scale], &[zero_point]) = self.quantization(record)? else { return None };
        let quantization = Quantization { scale: f32::from_bits(scale), zero_point: zero_point as i32 };
        (quantization.scale > 0.0 && quantization.scale < f32::INFINITY).then_some(quantization)
    }
}
