//! Sums and differences of tensors of one shape.

use super::{LINE, portable};
use crate::simd::integers::{IntegerSet, Integers, Scale, WithIntegers};
use crate::team;
use gradlet_core::Result;
use gradlet_core::custom_op::Call;
use gradlet_core::ops::Multiplier;
use gradlet_core::ops::quantized_add::{Attributes, I8};

/// Number of elements that a thread computes at a time.
const BLOCK: usize = 1 << 14;
/// Number of bits by which the operands are shifted to the left.
const SHIFT: i32 = 20;

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let attributes: Attributes = call.attributes()?;
    let (a, b) = (call.input(0)?, call.input(1)?);
    let Some(set) = set.filter(|_| a.dims() == b.dims()) else { return portable(call, &I8) };
    let terms = [a, b].map(|term| (!term.in_place()).then(|| term.slice::<i8>()));
    let result = call.output()?.slice_mut::<i8>();
    team::each(result.len() > 2 * BLOCK, result.chunks_mut(BLOCK).enumerate(), |(index, result)| {
        let terms = terms.map(|term| term.map(|term| &term[index * BLOCK..][..result.len()]));
        set.run(Add { attributes: &attributes, terms, result });
    });
    Ok(())
}

/// A stretch of a sum.
struct Add<'a> {
    attributes: &'a Attributes,
    /// The elements of both terms. The elements of a term in place are those of the result.
    terms: [Option<&'a [i8]>; 2],
    result: &'a mut [i8],
}

impl WithIntegers for Add<'_> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let Attributes { zero_points, output, operands: [a, b], sum, subtract } = *self.attributes;
        let numbers = Numbers {
            zero_points: [simd.splat(zero_points[0]), simd.splat(zero_points[1])],
            scales: [scale(simd, a), scale(simd, b)],
            sum: scale(simd, sum),
            subtract: subtract != 0,
            output: [simd.splat(output.zero_point), simd.splat(output.least), simd.splat(output.greatest)],
        };
        let [a, b] = self.terms;
        let mut chunks = self.result.chunks_exact_mut(S::LANES);
        let mut at = 0;
        for result in &mut chunks {
            let (a, b) = (simd.widen_signed(of(a, result, at)), simd.widen_signed(of(b, result, at)));
            simd.narrow(result, numbers.element(simd, a, b));
            at += S::LANES;
        }
        let rest = chunks.into_remainder();
        let mut padded = [[0; LINE]; 2];
        for (padded, term) in padded.iter_mut().zip([a, b]) {
            padded[..rest.len()].copy_from_slice(of(term, rest, at));
        }
        let [a, b] = [simd.widen_signed(&padded[0]), simd.widen_signed(&padded[1])];
        simd.narrow(&mut padded[0], numbers.element(simd, a, b));
        rest.copy_from_slice(&padded[0][..rest.len()]);
    }
}

/// Returns the elements of a term from `at` on, where `result` begins.
#[inline(always)]
fn of<'a>(term: Option<&'a [i8]>, result: &'a [i8], at: usize) -> &'a [i8] {
    match term {
        Some(term) => &term[at..],
        None => result,
    }
}

#[inline(always)]
fn scale<S: Integers>(simd: S, of: Multiplier) -> Scale<S::Vector> {
    Scale::new(simd, simd.splat(of.value), simd.splat(of.exponent))
}

/// The attributes of a sum.
struct Numbers<V> {
    zero_points: [V; 2],
    scales: [Scale<V>; 2],
    sum: Scale<V>,
    subtract: bool,
    /// Zero point, smallest and largest element of the result.
    output: [V; 3],
}

impl<V: Copy> Numbers<V> {
    /// Returns the elements of the result for those of the terms.
    #[inline(always)]
    fn element<S: Integers<Vector = V>>(&self, simd: S, a: V, b: V) -> V {
        let shift = simd.splat(SHIFT);
        let a = simd.scale(simd.left(simd.sub(a, self.zero_points[0]), shift), &self.scales[0]);
        let b = simd.scale(simd.left(simd.sub(b, self.zero_points[1]), shift), &self.scales[1]);
        let sum = simd.scale(if self.subtract { simd.sub(a, b) } else { simd.add(a, b) }, &self.sum);
        let [zero_point, least, greatest] = self.output;
        simd.least(simd.greatest(simd.add(sum, zero_point), least), greatest)
    }
}
