//! Recurrent layers: Keras's `RNN`, and `SimpleRNN`, `LSTM` and `GRU`.
//!
//! In a trace the steps are a loop, unless the layer is told to unroll it.

mod gru;
mod lstm;
mod simple_rnn;
mod steps;

pub use gru::{GRU, GRUCell};
pub use lstm::{LSTM, LSTMCell};
pub use simple_rnn::{SimpleRNN, SimpleRNNCell};

use super::{Initializer, Layer, Module, Visitor, inputs};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::base::sync::ThreadSafe;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

/// What a recurrent layer does at each step: from an input and states to an output and new states.
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
    /// What kind of cell it is: `lstm_cell`.
    fn name(&self) -> &str;

    /// [`Layer::name`] and [`Layer::kind`] of a layer of such cells: `lstm` and `LSTM`.
    fn layer(&self) -> (&str, &str) {
        ("rnn", "RNN")
    }

    /// How many elements each state has for one sample.
    fn state_sizes(&self) -> Vec<u32>;

    /// How many elements the output has for one sample; as the first state, if nothing else is said.
    fn output_size(&self) -> u32 {
        self.state_sizes().first().copied().unwrap_or(0)
    }

    /// Creates the variables for inputs of so many features.
    fn build(&self, scope: &dyn Scope, features: u32) -> Result<()>;

    /// What the steps use of the values of the variables, which come in their order: computed once for all steps.
    fn prepare(&self, weights: Vec<Tensor>) -> Result<Vec<Tensor>> {
        Ok(weights)
    }

    /// What can be computed of the inputs `[…, features]` before the states are known: for all steps at once.
    fn project(&self, weights: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let _ = weights;
        Ok(x.clone())
    }

    /// The output and the new states of a step: from prepared weights, a projected input `[batch, …]` and states `[batch, size]`.
    fn step(&self, weights: &[Tensor], x: &Tensor, states: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)>;

    /// [`RNNCell::step`] with recurrent dropout: what goes through the recurrent kernel is the first state times `dropped`.
    fn step_dropped(&self, weights: &[Tensor], x: &Tensor, states: &[Tensor], dropped: &Tensor) -> Result<(Tensor, Vec<Tensor>)> {
        let mut states = states.to_vec();
        if let Some(first) = states.first_mut() {
            *first = first.mul(dropped)?;
        }
        self.step(weights, x, &states)
    }

    /// One step by itself, with these values of the variables: the output for `x`, `[batch, features]`, and the new states.
    fn compute(&self, weights: Vec<Tensor>, x: &Tensor, states: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let weights = self.prepare(weights)?;
        self.step(&weights, &self.project(&weights, x)?, states)
    }

    /// One step by itself: builds the cell if it is not built yet, and gives the output for `x`, `[batch, features]`, and the new states.
    fn call(&self, scope: &dyn Scope, x: &Tensor, states: &[Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
        let [_, features] = inputs::dims(self.name(), "inputs [batch, features]", x.dims())?;
        if !self.is_built() {
            self.build(scope, features)?;
        }
        self.compute(read(self, scope)?, x, states)
    }
}

/// The values of a cell's variables, in their order.
fn read<C: RNNCell + ?Sized>(cell: &C, scope: &dyn Scope) -> Result<Vec<Tensor>> {
    cell.variables().iter().map(|variable| scope.read(variable)).collect()
}

/// A layer that goes through sequences `[batch, steps, features]` step by step. As a layer, it gives the output alone; [`RNN::run`] takes
/// initial states and a mask, and gives the last states too.
pub struct RNN<C> {
    cell: C,
    return_sequences: bool,
    go_backwards: bool,
    zero_output_for_mask: bool,
    unroll: bool,
    dropout: f64,
    recurrent_dropout: f64,
    /// Those of a stateful layer.
    states: Vec<Variable>,
}

/// What a recurrent layer gives.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The last output `[batch, units]`, or with `return_sequences` all of them, `[batch, steps, units]`.
    pub output: Tensor,
    /// The last states.
    pub states: Vec<Tensor>,
}

