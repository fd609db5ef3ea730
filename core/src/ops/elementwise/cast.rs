//! Conversion to another element type, from any type to any type. Like `tf.cast`.
//!
//! Attribute words: `[dtype]`, the code of the result's element type.
//!
//! Floats are truncated toward zero when they become integers. NaN and values out of range become the least integer, as on
//! x86-64. Casts of floats to i8 and u8 go through i32, so NaN and values out of the range of i32 become 0. (TensorFlow does the
//! same where it casts one element at a time. Its vector code for 8 bits saturates.)
//!
//! Integers wrap when they are narrowed. All rounding is to nearest, ties to even. Casts to and from f16 and bf16 go through f32.
//! In casts to bool, 0 is false, and everything else is true, even NaN.

use crate::base::dtype::{Bool, DType, Element};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::base::view::TensorViewMut;
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Keeps, Op},
};
use bytemuck::{Pod, Zeroable};
use core::ops::Range;
use half::{bf16, f16};

/// Attribute words of the op.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// Code of the result's element type.
    pub dtype: u32,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::cast, name: "cast", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let Attributes { dtype } = read_attributes(attributes)?;
    let dtype = u8::try_from(dtype).ok().and_then(DType::from_code).ok_or(Error::Attribute { index: 0 })?;
    elementwise::set(outputs, TensorType::new(dtype, x.shape))
}

/// Conversions of an element to five types. The casts to the other types are composed of these.
trait Cast: Element {
    fn f32(self) -> f32;
    fn f64(self) -> f64;
    fn i32(self) -> i32;
    fn i64(self) -> i64;
    fn bool(self) -> bool;
}

macro_rules! casts {
    ($($ty:ty: |$x:ident| $number:expr, $to_i32:expr, $to_i64:expr;)*) => {$(
        #[allow(clippy::unnecessary_cast)]
        impl Cast for $ty {
            #[inline(always)]
            fn f32(self) -> f32 { let $x = self; $number as f32 }
            #[inline(always)]
            fn f64(self) -> f64 { let $x = self; $number as f64 }
            #[inline(always)]
            fn i32(self) -> i32 { let $x = self; $to_i32 }
            #[inline(always)]
            fn i64(self) -> i64 { let $x = self; $to_i64 }
            #[inline(always)]
            fn bool(self) -> bool { let $x = self; $number != Default::default() }
        }
    )*};
}

/// Truncates a float to an integer. If the float is NaN or out of range, the result is the least integer.
macro_rules! truncated {
    ($x:expr, $float:ty, $integer:ty) => {{
        const LEAST: $float = <$integer>::MIN as $float;
        let x = $x;
        if (LEAST..-LEAST).contains(&x) { x as $integer } else { <$integer>::MIN }
    }};
}

casts! {
    f32: |x| x, truncated!(x, f32, i32), truncated!(x, f32, i64);
    f64: |x| x, truncated!(x, f64, i32), truncated!(x, f64, i64);
    f16: |x| x.to_f32(), truncated!(x.to_f32(), f32, i32), truncated!(x.to_f32(), f32, i64);
    bf16: |x| x.to_f32(), truncated!(x.to_f32(), f32, i32), truncated!(x.to_f32(), f32, i64);
    i8: |x| x, x as i32, x as i64;
    u8: |x| x, x as i32, x as i64;
    i16: |x| x, x as i32, x as i64;
    i32: |x| x, x as i32, x as i64;
    i64: |x| x, x as i32, x as i64;
    Bool: |x| u8::from(x.get()), i32::from(x.get()), i64::from(x.get());
}

fn run<T: Cast>(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?.slice::<T>();
    let to = call.output()?.dtype();
    let cost = match (T::DTYPE, to.size()) {
        (DType::F64, _) if !to.is_float() => 340,
        (DType::F64 | DType::I64, _) => 60,
        (DType::F16 | DType::Bf16, _) => 40,
        (_, 2) if to.is_float() => 60,
        _ => 15,
    };
    // A row with 64 bits costs about 20 times as much anyway.
    let cost = if to.size() == 8 { 1 + cost / 6 } else { cost };
    let rows = call.rows(x.len(), cost);
    let (x, output) = (x.get(rows.clone()).unwrap_or_default(), call.output()?);
    match to {
        DType::F32 => each(x, output, rows, T::f32),
        DType::F64 => each(x, output, rows, T::f64),
        DType::F16 => each(x, output, rows, |x| f16::from_f32(x.f32())),
        DType::Bf16 => each(x, output, rows, |x| bf16::from_f32(x.f32())),
        DType::I8 => each(x, output, rows, |x| x.i32() as i8),
        DType::U8 => each(x, output, rows, |x| x.i32() as u8),
        DType::I16 => each(x, output, rows, |x| x.i32() as i16),
        DType::I32 => each(x, output, rows, T::i32),
        DType::I64 => each(x, output, rows, T::i64),
        DType::Bool => each(x, output, rows, |x| Bool::from(x.bool())),
    }
    Ok(())
}

