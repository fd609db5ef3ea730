//! Function of elements as a table, in the order of x from its smallest value on. Element types: i8 and u8, for x and the table each, and
//! i16 for both.
//!
//! - For 8 bits, the table has 256 elements: `y = table[x]`.
//! - For i16, it has 513 elements, one for every 128th x, and one for 32768. Between two of them, the function is linear.
//!
//! Every function of one quantised 8-bit tensor is such a table: LOGISTIC, TANH, LEAKY_RELU, HARD_SWISH, EXP, … of TensorFlow Lite. So are
//! EXP, LOG, RSQRT and GELU of int16. The table is computed when the op is emitted, so a device needs no code for the function.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::{part, same_dims, set, unary};
use crate::ops::shared::quantized::Quantized;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::lookup, name: "lookup", inputs: (2, 2), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x, table] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if !attributes.is_empty() {
        return Err(Error::Attribute { index: 0 });
    }
    let entries = match x.dtype {
        DType::I8 | DType::U8 => 256,
        DType::I16 => ENTRIES as u32,
        _ => return Err(Error::DType { input: 0 }),
    };
    if !matches!((x.dtype, table.dtype), (DType::I16, DType::I16) | (DType::I8 | DType::U8, DType::I8 | DType::U8)) {
        return Err(Error::DType { input: 1 });
    }
    same_dims(1, &[entries], table.shape.dims())?;
    set(outputs, TensorType::new(table.dtype, x.shape))
}

fn run<T: Quantized>(call: &mut Call<'_, '_>) -> Result<()> {
    let (x, table) = (call.input(0)?, call.input(1)?);
    let table: &[u8; 256] = table.bytes().try_into().map_err(|_| Error::Internal)?;
    let entry = |x: T| table[(x.number() - T::LEAST) as usize & 255];
    let (start, output) = part::<u8>(call, 7);
    if x.in_place() {
        let output: &mut [T] = bytemuck::cast_slice_mut(output);
        output.iter_mut().for_each(|x| *x = bytemuck::cast(entry(*x)));
    } else {
        output.iter_mut().zip(x.slice::<T>().get(start..).unwrap_or_default()).for_each(|(y, &x)| *y = entry(x));
    }
    Ok(())
}

fn run_i16(call: &mut Call<'_, '_>) -> Result<()> {
    let table = call.input(1)?.slice::<i16>();
    unary(call, 12, |x: i16| between(table, x.into()))
}

/// Number of elements of a table for i16.
pub(in crate::ops) const ENTRIES: usize = 513;

/// Returns the value of the function with this table of i16 at `x`, limited to 16 bits. Seven bits of x are the position between two
/// entries.
#[inline(always)]
pub(in crate::ops) fn between(table: &[i16], x: i32) -> i16 {
    let x = x.clamp(i16::MIN.into(), i16::MAX.into());
    let at = (256 + (x >> 7)) as usize;
    let entry = |at: usize| table.get(at).copied().unwrap_or(0);
    let slope = entry(at + 1).wrapping_sub(entry(at));
    entry(at).wrapping_add(((i32::from(slope) * (x & 127) + 64) >> 7) as i16)
}

crate::ops::kernels!(run: I8 = i8, U8 = u8);
/// Portable kernel for i16.
pub const I16: Kernel = Kernel { def: &DEF, dtype: DType::I16, run: run_i16 };

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(
    &DEF,
    "lookup(x, table[256]), each i8 or u8, or lookup(x, table[513]), both i16",
    Gradient::None("a table has no derivative"),
);

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `table[x]` for each 8-bit element x. The table has 256 elements, i8 or u8, in the order of x from its smallest value on. For
    /// i16, the table has 513 elements, i16: the values for x = -32768, -32640, …, 32768. Those between them are interpolated.
    ///
    /// Fails unless the types and the number of the elements are among these.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let halves: Vec<i8> = (-128..=127).map(|x: i32| (x / 2) as i8).collect();
    /// let table = Tensor::new(&device, &halves, &[256])?;
    /// let x = Tensor::new(&device, &[-128i8, 9, 127], &[3])?;
    /// assert_eq!(x.lookup(&table)?.to_vec::<i8>()?, [-64, 4, 63]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn lookup(&self, table: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, table])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, run_every_way};
    use std::vec::Vec;

    #[test]
    fn every_element_in_every_type() {
        let table: Vec<u8> = (0..=255u8).map(|x| x.wrapping_mul(37) ^ 11).collect();
        let signed: Vec<i8> = table.iter().map(|&y| y as i8).collect();
        let of_i8 = Value::new(&(-128..=127i8).collect::<Vec<_>>(), &[256]);
        let of_u8 = Value::new(&(0..=255u8).collect::<Vec<_>>(), &[256]);
        let tables = (Value::new(&table, &[256]), Value::new(&signed, &[256]));
        assert_eq!(run_every_way(&I8, &[], &[&of_i8, &tables.0])[0].elements::<u8>(), table);
        assert_eq!(run_every_way(&I8, &[], &[&of_i8, &tables.1])[0].elements::<i8>(), signed);
        assert_eq!(run_every_way(&U8, &[], &[&of_u8, &tables.0])[0].elements::<u8>(), table);
        assert_eq!(run_every_way(&U8, &[], &[&of_u8, &tables.1])[0].elements::<i8>(), signed);
    }

    #[test]
    fn values_between_two_elements() {
        let table: Vec<i16> = (0..ENTRIES as i32).map(|at| (at * at / 5 - 25_000) as i16).collect();
        let x = [i16::MIN, -32700, -32640, -1, 0, 1, 64, 127, 128, i16::MAX];
        let y = run_every_way(&I16, &[], &[&Value::new(&x, &[10]), &Value::new(&table, &[ENTRIES as u32])]);
        let real = |x: f64| (x + 32768.0) / 128.0 * ((x + 32768.0) / 128.0) / 5.0 - 25_000.0;
        for (&x, y) in x.iter().zip(y[0].elements::<i16>()) {
            assert!((real(x.into()) - f64::from(y)).abs() < 2.0, "{x}: {y}");
        }
        assert_eq!(y[0].elements::<i16>()[..5], [-25_000, -25_000, -25_000, table[255] + 101, table[256]]);
    }
}
