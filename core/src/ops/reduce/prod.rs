//! Product over some axes: `y = Π x`. Element types: f32, f64 and integers, which wrap. Without elements, the result is 1. Like
//! `tf.reduce_prod`.
//!
//! The attribute words are those of [`sum`](crate::ops::sum). Each product starts at 1 and multiplies its elements in row-major
//! order.

use crate::base::dtype::Number;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::reduce;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::prod, name: "prod", inputs: (1, 1), outputs: 1, infer: reduce::numbers, in_place: &[] };

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    reduce::fold(call, T::ONE, T::mul)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64, I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: the upstream gradient times the product of all other elements. This is correct even if elements are
/// 0.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(&DEF, "prod(x), over distinct axes of x", Gradient::Rule(grad));

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let x = &of.inputs[0];
    let dx = || {
        // Move the reduced axes to the front, and treat them as one axis.
        let axes = &of.attributes[1..];
        let others = (0..x.shape().rank() as u32).filter(|axis| !axes.contains(axis));
        let order: alloc::vec::Vec<u32> = axes.iter().copied().chain(others).collect();
        let mut back = order.clone();
        (0..).zip(&order).for_each(|(index, &axis)| back[axis as usize] = index);
        let moved = x.transpose(&order)?;
        let results = of.outputs[0].shape().elements().unwrap_or(0);
        let rows = moved.reshape_open(&[reduce::count(x.dims(), of.attributes), results].map(|count| count as i64))?;
        let rest = rows.cumprod(0, true, false)?.mul(&rows.cumprod(0, true, true)?)?;
        let rest = rest.reshape(moved.dims())?.transpose(&back)?;
        of.dy()?.reshape(reduce::kept_dims(of.attributes, x)?.dims())?.mul(&rest)
    };
    Ok([of.if_wanted(0, dx)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the product over `axes`. Negative axes count from the end. An empty `axes` reduces all axes. With `keepdims`, the
    /// reduced axes stay in the shape with dimension 1. Integers wrap.
    ///
    /// Fails on booleans, or if an axis is out of range or listed twice. Like `tf.reduce_prod`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.prod(&[0], false)?.to_vec::<i32>()?, [4, 10, 18]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn prod(&self, axes: &[i32], keepdims: bool) -> Result<Tensor> {
        reduce::emit(&OP, self, axes, keepdims)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn of_nothing() {
        use crate::ops::shared::testing::{Value, run};
        let (_, nothing) = run(&super::F32, &[0, 1], &[&Value::new::<f32>(&[], &[2, 0])], &[]);
        assert_eq!(nothing[0].elements::<f32>(), [1.0; 2]);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        use crate::ops::shared::testing::{check_gradient, device, tensor};
        for attributes in [&[0u32, 0, 1, 2][..], &[0, 1], &[1, 0, 2], &[0, 2]] {
            check_gradient(&super::OP, attributes, &[tensor(&[2, 3, 2], 1)]);
        }
        let zeros = crate::Tensor::new(device(), &[0.0f64, 2.0, 3.0, 0.0, 0.0, 5.0], &[2, 3]).unwrap();
        check_gradient(&super::OP, &[0, 1], &[zeros]);
    }
}
