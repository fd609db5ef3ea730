//! The steps of a recurrent layer: as a loop in the graph, or one by one.

use super::{RNN, RNNCell, Sequence, inputs_of, read};
use crate::base::error::{Error, Result};
use crate::base::shape::{Shape, TensorType};
use crate::nn::layers::{Layer, inputs, observed_call};
use crate::tensor::Tensor;
use crate::tensor::scope::{Scope, ScopeHandle};
use crate::trace::control::{WhileOptions, meeting, while_loop};
use crate::trace::scan::unrolls;
use crate::trace::tensor_array::TensorArray;
use alloc::format;
use alloc::vec::Vec;

/// Values that all steps of a call share.
struct Steps<'a, C> {
    layer: &'a RNN<C>,
    scope: ScopeHandle,
    /// Number of steps in the input.
    count: u32,
    /// Number of steps to run, if the caller passed one. Otherwise all steps run.
    length: Option<&'a Tensor>,
    weights: Vec<Tensor>,
    /// Inputs of all steps after [`RNNCell::project`], `[batch, steps, …]`.
    x: Tensor,
    mask: Option<&'a Tensor>,
    /// Factors by which recurrent dropout multiplies the first state, or `None` without recurrent dropout.
    dropped: Option<Tensor>,
}

impl<C: RNNCell> RNN<C> {
    /// Builds the layer if it is not built yet, and runs it. The run starts from `initial_state` if given. Without it, a stateful
    /// layer starts from its own states, and any other layer from zeros. Steps at which the mask, boolean `[batch, steps]`, is
    /// false leave the states unchanged.
    ///
    /// Fails if the shapes do not fit, or if there are no steps.
    pub fn run(&self, scope: &dyn Scope, x: &Tensor, initial_state: Option<&[Tensor]>, mask: Option<&Tensor>) -> Result<Sequence> {
        self.observed(scope, x, initial_state, |scope, x, states| self.sequence(scope, x, states, mask, None))
    }

    /// Calls `sequence` inside of this layer, with `x` and the initial states as the layer computes with them, and returns its result.
    /// Observers of the scope see it as a call of this layer. Builds the layer first, if it is not built yet.
    fn observed(
        &self,
        scope: &dyn Scope,
        x: &Tensor,
        initial_state: Option<&[Tensor]>,
        sequence: impl FnOnce(&ScopeHandle, &Tensor, Option<&[Tensor]>) -> Result<Sequence>,
    ) -> Result<Sequence> {
        let call = |scope: &ScopeHandle| {
            let (x, states) = (scope.input(x)?, initial_state.map(|states| inputs_of(scope, states)).transpose()?);
            self.ensure_built(scope, &x)?;
            sequence(scope, &x, states.as_deref())
        };
        let output = |sequence: &Sequence| sequence.output.tensor_type();
        observed_call(&scope.handle().in_layer(true), self.name(), self.kind(), self, output, call)
    }

    /// The same as [`RNN::run`] for only the first `length` steps, where `length` is an i32 scalar. If `x` has the maximum number
    /// of steps, a program that is traced once also processes shorter sequences. The outputs of the remaining steps are zeros.
    ///
    /// ```
    /// use gradlet_core::layers::LSTM;
    /// use gradlet_core::{Eager, Function, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let layer = LSTM::new(4);
    /// let f = Function::new(move |scope: &dyn Scope, (x, length): (Tensor, Tensor)| {
    ///     Ok(layer.run_first(scope, &x, &length, None)?.output)
    /// });
    /// let x = Tensor::full(&scope.device(), 0.5f32, &[1, 10, 3])?;
    /// for length in [3, 10] {
    ///     f.call(&scope, (x.clone(), Tensor::scalar(&scope.device(), length)))?;
    /// }
    /// assert_eq!(f.traces(), 1);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Fails in the same cases as [`RNN::run`], and if `length` is not an i32 scalar.
    pub fn run_first(&self, scope: &dyn Scope, x: &Tensor, length: &Tensor, initial_state: Option<&[Tensor]>) -> Result<Sequence> {
        if length.tensor_type() != TensorType::I32 {
            return Err(Error::message(format!("{} takes a length of type i32[], not {}", self.name(), length.tensor_type())));
        }
        self.observed(scope, x, initial_state, |scope, x, states| self.sequence(scope, x, states, None, Some(length)))
    }

