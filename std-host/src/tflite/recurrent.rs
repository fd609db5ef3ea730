//! Recurrent operators: a loop over time, or unrolled.

use super::node::{Activation, Emit, Imported, Node, one};
use super::plan::Inputs;
use crate::formats::tflite::{SequenceRnnOptions, SvdfOptions, UnidirectionalSequenceLstmOptions};
use gradlet_core::control::{ScanOptions, scan, unrolls};
use gradlet_core::function::Structure;
use gradlet_core::{DType, Error, Result, Scope, Shape, Tensor, TensorType};

/// The inputs of a gate: its weights for the input, those for the last output, those for the cell, and its bias.
pub(super) struct Gate {
    pub input: usize,
    pub recurrent: usize,
    pub cell: Option<usize>,
    pub bias: usize,
}

pub(super) const INPUT: Gate = Gate { input: 1, recurrent: 5, cell: Some(9), bias: 12 };
pub(super) const FORGET: Gate = Gate { input: 2, recurrent: 6, cell: Some(10), bias: 13 };
pub(super) const CELL: Gate = Gate { input: 3, recurrent: 7, cell: None, bias: 14 };
pub(super) const OUTPUT: Gate = Gate { input: 4, recurrent: 8, cell: Some(11), bias: 15 };
pub(super) const PROJECTION: [usize; 2] = [16, 17];
pub(super) const OUTPUT_STATE: usize = 18;
pub(super) const CELL_STATE: usize = 19;
pub(super) const NORMALIZATION: std::ops::RangeInclusive<usize> = 20..=23;

/// Greatest number of steps.
const MAX_STEPS: u32 = 10_000;
/// Greatest number of steps that are unrolled on every device. Each is a dozen ops in the artifact, and a little faster than in a loop.
const UNROLLED: u32 = 8;

/// Imports an LSTM, perhaps with peepholes, a projection, or an input gate that is the inverse of the forget gate.
pub(super) fn lstm<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<UnidirectionalSequenceLstmOptions<'_>>()?;
    let activation = Activation::new(options.fused_activation_function())?;
    if NORMALIZATION.into_iter().any(|at| node.optional(at).is_some()) {
        return Err("it normalizes its gates".into());
    }
    if options.diagonal_recurrent_tensors() {
        return Err("its recurrent weights are diagonal".into());
    }
    for gate in [&FORGET, &CELL, &OUTPUT] {
        [gate.input, gate.recurrent, gate.bias].into_iter().try_for_each(|at| node.input(at).map(drop))?;
    }
    let coupled = node.optional(INPUT.input).is_none();
    let (cell_clip, projection_clip) = (f64::from(options.cell_clip()), f64::from(options.proj_clip()));
    let time = if options.time_major() { 0 } else { 1 };
    one(move |inputs| {
        let x = inputs.get(0)?;
        let batch = batch(&x, time)?;
        let width = |at: usize| inputs.get(at).map(|weights| weights.dims().first().copied().unwrap_or(0));
        let cells = width(OUTPUT.input)?;
        let outputs = if inputs.optional(PROJECTION[0])?.is_some() { width(PROJECTION[0])? } else { cells };
        let output = inputs.state(OUTPUT_STATE, &x.like(0.0)?, &[batch, outputs])?;
        let cell = inputs.state(CELL_STATE, &x.like(0.0)?, &[batch, cells])?;
        steps(inputs, &x, time, (output, cell), |(output, cell), x| {
            let gate = |gate: &Gate, cell: &Tensor| sums(inputs, gate, &x, &output, cell);
            let forget = gate(&FORGET, &cell)?.sigmoid()?;
            let input = if coupled { forget.like(1.0)?.sub(&forget)? } else { gate(&INPUT, &cell)?.sigmoid()? };
            let candidate = activation.apply(gate(&CELL, &cell)?)?;
            let cell = clipped(forget.mul(&cell)?.add(&input.mul(&candidate)?)?, cell_clip)?;
            let open = gate(&OUTPUT, &cell)?.sigmoid()?;
            let mut output = open.mul(&activation.apply(cell.clone())?)?;
            if inputs.optional(PROJECTION[0])?.is_some() {
                let bias = inputs.optional(PROJECTION[1])?;
                output = clipped(output.dense(&inputs.transposed(PROJECTION[0], &[1, 0])?, bias.as_ref())?, projection_clip)?;
            }
            Ok((output, cell))
        })
    })
}

