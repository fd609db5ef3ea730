//! Recurrent layers: Keras's `RNN`, `SimpleRNN`, `LSTM` and `GRU`.
//!
//! A trace for a CPU has a loop over the steps. One for a GPU has the ops of every step: see [`RNN::unroll`].

mod gru;
mod lstm;
mod simple_rnn;
mod steps;

pub use gru::{GRU, GRUCell};
pub use lstm::{LSTM, LSTMCell};
pub use simple_rnn::{SimpleRNN, SimpleRNNCell};

use super::{Initializer, Layer, Module, Visitor, inputs, observed_call};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::base::sync::ThreadSafe;
use crate::nn::type_name;
use crate::tensor::Tensor;
use crate::tensor::scope::{Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

/// A cell, which computes one step of a recurrent layer: an output and new states from an input and the states.
///
/// ```
/// use gradlet_core::layers::{Initializer, Module, RNN, RNNCell};
/// use gradlet_core::{Eager, Result, Scope, Tensor, Variable, ops};
///
/// #[derive(Module)]
/// struct Decay { kernel: Variable, units: u32 }
///
/// impl RNNCell for Decay {
///     fn name(&self) -> &str { "decay" }
///     fn state_sizes(&self) -> Vec<u32> { vec![self.units] }
///     fn build(&self, scope: &dyn Scope, features: u32) -> Result<()> {
///         self.kernel.create(scope, &Initializer::glorot_uniform().call(scope, &[features, self.units])?)
///     }
///     fn project(&self, weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
///         x.dense(&weights[0], None)
///     }
///     fn step(&self, _: &[Tensor], x: &Tensor, states: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
///         let next = states[0].mul_scalar(0.5)?.add(x)?;
///         Ok((next.clone(), vec![next]))
///     }
/// }
///
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = RNN::of(Decay { kernel: Variable::deferred("kernel"), units: 3 });
/// let sequence = layer.run(&scope, &Tensor::full(&scope.device(), 1.0f32, &[2, 5, 4])?, None, None)?;
/// assert_eq!((sequence.output.dims(), sequence.states[0].dims()), (&[2, 3][..], &[2, 3][..]));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait RNNCell: Module + ThreadSafe {
    /// Returns the kind of the cell, such as `lstm_cell`.
    fn name(&self) -> &str;

    /// Returns [`Layer::name`] and [`Layer::kind`] of a recurrent layer that uses this cell, such as `lstm` and `LSTM`.
    fn layer(&self) -> (&str, &str) {
        ("rnn", "RNN")
    }

    /// Returns the size of each state: its number of elements for one sample.
    fn state_sizes(&self) -> Vec<u32>;

    /// Returns the number of elements of the output for one sample. By default it is the size of the first state.
    fn output_size(&self) -> u32 {
        self.state_sizes().first().copied().unwrap_or(0)
    }

    /// Creates the variables for inputs with this number of features.
    fn build(&self, scope: &dyn Scope, features: u32) -> Result<()>;

    /// Prepares the weights once for all steps. `weights` holds the values of the variables, in their order. [`RNNCell::project`]
    /// and [`RNNCell::step`] receive the result.
    fn prepare(&self, weights: Vec<Tensor>) -> Result<Vec<Tensor>> {
        Ok(weights)
    }

    /// Projects the inputs `x[…, features]` of all steps together: computes the part of a step that does not depend on the states.
    fn project(&self, weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let _ = weights;
        Ok(x.clone())
    }

    /// Computes one step from prepared weights, a projected input `[batch, …]` and states `[batch, size]`. Returns the output and
    /// the new states.
    fn step(&self, weights: &[Tensor], x: &Tensor, states: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)>;

    /// Computes one step like [`RNNCell::step`], with recurrent dropout: the recurrent kernel receives the first state times `dropped`.
    fn step_dropped(&self, weights: &[Tensor], x: &Tensor, states: &[Tensor], dropped: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
        let mut states = states.to_vec();
        if let Some(first) = states.first_mut() {
            *first = first.mul(dropped)?;
        }
        self.step(weights, x, &states)
    }

    /// Computes a single step with `weights` as the values of the variables. Returns the output for `x[batch, features]` and the
    /// new states.
    fn compute(&self, weights: Vec<Tensor>, x: &Tensor, states: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let weights = self.prepare(weights)?;
        self.step(&weights, &self.project(&weights, x)?, states)
    }

    /// Computes a single step, after building the cell if it is not built yet. Returns the output for `x[batch, features]` and the
    /// new states.
    fn call(&self, scope: &dyn Scope, x: &Tensor, states: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let call = |scope: &ScopeHandle| {
            let (x, states) = (&scope.input(x)?, inputs_of(scope, states)?);
            let [_, features] = inputs::dims(self.name(), "inputs of shape [batch, features]", x.dims())?;
            if !self.is_built() {
                self.build(&scope.handle().building(), features)?;
            }
            self.compute(read(self, scope)?, x, &states)
        };
        let output = |(y, _): &(Tensor, Vec<Tensor>)| y.tensor_type();
        observed_call(&scope.handle().in_layer(true), self.name(), type_name::<Self>(), self, output, call)
    }
}

