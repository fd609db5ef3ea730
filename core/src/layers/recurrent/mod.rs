//! Recurrent layers: Keras's `RNN`, and `SimpleRNN`, `LSTM` and `GRU`.
//!
//! The loop over the steps is unrolled: a trace has the ops of every step.

mod gru;
mod lstm;
mod simple_rnn;

pub use gru::{GRU, GRUCell};
pub use lstm::{LSTM, LSTMCell};
pub use simple_rnn::{SimpleRNN, SimpleRNNCell};

use super::{Initializer, Layer, Module, inputs};
use crate::error::{Error, Result};
use crate::scope::Scope;
use crate::shape::{Shape, TensorType};
use crate::sync::ThreadSafe;
use crate::tensor::Tensor;
use crate::variable::Variable;
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
        RNN { cell, return_sequences: false, go_backwards: false, zero_output_for_mask: false }
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

    /// The cell.
    pub fn cell(&self) -> &C {
        &self.cell
    }

    /// Builds the layer if it is not built yet, and runs it: from these states, zeros if there are none; steps at which the mask, boolean
    /// `[batch, steps]`, is false leave the states as they are.
    ///
    /// Fails where the shapes do not fit, and where there are no steps.
    pub fn run(&self, scope: &dyn Scope, x: &Tensor, initial_state: Option<&[Tensor]>, mask: Option<&Tensor>) -> Result<Sequence> {
        if !self.is_built() {
            self.build(scope, x.shape())?;
        }
        self.unroll(read(&self.cell, scope)?, x, initial_state, mask)
    }

    /// [`RNN::run`] with these values of the cell's variables.
    pub fn unroll(&self, weights: Vec<Tensor>, x: &Tensor, initial_state: Option<&[Tensor]>, mask: Option<&Tensor>) -> Result<Sequence> {
        let [batch, steps, _] = inputs::sequences(self.name(), x)?;
        let weights = self.cell.prepare(weights)?;
        let mut states = self.initial(x, batch, initial_state)?;
        let masks = mask.map(|mask| self.masks(mask, [batch, steps])).transpose()?;
        let projected = self.cell.project(&weights, x)?.unstack(1)?;
        let mut outputs: Vec<Tensor> = Vec::new();
        for step in 0..steps as usize {
            let at = if self.go_backwards { steps as usize - 1 - step } else { step };
            let (mut output, mut next) = self.cell.step(&weights, &projected[at], &states)?;
            if let Some(mask) = masks.as_ref().map(|masks| &masks[at]) {
                let zeros = output.like(0.0)?;
                let before = outputs.last().filter(|_| !self.zero_output_for_mask).unwrap_or(&zeros);
                output = mask.select(&output, before)?;
                next = next.iter().zip(&states).map(|(next, state)| mask.select(next, state)).collect::<Result<_>>()?;
            }
            states = next;
            outputs.push(output);
        }
        let last = outputs.last().ok_or_else(|| Error::message(format!("{} takes sequences of at least one step", self.name())))?;
        let output = if self.return_sequences { Tensor::stack(&outputs, 1)? } else { last.clone() };
        Ok(Sequence { output, states })
    }

    fn initial(&self, x: &Tensor, batch: u32, given: Option<&[Tensor]>) -> Result<Vec<Tensor>> {
        let mut wanted = Vec::new();
        for size in self.cell.state_sizes() {
            wanted.push(TensorType::new(x.dtype(), Shape::new(&[batch, size])?));
        }
        let Some(given) = given else {
            let device = x.device()?;
            return wanted.into_iter().map(|wanted| Tensor::zeros(&device, wanted)).collect();
        };
        if given.iter().map(Tensor::tensor_type).eq(wanted.iter().copied()) {
            return Ok(given.to_vec());
        }
        let got: Vec<TensorType> = given.iter().map(Tensor::tensor_type).collect();
        Err(Error::message(format!("{} takes initial states {wanted:?}, not {got:?}", self.name())))
    }

    /// The mask of each step, `[batch, 1]`.
    fn masks(&self, mask: &Tensor, dims: [u32; 2]) -> Result<Vec<Tensor>> {
        if mask.dims() != dims {
            return Err(Error::message(format!("{} takes a mask of shape {dims:?}, not {}", self.name(), mask.tensor_type())));
        }
        mask.unstack(1)?.iter().map(|mask| mask.expand_dims(1)).collect()
    }
}

impl<C: Module + RNNCell> Module for RNN<C> {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        self.cell.visit_under(self.cell.name(), visit);
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
        let [_, _, features] = inputs::dims(self.name(), inputs::SEQUENCES, input.dims())?;
        self.cell.build(scope, features)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        Ok(self.unroll(read(&self.cell, scope)?, x, None, None)?.output)
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
