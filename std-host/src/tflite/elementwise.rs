//! Operators on elements.

use super::node::{Activation, Emit, Imported, Node, one};
use crate::formats::tflite::{AddOptions, DivOptions, GeluOptions, LeakyReluOptions, MulOptions, SubOptions};
use gradlet_core::{DType, Error, Result, Tensor};

/// Imports a function of one tensor.
pub(super) fn unary<'m>(function: fn(&Tensor) -> Result<Tensor>) -> Imported<Emit<'m>> {
    one(move |inputs| function(&inputs.get(0)?))
}

/// Imports a function of two tensors.
pub(super) fn binary<'m>(function: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Imported<Emit<'m>> {
    one(move |inputs| function(&inputs.get(0)?, &inputs.get(1)?))
}

fn activated<'m>(activation: i8, function: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let activation = Activation::new(activation)?;
    one(move |inputs| activation.apply(function(&inputs.get(0)?, &inputs.get(1)?)?))
}

pub(super) fn add<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    activated(node.options::<AddOptions<'_>>()?.fused_activation_function(), Tensor::add)
}

pub(super) fn sub<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    activated(node.options::<SubOptions<'_>>()?.fused_activation_function(), Tensor::sub)
}

pub(super) fn mul<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    activated(node.options::<MulOptions<'_>>()?.fused_activation_function(), Tensor::mul)
}

/// Imports a division. That of integers rounds toward zero.
pub(super) fn div<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let divide = |x: &Tensor, y: &Tensor| if x.dtype().is_float() { x.div(y) } else { x.truncatediv(y) };
    activated(node.options::<DivOptions<'_>>()?.fused_activation_function(), divide)
}

pub(super) fn add_n<'m>() -> Imported<Emit<'m>> {
    one(|inputs| {
        let mut terms = inputs.all()?.into_iter();
        let first = terms.next().ok_or(Error::Arity { got: 0 })?;
        terms.try_fold(first, |sum, term| sum.add(&term))
    })
}

pub(super) fn leaky_relu<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let alpha = f64::from(node.options::<LeakyReluOptions<'_>>()?.alpha());
    one(move |inputs| inputs.get(0)?.leaky_relu(alpha))
}

pub(super) fn prelu<'m>() -> Imported<Emit<'m>> {
    one(|inputs| {
        let (x, alpha) = (inputs.get(0)?, inputs.get(1)?);
        x.greater_equal(&x.like(0.0)?)?.select(&x, &x.mul(&alpha)?)
    })
}

pub(super) fn gelu<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let approximate = node.options::<GeluOptions<'_>>()?.approximate();
    one(move |inputs| inputs.get(0)?.gelu(approximate))
}

/// Imports a cast to the type of the output.
pub(super) fn cast<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let dtype = node.output_dtype(0)?;
    one(move |inputs| inputs.get(0)?.cast(dtype))
}

/// Imports the conversion of 16-bit floats to f32. That of quantized tensors is in `quantized.rs`.
pub(super) fn dequantize<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    match node.input(0)?.kind.dtype() {
        Some(DType::F16 | DType::Bf16) => cast(node),
        _ => Err(format!("its input is {} without a quantization", node.input(0)?.kind)),
    }
}

/// Imports the choice between two tensors. A list of conditions chooses whole rows, as in TensorFlow 1.
pub(super) fn select<'m>() -> Imported<Emit<'m>> {
    one(|inputs| {
        let (condition, x, otherwise) = (inputs.get(0)?, inputs.get(1)?, inputs.get(2)?);
        match (condition.dims(), x.dims()) {
            (&[rows], [first, rest @ ..]) if rows == *first && !rest.is_empty() => {
                let dims: Vec<u32> = std::iter::once(rows).chain(rest.iter().map(|_| 1)).collect();
                condition.reshape(&dims)?.select(&x, &otherwise)
            }
            _ => condition.select(&x, &otherwise),
        }
    })
}

pub(super) fn select_v2<'m>() -> Imported<Emit<'m>> {
    one(|inputs| inputs.get(0)?.select(&inputs.get(1)?, &inputs.get(2)?))
}
