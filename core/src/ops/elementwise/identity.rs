//! Copy: `y = x`. The copy has its own memory. Every element type. Like `tf.identity`.

#[cfg(feature = "alloc")]
use crate::base::error::{Error, Result};
use crate::base::op::{Kernel, OpDef};
use crate::ops::shared::elementwise;
#[cfg(feature = "alloc")]
use crate::{
    tensor::Tensor,
    tensor::device::Device,
    tensor::scope::{Backward, DeviceScope, Gradient, InputGradients, Keeps, Op, Scope},
};

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::identity, name: "identity", inputs: (1, 1), outputs: 1, infer: elementwise::same, in_place: &[(0, 0)] };

crate::ops::moving_kernels!(bytes elementwise::identity);

/// The op with its gradient: the upstream gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op { keeps: Keeps::SameType, ..Op::elementwise(&DEF, "identity(x)", Gradient::Rule(grad)) };

#[cfg(feature = "alloc")]
fn grad(of: &Backward<'_>) -> Result<InputGradients> {
    Ok([of.if_wanted(0, || of.dy().cloned())?].into_iter().collect())
}

/// The variant of the identity op that stops gradients.
#[cfg(feature = "alloc")]
pub(crate) static STOP: Op =
    Op { keeps: Keeps::SameType, ..Op::elementwise(&DEF, "stop_gradient(x)", Gradient::None("it stops gradients")) };

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the same value, which every gradient treats as a constant. Like TensorFlow's `tf.stop_gradient`.
    ///
    /// ```
    /// # use gradlet_core::{Differentiate, Eager, Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let tape = Eager::new(&device).tape();
    /// let x = tape.watch(&Tensor::scalar(&device, 3.0f32))?;
    /// let y = x.mul(&x.stop_gradient()?)?;
    /// assert_eq!(tape.gradient(&y, &x)?.unwrap().item::<f32>()?, 3.0);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn stop_gradient(&self) -> Result<Tensor> {
        Tensor::emit1(&STOP, &[], &[self])
    }

    /// Returns a new tensor with the same value.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[1, 2], &[2])?;
    /// assert_eq!(x.identity()?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn identity(&self) -> Result<Tensor> {
        Tensor::emit1(&OP, &[], &[self])
    }

    /// Returns the value on `device`, or the tensor itself if it is there already. In a scope whose devices form a group, such as those of
    /// `gradlet::config`, the copy is an op: it has a gradient, and it can be traced. Otherwise tapes do not record it.
    ///
    /// Fails with [`Error::Traced`](crate::Error::Traced) in a trace on a device without a group, and with
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// ```
    /// use gradlet_core::{Tensor, ops};
    /// let (device, other) = (ops::portable_cpu(), ops::portable_cpu().limited(1024));
    /// let x = Tensor::new(&device, &[1.0f32, 2.0], &[2])?;
    /// assert!(x.add(&x.to(&other)?).is_err());
    /// assert_eq!(x.to(&other)?.neg()?.to(&device)?.to_vec::<f32>()?, [-1.0, -2.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn to(&self, device: &Device) -> Result<Tensor> {
        if self.known()?.is_some_and(|buffer| buffer.device() == device) {
            return Ok(self.clone());
        }
        let scope = self.scope()?;
        let there = scope.as_ref().and_then(|scope| scope.device().peer(device).filter(|peer| peer.placement().is_some()));
        let (Some(scope), Some(there)) = (scope, there) else { return self.brought(device) };
        let _there = DeviceScope::on(&there);
        scope.emit(&OP, &[], &[self])?.pop().ok_or(Error::Internal)
    }
}

#[cfg(test)]
mod tests {
    use crate::base::dtype::Bool;
    use crate::ops::shared::testing::{Value, run_every_way};

    #[test]
    fn every_size() {
        let x = Value::new(&[1i64, -2, 3], &[3, 1]);
        assert_eq!(run_every_way(&super::I64, &[], &[&x]), [x]);
        let x = Value::new(&[Bool(1), Bool(0), Bool(1)], &[3]);
        assert_eq!(run_every_way(&super::BOOL, &[], &[&x]), [x]);
        run_every_way(&super::F32, &[], &[&Value::new::<f32>(&[], &[0])]);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn gradient() {
        crate::ops::shared::testing::check_gradient(&super::OP, &[], &[crate::ops::shared::testing::tensor(&[2, 3], 1)]);
    }
}
