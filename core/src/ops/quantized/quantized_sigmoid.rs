//! Logistic function `1 / (1 + exp(-x))` or hyperbolic tangent of a quantised i16 tensor. The scale of y is 1/32768. The zero points of x
//! and y are 0.
//!
//! The second input is a table: i16 `[256]`, the logistic function of `i / 24` as a fraction of 65536, in the bits of an unsigned integer.
//! Between two elements, the function is linear. The tangent is `2 / (1 + exp(-2x)) − 1`. The bits are those of TensorFlow Lite's LOGISTIC
//! and TANH.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::{same_dims, set, unary};
#[cfg(feature = "alloc")]
use crate::{
    base::quantization::Quantization,
    ops::quantized::{exponentials, tables},
    ops::quantized_conv2d::NO_GRADIENT,
    tensor::Tensor,
    tensor::scope::Op,
};
#[cfg(feature = "alloc")]
use alloc::format;

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Multiplier that converts x to the scale 1/12288, as a number of at most 15 bits.
    pub multiplier: i32,
    /// Number of bits of the multiplier after the point, at most 31.
    pub shift: u32,
    /// 0 for the logistic function, 1 for the hyperbolic tangent.
    pub tangent: u32,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_sigmoid, name: "quantized_sigmoid", inputs: (2, 2), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let Attributes { multiplier, shift, tangent } = read_attributes(attributes)?;
    let [x, table] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    for (input, operand) in [(0, x), (1, table)] {
        if operand.dtype != DType::I16 {
            return Err(Error::DType { input });
        }
    }
    same_dims(1, &[256], table.shape.dims())?;
    for (index, fits) in [(0, (0..1 << 15).contains(&multiplier)), (1, shift < 32), (2, tangent < 2)] {
        if !fits {
            return Err(Error::Attribute { index });
        }
    }
    set(outputs, *x)
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { multiplier, shift, tangent } = call.attributes()?;
    let table = call.input(1)?.slice::<i16>();
    let entry = |at: u32| i32::from(table.get(at as usize).copied().unwrap_or(0) as u16);
    let half = (1u32.wrapping_shl(shift) >> 1) as i32;
    // The tangent doubles its argument, and its results have twice the range. Its middle is 0 instead of 1/2.
    let (bits, limit, middle, drop) = if tangent == 1 { (8, 0xffff, 0, 8) } else { (9, 0xfffe, 1 << 24, 10) };
    unary(call, 35, |x: i16| {
        let x = i32::from(x).wrapping_mul(multiplier).wrapping_add(half).wrapping_shr(shift);
        let (at, part) = (x.unsigned_abs() >> bits, x.unsigned_abs() & ((1 << bits) - 1));
        let value = match at {
            255.. => limit << bits,
            _ => (entry(at) << bits).wrapping_add((part as i32).wrapping_mul(entry(at + 1) - entry(at))),
        };
        let beyond = value.wrapping_sub(1 << (15 + bits));
        let signed = if x < 0 { -1 - beyond } else { beyond };
        ((middle + (1 << (drop - 1)) + signed) >> drop) as i16
    })
}

/// Portable kernel for i16.
pub const I16: Kernel = Kernel { def: &DEF, dtype: DType::I16, run };

/// The op.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "quantized_sigmoid(x, table[256]), where both are i16", NO_GRADIENT);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the logistic function `1 / (1 + exp(-x))` of a quantised tensor. The result has the scale 1/256 and the zero point -128 for
    /// i8, and the scale 1/32768 and the zero point 0 for i16. It has the bits of TensorFlow Lite's reference kernel of LOGISTIC.
    ///
    /// Fails unless the elements are i8, or i16 with the zero point 0, and the scale is positive and finite.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[-128i8, 0, 2, 127], &[4])?;
    /// let y = x.quantized_sigmoid(gradlet_core::Quantization { scale: 0.5, zero_point: 0 })?;
    /// assert_eq!(y.to_vec::<i8>()?, [-128, 0, 59, 127]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_sigmoid(&self, from: Quantization) -> Result<Tensor> {
        let to = Quantization { scale: 1.0 / 256.0, zero_point: -128 };
        sigmoid(self, from, false, |from| tables::sigmoid(from, to))
    }

    /// Returns the hyperbolic tangent of a quantised tensor. The result has the scale 1/128 for i8 and 1/32768 for i16, and the zero point
    /// 0. It has the bits of TensorFlow Lite's reference kernel of TANH. Fails as [`Tensor::quantized_sigmoid`] does.
    pub fn quantized_tanh(&self, from: Quantization) -> Result<Tensor> {
        let to = Quantization { scale: 1.0 / 128.0, zero_point: 0 };
        sigmoid(self, from, true, |from| tables::tanh(from, to))
    }
}

