//! Sum: `y = a + b`, broadcast. Integers wrap. Element types: f32, f64 and integers. Like `tf.math.add`.

use crate::base::dtype::Number;
use crate::base::error::Result;
use crate::base::op::{Call, Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::scope::{Backward, Gradient, InputGradients, Op, Scope},
    tensor::variable::Variable,
};

/// Definition of the op.
pub static DEF: OpDef = OpDef {
    code: crate::ops::code::add,
    name: "add",
    inputs: (2, 2),
    outputs: 1,
    infer: elementwise::broadcast,
    in_place: &[(0, 0), (1, 0)],
};

fn run<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary::<T>(call, 1, T::add)
}

fn run_integers<T: Number>(call: &mut Call<'_, '_>) -> Result<()> {
    elementwise::binary_small::<T>(call, 0, T::add)
}

crate::ops::kernels!(run: F32 = f32, F64 = f64);
crate::ops::kernels!(run_integers: I32 = i32, I64 = i64, I8 = i8, U8 = u8, I16 = i16);

/// The op with its gradient: each operand gets the upstream gradient, summed over the axes along which it was broadcast.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { tf_type: Some("AddV2"), ..Op::elementwise(&DEF, "add(a, b), broadcast, of the same element type", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    let operand = |index: usize| of.if_wanted(index, || elementwise::unbroadcast(of.dy()?, &of.inputs[index]));
    Ok([operand(0)?, operand(1)?].into_iter().collect())
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns `self + other`, broadcast. Integers wrap. Fails if the shapes do not broadcast or the element types differ.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let a = Tensor::new(&device, &[1, 2, 3, 4], &[2, 2])?;
    /// let b = Tensor::new(&device, &[10, 20], &[2])?;
    /// assert_eq!(a.add(&b)?.to_vec::<i32>()?, [11, 22, 13, 24]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn add(&self, other: &Tensor) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self, other])
    }
}

#[cfg(feature = "alloc")]
impl Variable {
    /// Adds `value` to the variable, in its own bytes where the scope can do that.
    pub(crate) fn increase(&self, scope: &dyn Scope, value: &Tensor) -> Result<()> {
        scope.update(&OP, &[], &[self], &[value])
    }
}
