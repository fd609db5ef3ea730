//! Sums and differences.

use super::pairs::{self, Limits, Operand, Pair, scale};
use crate::simd::integers::{IntegerSet, Integers, Scale};
use gradlet_core::Result;
use gradlet_core::custom_op::{Call, broadcast::Order};
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
    order: Order,
}

/// The attributes, for operands x and y.
struct Numbers<V> {
    operands: [Operand<V>; 2],
    sum: Scale<V>,
    /// The operand that is subtracted: 0 for x, 1 for y.
    subtracted: Option<usize>,
    limits: Limits<V>,
}

impl Pair for Add {
    type Numbers<V: Copy> = Numbers<V>;

    #[inline(always)]
    fn numbers<S: Integers>(&self, simd: S) -> Numbers<S::Vector> {
        let Attributes { zero_points, output, operands, sum, subtract } = self.attributes;
        let ([x_zero_point, y_zero_point], [x, y]) = (self.order.of(zero_points), self.order.of(operands));
        Numbers {
            operands: [Operand::new(simd, x_zero_point, x), Operand::new(simd, y_zero_point, y)],
            sum: scale(simd, sum),
            subtracted: self.order.of([false, subtract != 0]).iter().position(|&subtracted| subtracted),
            limits: Limits::new(simd, output.zero_point, output.least, output.greatest),
        }
    }

    #[inline(always)]
    fn results<S: Integers>(simd: S, numbers: &Numbers<S::Vector>, x: S::Vector, y: S::Vector) -> S::Vector {
        let [x, y] = [numbers.operands[0].scaled(simd, x, SHIFT), numbers.operands[1].scaled(simd, y, SHIFT)];
        let sum = match numbers.subtracted {
            None => simd.add(x, y),
            Some(0) => simd.sub(y, x),
            Some(_) => simd.sub(x, y),
        };
        numbers.limits.elements(simd, simd.scale(sum, &numbers.sum))
    }
}