    /// Runs the layer like [`RNN::run`], with `weights` as the values of the cell's variables. The layer's own states are neither
    /// read nor changed.
    pub fn compute(
        &self,
        scope: &dyn Scope,
        weights: Vec<Tensor>,
        x: &Tensor,
        initial_state: Option<&[Tensor]>,
        mask: Option<&Tensor>,
    ) -> Result<Sequence> {
        self.go(scope, weights, x, initial_state, mask, None)
    }

    /// Runs the built layer. The run starts from the states `given`. Without them, a stateful layer starts from its own states, and
    /// any other layer from zeros. A stateful layer keeps the states after the last step.
    pub(super) fn sequence(
        &self,
        scope: &dyn Scope,
        x: &Tensor,
        given: Option<&[Tensor]>,
        mask: Option<&Tensor>,
        length: Option<&Tensor>,
    ) -> Result<Sequence> {
        let own;
        let given = match given {
            None if !self.states.is_empty() => {
                own = self.states.iter().map(|variable| scope.read(variable)).collect::<Result<Vec<_>>>()?;
                Some(own.as_slice())
            }
            given => given,
        };
        let sequence = self.go(scope, read(&self.cell, scope)?, x, given, mask, length)?;
        self.states.iter().zip(&sequence.states).try_for_each(|(variable, state)| scope.assign(variable, state))?;
        Ok(sequence)
    }

    fn go(
        &self,
        scope: &dyn Scope,
        weights: Vec<Tensor>,
        x: &Tensor,
        initial_state: Option<&[Tensor]>,
        mask: Option<&Tensor>,
        length: Option<&Tensor>,
    ) -> Result<Sequence> {
        let [batch, count, features] = inputs::sequences(self.name(), x)?;
        if count == 0 {
            return Err(Error::message(format!("{} takes sequences of at least one step, not of 0", self.name())));
        }
        if let Some(mask) = mask.filter(|mask| mask.dims() != [batch, count]) {
            let dims = [batch, count];
            return Err(Error::message(format!("{} takes a mask of shape {dims:?}, not {}", self.name(), mask.tensor_type())));
        }
        let states = self.initial(x, batch, initial_state)?;
        let weights = self.cell.prepare(weights)?;
        let scope = meeting(scope, &[x])?;
        let drop = |rate: f64, dims: &[u32]| match scope.training() && rate > 0.0 {
            true => x.like(1.0)?.broadcast_to(dims)?.dropout(&scope, rate, dims).map(Some),
            false => Ok(None),
        };
        let kept = drop(self.dropout, &[batch, 1, features])?;
        let dropped = match self.cell.state_sizes().first() {
            Some(&size) => drop(self.recurrent_dropout, &[batch, size])?,
            None => None,
        };
        let x = self.cell.project(&weights, &kept.map_or(Ok(x.clone()), |kept| x.mul(&kept))?)?;
        let steps = Steps { layer: self, scope, count, length, weights, x, mask, dropped };
        let computed = length.is_none_or(|length| length.buffer().is_ok());
        let unroll = self.unroll.unwrap_or_else(|| unrolls(&steps.scope.device(), count));
        match computed && (unroll || count == 1 || !steps.scope.recorder.traces()) {
            true => steps.one_by_one(states),
            false => steps.looped(states),
        }
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
        Err(Error::message(format!("{} takes initial states of the types {wanted:?}, not {got:?}", self.name())))
    }
}