/// Imports a layer whose output is an activation of its input and its last output.
pub(super) fn rnn<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<SequenceRnnOptions<'_>>()?;
    let activation = Activation::new(options.fused_activation_function())?;
    let time = if options.time_major() { 0 } else { 1 };
    one(move |inputs| {
        let (x, bias) = (inputs.get(0)?, inputs.get(3)?);
        let (weights, recurrent) = (inputs.transposed(1, &[1, 0])?, inputs.transposed(2, &[1, 0])?);
        let dims = [batch(&x, time)?, bias.dims().first().copied().unwrap_or(0)];
        let output = inputs.state(4, &x.like(0.0)?, &dims)?;
        steps(inputs, &x, time, (output, ()), |(output, ()), x| {
            Ok((activation.apply(x.dense(&weights, Some(&bias))?.add(&output.dense(&recurrent, None)?)?)?, ()))
        })
    })
}

/// Operands of an SVDF.
pub(super) const SVDF_FEATURES: usize = 1;
pub(super) const SVDF_TIME: usize = 2;
pub(super) const SVDF_BIAS: usize = 3;
pub(super) const SVDF_STATE: usize = 4;

/// Imports a singular value decomposition filter: a dense layer over the last inputs. Its state is a variable, which all calls share.
pub(super) fn svdf<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let activation = Activation::new(node.options::<SvdfOptions<'_>>()?.fused_activation_function())?;
    let state = SvdfState::new(node)?;
    one(move |inputs| {
        let (x, time, bias) = (inputs.get(0)?, inputs.get(SVDF_TIME)?, inputs.optional(SVDF_BIAS)?);
        let newest = x.dense(&inputs.transposed(SVDF_FEATURES, &[1, 0])?, None)?.expand_dims(2)?;
        let next = state.update(inputs, x.dims().first().copied().unwrap_or(0), DType::F32, |last| {
            Tensor::concat(&[last.slice(&[0, 0, 1], &[-1, -1, -1])?, newest], 2)
        })?;
        let y = next.mul(&time)?.sum(&[2], false)?;
        let y = y.reshape_open(&[-1, state.units.into(), state.rank.into()])?.sum(&[2], false)?;
        activation.apply(bias.map_or(Ok(y.clone()), |bias| y.add(&bias))?)
    })
}

/// Greatest number of elements of an SVDF's state.
const MAX_STATE: u64 = 1 << 24;

/// Returns the name of the variable that keeps an input: that of the tensor, or a unique one if other tensors have it too.
fn name_of(node: &Node<'_>, at: usize) -> Imported<String> {
    let name = node.input(at)?.name;
    let index = node.operator.inputs.get(at).copied().flatten().unwrap_or_default();
    let alike = node.model.subgraphs.iter().flat_map(|graph| &graph.tensors).filter(|tensor| tensor.name == name).count();
    Ok(if name.is_empty() || alike > 1 { format!("{name}/state_{}_{index}", node.subgraph) } else { name.into() })
}

/// State of an SVDF: the last products of each filter over features.
pub(super) struct SvdfState {
    name: String,
    /// Number of outputs.
    units: u32,
    /// Number of filters for each output.
    rank: u32,
    /// Number of inputs that an output depends on.
    steps: u32,
}

