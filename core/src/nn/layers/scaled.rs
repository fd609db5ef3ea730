//! Scale gamma and offset beta, which all normalisation layers have.

use super::{Initializer, Module};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// The variables gamma and beta, and their initializers.
#[derive(Module)]
pub(super) struct Scaled {
    pub(super) gamma: Option<Variable>,
    pub(super) beta: Option<Variable>,
    pub(super) gamma_initializer: Initializer,
    pub(super) beta_initializer: Initializer,
}

impl Scaled {
    /// Creates both variables with Keras's initializers: ones for gamma and zeros for beta.
    pub(super) fn new() -> Scaled {
        Scaled {
            gamma: Some(Variable::deferred("gamma")),
            beta: Some(Variable::deferred("beta")),
            gamma_initializer: Initializer::ones(),
            beta_initializer: Initializer::zeros(),
        }
    }

    pub(super) fn build(&self, scope: &dyn Scope, dims: &[u32]) -> Result<()> {
        self.gamma.iter().try_for_each(|gamma| gamma.create(scope, &self.gamma_initializer.call(scope, dims)?))?;
        self.beta.iter().try_for_each(|beta| beta.create(scope, &self.beta_initializer.call(scope, dims)?))
    }

    /// Returns the values of gamma and beta in the type in which an input like `x` is normalised: f64 if it is f64, and f32 otherwise. A
    /// variable that the layer does not have is `None`.
    pub(super) fn read(&self, scope: &dyn Scope, x: &Tensor) -> Result<[Option<Tensor>; 2]> {
        let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let read = |variable: &Option<Variable>| variable.as_ref().map(|variable| scope.read(variable)?.cast(dtype)).transpose();
        Ok([read(&self.gamma)?, read(&self.beta)?])
    }
}

/// Defines the builder methods of a layer with a field `scaled`.
macro_rules! scaled_options {
    ($layer:ident) => {
        impl $layer {
            /// Sets whether the layer has beta, which is added to the scaled result (default true).
            pub fn center(mut self, center: bool) -> $layer {
                self.scaled.beta = center.then(|| $crate::tensor::variable::Variable::deferred("beta"));
                self
            }

            /// Sets whether the layer has gamma, which multiplies the normalised input (default true).
            pub fn scale(mut self, scale: bool) -> $layer {
                self.scaled.gamma = scale.then(|| $crate::tensor::variable::Variable::deferred("gamma"));
                self
            }

            /// Sets the initializer of beta (default zeros).
            pub fn beta_initializer(mut self, initializer: $crate::nn::layers::Initializer) -> $layer {
                self.scaled.beta_initializer = initializer;
                self
            }

            /// Sets the initializer of gamma (default ones).
            pub fn gamma_initializer(mut self, initializer: $crate::nn::layers::Initializer) -> $layer {
                self.scaled.gamma_initializer = initializer;
                self
            }
        }
    };
}

pub(super) use scaled_options;
