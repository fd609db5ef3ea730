//! Quantisation: `y = clamp(round(x / scale) + zero_point)`, to i8, u8 or i16. Ties go away from zero, and NaN gives the zero point.
//! Element type: f32. Like QUANTIZE of TensorFlow Lite.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::{part, set};
use crate::ops::shared::quantized::{Quantized, check_zero_point};
#[cfg(feature = "alloc")]
use crate::{
    base::quantization::Quantization,
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Element type of the result: its number in artifacts.
    pub dtype: u32,
    /// Scale, positive and finite.
    pub scale: f32,
    /// Integer that stands for 0.
    pub zero_point: i32,
}

impl Attributes {
    /// Checks the scale, and the zero point for elements of type `dtype`.
    pub(in crate::ops) fn check(&self, dtype: DType) -> Result<()> {
        if !(self.scale > 0.0 && self.scale.is_finite()) {
            return Err(Error::Attribute { index: 1 });
        }
        check_zero_point(self.zero_point, dtype, 2)
    }
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::quantize, name: "quantize", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

/// Reads an attribute word as an element type.
pub(in crate::ops) fn dtype_of(word: u32) -> Result<DType> {
    u8::try_from(word).ok().and_then(DType::from_code).ok_or(Error::Attribute { index: 0 })
}

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if x.dtype != DType::F32 {
        return Err(Error::DType { input: 0 });
    }
    let dtype = dtype_of(attributes.dtype)?;
    attributes.check(dtype)?;
    set(outputs, TensorType::new(dtype, x.shape))
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    match call.output()?.dtype() {
        DType::I8 => each::<i8>(call),
        DType::U8 => each::<u8>(call),
        _ => each::<i16>(call),
    }
}

fn each<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { scale, zero_point, .. } = call.attributes()?;
    let x = call.input(0)?.slice::<f32>();
    let (start, output) = part::<T>(call, 60);
    for (y, x) in output.iter_mut().zip(x.get(start..).unwrap_or_default()) {
        let nearest = libm::roundf(x / scale) as i32;
        *y = T::saturated(nearest.saturating_add(zero_point));
    }
    Ok(())
}

/// Portable kernel for f32.
pub const F32: Kernel = Kernel { def: &DEF, dtype: DType::F32, run };

/// The op. Its result is not a float, so it has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantize(x), where x is f32, to i8, u8 or i16", Gradient::None("integers have no gradient"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the integers of type `dtype` (i8, u8 or i16) that stand for the elements: `round(x / scale) + zero_point`, limited to the
    /// range of the type. Like QUANTIZE of TensorFlow Lite.
    ///
    /// Fails unless the elements are f32, the scale is positive and finite, and the zero point is an element of type `dtype`.
    ///
    /// ```
    /// # use gradlet_core::{DType, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[0.0f32, 0.3, -100.0], &[3])?;
    /// let q = x.quantize(DType::I8, gradlet_core::Quantization { scale: 0.1, zero_point: 5 })?;
    /// assert_eq!(q.to_vec::<i8>()?, [5, 8, -128]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    #[doc(alias = "tf.quantization.quantize")]
    pub fn quantize(&self, dtype: DType, quantization: Quantization) -> Result<Tensor> {
        quantization.check(dtype)?;
        let Quantization { scale, zero_point } = quantization;
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes { dtype: dtype as u32, scale, zero_point }]), &[self])?
            .with_quantization(quantization)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::testing::{Value, run_every_way};

    #[test]
    fn nearest_in_range() {
        let x = Value::new(&[0.0f32, 0.25, -0.25, 0.74, 1e9, -1e9, f32::NAN, f32::INFINITY, -0.0, 63.3], &[10]);
        let of =
            |dtype, zero_point| run_every_way(&F32, &words(Attributes { dtype: dtype as u32, scale: 0.5, zero_point }), &[&x]).remove(0);
        assert_eq!(of(DType::I8, 1).elements::<i8>(), [1, 2, 0, 2, 127, -128, 1, 127, 1, 127]);
        assert_eq!(of(DType::U8, 128).elements::<u8>(), [128, 129, 127, 129, 255, 0, 128, 255, 128, 255]);
        assert_eq!(of(DType::I16, 0).elements::<i16>(), [0, 1, -1, 1, 32767, -32768, 0, 32767, 0, 127]);
    }
}