/// Returns the inputs `states` of a layer as the layer computes with them. The scope is the inside of the layer.
fn inputs_of(scope: &ScopeHandle, states: &[Tensor]) -> Result<Vec<Tensor>> {
    states.iter().map(|state| scope.input(state)).collect()
}

/// Returns the values of a cell's variables, in their order.
fn read<C: RNNCell + ?Sized>(cell: &C, scope: &dyn Scope) -> Result<Vec<Tensor>> {
    cell.variables().iter().map(|variable| scope.read(variable)).collect()
}

/// A layer that processes sequences `[batch, steps, features]` step by step. As a layer, it returns only the output. [`RNN::run`]
/// takes initial states and a mask, and also returns the last states.
pub struct RNN<C> {
    cell: C,
    return_sequences: bool,
    go_backwards: bool,
    zero_output_for_mask: bool,
    /// Whether a trace has the ops of every step, or `None` for the default.
    unroll: Option<bool>,
    dropout: f64,
    recurrent_dropout: f64,
    /// States of a stateful layer.
    states: Vec<Variable>,
}

/// Result of a recurrent layer.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Output of the last step, `[batch, units]`, or with `return_sequences` the outputs of all steps, `[batch, steps, units]`.
    pub output: Tensor,
    /// States after the last step.
    pub states: Vec<Tensor>,
}

impl<C: RNNCell> RNN<C> {
    /// Creates a layer of this cell that returns the last output.
    pub fn of(cell: C) -> RNN<C> {
        RNN {
            cell,
            return_sequences: false,
            go_backwards: false,
            zero_output_for_mask: false,
            unroll: None,
            dropout: 0.0,
            recurrent_dropout: 0.0,
            states: Vec::new(),
        }
    }

    /// Sets whether the output contains the outputs of all steps, or only the last (default: only the last).
    pub fn return_sequences(self, return_sequences: bool) -> RNN<C> {
        RNN { return_sequences, ..self }
    }

    /// Sets whether the layer processes the steps from last to first (default false). The outputs are in the order of processing.
    pub fn go_backwards(self, go_backwards: bool) -> RNN<C> {
        RNN { go_backwards, ..self }
    }

    /// Sets whether the output at masked steps is 0 (default false). Otherwise it repeats the output of the step before.
    pub fn zero_output_for_mask(self, zero_output_for_mask: bool) -> RNN<C> {
        RNN { zero_output_for_mask, ..self }
    }

    /// Sets whether a trace contains the ops of every step instead of one loop. Results and eager execution are the same.
    ///
    /// By default, a trace for a CPU has a loop. A trace for a GPU has the ops of every step if the input has at most 128 steps, because
    /// the host decides about each step of a loop. An artifact for a small device should have the loop: if a program with a GPU exports
    /// it, set this to false.
    pub fn unroll(self, unroll: bool) -> RNN<C> {
        RNN { unroll: Some(unroll), ..self }
    }

    /// Sets whether each call continues from the states of the last call (default false). Otherwise each call starts from zeros.
    /// The states are in variables that are exported but not trained. They have the batch size that the layer is built for.
    ///
    /// ```
    /// use gradlet_core::layers::{GRU, Layer};
    /// use gradlet_core::{Eager, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let layer = GRU::new(4).stateful(true);
    /// let frame = Tensor::full(&scope.device(), 0.5f32, &[1, 1, 3])?;
    /// let first = layer.apply(&scope, &frame)?.to_vec::<f32>()?;
    /// assert_ne!(layer.apply(&scope, &frame)?.to_vec::<f32>()?, first);
    /// layer.reset_states(&scope)?;
    /// assert_eq!(layer.apply(&scope, &frame)?.to_vec::<f32>()?, first);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn stateful(self, stateful: bool) -> RNN<C> {
        let count = if stateful { self.cell.state_sizes().len() } else { 0 };
        RNN { states: (0..count).map(|_| Variable::untrained("rnn_state")).collect(), ..self }
    }

    /// Sets the fraction of the input features to drop in training (default 0). All steps of a call drop the same features.
    pub fn dropout(self, dropout: f64) -> RNN<C> {
        RNN { dropout, ..self }
    }

    /// Sets the fraction of the first state to drop before the recurrent kernel, in training (default 0). All steps of a call and
    /// all gates drop the same elements.
    pub fn recurrent_dropout(self, recurrent_dropout: f64) -> RNN<C> {
        RNN { recurrent_dropout, ..self }
    }

    /// Returns the cell.
    pub fn cell(&self) -> &C {
        &self.cell
    }

    /// Sets the states of a stateful layer to zeros.
    pub fn reset_states(&self, scope: &dyn Scope) -> Result<()> {
        for variable in self.states.iter().filter(|variable| variable.is_built()) {
            let zeros = Tensor::zeros(&scope.device(), variable.tensor_type()?)?;
            scope.assign(variable, &zeros)?;
        }
        Ok(())
    }
}

