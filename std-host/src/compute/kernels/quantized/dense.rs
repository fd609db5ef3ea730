//! Dense layer: products of vectors of bytes.

use super::super::scratch;
use super::channels::{Range, multiplier};
use super::field::biased;
use super::{LINE, ONES, portable};
use crate::compute::simd::integers::{IntegerSet, Integers, WithIntegers};
use crate::compute::team;
use gradlet_core::Result;
use gradlet_core::custom_op::Call;
use gradlet_core::ops::quantized_dense::{Attributes, I8};

/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 20;

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let Attributes { input_zero_point, roundings, output } = call.attributes()?;
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let (n, k) = (filter.dim(0), filter.dim(1));
    let Some(set) = set.filter(|_| n * k > 0) else { return portable(call, &I8) };
    let range = Range { zero_point: output.zero_point, least: output.least, greatest: output.greatest };
    let (x, filter, bias, multipliers) = (x.slice::<i8>(), filter.slice(), call.input(2)?.slice(), call.input(3)?.slice());
    let result = call.output()?.slice_mut::<i8>();
    // Each line is padded to whole vectors of zeros.
    let padded = k.next_multiple_of(4 * LINE);
    scratch::with(x.len() / k * padded, |lines: &mut [u8]| {
        for (to, from) in lines.chunks_exact_mut(padded).zip(x.chunks_exact(k)) {
            to[..k].iter_mut().zip(from).for_each(|(to, &from)| *to = biased(from));
            to[k..].fill(0);
        }
        let dense = Dense { lines, padded, filter, k, bias, multipliers, zero_point: input_zero_point, once: roundings == 1, range };
        let parallel = x.len() * n > ALONE;
        let channels = if parallel { n.div_ceil(4 * team::threads()) } else { n };
        scratch::with(result.len(), |columns: &mut [i8]| {
            let parts = columns.chunks_mut(channels * (x.len() / k).max(1)).enumerate();
            team::each(parallel, parts, |(index, columns)| {
                scratch::with(padded, |row| set.run(Part { dense: &dense, first: index * channels, columns, row }));
            });
            for (channel, column) in columns.chunks_exact((x.len() / k).max(1)).enumerate() {
                result.iter_mut().skip(channel).step_by(n).zip(column).for_each(|(to, &from)| *to = from);
            }
        });
    });
    Ok(())
}

/// Arguments of a dense layer.
struct Dense<'a> {
    lines: &'a [u8],
    /// Length of a line.
    padded: usize,
    filter: &'a [i8],
    k: usize,
    bias: &'a [i32],
    multipliers: &'a [i32],
    zero_point: i32,
    /// True if the product with a multiplier is rounded once.
    once: bool,
    range: Range,
}

/// The channels of a result from `first` on: the elements of all lines for each of them.
struct Part<'a, 'r> {
    dense: &'a Dense<'a>,
    first: usize,
    columns: &'r mut [i8],
    /// Memory for a padded filter.
    row: &'r mut [u8],
}

impl WithIntegers for Part<'_, '_> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let Dense { lines, padded, filter, k, bias, multipliers, zero_point, once, range } = *self.dense;
        let row = self.row;
        row[k..].fill(0);
        for (channel, column) in (self.first..).zip(self.columns.chunks_exact_mut((lines.len() / padded).max(1))) {
            row[..k].copy_from_slice(bytemuck::cast_slice(&filter[channel * k..][..k]));
            let start = bias[channel].wrapping_sub((128 + zero_point).wrapping_mul(sum(simd, None, row)));
            let multiplier = multiplier(multipliers, channel);
            for (y, line) in column.iter_mut().zip(lines.chunks_exact(padded)) {
                let sum = start.wrapping_add(sum(simd, Some(line), row));
                *y = range.element(if once { multiplier.once(sum) } else { multiplier.twice(sum) });
            }
        }
    }
}

/// Returns the sum of the products of `line`, or of ones, and `row`, which have the length of whole vectors.
#[inline(always)]
fn sum<S: Integers>(simd: S, line: Option<&[u8]>, row: &[u8]) -> i32 {
    let mut sums = simd.splat(0);
    for (index, row) in row.chunks_exact(4 * S::LANES).enumerate() {
        let x = match line {
            Some(line) => simd.load_bytes(&line[index * 4 * S::LANES..]),
            None => simd.splat(ONES),
        };
        sums = simd.dot(sums, x, simd.load_bytes(row));
    }
    let mut elements = [0; LINE];
    simd.store(&mut elements, sums);
    elements.iter().fold(0, |sum, &element| sum.wrapping_add(element))
}
