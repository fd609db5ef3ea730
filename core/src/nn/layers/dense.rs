//! Fully connected layer: Keras's `Dense`.

use super::affine::{Affine, affine_options};
use super::{Layer, Module, inputs};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

/// Fully connected layer over the last axis: `activation(x · kernel + bias)`. The kernel has the shape `[in, units]` and is
/// initialised Glorot uniform. The bias has the shape `[units]` and is initialised with zeros.
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
    #[module(name = "")]
    affine: Affine,
}

impl Dense {
    /// Creates a layer with `units` outputs and no activation.
    pub fn new(units: u32) -> Dense {
        Dense { units, affine: Affine::new() }
    }
}

affine_options!(Dense, kernel_initializer);

impl Layer for Dense {
    fn name(&self) -> &str {
        "dense"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let features = input.back(0).ok_or_else(|| Error::message("dense takes inputs of shape [batch, …, features], not a scalar"))?;
        self.affine.build(scope, &[features, self.units], self.units)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (kernel, bias) = self.affine.read(scope)?;
        inputs::features(self.name(), kernel.dims()[0], x)?;
        self.affine.activation.call(&x.dense(&kernel, bias.as_ref())?)
    }
}
