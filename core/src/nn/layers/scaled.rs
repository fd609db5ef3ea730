//! What normalisations share: a scale gamma and a centre beta.

use super::{Initializer, Module};
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// Gamma and beta, and how they begin.
#[derive(Module)]
pub(super) struct Scaled {
    pub(super) gamma: Option<Variable>,
    pub(super) beta: Option<Variable>,
    pub(super) gamma_initializer: Initializer,
    pub(super) beta_initializer: Initializer,
}

impl Scaled {
    /// With Keras's defaults: ones and zeros.
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

    /// Gamma and beta.
    pub(super) fn read(&self, scope: &dyn Scope) -> Result<[Option<Tensor>; 2]> {
        let read = |variable: &Option<Variable>| variable.as_ref().map(|variable| scope.read(variable)).transpose();
        Ok([read(&self.gamma)?, read(&self.beta)?])
    }
}

/// The methods of a layer with a field `scaled` that give the same layer with another value of it.
macro_rules! scaled_options {
    ($layer:ident) => {
        impl $layer {
            /// The same with or without beta, which is added at last; at first with it.
            pub fn center(mut self, center: bool) -> $layer {
                self.scaled.beta = center.then(|| $crate::tensor::variable::Variable::deferred("beta"));
                self
            }

            /// The same with or without gamma, which is a factor; at first with it.
            pub fn scale(mut self, scale: bool) -> $layer {
                self.scaled.gamma = scale.then(|| $crate::tensor::variable::Variable::deferred("gamma"));
                self
            }

            /// The same with a beta that begins so; at first zeros.
            pub fn beta_initializer(mut self, initializer: $crate::nn::layers::Initializer) -> $layer {
                self.scaled.beta_initializer = initializer;
                self
            }

            /// The same with a gamma that begins so; at first ones.
            pub fn gamma_initializer(mut self, initializer: $crate::nn::layers::Initializer) -> $layer {
                self.scaled.gamma_initializer = initializer;
                self
            }
        }
    };
}

pub(super) use scaled_options;
