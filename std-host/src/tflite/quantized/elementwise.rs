//! Operators on elements.

use super::super::node::{Activation, Emit, Imported, Node, one};
use super::{dtype_of, range, supported, whole};
use crate::formats::tflite::{AddOptions, ConcatenationOptions, MulOptions, SubOptions};
use gradlet_core::ops::PairQuantization;
use gradlet_core::{DType, Quantization, Result, Tensor};

fn pair<'m>(node: &Node<'m>, activation: i8, function: fn(&Tensor, &Tensor, &PairQuantization) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let scaling = scaling(node, activation)?;
    one(move |inputs| function(&inputs.get(0)?, &inputs.get(1)?, &scaling))
}

/// Returns the scales of an operator on two tensors.
pub(super) fn scaling(node: &Node<'_>, activation: i8) -> Imported<PairQuantization> {
    let (left, right, output) = (whole(node.input(0)?)?, whole(node.input(1)?)?, node.output(0)?);
    Ok(PairQuantization { left, right, output: whole(output)?, range: range(Activation::new(activation)?, output)? })
}

pub(super) fn add<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<AddOptions<'_>>()?;
    check_powers(node, options.pot_scale_int16())?;
    pair(node, options.fused_activation_function(), Tensor::quantized_add)
}

pub(super) fn sub<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<SubOptions<'_>>()?;
    check_powers(node, options.pot_scale_int16())?;
    pair(node, options.fused_activation_function(), Tensor::quantized_sub)
}

/// Fails for int16 whose scales are different powers of two, if `shifts` permits shifts instead of products: these round otherwise.
fn check_powers(node: &Node<'_>, shifts: bool) -> Imported<()> {
    let scaling = scaling(node, 0)?;
    let scales = [scaling.left, scaling.right, scaling.output].map(|quantization| quantization.scale);
    // TensorFlow Lite takes such a number for a power of two.
    let is_power = |scale: &f32| (scale.log2() - scale.log2().round()).abs() < 1e-3;
    let equal = scales.iter().all(|scale| *scale == scaling.output.scale);
    if shifts && dtype_of(node.output(0)?)? == DType::I16 && !equal && scales.iter().all(is_power) {
        return Err(format!("it shifts INT16 of the scales {scales:?}, which are powers of two"));
    }
    Ok(())
}

pub(super) fn mul<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    pair(node, node.options::<MulOptions<'_>>()?.fused_activation_function(), Tensor::quantized_mul)
}

pub(super) fn squared_difference<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    supported(node, &[DType::I8])?;
    pair(node, 0, Tensor::quantized_squared_difference)
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
