//! Long short-term memory: Keras's `LSTM`.

use super::{CellWeights, RNN, RNNCell, cell_options, check_features, states};
use crate::base::error::{Error, Result};
use crate::nn::layers::{Activation, Initializer, Module};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// Cell of a long short-term memory. `x · kernel + bias + h · recurrent_kernel` holds four gates side by side, `i f c o`. The new
/// states are `c' = σ(f) · c + σ(i) · activation(c-gate)` and `h' = σ(o) · activation(c')`. The output is h', and the states are h
/// and c.
///
/// The kernel has the shape `[features, 4 · units]` and is initialised Glorot uniform. The recurrent kernel has the shape
/// `[units, 4 · units]` and is initialised as an orthogonal matrix. The bias has the shape `[4 · units]` and is initialised with
/// zeros, with ones for the forget gate. The activation is tanh, and σ is the sigmoid.
#[derive(Module)]
pub struct LSTMCell {
    units: u32,
    activation: Activation,
    recurrent_activation: Activation,
    unit_forget_bias: bool,
    #[module(name = "")]
    weights: CellWeights,
}

/// A layer of [`LSTMCell`].
///
/// ```
/// use gradlet_core::layers::{LSTM, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = LSTM::new(8).return_sequences(true);
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[2, 5, 3])?)?;
/// assert_eq!(y.dims(), [2, 5, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub type LSTM = RNN<LSTMCell>;

impl LSTMCell {
    /// Creates a cell with `units` units.
    pub fn new(units: u32) -> LSTMCell {
        let (activation, recurrent_activation) = (Activation::Tanh, Activation::Sigmoid);
        LSTMCell { units, activation, recurrent_activation, unit_forget_bias: true, weights: CellWeights::new() }
    }
}

impl LSTM {
    /// Creates a layer with `units` units.
    pub fn new(units: u32) -> LSTM {
        RNN::of(LSTMCell::new(units))
    }
}

cell_options! { LSTMCell {
    /// Sets the activation of the cell (default tanh).
    activation: Activation,
    /// Sets the activation of the gates (default sigmoid).
    recurrent_activation: Activation,
    /// Sets whether the bias of the forget gate is initialised with ones, instead of by the initializer of the bias (default true).
    unit_forget_bias: bool,
}}

impl RNNCell for LSTMCell {
    fn name(&self) -> &str {
        "lstm_cell"
    }

    fn layer(&self) -> (&str, &str) {
        ("lstm", "LSTM")
    }

    fn state_sizes(&self) -> Vec<u32> {
        alloc::vec![self.units; 2]
    }

    fn build(&self, scope: &dyn Scope, features: u32) -> Result<()> {
        let (units, initializer) = (self.units, self.weights.bias_initializer);
        let bias = || {
            if !self.unit_forget_bias {
                return initializer.call(scope, &[4 * units]);
            }
            let ones = Initializer::ones().call(scope, &[units])?;
            Tensor::concat(&[initializer.call(scope, &[units])?, ones, initializer.call(scope, &[2 * units])?], 0)
        };
        self.weights.build(scope, [features, units, 4], bias)
    }

    fn project(&self, weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let [kernel, _, bias @ ..] = weights else { return Err(Error::Unbuilt) };
        check_features(self.name(), kernel, x)?;
        x.dense(kernel, bias.first())
    }

    fn step(&self, weights: &[Tensor], x: &Tensor, given: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let ([_, recurrent, ..], [h, c]) = (weights, states(self.name(), given)?) else { return Err(Error::Unbuilt) };
        let gates = x.add(&h.dense(recurrent, None)?)?.split(4, -1)?;
        let gate = |index: usize| self.recurrent_activation.call(&gates[index]);
        let kept = gate(1)?.mul(&c)?;
        let c = kept.add(&gate(0)?.mul(&self.activation.call(&gates[2])?)?)?;
        let h = gate(3)?.mul(&self.activation.call(&c)?)?;
        Ok((h.clone(), alloc::vec![h, c]))
    }
}
