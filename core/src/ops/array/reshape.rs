//! Reshape: the same elements with other dimensions. Every element type. Like `tf.reshape`.
//!
//! Attribute words: the dimensions, outermost first.

use crate::base::error::{Error, Result};
use crate::base::op::{Kernel, OpDef};
use crate::base::shape::{Shape, TensorType};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Keeps, Op},
};

/// Definition of the op.
pub static DEF: OpDef = OpDef { code: crate::ops::code::reshape, name: "reshape", inputs: (1, 1), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let shape = Shape::new(attributes)?;
    if shape.elements().is_none() || shape.elements() != x.shape.elements() {
        return Err(Error::Attribute { index: 0 });
    }
    elementwise::set(outputs, TensorType::new(x.dtype, shape))
}

crate::ops::moving_kernels!(bytes elementwise::identity);

/// The op with its gradient: the upstream gradient, reshaped to the dimensions of x.
#[cfg(feature = "alloc")]
pub static OP: Op = Op {
    keeps: Keeps::Always,
    ..Op::elementwise(&DEF, "reshape(x), to dimensions with the same number of elements", Gradient::Rule(grad))
};

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.reshape(of.inputs[0].dims()))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the same elements in row-major order with the dimensions `dims`. Fails if the number of elements differs.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.reshape(&[3, 2])?.dims(), [3, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn reshape(&self, dims: &[u32]) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        if shape.elements().is_none() || shape.elements() != self.shape().elements() {
            return Err(Error::message(alloc::format!(
                "{} cannot be reshaped to {shape}: the number of elements differs",
                self.tensor_type()
            )));
        }
        Tensor::emit1(&OP, dims, &[self])
    }

    /// Reshapes like [`Tensor::reshape`]. One dimension may be -1. It is then computed from the others.
    ///
    /// Fails if more than one dimension is negative, or if the others do not divide the number of elements. Like `tf.reshape`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.reshape_open(&[-1, 2])?.dims(), [3, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn reshape_open(&self, dims: &[i64]) -> Result<Tensor> {
        let wrong = || Error::message(alloc::format!("{} cannot be reshaped to {dims:?}", self.tensor_type()));
        let elements = self.shape().elements().ok_or(Error::TooLarge)?;
        let mut others = 1u64;
        let mut open = 0;
        for &dim in dims {
            match u32::try_from(dim) {
                Ok(dim) => others = others.saturating_mul(dim.into()),
                Err(_) if dim == -1 => open += 1,
                Err(_) => return Err(wrong()),
            }
        }
        // As in TensorFlow: an open dimension is ambiguous if another dimension is zero.
        if open > 1 || (open == 1 && others == 0) {
            return Err(wrong());
        }
        let mut shape = Shape::SCALAR;
        for &dim in dims {
            let dim = if dim < 0 { elements as u64 / others } else { dim as u64 };
            let large = || Error::TooLarge.context(alloc::format!("{} with the dimensions {dims:?}: {dim}", self.tensor_type()));
            shape.push(u32::try_from(dim).map_err(|_| large())?)?;
        }
        if shape.elements() != Some(elements) { Err(wrong()) } else { self.reshape(shape.dims()) }
    }

    /// Inserts an axis of dimension 1. `axis` is its position in the result. A negative axis counts from the end.
    ///
    /// Fails if the axis is out of range. Like `tf.expand_dims`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.expand_dims(0)?.dims(), [1, 2, 3]);
    /// assert_eq!(x.expand_dims(-1)?.dims(), [2, 3, 1]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn expand_dims(&self, axis: i32) -> Result<Tensor> {
        let at = self.new_axis(axis)?;
        let (before, after) = self.dims().split_at(at);
        self.reshape(&[before, &[1], after].concat())
    }

    /// Returns the position, counted from the front, of a new axis in a result with one more axis than `self`. A negative `axis`
    /// counts from the end.
    pub(in crate::ops) fn new_axis(&self, axis: i32) -> Result<usize> {
        let rank = self.shape().rank() as i32;
        let counted = if axis < 0 { axis.saturating_add(rank + 1) } else { axis };
        let wrong = || {
            Error::message(alloc::format!("{} cannot have a new axis {axis}: expected from {} to {rank}", self.tensor_type(), -rank - 1))
        };
        if (0..=rank).contains(&counted) { Ok(counted as usize) } else { Err(wrong()) }
    }

    /// Removes the axes `axes`, which must have dimension 1. Negative axes count from the end. With an empty list, removes all
    /// axes of dimension 1.
    ///
    /// Fails if an axis is out of range, is listed twice, or does not have dimension 1. Like `tf.squeeze`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2], &[1, 2, 1])?;
    /// assert_eq!(x.squeeze(&[])?.dims(), [2]);
    /// assert_eq!(x.squeeze(&[-1])?.dims(), [1, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn squeeze(&self, axes: &[i32]) -> Result<Tensor> {
        let listed = crate::ops::shared::reduce::listed(self, axes)?;
        let mut shape = Shape::SCALAR;
        for (&dim, listed) in self.dims().iter().zip(listed) {
            match dim {
                1 if listed || axes.is_empty() => {}
                _ if listed => {
                    return Err(Error::message(alloc::format!(
                        "cannot squeeze axes {axes:?} of {}: expected axes of dimension 1",
                        self.tensor_type()
                    )));
                }
                _ => shape.push(dim)?,
            }
        }
        self.reshape(shape.dims())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::shared::testing::{Value, run, run_every_way};

    #[test]
    fn same_elements() {
        let x = [1i8, 2, 3, 4, 5, 6];
        assert_eq!(run_every_way(&I8, &[3, 1, 2], &[&Value::new(&x, &[2, 3])]), [Value::new(&x, &[3, 1, 2])]);
        let scalar = Value::new(&[7.0f64], &[]);
        assert_eq!(run_every_way(&F64, &[], &[&Value::new(&[7.0f64], &[1, 1])]), [scalar]);
        run_every_way(&F32, &[0, 9], &[&Value::new::<f32>(&[], &[3, 0])]);
    }

    #[test]
    fn attributes_are_checked() {
        let x = Value::new(&[0i8; 6], &[2, 3]);
        for dims in [&[4u32, 2][..], &[0], &[u32::MAX, u32::MAX], &[65536, 65536, 6], &[]] {
            assert_eq!(run(&I8, dims, &[&x], &[]).0, Err(Error::Attribute { index: 0 }), "{dims:?}");
        }
        assert!(run(&I8, &[1, 1, 1, 1, 1, 1, 1, 2, 3], &[&x], &[]).0.is_err());
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn one_dimension_may_be_open() {
        let x = crate::ops::shared::testing::tensor(&[2, 6], 1);
        assert_eq!(x.reshape_open(&[3, -1, 2]).unwrap().dims(), [3, 2, 2]);
        assert_eq!(x.reshape_open(&[-1, 12]).unwrap().dims(), [1, 12]);
        for dims in [&[-1, -1][..], &[5, -1], &[-1, 0], &[-2, 6], &[i64::MAX, -1], &[24, -1], &[7]] {
            assert!(x.reshape_open(dims).is_err(), "{dims:?}");
        }
        let empty = crate::ops::shared::testing::tensor(&[0, 6], 1);
        assert_eq!(empty.reshape_open(&[-1, 3]).unwrap().dims(), [0, 3]);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn axes_come_and_go() {
        let x = crate::ops::shared::testing::tensor(&[1, 3, 1], 1);
        assert_eq!(x.expand_dims(3).unwrap().dims(), [1, 3, 1, 1]);
        assert_eq!(x.expand_dims(-4).unwrap().dims(), [1, 1, 3, 1]);
        assert!(x.expand_dims(4).is_err() && x.expand_dims(-5).is_err());
        assert_eq!(x.squeeze(&[0, -1]).unwrap().dims(), [3]);
        assert!(x.squeeze(&[1]).is_err() && x.squeeze(&[3]).is_err() && x.squeeze(&[0, -3]).is_err());
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        crate::ops::shared::testing::check_gradient(&OP, &[3, 2], &[crate::ops::shared::testing::tensor(&[2, 3], 1)]);
    }
}
