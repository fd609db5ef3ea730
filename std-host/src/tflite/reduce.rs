//! Reductions, scans and softmax.

use super::node::{Emit, Imported, Node, many, one};
use crate::formats::tflite::{CumsumOptions, ReducerOptions, SoftmaxOptions};
use gradlet_core::{DType, Result, Tensor};

/// Smallest norm by which TensorFlow Lite divides.
const NORM_EPSILON: f64 = 1e-6;

/// Imports a reduction. Input 1 has its axes.
pub(super) fn reduce<'m>(node: &Node<'m>, reduce: fn(&Tensor, &[i32], bool) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let keep = node.options::<ReducerOptions<'_>>()?.keep_dims();
    let axes = distinct(node.numbers(1)?, node.input(0)?.dims.len());
    one(move |inputs| match axes.as_slice() {
        [] => inputs.get(0),
        axes => reduce(&inputs.get(0)?, axes, keep),
    })
}

/// Returns axes that count from the front, without those that are listed again.
pub(super) fn distinct(axes: Vec<i32>, rank: usize) -> Vec<i32> {
    let rank = i32::try_from(rank).unwrap_or(i32::MAX);
    let mut axes: Vec<i32> = axes.into_iter().map(|axis| if axis < 0 { axis.saturating_add(rank) } else { axis }).collect();
    axes.sort_unstable();
    axes.dedup();
    axes
}

/// Imports the position of an extreme. Input 1 is the axis.
pub(super) fn position<'m>(node: &Node<'m>, position: fn(&Tensor, i32, DType) -> Result<Tensor>) -> Imported<Emit<'m>> {
    let (axis, dtype) = (node.number(1)?, node.output_dtype(0)?);
    one(move |inputs| position(&inputs.get(0)?, axis, dtype))
}

pub(super) fn cumsum<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<CumsumOptions<'_>>()?;
    let (axis, exclusive, reverse) = (node.number(1)?, options.exclusive(), options.reverse());
    one(move |inputs| inputs.get(0)?.cumsum(axis, exclusive, reverse))
}

pub(super) fn top_k<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let k = node.number(1)?;
    many(move |inputs| {
        let (values, positions) = inputs.get(0)?.top_k(k)?;
        Ok(vec![values, positions])
    })
}

pub(super) fn softmax<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let beta = f64::from(node.options::<SoftmaxOptions<'_>>()?.beta());
    one(move |inputs| {
        let x = inputs.get(0)?;
        if beta == 1.0 { x.softmax(-1) } else { x.mul_scalar(beta)?.softmax(-1) }
    })
}

/// Divides by the norm of the last axis.
pub(super) fn l2_normalization(x: &Tensor) -> Result<Tensor> {
    let norm = x.square()?.sum(&[-1], true)?.sqrt()?;
    x.div(&norm.maximum(&norm.like(NORM_EPSILON)?)?)
}
