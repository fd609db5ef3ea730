//! Sums and differences.

use super::pairs::{self, Pair, Range, scale};
use crate::simd::integers::{IntegerSet, Integers, Scale};
use gradlet_core::Result;
use gradlet_core::custom_op::Call;
use gradlet_core::ops::quantized_add::{Attributes, I8};

/// Number of bits by which the operands are shifted to the left.
const SHIFT: i32 = 20;

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    pairs::run(call, set, &I8, |order| Add { attributes, order })
}

struct Add {
    attributes: Attributes,
    order: [usize; 2],
}

/// The attributes, for operands x and y.
struct Numbers<V> {
    zero_points: [V; 2],
    scales: [Scale<V>; 2],
    sum: Scale<V>,
    /// Number of the operand that is subtracted.
    subtracted: Option<usize>,
    range: Range<V>,
}

impl Pair for Add {
    type Numbers<V: Copy> = Numbers<V>;

    #[inline(always)]
    fn numbers<S: Integers>(&self, simd: S) -> Numbers<S::Vector> {
        let Attributes { zero_points, output, operands, sum, subtract } = self.attributes;
        Numbers {
            zero_points: self.order.map(|operand| simd.splat(zero_points[operand])),
            scales: self.order.map(|operand| scale(simd, operands[operand])),
            sum: scale(simd, sum),
            subtracted: self.order.iter().position(|&operand| operand == 1 && subtract != 0),
            range: Range::new(simd, [output.zero_point, output.least, output.greatest]),
        }
    }

    #[inline(always)]
    fn results<S: Integers>(simd: S, numbers: &Numbers<S::Vector>, x: S::Vector, y: S::Vector) -> S::Vector {
        let shift = simd.splat(SHIFT);
        let x = simd.scale(simd.left(simd.sub(x, numbers.zero_points[0]), shift), &numbers.scales[0]);
        let y = simd.scale(simd.left(simd.sub(y, numbers.zero_points[1]), shift), &numbers.scales[1]);
        let sum = match numbers.subtracted {
            None => simd.add(x, y),
            Some(0) => simd.sub(y, x),
            Some(_) => simd.sub(x, y),
        };
        numbers.range.elements(simd, simd.scale(sum, &numbers.sum))
    }
}
