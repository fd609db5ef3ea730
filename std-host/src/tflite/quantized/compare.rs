//! Comparisons of quantized tensors.

use super::super::elementwise::binary;
use super::super::node::{Emit, Imported, Node, one};
use super::{dtype_of, whole};
use gradlet_core::ops::tables;
use gradlet_core::{DType, Result, Tensor};

/// Function that compares two tensors.
pub(super) type Compare = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Imports a comparison. TensorFlow Lite compares real numbers with 8 bits after the point, even if the scales are equal.
pub(super) fn compare<'m>(node: &Node<'m>, compare: Compare) -> Imported<Emit<'m>> {
    let (left, right) = (node.input(0)?, node.input(1)?);
    let (from, to) = (whole(left)?, whole(right)?);
    match [dtype_of(left)?, dtype_of(right)?] {
        // Different integers of such a scale are different numbers.
        _ if from == to && from.scale >= 1.0 / 256.0 => binary(compare),
        [DType::I8, DType::I8] => {
            let tables = [from, to].map(tables::reals);
            one(move |inputs| {
                let numbers = |at: usize| {
                    let index = inputs.get(at)?.cast(DType::I32)?;
                    let index = index.add(&index.like(128.0)?)?;
                    Tensor::new(inputs.device(), &tables[at], &[256])?.gather(&index, 0)
                };
                compare(&numbers(0)?, &numbers(1)?)
            })
        }
        _ => Err(format!("it is not supported for {} with {from} and {} with {to}", left.kind, right.kind)),
    }
}
