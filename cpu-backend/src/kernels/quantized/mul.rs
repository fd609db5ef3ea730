//! Products of elements.

use super::pairs::{self, Limits, Pair, scale};
use crate::simd::integers::{IntegerSet, Integers, Scale};
use gradlet_core::Result;
use gradlet_core::custom_op::{Call, broadcast::Order};
use gradlet_core::ops::quantized_mul::{Attributes, I8};

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    pairs::run(call, set, &I8, |order| Mul { attributes, order })
}

struct Mul {
    attributes: Attributes,
    order: Order,
}

/// The attributes, for operands x and y.
struct Numbers<V> {
    zero_points: [V; 2],
    product: Scale<V>,
    limits: Limits<V>,
}

impl Pair for Mul {
    type Numbers<V: Copy> = Numbers<V>;

    #[inline(always)]
    fn numbers<S: Integers>(&self, simd: S) -> Numbers<S::Vector> {
        let Attributes { zero_points, output, multiplier } = self.attributes;
        Numbers {
            zero_points: self.order.of(zero_points).map(|zero_point| simd.splat(zero_point)),
            product: scale(simd, multiplier),
            limits: Limits::new(simd, output.zero_point, output.least, output.greatest),
        }
    }

    #[inline(always)]
    fn results<S: Integers>(simd: S, numbers: &Numbers<S::Vector>, x: S::Vector, y: S::Vector) -> S::Vector {
        let product = simd.mul(simd.sub(x, numbers.zero_points[0]), simd.sub(y, numbers.zero_points[1]));
        numbers.limits.elements(simd, simd.scale(product, &numbers.product))
    }
}
