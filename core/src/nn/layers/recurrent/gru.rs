//! Gated recurrent units: Keras's `GRU`.

use super::{CellWeights, RNN, RNNCell, cell_options, check_features, states};
use crate::base::error::{Error, Result};
use crate::nn::layers::{Activation, Initializer, Module};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// Cell of a gated recurrent unit. `x · kernel + bias[0]` and `h · recurrent_kernel + bias[1]` each hold three gates side by side,
/// `z r h`. The gates are `z = σ(x_z + h_z)` and `r = σ(x_r + h_r)`. The new state is
/// `h' = z · h + (1 − z) · activation(x_h + r · h_h)`, which is also the output. With `reset_after(false)`, the last summand is
/// `(r · h) · recurrent_kernel` and there is only one bias.
///
/// The kernel has the shape `[features, 3 · units]` and is initialised Glorot uniform. The recurrent kernel has the shape
/// `[units, 3 · units]` and is initialised as an orthogonal matrix. The bias has the shape `[2, 3 · units]`, or `[3 · units]` with
/// `reset_after(false)`, and is initialised with zeros. The activation is tanh, and σ is the sigmoid.
#[derive(Module)]
pub struct GRUCell {
    units: u32,
    activation: Activation,
    recurrent_activation: Activation,
    reset_after: bool,
    #[module(name = "")]
    weights: CellWeights,
}

/// A layer of [`GRUCell`].
///
/// ```
/// use gradlet_core::layers::{GRU, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::full(&scope.device(), 1.0f32, &[2, 5, 3])?;
/// let sequence = GRU::new(8).return_sequences(true).run(&scope, &x, None, None)?;
/// assert_eq!((sequence.output.dims(), sequence.states[0].dims()), (&[2, 5, 8][..], &[2, 8][..]));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub type GRU = RNN<GRUCell>;

impl GRUCell {
    /// Creates a cell with `units` units.
    pub fn new(units: u32) -> GRUCell {
        let (activation, recurrent_activation) = (Activation::Tanh, Activation::Sigmoid);
        GRUCell { units, activation, recurrent_activation, reset_after: true, weights: CellWeights::new() }
    }
}

impl GRU {
    /// Creates a layer with `units` units.
    pub fn new(units: u32) -> GRU {
        RNN::of(GRUCell::new(units))
    }
}

cell_options! { GRUCell {
    /// Sets the activation of the cell (default tanh).
    activation: Activation,
    /// Sets the activation of the gates (default sigmoid).
    recurrent_activation: Activation,
    /// Sets whether the reset gate applies after the product with the recurrent kernel, instead of before (default true).
    reset_after: bool,
}}

impl RNNCell for GRUCell {
    fn name(&self) -> &str {
        "gru_cell"
    }

    fn layer(&self) -> (&str, &str) {
        ("gru", "GRU")
    }

    fn state_sizes(&self) -> Vec<u32> {
        alloc::vec![self.units]
    }

    fn build(&self, scope: &dyn Scope, features: u32) -> Result<()> {
        let biases = [2, 3 * self.units];
        let dims = if self.reset_after { &biases[..] } else { &biases[1..] };
        self.weights.build(scope, [features, self.units, 3], || self.weights.bias_initializer.call(scope, dims))
    }

    /// Returns the kernel, two recurrent kernels, and the biases. With `reset_after`, both are the whole recurrent kernel.
    /// Otherwise, the first is the part for the two gates, and the second is the part for the candidate.
    fn prepare(&self, weights: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let [kernel, recurrent, bias @ ..] = weights.as_slice() else { return Err(Error::Unbuilt) };
        let units = i64::from(self.units);
        let recurrent = match self.reset_after {
            true => [recurrent.clone(), recurrent.clone()].to_vec(),
            false => recurrent.split_sizes(&[2 * units, units], 1)?,
        };
        let biases = match bias {
            [bias] if self.reset_after => bias.unstack(0)?,
            bias => bias.to_vec(),
        };
        Ok([&[kernel.clone()][..], &recurrent, &biases].concat())
    }

    fn project(&self, weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let [kernel, _, _, bias @ ..] = weights else { return Err(Error::Unbuilt) };
        check_features(self.name(), kernel, x)?;
        x.dense(kernel, bias.first())
    }

    fn step(&self, weights: &[Tensor], x: &Tensor, given: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let [h] = states(self.name(), given)?;
        self.step_from(weights, x, &h, &h)
    }

    fn step_dropped(&self, weights: &[Tensor], x: &Tensor, given: &[Tensor], dropped: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
        let [h] = states(self.name(), given)?;
        self.step_from(weights, x, &h, &h.mul(dropped)?)
    }
}

impl GRUCell {
    /// Computes a step from the state `h`. `kept` is `h` after recurrent dropout, and only the product with the recurrent kernel uses it.
    fn step_from(&self, weights: &[Tensor], x: &Tensor, h: &Tensor, kept: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
        let [_, recurrent, rest, bias @ ..] = weights else { return Err(Error::Unbuilt) };
        let x = x.split(3, -1)?;
        let inner = kept.dense(recurrent, bias.get(1))?.split(if self.reset_after { 3 } else { 2 }, -1)?;
        let gate = |index: usize| self.recurrent_activation.call(&x[index].add(&inner[index])?);
        let (z, r) = (gate(0)?, gate(1)?);
        let reset = if self.reset_after { r.mul(&inner[2])? } else { r.mul(kept)?.dense(rest, None)? };
        let candidate = self.activation.call(&x[2].add(&reset)?)?;
        let h = z.mul(h)?.add(&z.like(1.0)?.sub(&z)?.mul(&candidate)?)?;
        Ok((h.clone(), alloc::vec![h]))
    }
}
