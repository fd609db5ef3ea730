//! Squares of differences.

use super::pairs::{self, Pair, Range, scale};
use crate::simd::integers::{IntegerSet, Integers, Scale};
use gradlet_core::Result;
use gradlet_core::custom_op::Call;
use gradlet_core::ops::quantized_squared_difference::{Attributes, I8};

/// Number of bits by which the operands are shifted to the left.
const SHIFT: i32 = 7;

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    pairs::run(call, set, &I8, |order| SquaredDifference { attributes, order })
}

struct SquaredDifference {
    attributes: Attributes,
    order: [usize; 2],
}

/// The attributes, for operands x and y.
struct Numbers<V> {
    zero_points: [V; 2],
    scales: [Scale<V>; 2],
    square: Scale<V>,
    range: Range<V>,
}

impl Pair for SquaredDifference {
    type Numbers<V: Copy> = Numbers<V>;

    #[inline(always)]
    fn numbers<S: Integers>(&self, simd: S) -> Numbers<S::Vector> {
        let Attributes { zero_points, output, operands, square } = self.attributes;
        Numbers {
            zero_points: self.order.map(|operand| simd.splat(zero_points[operand])),
            scales: self.order.map(|operand| scale(simd, operands[operand])),
            square: scale(simd, square),
            range: Range::new(simd, [output.zero_point, output.least, output.greatest]),
        }
    }

    #[inline(always)]
    fn results<S: Integers>(simd: S, numbers: &Numbers<S::Vector>, x: S::Vector, y: S::Vector) -> S::Vector {
        let shift = simd.splat(SHIFT);
        let x = simd.scale(simd.left(simd.sub(x, numbers.zero_points[0]), shift), &numbers.scales[0]);
        let y = simd.scale(simd.left(simd.sub(y, numbers.zero_points[1]), shift), &numbers.scales[1]);
        let difference = simd.sub(x, y);
        numbers.range.elements(simd, simd.scale(simd.mul(difference, difference), &numbers.square))
    }
}
