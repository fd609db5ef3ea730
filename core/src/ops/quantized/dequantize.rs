//! Real numbers of a quantised tensor: `y = scale · (x − zero_point)`, as f32. Element types: i8, u8 and i16. Like DEQUANTIZE of TensorFlow
//! Lite.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::quantize::{Attributes, dtype_of};
use crate::ops::shared::elementwise::{part, set};
use crate::ops::shared::quantized::Quantized;
#[cfg(feature = "alloc")]
use crate::{
    base::quantization::Quantization,
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op. Its attributes are those of [`quantize`](crate::ops::quantize); the element type is that of the result, f32.
pub static DEF: OpDef = OpDef { code: crate::ops::code::dequantize, name: "dequantize", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let attributes: Attributes = read_attributes(attributes)?;
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !matches!(x.dtype, DType::I8 | DType::U8 | DType::I16) {
        return Err(Error::DType { input: 0 });
    }
    if dtype_of(attributes.dtype)? != DType::F32 {
        return Err(Error::Attribute { index: 0 });
    }
    attributes.check(x.dtype)?;
    set(outputs, TensorType::new(DType::F32, x.shape))
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { scale, zero_point, .. } = call.attributes()?;
    let x = call.input(0)?.slice::<T>();
    let (start, output) = part::<f32>(call, 10);
    for (y, x) in output.iter_mut().zip(x.get(start..).unwrap_or_default()) {
        *y = scale * (x.number() - zero_point) as f32;
    }
    Ok(())
}

crate::ops::kernels!(run: I8 = i8, U8 = u8, I16 = i16);

/// The op. Its input is not a float, so it has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "dequantize(x), where x is i8, u8 or i16", Gradient::None("integers have no gradient"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the real numbers, as f32, that the elements stand for: `scale · (x − zero_point)`. Like DEQUANTIZE of TensorFlow Lite.
    ///
    /// Fails unless the elements are i8, u8 or i16, the scale is positive and finite, and the zero point is an element of that type.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let q = Tensor::new(&device, &[5i8, 7, -128], &[3])?;
    /// let x = q.dequantize(gradlet_core::Quantization { scale: 0.5, zero_point: 5 })?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 1.0, -66.5]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    #[doc(alias = "tf.quantization.dequantize")]
    pub fn dequantize(&self, quantization: Quantization) -> Result<Tensor> {
        quantization.check(self.dtype())?;
        let Quantization { scale, zero_point } = quantization;
        Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes { dtype: DType::F32 as u32, scale, zero_point }]), &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::testing::{Value, run_every_way};

    #[test]
    fn multiples_of_the_scale() {
        let words = |zero_point| words(Attributes { dtype: DType::F32 as u32, scale: 0.1, zero_point });
        let [y] = &run_every_way(&I8, &words(-128), &[&Value::new(&[-128i8, 0, 127], &[3])])[..] else { panic!() };
        assert_eq!(y.elements::<f32>(), [0.0, 12.8, 25.5]);
        let [y] = &run_every_way(&U8, &words(128), &[&Value::new(&[0u8, 255], &[2])])[..] else { panic!() };
        assert_eq!(y.elements::<f32>(), [-12.8, 12.7]);
        let [y] = &run_every_way(&I16, &words(0), &[&Value::new(&[-32768i16, 3], &[2])])[..] else { panic!() };
        assert_eq!(y.elements::<f32>(), [-3276.8, 0.3]);
    }
}
