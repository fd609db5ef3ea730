//! Functions of one quantized tensor, and those that choose by its sign.

use super::super::node::{Emit, Imported, Node, one};
use super::{dtype_of, whole};
use crate::formats::tflite::{GeluOptions, LeakyReluOptions, Tensor as Described};
use gradlet_core::ops::{PairQuantization, tables};
use gradlet_core::{DType, Quantization, Result, Tensor};

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

/// Imports a real function as a table, for int8 or int16.
fn real<'m>(node: &Node<'m>, function: impl Fn(f32) -> f32) -> Imported<Emit<'m>> {
    match int16(node)? {
        Some((from, to)) => wide_table(tables::wide_function(symmetric(from)?, symmetric(to)?, function)),
        None => table(node, |x, y| tables::function(x, y, function)),
    }
}

/// Returns the scale of an int16 tensor.
fn symmetric(quantization: Quantization) -> Imported<f32> {
    match quantization {
        Quantization { scale, zero_point: 0 } => Ok(scale),
        Quantization { zero_point, .. } => Err(format!("an int16 tensor has the zero point {zero_point}, not 0")),
    }
}

/// Imports a function of one int16 tensor as a table.
fn wide_table<'m>(table: tables::WideTable) -> Imported<Emit<'m>> {
    one(move |inputs| inputs.get(0)?.lookup(&Tensor::new(inputs.device(), &table, &[table.len() as u32])?))
}

pub(super) fn exp<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    real(node, tables::exp)
}

pub(super) fn log<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let to = whole(node.output(0)?)?;
    let least = if dtype_of(node.output(0)?)? == DType::I16 { i16::MIN.into() } else { i32::from(i8::MIN) };
    let least = least.wrapping_sub(to.zero_point) as f32 * to.scale;
    real(node, move |x| tables::log(x, least))
}

pub(super) fn gelu<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let approximate = node.options::<GeluOptions<'_>>()?.approximate();
    real(node, move |x| tables::gelu(x, approximate))
}

pub(super) fn elu<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    table(node, |x, y| tables::function(x, y, tables::elu))
}

pub(super) fn sqrt<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    table(node, tables::sqrt)
}

pub(super) fn rsqrt<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let Some((from, to)) = int16(node)? else { return table(node, tables::rsqrt) };
    let greatest = f32::from(i16::MAX) * to.scale;
    let inverse = move |x: f32| if x <= 0.0 { greatest } else { 1.0 / x.sqrt() };
    wide_table(tables::wide_function(symmetric(from)?, symmetric(to)?, inverse))
}

/// Imports the absolute value. For int16, it is a change of scale, or a product with -1.
pub(super) fn abs<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let Some((from, to)) = int16(node)? else { return table(node, tables::abs) };
    let ratio = Quantization { scale: symmetric(from)? / symmetric(to)?, zero_point: 0 };
    let unit = Quantization { scale: 1.0, zero_point: 0 };
    one(move |inputs| {
        let x = inputs.get(0)?;
        let negated = PairQuantization { left: ratio, right: unit, output: unit, range: None };
        let negated = x.quantized_mul(&Tensor::scalar(inputs.device(), -1i16), &negated)?;
        x.less(&x.like(0.0)?)?.select(&negated, &x.requantize(ratio, DType::I16, unit)?)
    })
}

/// Imports the identity for positive numbers, and for others a product with the slope of each channel.
pub(super) fn prelu<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (x, slope, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    if [x, slope, y].into_iter().any(|tensor| tensor.kind.dtype() != Some(DType::I8)) {
        return Err(format!("it is not supported for {} with slopes of {}", x.kind, slope.kind));
    }
    let (from, right, to) = (whole(x)?, whole(slope)?, whole(y)?);
    // The ratios are f32, as in TensorFlow Lite.
    let [positive, negative] = [from.scale / to.scale, from.scale * right.scale / to.scale];
    let of = |scale, zero_point| Quantization { scale, zero_point };
    let output = of(1.0, to.zero_point);
    let product = PairQuantization { left: of(negative, from.zero_point), right: of(1.0, right.zero_point), output, range: None };
    let identity = of(positive, from.zero_point);
    one(move |inputs| {
        let (x, slope) = (inputs.get(0)?, inputs.get(1)?);
        let is_negative = x.less(&x.like(identity.zero_point.into())?)?;
        is_negative.select(&x.quantized_mul(&slope, &product)?, &x.requantize(identity, DType::I8, output)?)
    })
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
