//! Operators on elements.

use super::super::node::{Activation, Emit, Imported, Node, one};
use super::{dtype_of, range, whole};
use crate::formats::tflite::{AddOptions, ConcatenationOptions, LeakyReluOptions, MulOptions, SubOptions, Tensor as Described};
use gradlet_core::ops::{PairQuantization, tables};
use gradlet_core::{DType, Quantization, Result, Tensor};

fn pair<'m>(node: &Node<'m>, activation: i8, function: fn(&Tensor, &Tensor, &PairQuantization) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let (left, right, output) = (whole(node.input(0)?)?, whole(node.input(1)?)?, node.output(0)?);
    let scaling = PairQuantization { left, right, output: whole(output)?, range: range(Activation::new(activation)?, output)? };
    one(move |inputs| function(&inputs.get(0)?, &inputs.get(1)?, &scaling))
}

pub(super) fn add<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    pair(node, node.options::<AddOptions<'_>>()?.fused_activation_function(), Tensor::quantized_add)
}

pub(super) fn sub<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    pair(node, node.options::<SubOptions<'_>>()?.fused_activation_function(), Tensor::quantized_sub)
}

pub(super) fn mul<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    pair(node, node.options::<MulOptions<'_>>()?.fused_activation_function(), Tensor::quantized_mul)
}

/// Imports the conversion of floats to integers, or of integers to others.
pub(super) fn quantize<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let (dtype, to) = (dtype_of(y)?, whole(y)?);
    match dtype_of(x)? {
        DType::F32 => one(move |inputs| inputs.get(0)?.quantize(dtype, to)),
        _ => {
            let from = whole(x)?;
            one(move |inputs| inputs.get(0)?.requantize(from, dtype, to))
        }
    }
}

pub(super) fn dequantize<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let from = whole(node.input(0)?)?;
    one(move |inputs| inputs.get(0)?.dequantize(from))
}

/// Imports a function of one int8 tensor as a table.
fn table<'m>(node: &Node<'m>, table: impl FnOnce(Quantization, Quantization) -> tables::Table) -> Imported<Emit<'m>> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let int8 = |tensor: &Described<'_>| match dtype_of(tensor)? {
        DType::I8 => Ok(()),
        _ => Err(format!("it is not supported for {}", tensor.kind)),
    };
    int8(x).and(int8(y))?;
    let table = table(whole(x)?, whole(y)?);
    one(move |inputs| inputs.get(0)?.lookup(&Tensor::new(inputs.device(), &table, &[256])?))
}

pub(super) fn logistic<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    table(node, tables::sigmoid)
}

pub(super) fn tanh<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    table(node, tables::tanh)
}

pub(super) fn hard_swish<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    table(node, tables::hard_swish)
}

pub(super) fn leaky_relu<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let alpha = node.options::<LeakyReluOptions<'_>>()?.alpha();
    table(node, move |x, y| tables::leaky_relu(x, y, alpha))
}

/// Imports an activation on its own: the change of scale, limited to a range.
pub(super) fn relu<'m>(node: &Node<'m>, activation: Activation) -> Imported<Emit<'m>> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let (from, dtype, to, range) = (whole(x)?, dtype_of(y)?, whole(y)?, range(activation, y)?);
    one(move |inputs| {
        let y = inputs.get(0)?.requantize(from, dtype, to)?;
        match range {
            Some((least, greatest)) => y.maximum(&y.like(least.into())?)?.minimum(&y.like(greatest.into())?),
            None => Ok(y),
        }
    })
}

/// Imports a concatenation of tensors with several scales: each gets the scale of the result.
pub(super) fn concat<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<ConcatenationOptions<'_>>()?;
    let (axis, y) = (options.axis(), node.output(0)?);
    if Activation::new(options.fused_activation_function())? != Activation::None {
        return Err("its activation is not supported for quantized tensors".into());
    }
    let (dtype, to) = (dtype_of(y)?, whole(y)?);
    let from = (0..node.operator.inputs.len()).map(|at| whole(node.input(at)?)).collect::<Imported<Vec<Quantization>>>()?;
    one(move |inputs| {
        let parts = inputs.all()?.into_iter().zip(&from);
        let parts = parts.map(|(part, &from)| if from == to { Ok(part) } else { part.requantize(from, dtype, to) });
        Tensor::concat(&parts.collect::<Result<Vec<_>>>()?, axis)
    })
}
