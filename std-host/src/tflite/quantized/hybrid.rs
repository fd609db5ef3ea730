//! Operators with weights of 8 bits on floats, which are quantized for each call: dynamic range quantization.
//!
//! The integers are computed as f32, which has all of them.

use super::super::conv::{depthwise_options, options, transpose_options};
use super::super::node::{Activation, Emit, Imported, Node, one};
use super::super::plan::Inputs;
use crate::formats::tflite::FullyConnectedOptions;
use gradlet_core::{DType, Error, Result, Tensor};

/// Largest integer of 8 bits.
const GREATEST: f64 = 127.0;
/// Smallest integer of 8 bits.
const LEAST: f64 = -128.0;

/// Floats as integers: an element `q` stands for `scale · q`. Each row has its own scale.
struct Quantized {
    integers: Tensor,
    scale: Tensor,
}

/// Rounds to the nearest integer. Ties go away from zero.
fn rounded(x: &Tensor) -> Result<Tensor> {
    let magnitude = x.abs()?;
    magnitude.add(&magnitude.like(0.5)?)?.floor()?.mul(&x.sign()?)
}

/// Returns `numerator / denominator`, with 1 for a denominator of 0.
fn ratio(numerator: &Tensor, denominator: &Tensor) -> Result<Tensor> {
    denominator
        .equal(&denominator.like(0.0)?)?
        .select(&numerator.like(1.0)?.broadcast_to(denominator.dims())?, &numerator.div(denominator)?)
}

/// Quantizes along `axes`. The zero point of an asymmetric quantization is already subtracted.
fn quantized(x: &Tensor, axes: &[i32], asymmetric: bool) -> Result<Quantized> {
    if !asymmetric {
        let limit = x.abs()?.max(axes, true)?;
        let inverse = ratio(&limit.like(GREATEST)?, &limit)?;
        let integers = rounded(&x.mul(&inverse)?)?.clip_by_value(-GREATEST, GREATEST)?;
        return Ok(Quantized { integers, scale: limit.div(&limit.like(GREATEST)?)? });
    }
    let zero = x.like(0.0)?;
    let (least, greatest) = (x.min(axes, true)?.minimum(&zero)?, x.max(axes, true)?.maximum(&zero)?);
    let range = greatest.sub(&least)?;
    let scale = range.div(&range.like(GREATEST - LEAST)?)?;
    let inverse = ratio(&range.like(1.0)?, &scale)?;
    // The zero point comes from the end of the range at which it is more exact.
    let (low, high) = (least.mul(&inverse)?, greatest.mul(&inverse)?);
    let (from_low, from_high) = (low.like(LEAST)?.sub(&low)?, high.like(GREATEST)?.sub(&high)?);
    let nearer = low.abs()?.add(&low.like(-LEAST)?)?.less(&high.abs()?.add(&high.like(GREATEST)?)?)?;
    let zero_point = rounded(&nearer.select(&from_low, &from_high)?)?.clip_by_value(LEAST, GREATEST)?;
    let integers = rounded(&x.mul(&inverse)?.add(&zero_point)?)?.clip_by_value(LEAST, GREATEST)?.sub(&zero_point)?;
    Ok(Quantized { integers, scale })
}

/// Returns the scales of the weights, input 1, along the last axis of a result, and checks that their zero points are 0.
fn weights(node: &Node<'_>) -> Imported<Vec<f32>> {
    let quantization = node.input(1)?.quantization.as_ref().ok_or("its weights have no scale")?;
    if let Some(other) = quantization.zero_points.iter().find(|&&zero_point| zero_point != 0) {
        return Err(format!("its weights have the zero point {other}, not 0"));
    }
    if node.input(1)?.kind.dtype() != Some(DType::I8) {
        return Err(format!("its weights are {}, not int8", node.input(1)?.kind));
    }
    Ok(quantization.scales.clone())
}

/// Returns the products of integers as floats, plus the bias, input `bias`.
fn finish(
    inputs: &Inputs<'_, '_, '_>,
    products: &Tensor,
    scale: &Tensor,
    scales: &[f32],
    bias: usize,
    activation: Activation,
) -> Result<Tensor> {
    let scales = Tensor::new(inputs.device(), scales, &[scales.len() as u32])?;
    let y = products.mul(&scale.mul(&scales)?)?;
    activation.apply(inputs.optional(bias)?.map_or(Ok(y.clone()), |bias| y.add(&bias))?)
}

pub(super) fn fully_connected<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<FullyConnectedOptions<'_>>()?;
    let activation = Activation::new(options.fused_activation_function())?;
    let (keep, asymmetric, scales) = (options.keep_num_dims(), options.asymmetric_quantize_inputs(), weights(node)?);
    one(move |inputs| {
        let (x, kernel) = (inputs.get(0)?, inputs.transposed(1, &[1, 0])?.cast(DType::F32)?);
        let columns = kernel.dims().first().copied().unwrap_or(1);
        let matrix = x.dims().len() == 2 && x.shape().back(0) == Some(columns);
        let x = if keep || matrix { x } else { x.reshape_open(&[-1, columns.into()])? };
        let Quantized { integers, scale } = quantized(&x, &[-1], asymmetric)?;
        finish(inputs, &integers.dense(&kernel, None)?, &scale, &scales, 2, activation)
    })
}

/// Imports a convolution. Weights with one scale for all channels meet floats without a zero point.
pub(super) fn conv2d<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let ((conv, activation), scales) = (options(node)?, weights(node)?);
    one(move |inputs| {
        let (x, filter) = (inputs.get(0)?, inputs.transposed(1, &[1, 2, 3, 0])?.cast(DType::F32)?);
        let Quantized { integers, scale } = quantized(&x, &[1, 2, 3], scales.len() > 1)?;
        finish(inputs, &integers.conv2d(&filter, None, &conv)?, &scale, &scales, 2, activation)
    })
}

pub(super) fn depthwise_conv2d<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let ((conv, activation), scales) = (depthwise_options(node)?, weights(node)?);
    one(move |inputs| {
        let (x, filter) = (inputs.get(0)?, inputs.get(1)?.cast(DType::F32)?);
        let (&[.., channels], &[_, kh, kw, co]) = (x.dims(), filter.dims()) else { return Err(Error::Rank { input: 0 }) };
        let filter = filter.reshape(&[kh, kw, channels, co.checked_div(channels).unwrap_or(1)])?;
        let Quantized { integers, scale } = quantized(&x, &[1, 2, 3], true)?;
        finish(inputs, &integers.depthwise_conv2d(&filter, None, &conv)?, &scale, &scales, 2, activation)
    })
}

/// Imports a transposed convolution of floats, whose weights become floats.
pub(super) fn transpose_conv<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let ((conv, activation, size), scales) = (transpose_options(node)?, weights(node)?);
    one(move |inputs| {
        let (filter, x) = (inputs.transposed(1, &[1, 2, 0, 3])?.cast(DType::F32)?, inputs.get(2)?);
        let Quantized { integers, scale } = quantized(&x, &[1, 2, 3], true)?;
        finish(inputs, &integers.conv2d_transpose(&filter, &conv, size)?, &scale, &scales, 3, activation)
    })
}
