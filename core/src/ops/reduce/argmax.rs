//! Position of the greatest `x` along one axis. If several elements are equal, the first counts. NaN is skipped. If all elements
//! are NaN, the result is 0. Element types: f32, f64 and integers. The result is i32 or i64. Like `tf.math.argmax`.

use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::{elementwise, lanes};
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Gradient, Op},
};
use bytemuck::{Pod, Zeroable};

/// Attribute words of the op.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// The axis, counted from the outermost.
    pub axis: u32,
    /// Code of the result's element type, i32 or i64.
    pub dtype: u32,
}

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::argmax, name: "argmax", inputs: (1, 1), outputs: 1, infer, in_place: &[] };

pub(in crate::ops) fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let Attributes { axis, dtype } = read_attributes(attributes)?;
    let dtype = [DType::I32, DType::I64].into_iter().find(|&allowed| allowed as u32 == dtype);
    let dtype = dtype.ok_or(Error::Attribute { index: 1 })?;
    let mut shape = Shape::SCALAR;
    for (index, &dim) in (0..).zip(x.shape.dims()) {
        if index != axis {
            shape.push(dim)?;
        } else if dim == 0 {
            return Err(Error::Dimension { input: 0, axis: index as u8, want: 1, got: 0 });
        }
    }
    if shape.rank() == x.shape.rank() {
        return Err(Error::Attribute { index: 0 });
    }
    elementwise::set(outputs, TensorType::new(dtype, shape))
}

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    positions(call, T::LEAST, |x, greatest| x > greatest)
}

/// Writes the position of the best element of each lane. `better(x, best)` is true if the element `x` replaces the best one so far,
/// which is `start` at first. If no element replaces `start`, the position is 0.
pub(in crate::ops) fn positions<T: Number>(call: &mut Call<'_, '_>, start: T, better: fn(T, T) -> bool) -> Result<()> {
    let Attributes { axis, .. } = call.attributes()?;
    let x = call.input(0)?;
    let (extent, stride) = lanes::extent_stride(x.dims(), axis as usize);
    let x = x.slice::<T>();
    let output = call.output()?;
    let narrow = output.dtype() == DType::I32;
    let lanes = output.data.len() / output.dtype().size();
    let cost = 60 + extent * if size_of::<T>() == 8 { 60 } else { 15 };
    // A row with 64 bits costs about 20 times as much anyway.
    let rows = call.rows(lanes, if narrow { cost } else { 1 + cost / 20 });
    let output = call.output()?;
    for lane in rows {
        let block = lane / stride * stride * extent;
        let elements = x.get(block + lane % stride..block + stride * extent).unwrap_or_default();
        let mut best = (0u32, start);
        for (position, &x) in (0..).zip(elements.iter().step_by(stride)) {
            if better(x, best.1) {
                best = (position, x);
            }
        }
        if narrow {
            output.slice_mut::<i32>().get_mut(lane).into_iter().for_each(|y| *y = best.0 as i32);
        } else {
            output.slice_mut::<i64>().get_mut(lane).into_iter().for_each(|y| *y = best.0.into());
        }
    }
    Ok(())
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    tf_type: Some("ArgMax"),
    ..Op::total(
        &DEF,
        "argmax(x), along one axis that is not empty, with an i32 or i64 result",
        Gradient::None("positions are integers: they do not change with small changes of x"),
    )
};

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the position of the greatest element along `axis`, in the element type `dtype`: i32 or i64. A negative axis counts
    /// from the end. If several elements are equal, the first counts. NaN is skipped. If all elements are NaN, the position is 0.
    ///
    /// Fails if the axis is out of range or empty. Like `tf.math.argmax`.
    ///
    /// ```
    /// # use gradlet_core::{DType, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1.0f32, 3.0, 3.0, 9.0, 7.0, 8.0], &[2, 3])?;
    /// assert_eq!(x.argmax(-1, DType::I32)?.to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn argmax(&self, axis: i32, dtype: DType) -> Result<Tensor> {
        emit(&OP, self, axis, dtype)
    }
}

/// Emits `op`, argmax or argmin, along `axis` and with a result of type `dtype`. `x` holds numbers or booleans.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn emit(op: &'static Op, x: &Tensor, axis: i32, dtype: DType) -> Result<Tensor> {
    let attributes = [crate::ops::shared::reduce::axis(x, axis)?, dtype as u32];
    let numbers = if x.dtype() == DType::Bool { x.cast(DType::U8)? } else { x.clone() };
    Tensor::emit1(op, &attributes, &[&numbers])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, floats, run};

    fn positions(x: &[f32]) -> i32 {
        let (result, y) = run(&F32, &[0, DType::I32 as u32], &[&Value::new(x, &[x.len() as u32])], &[]);
        assert_eq!(result, Ok(()));
        y[0].elements::<i32>()[0]
    }

    #[test]
    fn ties_and_nan() {
        assert_eq!(positions(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(positions(&[f32::NAN, 1.0, 2.0, f32::NAN]), 2);
        assert_eq!(positions(&[f32::NAN, f32::NAN]), 0);
        assert_eq!(positions(&[f32::NEG_INFINITY, f32::NEG_INFINITY]), 0);
        assert_eq!(positions(&[0.0, -0.0]), 0);
        assert_eq!(positions(&[f32::NAN, f32::NEG_INFINITY]), 0);
    }

    #[test]
    fn axes_and_types() {
        let x = Value::new(&[3i8, 1, 2, 3, 9, -9], &[2, 3]);
        let (_, y) = run(&I8, &[0, DType::I64 as u32], &[&x], &[]);
        assert_eq!(y[0], Value::new(&[0i64, 1, 0], &[3]));
        let (_, y) = run(&I8, &[1, DType::I32 as u32], &[&x], &[]);
        assert_eq!(y[0], Value::new(&[0, 1], &[2]));
        assert_eq!(run(&F32, &[1, DType::I32 as u32], &[&floats(&[0, 3], 1)], &[]).0, Ok(()));
        assert_eq!(run(&F32, &[0, DType::I32 as u32], &[&floats(&[3, 0], 1)], &[]).0, Ok(()));
    }

    #[test]
    fn attributes_are_checked() {
        let refused = |words: &[u32], dims: &[u32]| run(&F32, words, &[&floats(dims, 1)], &[]).0;
        assert_eq!(refused(&[2, 7], &[2, 3]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 1], &[2, 3]), Err(Error::Attribute { index: 1 }));
        assert_eq!(refused(&[0], &[2, 3]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[0, 7], &[]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[1, 7], &[2, 0]), Err(Error::Dimension { input: 0, axis: 1, want: 1, got: 0 }));
    }
}