impl<C: Module + RNNCell> Module for RNN<C> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.module(if visitor.tracks() { "cell" } else { self.cell.name() }, &self.cell);
        self.states.iter().enumerate().for_each(|(index, variable)| visitor.module(&format!("rnn_state_{index}"), variable));
    }
}

impl<C: RNNCell> Layer for RNN<C> {
    fn name(&self) -> &str {
        self.cell.layer().0
    }

    fn kind(&self) -> &str {
        self.cell.layer().1
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let [batch, _, features] = inputs::dims(self.name(), inputs::SEQUENCES, input.dims())?;
        for (variable, size) in self.states.iter().zip(self.cell.state_sizes()) {
            variable.create(scope, &Initializer::zeros().call(scope, &[batch, size])?)?;
        }
        self.cell.build(scope, features)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        Ok(self.sequence(scope, x, None, None, None)?.output)
    }
}

/// Variables of Keras's cells, and their initializers.
#[derive(Module)]
struct CellWeights {
    kernel: Variable,
    recurrent_kernel: Variable,
    bias: Option<Variable>,
    kernel_initializer: Initializer,
    recurrent_initializer: Initializer,
    bias_initializer: Initializer,
}

impl CellWeights {
    fn new() -> CellWeights {
        CellWeights {
            kernel: Variable::deferred("kernel"),
            recurrent_kernel: Variable::deferred("recurrent_kernel"),
            bias: Some(Variable::deferred("bias")),
            kernel_initializer: Initializer::glorot_uniform(),
            recurrent_initializer: Initializer::orthogonal(1.0),
            bias_initializer: Initializer::zeros(),
        }
    }

    /// Creates the variables. The kernel and the recurrent kernel each hold the kernels of `gates` gates side by side. `bias`
    /// computes the initial value of the bias, if the cell has one.
    fn build(&self, scope: &dyn Scope, [features, units, gates]: [u32; 3], bias: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        self.kernel.create(scope, &self.kernel_initializer.call(scope, &[features, units * gates])?)?;
        self.recurrent_kernel.create(scope, &self.recurrent_initializer.call(scope, &[units, units * gates])?)?;
        match &self.bias {
            Some(variable) => variable.create(scope, &bias()?),
            None => Ok(()),
        }
    }
}

/// Fails unless the last axis of `x` has the number of features for which the kernel `[features, …]` of the cell was built.
fn check_features(cell: &str, kernel: &Tensor, x: &Tensor) -> Result<()> {
    inputs::features(cell, kernel.dims().first().copied().unwrap_or(0), x)
}

/// Defines the builder methods of a cell with a field `weights`, and the same methods for a layer of the cell.
macro_rules! cell_options {
    ($cell:ident { $($(#[$doc:meta])* $field:ident: $ty:ty,)* }) => {
        impl $cell {
            $($(#[$doc])*
            pub fn $field(mut self, $field: $ty) -> $cell {
                self.$field = $field;
                self
            })*
        }

        impl RNN<$cell> {
            $($(#[$doc])*
            pub fn $field(self, $field: $ty) -> RNN<$cell> {
                RNN { cell: self.cell.$field($field), ..self }
            })*
        }

        cell_options! { weights $cell
            /// Sets whether the cell has a bias (default true).
            use_bias: bool => |weights| weights.bias = use_bias.then(|| Variable::deferred("bias")),
            /// Sets the initializer of the kernel (default Glorot uniform).
            kernel_initializer: Initializer => |weights| weights.kernel_initializer = kernel_initializer,
            /// Sets the initializer of the recurrent kernel (default orthogonal).
            recurrent_initializer: Initializer => |weights| weights.recurrent_initializer = recurrent_initializer,
            /// Sets the initializer of the bias (default zeros).
            bias_initializer: Initializer => |weights| weights.bias_initializer = bias_initializer,
        }
    };
    (weights $cell:ident $($(#[$doc:meta])* $name:ident: $ty:ty => |$weights:ident| $set:expr,)*) => {
        impl $cell {
            $($(#[$doc])*
            pub fn $name(mut self, $name: $ty) -> $cell {
                let $weights = &mut self.weights;
                $set;
                self
            })*
        }

        impl RNN<$cell> {
            $($(#[$doc])*
            pub fn $name(self, $name: $ty) -> RNN<$cell> {
                RNN { cell: self.cell.$name($name), ..self }
            })*
        }
    };
}
use cell_options;

/// Returns the states as an array. Fails unless there are exactly `N`, the number that the cell needs.
fn states<const N: usize>(cell: &str, states: &[Tensor]) -> Result<[Tensor; N]> {
    <[Tensor; N]>::try_from(states.to_vec()).map_err(|_| Error::message(format!("{cell} needs {N} states, but got {}", states.len())))
}