impl<C: RNNCell> RNN<C> {
    /// A layer of this cell that gives the last output.
    pub fn of(cell: C) -> RNN<C> {
        RNN {
            cell,
            return_sequences: false,
            go_backwards: false,
            zero_output_for_mask: false,
            unroll: false,
            dropout: 0.0,
            recurrent_dropout: 0.0,
            states: Vec::new(),
        }
    }

    /// The same that gives the outputs of all steps, or only the last; at first the last.
    pub fn return_sequences(self, return_sequences: bool) -> RNN<C> {
        RNN { return_sequences, ..self }
    }

    /// The same that goes from the last step to the first, and gives the outputs in that order; at first forwards.
    pub fn go_backwards(self, go_backwards: bool) -> RNN<C> {
        RNN { go_backwards, ..self }
    }

    /// The same whose output is 0 at masked steps, or the one before; at first the one before.
    pub fn zero_output_for_mask(self, zero_output_for_mask: bool) -> RNN<C> {
        RNN { zero_output_for_mask, ..self }
    }

    /// The same with the ops of every step in a trace, or with one loop; at first with a loop. Computed at once, it makes no difference.
    pub fn unroll(self, unroll: bool) -> RNN<C> {
        RNN { unroll, ..self }
    }

    /// The same that goes on from the states of its last call, or from zeros each time; at first from zeros. It has the states in
    /// variables, which no optimizer trains and which are exported, for the number of sequences that it is built for.
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

    /// The same that drops, in training, this part of the inputs' features: the same ones at all steps of a call.
    pub fn dropout(self, dropout: f64) -> RNN<C> {
        RNN { dropout, ..self }
    }

    /// The same that drops, in training, this part of the first state where it goes through the recurrent kernel: the same elements at
    /// all steps of a call, and for all gates.
    pub fn recurrent_dropout(self, recurrent_dropout: f64) -> RNN<C> {
        RNN { recurrent_dropout, ..self }
    }

    /// The cell.
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
            variable.create(scope, &Tensor::full(&scope.device(), 0.0f32, &[batch, size])?)?;
        }
        self.cell.build(scope, features)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        Ok(self.run(scope, x, None, None)?.output)
    }
}

/// The variables of Keras's cells, and how they begin.
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

    /// Creates the kernels of so many gates side by side.
    fn build(&self, scope: &dyn Scope, [features, units, gates]: [u32; 3], bias: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        self.kernel.create(scope, &self.kernel_initializer.call(scope, &[features, units * gates])?)?;
        self.recurrent_kernel.create(scope, &self.recurrent_initializer.call(scope, &[units, units * gates])?)?;
        match &self.bias {
            Some(variable) => variable.create(scope, &bias()?),
            None => Ok(()),
        }
    }
}

/// Checks that the kernel `[features, …]` fits the inputs of a cell.
fn check_features(cell: &str, kernel: &Tensor, x: &Tensor) -> Result<()> {
    inputs::features(cell, kernel.dims().first().copied().unwrap_or(0), x)
}

/// The methods of a cell with a field `weights`, and those of a layer of it, that give the same with another value of something.
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
            /// The same with or without a bias; at first with one.
            use_bias: bool => |weights| weights.bias = use_bias.then(|| Variable::deferred("bias")),
            /// The same with a kernel that begins so; at first Glorot uniform.
            kernel_initializer: Initializer => |weights| weights.kernel_initializer = kernel_initializer,
            /// The same with a recurrent kernel that begins so; at first orthogonal.
            recurrent_initializer: Initializer => |weights| weights.recurrent_initializer = recurrent_initializer,
            /// The same with a bias that begins so; at first zeros.
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

/// Fails where a cell is given another number of states.
fn states<const N: usize>(cell: &str, states: &[Tensor]) -> Result<[Tensor; N]> {
    <[Tensor; N]>::try_from(states.to_vec()).map_err(|_| Error::message(format!("{cell} has {N} states, not {}", states.len())))
}