#[inline(always)]
fn each<T: Cast, U: Element>(x: &[T], output: &mut TensorViewMut<'_>, rows: Range<usize>, cast: impl Fn(T) -> U) {
    output.slice_mut::<U>().get_mut(rows).unwrap_or_default().iter_mut().zip(x).for_each(|(y, &x)| *y = cast(x));
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, F16 = f16, BF16 = bf16, I8 = i8, U8 = u8, I32 = i32, I64 = i64);
crate::ops::kernels!(run: BOOL = Bool, I16 = i16);

/// The op with its gradient: between floats, the upstream gradient cast back. Otherwise there is none.
#[cfg(feature = "alloc")]
pub static OP: Op = Op { keeps: Keeps::SameType, ..Op::elementwise(&DEF, "cast(x), to any element type", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let x = &of.inputs[0];
    let flows = x.dtype().is_float() && of.outputs[0].dtype().is_float();
    let dx = if flows { of.if_wanted(0, || of.dy()?.cast(x.dtype()))? } else { None };
    Ok([dx].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the elements as `dtype`. Floats are truncated toward zero when they become integers, and integers wrap when they
    /// are narrowed. NaN and values out of range become the least integer, as on x86-64. Casts of floats to i8 and u8 go through
    /// i32, and give 0 for NaN and values out of the range of i32.
    ///
    /// Casts to f16 and bf16 round to nearest, ties to even. In casts to bool, everything but 0 is true. Like `tf.cast`.
    ///
    /// ```
    /// # use gradlet_core::{DType, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.9f32, -1.9], &[2])?;
    /// assert_eq!(x.cast(DType::I32)?.to_vec::<i32>()?, [1, -1]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        Tensor::emit1(&OP, &[dtype as u32], &[self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, run};

    fn cast<T: Element, U: Element>(kernel: &Kernel, x: &[T]) -> impl core::ops::Deref<Target = [U]> + use<T, U> {
        let (result, y) = run(kernel, &[U::DTYPE as u32], &[&Value::new(x, &[x.len() as u32])], &[]);
        assert_eq!(result, Ok(()));
        y[0].elements::<U>()
    }

    #[test]
    fn what_numbers_become() {
        let odd = [1.9f32, -1.9, 300.0, -1.0, 3e9, f32::NAN, f32::INFINITY, -0.0];
        assert_eq!(*cast::<_, i32>(&F32, &odd), [1, -1, 300, -1, i32::MIN, i32::MIN, i32::MIN, 0]);
        assert_eq!(*cast::<_, i64>(&F32, &odd), [1, -1, 300, -1, 3_000_000_000, i64::MIN, i64::MIN, 0]);
        assert_eq!(*cast::<_, u8>(&F32, &odd), [1, 255, 44, 255, 0, 0, 0, 0]);
        let ends = [2_147_483_647.5, 2_147_483_648.0, -2_147_483_648.5, -2_147_483_649.0, -1e300];
        assert_eq!(*cast::<f64, i32>(&F64, &ends), [i32::MAX, i32::MIN, i32::MIN, i32::MIN, i32::MIN]);
        assert_eq!(*cast::<_, i64>(&F64, &[9.3e18, -9.3e18, 9e18]), [i64::MIN, i64::MIN, 9_000_000_000_000_000_000]);
        assert_eq!(*cast::<_, Bool>(&F32, &odd), [true, true, true, true, true, true, true, false].map(Bool::from));
        assert_eq!(*cast::<_, u8>(&I32, &[0, 255, 256, -1, 511]), [0, 255, 0, 255, 255]);
        assert_eq!(*cast::<_, f64>(&BOOL, &[Bool(0), Bool(7)]), [0.0, 1.0]);
        assert_eq!(*cast::<i64, Bool>(&I64, &[0, i64::MIN, 1 << 40]), [false, true, true].map(Bool::from));
        assert_eq!(*cast::<_, f32>(&I32, &[16_777_217, i32::MIN]), [16_777_216.0, -2_147_483_648.0]);
        assert_eq!(*cast::<i64, i8>(&I64, &[-129, 1 << 40]), [127, 0]);
    }

    #[test]
    fn halves_round_to_nearest_even() {
        let x = [1.000_488_3f32, 65519.0, 65520.0, 2e-8, -0.0];
        let halves = [1.0, 65504.0, f32::INFINITY, 0.0, -0.0].map(f16::from_f32);
        assert_eq!(*cast::<_, f16>(&F32, &x), halves);
        assert_eq!(*cast::<f32, bf16>(&F32, &[1.003_906_2, 1.011_718_8]), [1.0, 1.015_625].map(bf16::from_f32));
        assert_eq!(*cast::<_, f64>(&F16, &halves[..2]), [1.0, 65504.0]);
    }

    #[test]
    fn attributes_are_checked() {
        for words in [&[0u32][..], &[11], &[257], &[], &[1, 1]] {
            assert_eq!(run(&F32, words, &[&Value::new(&[1.0f32], &[])], &[]).0, Err(Error::Attribute { index: 0 }));
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        crate::ops::shared::testing::check_gradient(&OP, &[DType::F64 as u32], &[crate::ops::shared::testing::tensor(&[2, 3], 1)]);
    }
}
