//! Functions of pairs of elements, broadcast.

use super::{LINE, portable};
use crate::simd::integers::{IntegerSet, Integers, Scale, WithIntegers};
use crate::team;
use gradlet_core::Result;
use gradlet_core::custom_op::broadcast::{self, Order};
use gradlet_core::custom_op::{Call, Kernel};
use gradlet_core::ops::Multiplier;

/// Number of elements that a thread computes at a time.
const BLOCK: usize = 1 << 14;

/// A function of two elements, x and y.
pub(super) trait Pair: Sync {
    /// The numbers of the function, in vectors.
    type Numbers<V: Copy>;

    fn numbers<S: Integers>(&self, simd: S) -> Self::Numbers<S::Vector>;

    /// Returns the results for vectors of elements.
    fn results<S: Integers>(simd: S, numbers: &Self::Numbers<S::Vector>, x: S::Vector, y: S::Vector) -> S::Vector;
}

/// Runs a kernel with the instructions of `set`. `pair(order)` is its function.
pub(super) fn run<P: Pair>(call: &mut Call<'_, '_>, set: Option<IntegerSet>, kernel: &Kernel, pair: impl FnOnce(Order) -> P) -> Result<()> {
    let Some(set) = set else { return portable(call, kernel) };
    let order = Order::new(call)?;
    let pair = pair(order);
    // The cost counts only in a firmware.
    broadcast::rows(call, order, 1, &|x: &mut [i8], y| {
        let parallel = x.len() > 2 * BLOCK;
        team::each(parallel, x.chunks_mut(BLOCK).zip(y.chunks(BLOCK)), |(x, y)| set.run(Row { pair: &pair, x, y }));
    })
}

/// Rows of elements. Those of x become the results.
struct Row<'a, P> {
    pair: &'a P,
    x: &'a mut [i8],
    y: &'a [i8],
}

impl<P: Pair> WithIntegers for Row<'_, P> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let numbers = self.pair.numbers(simd);
        let whole = self.x.len() / S::LANES * S::LANES;
        let ((x, x_rest), (y, y_rest)) = (self.x.split_at_mut(whole), self.y.split_at(whole));
        for (x, y) in x.chunks_exact_mut(S::LANES).zip(y.chunks_exact(S::LANES)) {
            let results = P::results(simd, &numbers, simd.widen_signed(x), simd.widen_signed(y));
            simd.narrow(x, results);
        }
        if x_rest.is_empty() {
            return;
        }
        let mut padded = [[0; LINE]; 2];
        padded[0][..x_rest.len()].copy_from_slice(x_rest);
        padded[1][..x_rest.len()].copy_from_slice(&y_rest[..x_rest.len()]);
        let results = P::results(simd, &numbers, simd.widen_signed(&padded[0]), simd.widen_signed(&padded[1]));
        simd.narrow(&mut padded[0], results);
        x_rest.copy_from_slice(&padded[0][..x_rest.len()]);
    }
}

/// Returns the vector of a multiplier.
#[inline(always)]
pub(super) fn scale<S: Integers>(simd: S, of: Multiplier) -> Scale<S::Vector> {
    Scale::new(simd, simd.splat(of.value), simd.splat(of.exponent))
}

/// Zero point and scale of an operand, in vectors.
pub(super) struct Operand<V> {
    zero_point: V,
    scale: Scale<V>,
}

impl<V: Copy> Operand<V> {
    #[inline(always)]
    pub(super) fn new<S: Integers<Vector = V>>(simd: S, zero_point: i32, multiplier: Multiplier) -> Operand<V> {
        Operand { zero_point: simd.splat(zero_point), scale: scale(simd, multiplier) }
    }

    /// Returns the scaled numbers of the elements `x`, which are shifted to the left first.
    #[inline(always)]
    pub(super) fn scaled<S: Integers<Vector = V>>(&self, simd: S, x: V, shift: i32) -> V {
        simd.scale(simd.left(simd.sub(x, self.zero_point), simd.splat(shift)), &self.scale)
    }
}

/// Zero point, smallest and largest element of the results, in vectors.
pub(super) struct Limits<V>([V; 3]);

impl<V: Copy> Limits<V> {
    #[inline(always)]
    pub(super) fn new<S: Integers<Vector = V>>(simd: S, zero_point: i32, least: i32, greatest: i32) -> Limits<V> {
        Limits([simd.splat(zero_point), simd.splat(least), simd.splat(greatest)])
    }

    /// Returns the elements for numbers without the zero point.
    #[inline(always)]
    pub(super) fn elements<S: Integers<Vector = V>>(&self, simd: S, numbers: V) -> V {
        let [zero_point, least, greatest] = self.0;
        simd.least(simd.greatest(simd.add(numbers, zero_point), least), greatest)
    }
}
