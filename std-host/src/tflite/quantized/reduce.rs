//! Pooling, resizing, reductions and softmax.

use super::super::array::bilinear_options;
use super::super::conv::pool_options;
use super::super::node::{Emit, Imported, Node, one};
use super::super::reduce::distinct;
use super::{dtype_of, range, supported, whole};
use crate::formats::tflite::{ReducerOptions, SoftmaxOptions};
use gradlet_core::{DType, Quantization, Result, Tensor};

/// Fails unless x and y have the same quantization.
fn same(node: &Node<'_>) -> Imported<()> {
    if whole(node.input(0)?)? == whole(node.output(0)?)? { Ok(()) } else { Err("its input and output have different scales".into()) }
}

pub(super) fn average_pool<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (activation, padding, strides, size) = pool_options(node)?;
    same(node)?;
    let range = range(activation, node.output(0)?)?;
    one(move |inputs| inputs.get(0)?.quantized_avg_pool2d(size, strides, padding, range))
}

pub(super) fn max_pool<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (activation, padding, strides, size) = pool_options(node)?;
    same(node)?;
    let range = range(activation, node.output(0)?)?;
    one(move |inputs| {
        let y = inputs.get(0)?.max_pool2d(size, strides, padding)?;
        match range {
            Some((least, greatest)) => y.maximum(&y.like(least.into())?)?.minimum(&y.like(greatest.into())?),
            None => Ok(y),
        }
    })
}

fn reduced<'m>(node: &Node<'m>, reduce: fn(&Tensor, &[i32], bool, Quantization, Quantization) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let keep = node.options::<ReducerOptions<'_>>()?.keep_dims();
    let (x, y) = (node.input(0)?, node.output(0)?);
    let (axes, from, to) = (distinct(node.numbers(1)?, x.dims.len()), whole(x)?, whole(y)?);
    one(move |inputs| reduce(&inputs.get(0)?, &axes, keep, from, to))
}

pub(super) fn mean<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    reduced(node, Tensor::quantized_mean)
}

pub(super) fn sum<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    reduced(node, Tensor::quantized_sum)
}

pub(super) fn softmax<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let (beta, from, to) = (node.options::<SoftmaxOptions<'_>>()?.beta(), whole(x)?, whole(y)?);
    // TensorFlow Lite's softmax has this scale in any case.
    let wanted = match dtype_of(y)? {
        DType::I16 => Quantization { scale: 1.0 / 32768.0, zero_point: 0 },
        _ => Quantization { scale: 1.0 / 256.0, zero_point: i8::MIN.into() },
    };
    if dtype_of(x)? != dtype_of(y)? || to != wanted {
        return Err(format!("its output is {} with {to}, not {} with {wanted}", y.kind, x.kind));
    }
    one(move |inputs| inputs.get(0)?.quantized_softmax(from, beta))
}

/// Imports the division of vectors by their Euclidean norm.
pub(super) fn l2_normalization<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (x, y) = (node.input(0)?, node.output(0)?);
    let (from, to, wanted) = (whole(x)?, whole(y)?, Quantization { scale: 1.0 / 128.0, zero_point: 0 });
    if [dtype_of(x)?, dtype_of(y)?] != [DType::I8; 2] || to != wanted {
        return Err(format!("its input is {}, and its output {} with {to}, not INT8 with {wanted}", x.kind, y.kind));
    }
    one(move |inputs| inputs.get(0)?.quantized_l2_normalize(from))
}

pub(super) fn resize_bilinear<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let (size, centres) = bilinear_options(node)?;
    same(node)?;
    supported(node, &[DType::I8, DType::I16])?;
    one(move |inputs| inputs.growing(0)?.quantized_resize_bilinear(size, centres))
}