impl<C: RNNCell> Steps<'_, C> {
    /// Returns the output and the states after a step. `before` is the output of the previous step. `None` stands for zeros.
    fn step(&self, x: &Tensor, mask: Option<&Tensor>, states: &[Tensor], before: Option<&Tensor>) -> Result<(Tensor, Vec<Tensor>)> {
        // `identity` makes the gradients of a state that come from one step add up first. The gradients of a loop then have the
        // same bits as the gradients of unrolled steps.
        let states = &states.iter().map(Tensor::identity).collect::<Result<Vec<_>>>()?;
        let (output, next) = match &self.dropped {
            Some(dropped) => self.layer.cell.step_dropped(&self.weights, x, states, dropped)?,
            None => self.layer.cell.step(&self.weights, x, states)?,
        };
        let Some(mask) = mask else { return Ok((output, next)) };
        let mask = mask.expand_dims(1)?;
        let zeros = output.like(0.0)?;
        let output = mask.select(&output, before.filter(|_| !self.layer.zero_output_for_mask).unwrap_or(&zeros))?;
        let next = next.iter().zip(states).map(|(next, state)| mask.select(next, state)).collect::<Result<_>>()?;
        Ok((output, next))
    }

    fn one_by_one(&self, mut states: Vec<Tensor>) -> Result<Sequence> {
        let x = self.x.unstack(1)?;
        let masks = self.mask.map(|mask| mask.unstack(1)).transpose()?;
        let length = self.length.map(Tensor::item::<i32>).transpose()?.map(|length| length.max(0) as usize);
        let length = length.unwrap_or(x.len()).min(x.len());
        let mut outputs: Vec<Tensor> = Vec::new();
        for step in 0..length {
            let at = if self.layer.go_backwards { length - 1 - step } else { step };
            let mask = masks.as_ref().map(|masks| &masks[at]);
            let (output, next) = self.step(&x[at], mask, &states, outputs.last())?;
            states = next;
            outputs.push(output);
        }
        let nothing = self.nothing()?;
        let output = match self.layer.return_sequences {
            true => Tensor::stack(&outputs.into_iter().chain(core::iter::repeat(nothing)).take(x.len()).collect::<Vec<_>>(), 1)?,
            false => outputs.pop().unwrap_or(nothing),
        };
        Ok(Sequence { output, states })
    }

    /// Returns zeros in the shape of an output. They serve as the output before the first step, and as the output of steps that do not run.
    fn nothing(&self) -> Result<Tensor> {
        let shape = Shape::new(&[self.x.dims()[0], self.layer.cell.output_size()])?;
        Tensor::zeros(&self.scope.device(), TensorType::new(self.x.dtype(), shape))
    }

    /// Runs the steps as a loop in the graph.
    fn looped(&self, states: Vec<Tensor>) -> Result<Sequence> {
        let scope = &self.scope;
        let device = scope.device();
        let number = |number: u32| Tensor::scalar(&device, number as i32);
        let end = self.length.map_or(Ok(number(self.count)), |length| length.minimum(&number(self.count)))?;
        let last = end.add_scalar(-1.0)?;
        let before = self.nothing()?;
        let outputs = match self.layer.return_sequences {
            true => Some(TensorArray::zeros(scope, before.tensor_type(), self.count)?),
            false => None,
        };
        let options = WhileOptions { max_iterations: Some(self.count) };
        let state = (number(0), states, before, outputs);
        let (_, states, output, outputs) = while_loop(
            scope,
            options,
            state,
            |(step, ..)| step.less(&end),
            |(step, states, before, outputs)| {
                let at = if self.layer.go_backwards { last.sub(&step)? } else { step.clone() };
                let mask = self.mask.map(|mask| mask.gather(&at, 1)).transpose()?;
                let (output, states) = self.step(&self.x.gather(&at, 1)?, mask.as_ref(), &states, Some(&before))?;
                let outputs = outputs.map(|outputs| outputs.write(&step, &output)).transpose()?;
                Ok((step.add_scalar(1.0)?, states, output, outputs))
            },
        )?;
        let output = match outputs {
            Some(outputs) => outputs.stack()?.transpose(&[1, 0, 2])?,
            None => output,
        };
        Ok(Sequence { output, states })
    }
}
