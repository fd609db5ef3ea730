//! Recurrent layers and cells.

use super::{Call, Row, row};
use gradlet_core::layers::{Activation, GRUCell, LSTMCell, RNN, RNNCell, SimpleRNNCell};
use gradlet_core::{Eager, Error, Result, Tensor};

pub static ROWS: &[Row] = &[
    row("simple_rnn_cell", &["units", "activation", "use_bias"], |call| call.step(&call.simple_rnn()?)),
    row("lstm_cell", &["units", "activation", "recurrent_activation", "use_bias"], |call| call.step(&call.lstm()?)),
    row("gru_cell", &["units", "activation", "recurrent_activation", "use_bias", "reset_after"], |call| call.step(&call.gru()?)),
    row("simple_rnn", SEQUENCE, |call| call.sequence(call.simple_rnn()?)),
    row("lstm", SEQUENCE, |call| call.sequence(call.lstm()?)),
    row("gru", SEQUENCE, |call| call.sequence(call.gru()?)),
];

/// Attributes of cells and layers.
const SEQUENCE: &[&str] = &[
    "units",
    "activation",
    "recurrent_activation",
    "use_bias",
    "reset_after",
    "unit_forget_bias",
    "return_sequences",
    "return_state",
    "go_backwards",
    "zero_output_for_mask",
    "unroll",
    "stateful=false",
    "dropout=0.0",
    "recurrent_dropout=0.0",
];

impl Call<'_> {
    fn units(&self) -> Result<u32> {
        self.dims("units").first().copied().ok_or_else(|| Error::message("the case has no units"))
    }

    fn simple_rnn(&self) -> Result<SimpleRNNCell> {
        Ok(SimpleRNNCell::new(self.units()?).activation(self.activation("activation", Activation::Tanh)?))
    }

    fn lstm(&self) -> Result<LSTMCell> {
        let cell = LSTMCell::new(self.units()?).activation(self.activation("activation", Activation::Tanh)?);
        Ok(cell.recurrent_activation(self.activation("recurrent_activation", Activation::Sigmoid)?))
    }

    fn gru(&self) -> Result<GRUCell> {
        let cell = GRUCell::new(self.units()?).activation(self.activation("activation", Activation::Tanh)?);
        let cell = cell.recurrent_activation(self.activation("recurrent_activation", Activation::Sigmoid)?);
        Ok(cell.reset_after(self.attributes["reset_after"].as_bool().unwrap_or(true)))
    }

    /// Returns the kernel, the recurrent kernel, and the bias if there is one.
    fn weights(&self) -> Result<Vec<Tensor>> {
        let kernels = [self.input("kernel")?.clone(), self.input("recurrent_kernel")?.clone()];
        Ok(kernels.into_iter().chain(self.optional("bias").cloned()).collect())
    }

    /// Returns the inputs `prefix0`, `prefix1`, …
    fn states(&self, prefix: &str) -> Vec<Tensor> {
        (0..).map_while(|index| self.optional(&format!("{prefix}{index}")).cloned()).collect()
    }

    fn step(&self, cell: &impl RNNCell) -> Result<Vec<Tensor>> {
        let (output, states) = cell.compute(self.weights()?, self.input("x")?, &self.states("h"))?;
        Ok(std::iter::once(output).chain(states).collect())
    }

    fn sequence(&self, cell: impl RNNCell) -> Result<Vec<Tensor>> {
        let layer = RNN::of(cell).return_sequences(self.flag("return_sequences")).go_backwards(self.flag("go_backwards"));
        let layer = layer.zero_output_for_mask(self.flag("zero_output_for_mask"));
        let initial = self.states("initial_state_");
        let initial = (!initial.is_empty()).then_some(initial.as_slice());
        let layer = layer.unroll(self.flag("unroll"));
        let scope = Eager::new(&self.input("x")?.device()?);
        let sequence = layer.compute(&scope, self.weights()?, self.input("x")?, initial, self.optional("mask"))?;
        let states = if self.flag("return_state") { sequence.states } else { Vec::new() };
        Ok(std::iter::once(sequence.output).chain(states).collect())
    }
}
