//! Recurrent operators on quantized tensors.

use super::super::node::{Activation, Emit, Imported, Node, one};
use super::super::recurrent::{CELL, CELL_STATE, FORGET, Gate, INPUT, NORMALIZATION, OUTPUT, OUTPUT_STATE, PROJECTION, batch, steps};
use super::{dtype_of, whole};
use crate::formats::tflite::UnidirectionalSequenceLstmOptions;
use gradlet_core::ops::LstmQuantization;
use gradlet_core::{DType, Quantization, Result, Tensor};

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

/// Reads the scales.
fn scaling(node: &Node<'_>, cell_clip: f32) -> Imported<LstmQuantization> {
    let of = |at: usize, dtype: DType| -> Imported<Quantization> {
        let tensor = node.input(at)?;
        if dtype_of(tensor)? == dtype { whole(tensor) } else { Err(format!("its input {at} is {}, not {dtype}", tensor.kind)) }
    };
    let symmetric = |at: usize, dtype: DType| match of(at, dtype)? {
        Quantization { scale, zero_point: 0 } => Ok(scale),
        Quantization { zero_point, .. } => Err(format!("its input {at} has the zero point {zero_point}, not 0")),
    };
    let [mut weights, mut recurrent] = [[0.0; 4]; 2];
    for ((gate, scale), recurrent) in GATES.iter().zip(&mut weights).zip(&mut recurrent) {
        node.input(gate.bias)?;
        (*scale, *recurrent) = (symmetric(gate.input, DType::I8)?, symmetric(gate.recurrent, DType::I8)?);
    }
    let (input, output, cell) = (of(0, DType::I8)?, of(OUTPUT_STATE, DType::I8)?, symmetric(CELL_STATE, DType::I16)?);
    if whole(node.output(0)?)? != output {
        return Err(format!("its output has another scale than its state, {output}"));
    }
    Ok(LstmQuantization { input, output, weights, recurrent, cell, cell_clip })
}
