//! Fully connected recurrent layer: Keras's `SimpleRNN`.

use super::{CellWeights, RNN, RNNCell, cell_options, check_features, states};
use crate::base::error::{Error, Result};
use crate::nn::layers::{Activation, Initializer, Module};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// Cell that computes `h' = activation(x · kernel + bias + h · recurrent_kernel)`, which is both the output and the state. The
/// kernel has the shape `[features, units]` and is initialised Glorot uniform. The recurrent kernel has the shape `[units, units]`
/// and is initialised as an orthogonal matrix. The bias has the shape `[units]` and is initialised with zeros. The activation is
/// tanh.
#[derive(Module)]
pub struct SimpleRNNCell {
    units: u32,
    activation: Activation,
    #[module(name = "")]
    weights: CellWeights,
}

/// A layer of [`SimpleRNNCell`].
///
/// ```
/// use gradlet_core::layers::{Layer, SimpleRNN};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let y = SimpleRNN::new(8).apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[2, 5, 3])?)?;
/// assert_eq!(y.dims(), [2, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub type SimpleRNN = RNN<SimpleRNNCell>;

impl SimpleRNNCell {
    /// Creates a cell with `units` units.
    pub fn new(units: u32) -> SimpleRNNCell {
        SimpleRNNCell { units, activation: Activation::Tanh, weights: CellWeights::new() }
    }
}

impl SimpleRNN {
    /// Creates a layer with `units` units.
    pub fn new(units: u32) -> SimpleRNN {
        RNN::of(SimpleRNNCell::new(units))
    }
}

cell_options! { SimpleRNNCell {
    /// Sets the activation (default tanh).
    activation: Activation,
}}

impl RNNCell for SimpleRNNCell {
    fn name(&self) -> &str {
        "simple_rnn_cell"
    }

    fn layer(&self) -> (&str, &str) {
        ("simple_rnn", "SimpleRNN")
    }

    fn state_sizes(&self) -> Vec<u32> {
        alloc::vec![self.units]
    }

    fn build(&self, scope: &dyn Scope, features: u32) -> Result<()> {
        self.weights.build(scope, [features, self.units, 1], || self.weights.bias_initializer.call(scope, &[self.units]))
    }

    fn project(&self, weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let [kernel, _, bias @ ..] = weights else { return Err(Error::Unbuilt) };
        check_features(self.name(), kernel, x)?;
        x.dense(kernel, bias.first())
    }

    fn step(&self, weights: &[Tensor], x: &Tensor, given: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let ([_, recurrent, ..], [h]) = (weights, states(self.name(), given)?) else { return Err(Error::Unbuilt) };
        let h = self.activation.call(&x.add(&h.dense(recurrent, None)?)?)?;
        Ok((h.clone(), alloc::vec![h]))
    }
}
