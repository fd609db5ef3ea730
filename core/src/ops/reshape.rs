//! The same elements under other dimensions. Every element type. As `tf.reshape`.
//!
//! Attribute words: the dimensions, outermost first.

use super::elementwise;
use crate::error::{Error, Result};
use crate::op::{Kernel, OpDef};
use crate::shape::{Shape, TensorType};
#[cfg(feature = "alloc")]
use crate::{
    scope::{Backward, Gradient, InputGradients, Op},
    tensor::Tensor,
};

/// The op.
pub static DEF: OpDef = OpDef { code: super::code::reshape, name: "reshape", inputs: (1, 1), outputs: 1, infer, in_place: &[(0, 0)] };

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let shape = Shape::new(attributes)?;
    if shape.elements().is_none() || shape.elements() != x.shape.elements() {
        return Err(Error::Attribute { index: 0 });
    }
    elementwise::set(outputs, TensorType::new(x.dtype, shape))
}

super::moving_kernels!(bytes elementwise::copy);

/// The op with its gradient: upstream under the dimensions of x.
#[cfg(feature = "alloc")]
pub static OP: Op = Op { def: &DEF, usage: "reshape(x), to dimensions of as many elements", grad: Gradient::Rule(grad) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy()?.reshape(of.inputs[0].dims()))?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// The same elements in row-major order under the dimensions `dims`. Fails where they give another number of elements.
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
            return Err(Error::message(alloc::format!("{} does not reshape to {shape}: other elements", self.tensor_type())));
        }
        Tensor::emit1(&OP, dims, &[self])
    }

    /// As [`Tensor::reshape`], with one dimension left open as -1: it becomes what the others leave.
    ///
    /// Fails where more than one is negative, or the others do not divide the elements. As `tf.reshape`.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.reshape_open(&[-1, 2])?.dims(), [3, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn reshape_open(&self, dims: &[i64]) -> Result<Tensor> {
        let wrong = || Error::message(alloc::format!("{} does not reshape to {dims:?}", self.tensor_type()));
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
        // As TensorFlow: an open dimension beside a zero one cannot be told from what is there.
        if open > 1 || (open == 1 && others == 0) {
            return Err(wrong());
        }
        let mut shape = Shape::SCALAR;
        for &dim in dims {
            shape.push(if dim < 0 { (u64::from(elements) / others) as u32 } else { dim as u32 })?;
        }
        if shape.elements() != Some(elements) { Err(wrong()) } else { self.reshape(shape.dims()) }
    }
}
