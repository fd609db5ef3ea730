//! Kernel, bias and activation, for the layers that have all three.

use super::{Activation, Initializer, Module, Visitor};
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// A kernel, a bias, their initializers, and the activation that the layer applies last.
pub(super) struct Affine {
    kernel: Variable,
    /// Name of the kernel in TensorFlow's checkpoints. Different Keras layers use different names.
    tracked: &'static str,
    pub(super) bias: Option<Variable>,
    pub(super) kernel_initializer: Initializer,
    pub(super) bias_initializer: Initializer,
    pub(super) activation: Activation,
}

impl Module for Affine {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.module(if visitor.tracks() { self.tracked } else { "kernel" }, &self.kernel);
        visitor.module("bias", &self.bias);
    }
}

impl Affine {
    /// Creates the unbuilt variables, with Keras's defaults: a Glorot uniform kernel, a bias of zeros, and no activation.
    pub(super) fn new() -> Affine {
        Affine {
            kernel: Variable::deferred("kernel"),
            tracked: "_kernel",
            bias: Some(Variable::deferred("bias")),
            kernel_initializer: Initializer::glorot_uniform(),
            bias_initializer: Initializer::zeros(),
            activation: Activation::Linear,
        }
    }

    /// Sets the name of the kernel in TensorFlow's checkpoints.
    pub(super) fn tracked(self, tracked: &'static str) -> Affine {
        Affine { tracked, ..self }
    }

    pub(super) fn build(&self, scope: &dyn Scope, kernel: &[u32], bias: u32) -> Result<()> {
        self.kernel.create(scope, &self.kernel_initializer.call(scope, kernel)?)?;
        self.bias.iter().try_for_each(|variable| variable.create(scope, &self.bias_initializer.call(scope, &[bias])?))
    }

    pub(super) fn read(&self, scope: &dyn Scope) -> Result<(Tensor, Option<Tensor>)> {
        Ok((scope.read(&self.kernel)?, self.bias.as_ref().map(|bias| scope.read(bias)).transpose()?))
    }
}

/// Defines the builder methods of a layer that keeps its kernel and bias in a field `affine` of type [`Affine`].
macro_rules! affine_options {
    ($layer:ident, $kernel_initializer:ident) => {
        impl $layer {
            /// Sets the activation (default none).
            pub fn activation(mut self, activation: $crate::nn::layers::Activation) -> $layer {
                self.affine.activation = activation;
                self
            }

            /// Sets whether the layer has a bias (default true).
            pub fn use_bias(mut self, use_bias: bool) -> $layer {
                self.affine.bias = use_bias.then(|| $crate::tensor::variable::Variable::deferred("bias"));
                self
            }

            /// Sets the initializer of the kernel (default Glorot uniform).
            pub fn $kernel_initializer(mut self, initializer: $crate::nn::layers::Initializer) -> $layer {
                self.affine.kernel_initializer = initializer;
                self
            }

            /// Sets the initializer of the bias (default zeros).
            pub fn bias_initializer(mut self, initializer: $crate::nn::layers::Initializer) -> $layer {
                self.affine.bias_initializer = initializer;
                self
            }
        }
    };
}

/// Defines the builder methods of a layer: for each of the given fields, a method that sets it.
macro_rules! options {
    ($layer:ident { $($(#[$doc:meta])* $field:ident: $ty:ty,)* }) => {
        impl $layer {
            $(
                $(#[$doc])*
                pub fn $field(mut self, $field: $ty) -> $layer {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(super) use {affine_options, options};
