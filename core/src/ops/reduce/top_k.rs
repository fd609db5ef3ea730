//! The k greatest elements along the last axis, in descending order, and their positions as i32. Equal elements keep their order.
//! NaN counts as the greatest. Element types: f32, f64 and integers. Like `tf.math.top_k`, where the position of NaN depends on
//! k.
//!
//! Attribute words: `[k]`.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::top_k, name: "top_k", inputs: (1, 1), outputs: 2, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    if x.dtype == DType::Bool {
        return Err(Error::DType { input: 0 });
    }
    let mut values = *x;
    let last = values.shape.dims_mut().last_mut().ok_or(Error::Rank { input: 0 })?;
    let &[k] = attributes else { return Err(Error::Attribute { index: 0 }) };
    if k > *last {
        return Err(Error::Attribute { index: 0 });
    }
    *last = k;
    elementwise::set(outputs, values)?;
    outputs.get_mut(1).ok_or(Error::Internal).map(|positions| *positions = TensorType::new(DType::I32, values.shape))
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    let x = call.input(0)?;
    let extent = x.dims().last().map_or(0, |&dim| dim as usize).max(1);
    let x = x.slice::<T>();
    let k = call.output()?.dims().last().map_or(0, |&k| k as usize).max(1);
    let lines = call.output()?.slice_mut::<T>().len() / k;
    let rows = call.rows(lines, 20 + extent * (55 + 28 * k));
    let [values, positions] = &mut *call.outputs else { return Err(Error::Arity { got: 1 }) };
    let results = values.slice_mut::<T>().chunks_exact_mut(k).zip(positions.slice_mut::<i32>().chunks_exact_mut(k));
    for ((values, positions), line) in results.zip(x.chunks_exact(extent)).take(rows.end).skip(rows.start) {
        for (position, &x) in line.iter().enumerate() {
            let found = position.min(k);
            let at = values.iter().take(found).position(|&value| before(x, value)).unwrap_or(found);
            // Insert the element here, and move the following ones by one.
            let mut moved = (x, position as i32);
            for (value, position) in values.iter_mut().zip(positions.iter_mut()).skip(at).take(found + 1 - at) {
                moved = (core::mem::replace(value, moved.0), core::mem::replace(position, moved.1));
            }
        }
    }
    Ok(())
}

/// True if `x` comes before `other` in the descending order of the result. `other` is an earlier element of the input, so it comes
/// first if both are equal.
fn before<T: Number>(x: T, other: T) -> bool {
    let not_a_number = |x: T| x.partial_cmp(&x).is_none();
    x > other || (not_a_number(x) && !not_a_number(other))
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: the upstream gradient of the values, at the positions where they were found in x, and 0 elsewhere.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("TopKV2"),
    ..Op::total(&DEF, "top_k(x), along the last axis, which must have at least k elements", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let (x, positions) = (&of.inputs[0], &of.outputs[1]);
    let batch = x.shape().rank() as u32 - 1;
    let dx = || of.dy()?.gather_grad(positions, batch, batch, x.dims()[batch as usize]);
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the `k` greatest elements along the last axis, in descending order, and their positions as i32. Equal elements
    /// keep their order. NaN counts as the greatest.
    ///
    /// Fails on booleans and scalars, or if the axis has fewer than `k` elements. Like `tf.math.top_k`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 5.0, 3.0, 5.0], &[4])?;
    /// let (values, positions) = x.top_k(3)?;
    /// assert_eq!(values.to_vec::<f32>()?, [5.0, 5.0, 3.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [1, 3, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn top_k(&self, k: u32) -> Result<(Tensor, Tensor)> {
        let mut outputs = Tensor::emit(&OP, &[k], &[self])?.into_iter();
        outputs.next().zip(outputs.next()).ok_or(Error::Internal)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::shared::testing::{Value, numbers, run};
    use std::vec::Vec;

    #[test]
    fn same_as_a_stable_sort() {
        for (dims, extent) in [(&[3u32, 6][..], 6), (&[2, 2, 9], 9), (&[1], 1), (&[4, 0], 0), (&[0, 3], 3)] {
            // Rounded, so that there are ties.
            let x: Vec<i32> = numbers(dims, 3).into_iter().map(|x| x as i32).collect();
            for k in 0..=extent {
                let mut want = (Vec::new(), Vec::new());
                for row in x.chunks(extent.max(1) as usize) {
                    let mut sorted: Vec<(i32, i32)> = row.iter().copied().zip(0..).collect();
                    sorted.sort_by_key(|&(x, _)| core::cmp::Reverse(x));
                    sorted.iter().take(k as usize).for_each(|&(x, position)| {
                        want.0.push(x);
                        want.1.push(position);
                    });
                }
                let to: Vec<u32> = dims[..dims.len() - 1].iter().copied().chain([k]).collect();
                let (result, got) = run(&I32, &[k], &[&Value::new(&x, dims)], &[]);
                assert_eq!((result, got), (Ok(()), std::vec![Value::new(&want.0, &to), Value::new(&want.1, &to)]), "{dims:?} {k}");
            }
        }
    }

    #[test]
    fn nan_is_the_greatest() {
        let x = Value::new(&[1.0f32, f32::NAN, f32::INFINITY, f32::NAN, 2.0], &[5]);
        let (_, got) = run(&F32, &[4], &[&x], &[]);
        assert_eq!(got[1].elements::<i32>(), [1, 3, 2, 4]);
    }

    #[test]
    fn attributes_are_checked() {
        let x = Value::new(&[1u8; 6], &[2, 3]);
        for words in [&[4u32][..], &[], &[1, 1]] {
            assert_eq!(run(&U8, words, &[&x], &[]).0, Err(Error::Attribute { index: 0 }));
        }
        assert_eq!(run(&U8, &[0], &[&Value::new(&[1u8], &[])], &[]).0, Err(Error::Rank { input: 0 }));
    }
}
