//! Operators on elements.

use super::super::node::{Activation, Emit, Imported, Node, one};
use super::{dtype_of, range, whole};
use crate::formats::tflite::{AddOptions, ConcatenationOptions, LeakyReluOptions, MulOptions, SubOptions, Tensor as Described};
use gradlet_core::ops::{PairQuantization, tables};
use gradlet_core::{DType, Quantization, Result, Tensor};

fn pair<'m>(node: &Node<'m>, activation: i8, function: fn(&Tensor, &Tensor, &PairQuantization) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let scaling = scaling(node, activation)?;
    one(move |inputs| function(&inputs.get(0)?, &inputs.get(1)?, &scaling))
}

fn scaling(node: &Node<'_>, activation: i8) -> Imported<PairQuantization> {
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

/// Returns the quantizations of input and output if both are int16, and `None` if none of them is.
fn int16(node: &Node<'_>) -> Imported<Option<(Quantization, Quantization)>> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    match [dtype_of(x)?, dtype_of(y)?] {
        [DType::I16, DType::I16] => Ok(Some((whole(x)?, whole(y)?))),
        [DType::I16, _] | [_, DType::I16] => Err(format!("its input is {}, but its output {}", x.kind, y.kind)),
        _ => Ok(None),
    }
}

/// Imports a function of one int16 tensor whose results have the scale 1/32768.
fn fraction<'m>(from: Quantization, to: Quantization, function: fn(&Tensor, Quantization) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let wanted = Quantization { scale: 1.0 / 32768.0, zero_point: 0 };
    if to != wanted {
        return Err(format!("its output has {to}, not {wanted}"));
    }
    one(move |inputs| function(&inputs.get(0)?, from))
}

pub(super) fn logistic<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    match int16(node)? {
        Some((from, to)) => fraction(from, to, Tensor::quantized_sigmoid),
        None => table(node, tables::sigmoid),
    }
}

pub(super) fn tanh<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    match int16(node)? {
        Some((from, to)) => fraction(from, to, Tensor::quantized_tanh),
        None => table(node, tables::tanh),
    }
}

pub(super) fn hard_swish<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    table(node, tables::hard_swish)
}

/// Imports the identity for positive numbers, and a product with the slope for others. For int16, both are changes of scale.
pub(super) fn leaky_relu<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let alpha = node.options::<LeakyReluOptions<'_>>()?.alpha();
    let Some((from, to)) = int16(node)? else { return table(node, move |x, y| tables::leaky_relu(x, y, alpha)) };
    // The ratios are f32, as in TensorFlow Lite.
    let [positive, negative] = [from.scale / to.scale, from.scale * alpha / to.scale];
    if !(negative > 0.0 && negative.is_finite()) || from.zero_point != 0 || to.zero_point != 0 {
        return Err(format!("its slope is {alpha}, from {from} to {to}"));
    }
    let unit = Quantization { scale: 1.0, zero_point: 0 };
    one(move |inputs| {
        let x = inputs.get(0)?;
        let by = |scale| x.requantize(Quantization { scale, zero_point: 0 }, DType::I16, unit);
        x.less(&x.like(0.0)?)?.select(&by(negative)?, &by(positive)?)
    })
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