impl SvdfState {
    pub(super) fn new(node: &Node<'_>) -> Imported<SvdfState> {
        let (time, state) = (node.input(SVDF_TIME)?, node.input(SVDF_STATE)?);
        let rank = u32::try_from(node.options::<SvdfOptions<'_>>()?.rank()).unwrap_or(0);
        if !state.is_variable {
            return Err(format!("its state {:?} is not a variable", state.name));
        }
        let &[filters, steps] = time.dims.as_slice() else { return Err(format!("its filters over time are {:?}", time.dims)) };
        if steps == 0 || !filters.is_multiple_of(rank.max(1)) || rank == 0 {
            return Err(format!("its rank is {rank}, and its filters over time are {:?}", time.dims));
        }
        let products = u64::from(filters) * u64::from(steps);
        if !matches!(state.dims.as_slice(), &[_, columns] if u64::from(columns) == products) || products > MAX_STATE {
            return Err(format!("its state is {:?}, and its filters over time are {:?}", state.dims, time.dims));
        }
        Ok(SvdfState { name: name_of(node, SVDF_STATE)?, units: filters / rank, rank, steps })
    }

    /// Returns the number of outputs.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Replaces the state `[batch, filters, steps]` by `next` of it, and returns the new one.
    pub(super) fn update(
        &self,
        inputs: &Inputs<'_, '_, '_>,
        batch: u32,
        dtype: DType,
        next: impl FnOnce(Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let scope = inputs.scope();
        let variable = inputs.variables().state(&self.name, scope, |eager| {
            let shape = Shape::new(&[batch, self.units * self.rank, self.steps])?;
            if shape.elements().is_none_or(|elements| elements as u64 > MAX_STATE) {
                return Err(Error::message(format!("the state {:?} has more than {MAX_STATE} elements", self.name)));
            }
            Tensor::zeros(&eager.device(), TensorType::new(dtype, shape))
        })?;
        let next = next(scope.read(&variable)?)?;
        scope.assign(&variable, &next)?;
        Ok(next)
    }
}

/// Returns the number of sequences. Fails unless `x` has three axes, and not too many steps along axis `time`.
pub(super) fn batch(x: &Tensor, time: i32) -> Result<u32> {
    let &[first, second, _] = x.dims() else { return Err(Error::Rank { input: 0 }) };
    let (steps, batch) = if time == 0 { (first, second) } else { (second, first) };
    if steps > MAX_STEPS {
        return Err(Error::message(format!("it has {steps} steps, but at most {MAX_STEPS} can be imported")));
    }
    Ok(batch)
}

/// Calls `step` with the state and each slice of `x` along axis `time`. `step` returns the next state, whose first part is the output.
/// Returns the outputs, stacked along that axis.
pub(super) fn steps<S: Structure>(
    inputs: &Inputs<'_, '_, '_>,
    x: &Tensor,
    time: i32,
    state: (Tensor, S),
    step: impl Fn((Tensor, S), Tensor) -> Result<(Tensor, S)>,
) -> Result<Tensor> {
    let count = x.dims().get(time as usize).copied().unwrap_or(0);
    if count <= UNROLLED || unrolls(inputs.device(), count) {
        let (mut state, mut outputs) = (state, Vec::new());
        for x in x.unstack(time)? {
            state = step(state, x)?;
            outputs.push(state.0.clone());
        }
        return Tensor::stack(&outputs, time);
    }
    let swapped = |x: &Tensor| if time == 0 { Ok(x.clone()) } else { x.transpose(&[1, 0, 2]) };
    swapped(&scan(inputs.scope(), ScanOptions::default(), &swapped(x)?, state, step)?.0)
}

/// Returns the sums of a gate, before its activation.
fn sums(inputs: &Inputs<'_, '_, '_>, gate: &Gate, x: &Tensor, output: &Tensor, cell: &Tensor) -> Result<Tensor> {
    let bias = inputs.get(gate.bias)?;
    let sums = x.dense(&inputs.transposed(gate.input, &[1, 0])?, Some(&bias))?;
    let sums = sums.add(&output.dense(&inputs.transposed(gate.recurrent, &[1, 0])?, None)?)?;
    match gate.cell.map(|at| inputs.optional(at)).transpose()?.flatten() {
        Some(weights) => sums.add(&cell.mul(&weights)?),
        None => Ok(sums),
    }
}

/// Clips a state, unless the limit is 0.
fn clipped(x: Tensor, limit: f64) -> Result<Tensor> {
    if limit > 0.0 { x.clip_by_value(-limit, limit) } else { Ok(x) }
}
