//! Recurrent operators on quantized tensors.

use super::super::node::{Activation, Emit, Imported, Node, one};
use super::super::recurrent::{
    CELL, CELL_STATE, FORGET, Gate, INPUT, NORMALIZATION, OUTPUT, OUTPUT_STATE, PROJECTION, SVDF_BIAS, SVDF_FEATURES, SVDF_STATE,
    SVDF_TIME, SvdfState, batch, steps,
};
use super::{dtype_of, whole};
use crate::formats::tflite::{SvdfOptions, UnidirectionalSequenceLstmOptions};
use gradlet_core::ops::{LstmQuantization, SvdfQuantization};
use gradlet_core::{DType, Error, Quantization, Result, Tensor};

/// Gates in the order of their weights.
const GATES: [&Gate; 4] = [&INPUT, &FORGET, &CELL, &OUTPUT];

/// Imports an LSTM with weights of 8 bits and a cell of 16 bits.
pub(super) fn lstm<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<UnidirectionalSequenceLstmOptions<'_>>()?;
    check(node, &options)?;
    let scaling = scaling(node, options.cell_clip())?;
    let time = if options.time_major() { 0 } else { 1 };
    let zero = scaling.output.zero_point as i8;
    one(move |inputs| {
        let x = inputs.get(0)?;
        let batch = batch(&x, time)?;
        let joined = |positions: [usize; 4]| {
            let parts = positions.into_iter().map(|at| inputs.get(at)).collect::<Result<Vec<Tensor>>>()?;
            Tensor::concat(&parts, 0)
        };
        let weights = joined(GATES.map(|gate| gate.input))?;
        let (recurrent, bias) = (joined(GATES.map(|gate| gate.recurrent))?, joined(GATES.map(|gate| gate.bias))?);
        let dims = [batch, recurrent.dims().last().copied().unwrap_or(0)];
        let output = inputs.state(OUTPUT_STATE, &Tensor::scalar(inputs.device(), zero), &dims)?;
        let cell = inputs.state(CELL_STATE, &Tensor::scalar(inputs.device(), 0i16), &dims)?;
        steps(inputs, &x, time, (output, cell), |(output, cell), x| {
            x.quantized_lstm_step(&output, &cell, [&weights, &recurrent, &bias], &scaling)
        })
    })
}

/// Imports a singular value decomposition filter with filters over time and a state of 16 bits.
pub(super) fn svdf<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let state = SvdfState::new(node)?;
    let activation = Activation::new(node.options::<SvdfOptions<'_>>()?.fused_activation_function())?;
    if activation != Activation::Relu {
        return Err("its activation is not RELU, which TensorFlow Lite requires and leaves to the scale of the output".into());
    }
    let scaling = SvdfQuantization {
        input: of(node, 0, DType::I8)?,
        features: symmetric(node, SVDF_FEATURES, DType::I8)?,
        time: symmetric(node, SVDF_TIME, DType::I16)?,
        state: symmetric(node, SVDF_STATE, DType::I16)?,
        output: whole(node.output(0)?)?,
    };
    one(move |inputs| {
        let (x, features, time) = (inputs.get(0)?, inputs.get(SVDF_FEATURES)?, inputs.get(SVDF_TIME)?);
        let bias = inputs.optional(SVDF_BIAS)?.map_or_else(|| Tensor::full(inputs.device(), 0i32, &[state.units()]), Ok)?;
        let mut y = None;
        state.update(inputs, x.dims().first().copied().unwrap_or(0), DType::I16, |last| {
            let (output, next) = x.quantized_svdf_step(&last, [&features, &time, &bias], &scaling)?;
            y = Some(output);
            Ok(next)
        })?;
        y.ok_or(Error::Internal)
    })
}

/// Fails if the operator has parts that gradlet does not import for quantized tensors.
fn check(node: &Node<'_>, options: &UnidirectionalSequenceLstmOptions<'_>) -> Imported<()> {
    let has = |at: usize| node.optional(at).is_some();
    let peephole = GATES.iter().filter_map(|gate| gate.cell).any(has);
    let refused = [
        (peephole, "its gates see the cell"),
        (PROJECTION.into_iter().any(has), "it has a projection"),
        (NORMALIZATION.into_iter().any(has), "it normalizes its gates"),
        (options.diagonal_recurrent_tensors(), "its recurrent weights are diagonal"),
        (Activation::new(options.fused_activation_function())? != Activation::Tanh, "its activation is not TANH"),
    ];
    match refused.iter().find(|(is, _)| *is) {
        Some((_, reason)) => Err(format!("{reason}, which is not supported for quantized tensors")),
        None => Ok(()),
    }
}

/// Returns the scale and zero point of an input, which must have this element type.
fn of(node: &Node<'_>, at: usize, dtype: DType) -> Imported<Quantization> {
    let tensor = node.input(at)?;
    if dtype_of(tensor)? == dtype { whole(tensor) } else { Err(format!("its input {at} is {}, not {dtype}", tensor.kind)) }
}

/// Returns the scale of an input whose zero point must be 0.
fn symmetric(node: &Node<'_>, at: usize, dtype: DType) -> Imported<f32> {
    match of(node, at, dtype)? {
        Quantization { scale, zero_point: 0 } => Ok(scale),
        Quantization { zero_point, .. } => Err(format!("its input {at} has the zero point {zero_point}, not 0")),
    }
}

/// Reads the scales.
fn scaling(node: &Node<'_>, cell_clip: f32) -> Imported<LstmQuantization> {
    let [mut weights, mut recurrent] = [[0.0; 4]; 2];
    for ((gate, scale), recurrent) in GATES.iter().zip(&mut weights).zip(&mut recurrent) {
        node.input(gate.bias)?;
        (*scale, *recurrent) = (symmetric(node, gate.input, DType::I8)?, symmetric(node, gate.recurrent, DType::I8)?);
    }
    let (input, output, cell) = (of(node, 0, DType::I8)?, of(node, OUTPUT_STATE, DType::I8)?, symmetric(node, CELL_STATE, DType::I16)?);
    if whole(node.output(0)?)? != output {
        return Err(format!("its output has another scale than its state, {output}"));
    }
    Ok(LstmQuantization { input, output, weights, recurrent, cell, cell_clip })
}
