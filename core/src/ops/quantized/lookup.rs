//! Function of 8-bit elements as a table: `y = table[x]`. The table has 256 elements, in the order of x from its smallest value on.
//! Element types: i8 and u8, for x and the table each.
//!
//! Every function of one quantised 8-bit tensor is such a table: LOGISTIC, TANH, LEAKY_RELU, HARD_SWISH, … of TensorFlow Lite. The table is
//! computed when the op is emitted, so a device needs no code for the function.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::{part, same_dims, set};
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
    for (input, dtype) in [(0, x.dtype), (1, table.dtype)] {
        if !matches!(dtype, DType::I8 | DType::U8) {
            return Err(Error::DType { input });
        }
    }
    same_dims(1, &[256], table.shape.dims())?;
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

crate::ops::kernels!(run: I8 = i8, U8 = u8);

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "lookup(x, table[256]), each i8 or u8", Gradient::None("a table has no derivative"));

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `table[x]` for each 8-bit element x. The table has 256 elements, i8 or u8, in the order of x from its smallest value on.
    ///
    /// Fails unless the elements are i8 or u8 and the table has 256 elements.
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
}
