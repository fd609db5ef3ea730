//! Comparisons of quantized tensors.

use super::super::elementwise::binary;
use super::super::node::{Emit, Imported, Node, one};
use super::{dtype_of, whole};
use gradlet_core::ops::tables;
use gradlet_core::{DType, Result, Tensor};

/// Function that compares two tensors.
type Compare = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Imports a comparison of order. TensorFlow Lite compares int16 as they are, whatever their scales.
pub(super) fn order<'m>(node: &Node<'m>, compare: Compare) -> Imported<Emit<'m>> {
    let both = [dtype_of(node.input(0)?)?, dtype_of(node.input(1)?)?];
    if both == [DType::I16; 2] { binary(compare) } else { equality(node, compare) }
}

/// Imports a comparison. TensorFlow Lite compares real numbers with 8 bits after the point, even if the scales are equal.
pub(super) fn equality<'m>(node: &Node<'m>, compare: Compare) -> Imported<Emit<'m>> {
    let (left, right) = (node.input(0)?, node.input(1)?);
    let (from, to) = (whole(left)?, whole(right)?);
    let first: i32 = match [dtype_of(left)?, dtype_of(right)?] {
        // Different integers of such a scale are different numbers.
        [dtype, other] if dtype == other && from == to && from.scale >= 1.0 / 256.0 => return binary(compare),
        [DType::I8, DType::I8] => i8::MIN.into(),
        [DType::U8, DType::U8] => 0,
        _ => return Err(format!("it is not supported for {} with {from} and {} with {to}", left.kind, right.kind)),
    };
    let tables = [from, to].map(|from| tables::reals(first, from));
    one(move |inputs| {
        let numbers = |at: usize| {
            let index = inputs.get(at)?.cast(DType::I32)?;
            let index = index.sub(&index.like(first.into())?)?;
            Tensor::new(inputs.device(), &tables[at], &[256])?.gather(&index, 0)
        };
        compare(&numbers(0)?, &numbers(1)?)
    })
}