/// Emits the function of x: by `table` for i8.
#[cfg(feature = "alloc")]
fn sigmoid(x: &Tensor, from: Quantization, tangent: bool, table: impl Fn(Quantization) -> tables::Table) -> Result<Tensor> {
    from.check(x.dtype())?;
    match x.dtype() {
        DType::I8 => x.lookup(&Tensor::new(&x.device()?, &table(from), &[256])?),
        DType::I16 if from.zero_point == 0 => {
            let table = Tensor::new(&x.device()?, &exponentials::of_sigmoid(), &[256])?;
            Tensor::emit1(&OP, bytemuck::cast_slice(&[Attributes::new(from.scale, tangent)]), &[x, &table])
        }
        dtype => Err(Error::message(format!("expected i8, or i16 with the zero point 0, but got {dtype} and {}", from.zero_point))),
    }
}

#[cfg(feature = "alloc")]
impl Attributes {
    fn new(scale: f32, tangent: bool) -> Attributes {
        // A scale of almost 2⁻¹², or 2⁻¹¹ for the tangent, counts as that power of two.
        let power = libm::log2(scale.into());
        let nearest = libm::round(power);
        let close = libm::fabs(power - nearest) < 1e-3 && (nearest == -12.0 || tangent && nearest == -11.0);
        let mut real = if close { libm::exp2(nearest) } else { scale.into() } * 12288.0;
        let mut shift = 0;
        while real <= 32767.0 / 2.0 && shift <= 30 {
            real *= 2.0;
            shift += 1;
        }
        Attributes { multiplier: (real as i32).min(i16::MAX.into()), shift, tangent: tangent.into() }
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::shared::testing::{Value, device, run, run_every_way};
    use std::vec::Vec;

    fn check(tangent: bool, scale: f32, x: &[i16], want: &[i16]) {
        let x = Value::new(x, &[x.len() as u32]);
        let table = Value::new(&exponentials::of_sigmoid(), &[256]);
        let y = run_every_way(&I16, &words(Attributes::new(scale, tangent)), &[&x, &table]);
        assert_eq!(y[0].elements::<i16>(), want, "{tangent} {scale}");
    }

    /// The results are those of TensorFlow 2.21's reference kernels of LOGISTIC and TANH.
    #[rustfmt::skip]
    #[test]
    fn same_bits_as_tensorflow() {
        check(false, 0.00024414062, &[-32755, -20011, -9016, -4067, -1220, -312, -33, -1, 0, 1, 40, 293, 1504, 4996, 10993, 32759],
            &[11, 246, 3265, 8859, 13962, 15760, 16318, 16382, 16384, 16386, 16464, 16970, 19359, 25297, 30673, 32757]);
        check(false, 0.00048808593, &[-32768, -20024, -8998, -4098, -1173, -317, -33, -1, 0, 1, 40, 281, 1523, 5018, 11018, 32762],
            &[1, 2, 401, 3905, 11818, 15119, 16252, 16380, 16384, 16388, 16544, 17505, 22208, 30163, 32617, 32767]);
        check(false, 0.00031, &[-32768, -20015, -9004, -4091, -1204, -295, -33, -1, 0, 1, 40, 279, 1518, 4992, 11022, 32754],
            &[1, 66, 1894, 7195, 13362, 15635, 16300, 16381, 16384, 16387, 16485, 17092, 20169, 27019, 31727, 32767]);
        check(false, 0.0021, &[-32745, -20029, -9005, -4116, -1204, -308, -33, -1, 0, 1, 40, 297, 1474, 5006, 10993, 32750],
            &[1, 1, 1, 6, 2421, 11263, 15816, 16367, 16384, 16401, 17072, 21334, 31349, 32767, 32767, 32767]);
        check(false, 0.07, &[-32768, -20022, -8977, -4107, -1178, -326, -33, -1, 0, 1, 40, 313, 1506, 5022, 10989, 32740],
            &[1, 1, 1, 1, 1, 1, 2959, 15811, 16384, 16957, 30890, 32767, 32767, 32767, 32767, 32767]);
        check(false, 1.9, &[-32768, -19973, -9024, -4083, -1204, -272, -33, -1, 0, 1, 40, 300, 1480, 5014, 11002, 32755],
            &[1, 1, 1, 1, 1, 1, 1, 4264, 16384, 28504, 32767, 32767, 32767, 32767, 32767, 32767]);
        check(false, 1e-06, &[-32768, -20004, -8976, -4110, -1212, -305, -33, -1, 0, 1, 40, 312, 1522, 4984, 11012, 32767],
            &[16115, 16220, 16311, 16350, 16374, 16381, 16384, 16384, 16384, 16384, 16384, 16387, 16397, 16425, 16474, 16653]);
        check(true, 0.00024414062, &[-32768, -20025, -8987, -4090, -1200, -304, -33, -1, 0, 1, 40, 273, 1528, 4992, 10988, 32761],
            &[-32767, -32764, -31963, -24936, -9335, -2428, -264, -8, 0, 8, 320, 2180, 11687, 27501, 32463, 32767]);
        check(true, 0.00048808593, &[-32768, -20001, -8989, -4122, -1179, -289, -33, -1, 0, 1, 40, 323, 1492, 5006, 11011, 32767],
            &[-32767, -32767, -32758, -31618, -17023, -4593, -528, -16, 0, 16, 640, 5125, 20388, 32278, 32767, 32767]);
        check(true, 0.00031, &[-32765, -19999, -8992, -4114, -1178, -322, -33, -1, 0, 1, 40, 280, 1492, 4998, 11017, 32767],
            &[-32767, -32767, -32521, -28024, -11460, -3261, -336, -11, 0, 11, 406, 2839, 14159, 29939, 32697, 32767]);
        check(true, 0.0021, &[-32749, -19986, -8975, -4108, -1173, -313, -33, -1, 0, 1, 40, 306, 1504, 4985, 11018, 32763],
            &[-32767, -32767, -32767, -32767, -32297, -18892, -2268, -69, 0, 69, 2746, 18568, 32650, 32767, 32767, 32767]);
        check(true, 0.07, &[-32744, -20021, -8997, -4100, -1225, -278, -33, -1, 0, 1, 40, 307, 1474, 5026, 11011, 32767],
            &[-32767, -32767, -32767, -32767, -32767, -32767, -32129, -2289, 0, 2289, 32527, 32767, 32767, 32767, 32767, 32767]);
        check(true, 1.9, &[-32744, -20004, -8981, -4087, -1201, -314, -33, -1, 0, 1, 40, 297, 1496, 5025, 11012, 32748],
            &[-32767, -32767, -32767, -32767, -32767, -32767, -32767, -31334, 0, 31334, 32767, 32767, 32767, 32767, 32767, 32767]);
        check(true, 1e-06, &[-32752, -20030, -8980, -4096, -1186, -289, -33, -1, 0, 1, 40, 275, 1470, 5003, 11009, 32760],
            &[-1072, -656, -293, -133, -40, -11, 0, 0, 0, 0, 0, 8, 48, 163, 360, 1075]);
    }

    #[test]
    fn near_the_real_functions() {
        let x: Vec<i16> = (-1000..=1000).map(|x| x * 32).collect();
        for scale in [1e-5, 0.000_3, 0.002, 0.1] {
            let tensor = Tensor::new(device(), &x, &[2001]).unwrap();
            let from = Quantization { scale, zero_point: 0 };
            let near = |y: Tensor, f: fn(f64) -> f64| {
                for (&x, y) in x.iter().zip(y.to_vec::<i16>().unwrap()) {
                    let want = f(f64::from(scale) * f64::from(x));
                    assert!((f64::from(y) / 32768.0 - want).abs() < 2e-4, "{scale} {x}: {y}");
                }
            };
            near(tensor.quantized_sigmoid(from).unwrap(), |x| 1.0 / (1.0 + libm::exp(-x)));
            near(tensor.quantized_tanh(from).unwrap(), libm::tanh);
        }
    }

    #[test]
    fn absurd_operands_are_refused_or_harmless() {
        let x = Value::new(&[i16::MIN, 0, i16::MAX], &[3]);
        let table = |entry: fn(usize) -> i16| Value::new(&(0..256).map(entry).collect::<Vec<_>>(), &[256]);
        for table in [table(|at| if at % 2 == 0 { 0 } else { -1 }), table(|_| i16::MIN), table(|at| -(at as i16))] {
            for words in [[32767, 0, 0], [32767, 31, 1], [0, 0, 1], [129, 4, 0], [129, 4, 1]] {
                run_every_way(&I16, &words, &[&x, &table]);
            }
        }
        let table = table(|_| 0);
        for (words, index) in [([32768, 0, 0], 0), ([u32::MAX, 0, 0], 0), ([1, 32, 0], 1), ([1, 1, 2], 2)] {
            assert_eq!(run(&I16, &words, &[&x, &table], &[]).0, Err(Error::Attribute { index }));
        }
        let of = |scale, zero_point| Quantization { scale, zero_point };
        let x = Tensor::new(device(), &[1i16], &[1]).unwrap();
        assert!(x.quantized_tanh(of(1.0, 1)).is_err() && x.quantized_tanh(of(f32::NAN, 0)).is_err());
        for scale in [f32::MIN_POSITIVE, f32::MAX] {
            assert!(x.quantized_tanh(of(scale, 0)).is_ok() && x.quantized_sigmoid(of(scale, 0)).is_ok());
        }
    }
}
