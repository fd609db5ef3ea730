//! Dense: Keras's `Dense`.

use super::{Activation, Layer, Module, glorot_uniform, zeros};
use crate::error::{Error, Result};
use crate::scope::Scope;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::variable::Variable;

/// `activation(x · kernel + bias)` over the last axis; kernel `[in, units]`, Glorot uniform; bias `[units]`, zeros.
///
/// ```
/// use gradlet_core::layers::{Activation, Dense, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = Dense::new(10).activation(Activation::Relu);
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[2, 4])?)?;
/// assert_eq!(y.dims(), [2, 10]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct Dense {
    units: u32,
    activation: Activation,
    kernel: Variable,
    bias: Variable,
}

impl Dense {
    /// A layer with `units` outputs and no activation.
    pub fn new(units: u32) -> Dense {
        Dense { units, activation: Activation::Linear, kernel: Variable::deferred("kernel"), bias: Variable::deferred("bias") }
    }

    /// The same with `activation`.
    pub fn activation(self, activation: Activation) -> Dense {
        Dense { activation, ..self }
    }
}

impl Layer for Dense {
    fn name(&self) -> &str {
        "dense"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let features = input.back(0).ok_or(Error::Rank { input: 0 })?;
        self.kernel.create(scope, &glorot_uniform(scope, &[features, self.units])?)?;
        self.bias.create(scope, &zeros(scope, self.units)?)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (kernel, bias) = (scope.read(&self.kernel)?, scope.read(&self.bias)?);
        self.activation.call(&x.dense(&kernel, Some(&bias))?)
    }
}
