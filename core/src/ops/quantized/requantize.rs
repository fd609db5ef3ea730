//! Change of scale: `y = clamp(zero_point + m · (x − x₀))`, where `m` is `scale of x / scale of y`. Element types: i8, u8 and i16, for x
//! and y each. The product is rounded twice. Like QUANTIZE of TensorFlow Lite on quantised tensors.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::quantize::dtype_of;
use crate::ops::shared::elementwise::{part, set};
use crate::ops::shared::fixed_point::Multiplier;
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
    /// Zero point of x.
    pub input_zero_point: i32,
    /// Ratio of the scales.
    pub multiplier: Multiplier,
    /// Zero point of the result.
    pub output_zero_point: i32,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::requantize, name: "requantize", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !matches!(x.dtype, DType::I8 | DType::U8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    let dtype = dtype_of(attributes.dtype)?;
    check_zero_point(attributes.input_zero_point, x.dtype, 1)?;
    if !attributes.multiplier.is_valid() {
        return Err(Error::Attribute { index: 2 });
    }
    check_zero_point(attributes.output_zero_point, dtype, 4)?;
    set(outputs, TensorType::new(dtype, x.shape))
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    match call.output()?.dtype() {
        DType::I8 => each::<T, i8>(call),
        DType::U8 => each::<T, u8>(call),
        _ => each::<T, i16>(call),
    }
}

fn each<T: Quantized, U: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { input_zero_point, multiplier, output_zero_point, .. } = call.attributes()?;
    let x = call.input(0)?.slice::<T>();
    let (start, output) = part::<U>(call, 25);
    for (y, x) in output.iter_mut().zip(x.get(start..).unwrap_or_default()) {
        let scaled = multiplier.twice(x.number() - input_zero_point).wrapping_add(output_zero_point);
        *y = U::saturated(scaled);
    }
    Ok(())
}

crate::ops::kernels!(run: I8 = i8, U8 = u8, I16 = i16);

/// The op. Its input is not a float, so it has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "requantize(x), where x is i8, u8 or i16", Gradient::None("integers have no gradient"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the integers of type `dtype` that stand for the same real numbers with another scale and zero point. It has the bits of
    /// TensorFlow Lite's reference kernel of QUANTIZE.
    ///
    /// Fails unless both element types are i8, u8 or i16, the scales are positive and finite, and the zero points are elements.
    ///
    /// ```
    /// # use gradlet_core::{DType, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[-128i8, 0, 127], &[3])?;
    /// let of = |scale, zero_point| gradlet_core::Quantization { scale, zero_point };
    /// let y = x.requantize(of(1.0, 0), DType::U8, of(1.0, 128))?;
    /// assert_eq!(y.to_vec::<u8>()?, [0, 128, 255]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn requantize(&self, from: Quantization, dtype: DType, to: Quantization) -> Result<Tensor> {
        from.check(self.dtype())?;
        to.check(dtype)?;
        let attributes = Attributes {
            dtype: dtype as u32,
            input_zero_point: from.zero_point,
            multiplier: Multiplier::new(f64::from(from.scale) / f64::from(to.scale)),
            output_zero_point: to.zero_point,
        };
        Tensor::emit1(&OP, bytemuck::cast_slice(&[attributes]), &[self])?.with_quantization(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::testing::{Value, run_every_way};

    #[test]
    fn same_numbers_with_another_scale() {
        let x = Value::new(&[-128i8, -3, 0, 1, 127], &[5]);
        let to = |dtype, real, zero_point| {
            let attributes =
                Attributes { dtype: dtype as u32, input_zero_point: -3, multiplier: Multiplier::new(real), output_zero_point: zero_point };
            run_every_way(&I8, &words(attributes), &[&x]).remove(0)
        };
        assert_eq!(to(DType::I8, 0.5, 1).elements::<i8>(), [-61, 1, 3, 3, 66]);
        assert_eq!(to(DType::U8, 2.0, 128).elements::<u8>(), [0, 128, 134, 136, 255]);
        assert_eq!(to(DType::I16, 256.0, 0).elements::<i16>(), [-32000, 0, 768, 1024, 32767]);
    }
}
