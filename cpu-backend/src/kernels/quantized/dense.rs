//! Dense layers: products of vectors of bytes. A vector has the sums of some channels, each of which has added up in a vector of its own.

use super::super::scratch;
use super::channels::{Channels, Lanes, Range, multiplier, with_channels};
use super::field::biased;
use super::{LINE, OFFSET, portable};
use crate::simd::integers::{IntegerSet, Integers, WithIntegers};
use crate::team;
use gradlet_core::Result;
use gradlet_core::custom_op::Call;
use gradlet_core::ops::quantized_dense::{Attributes, I8};

/// Number of multiplications below which one thread is faster than several.
const ALONE: usize = 1 << 20;

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let Attributes { input_zero_point, roundings, output } = call.attributes()?;
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let k = filter.dim(1);
    let Some(set) = set.filter(|_| filter.dim(0) * k > 0) else { return portable(call, &I8) };
    let product = Product {
        lines: x.slice(),
        filters: filter.slice(),
        k,
        zero_points: [input_zero_point, 0],
        bias: call.input(2)?.slice(),
        multipliers: call.input(3)?.slice(),
        once: roundings == 1,
        range: Range { zero_point: output.zero_point, least: output.least, greatest: output.greatest },
    };
    product.run(set, call.output()?.slice_mut());
    Ok(())
}

/// Products of lines and filters of `k` elements each.
pub(super) struct Product<'a> {
    pub(super) lines: &'a [i8],
    pub(super) filters: &'a [i8],
    /// At least 1.
    pub(super) k: usize,
    /// Zero points of the lines and of the filters.
    pub(super) zero_points: [i32; 2],
    /// An element for each filter, at least one.
    pub(super) bias: &'a [i32],
    /// A multiplier for each filter, or one for all.
    pub(super) multipliers: &'a [i32],
    /// True if the product with a multiplier is rounded once.
    pub(super) once: bool,
    pub(super) range: Range,
}

impl Product<'_> {
    /// Computes the results with the instructions of `set`.
    pub(super) fn run(&self, set: IntegerSet, result: &mut [i8]) {
        let Product { k, range, once, .. } = *self;
        let (n, count, padded) = (self.bias.len(), self.lines.len() / k, k.next_multiple_of(4 * LINE));
        let parallel = self.lines.len() * n > ALONE;
        let width = if parallel { n.div_ceil(4 * team::threads()).next_multiple_of(LINE) } else { n };
        scratch::with((count + 1) * padded, |bytes: &mut [u8]| {
            let (ones, lines) = bytes.split_at_mut(padded);
            ones[..k].fill(1);
            for (to, from) in lines.chunks_exact_mut(padded).zip(self.lines.chunks_exact(k)) {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = biased(from));
            }
            [&mut *ones].into_iter().chain(lines.chunks_exact_mut(padded)).for_each(|line| line[k..].fill(0));
            // A number without a zero point has up to 8 bits.
            let products = if self.zero_points[1] == 0 { k } else { 2 * k };
            scratch::with(count, |line_terms: &mut [i32]| {
                line_terms.iter_mut().zip(self.lines.chunks_exact(k)).for_each(|(term, line)| *term = self.line_term(line));
                with_channels([self.bias, self.multipliers], products, range, |channels| {
                    let filter = bytemuck::cast_slice(self.filters);
                    let multipliers = self.multipliers;
                    let dense = Dense {
                        ones,
                        lines,
                        line_terms,
                        padded,
                        filter,
                        k,
                        channels,
                        multipliers,
                        zero_point: self.zero_points[0],
                        once,
                        range,
                    };
                    scratch::with(result.len(), |parts: &mut [i8]| {
                        team::each(parallel, parts.chunks_mut((width * count).max(1)).enumerate(), |(index, part)| {
                            scratch::with(LINE * padded, |rows| set.run(Part { dense: &dense, first: index * width, part, rows }));
                        });
                        for (index, part) in parts.chunks((width * count).max(1)).enumerate() {
                            let (first, width) = (index * width, width.min(n - index * width));
                            for (to, from) in result.chunks_exact_mut(n).zip(part.chunks_exact(width)) {
                                to[first..][..width].copy_from_slice(from);
                            }
                        }
                    });
                });
            });
        });
    }

    /// Returns what the zero point of the filters adds to the sums of a line.
    fn line_term(&self, line: &[i8]) -> i32 {
        match self.zero_points {
            [_, 0] => 0,
            [zero_point, filters] => {
                let sum = line.iter().fold(0i32, |sum, &x| sum.wrapping_add(i32::from(x) - zero_point));
                sum.wrapping_mul(-filters)
            }
        }
    }
}

/// Arguments of a dense layer. Each line, and the line of ones, has zeros up to the length `padded`.
struct Dense<'a> {
    ones: &'a [u8],
    lines: &'a [u8],
    /// Terms of the sums of each line, for the zero point of the filters.
    line_terms: &'a [i32],
    padded: usize,
    filter: &'a [u8],
    k: usize,
    channels: &'a Channels<'a>,
    multipliers: &'a [i32],
    zero_point: i32,
    /// True if the product with a multiplier is rounded once.
    once: bool,
    range: Range,
}

/// The channels of a result from `first` on: for each line, its elements.
struct Part<'a, 'r> {
    dense: &'a Dense<'a>,
    first: usize,
    part: &'r mut [i8],
    /// Memory for the padded filters of a vector of channels.
    rows: &'r mut [u8],
}

impl WithIntegers for Part<'_, '_> {
    #[inline(always)]
    fn with_integers<S: Integers>(self, simd: S) {
        let Dense { ones, lines, padded, filter, k, channels, zero_point, .. } = *self.dense;
        let width = self.part.len() / (lines.len() / padded).max(1);
        for at in (0..width).step_by(S::LANES) {
            let first = self.first + at;
            // What follows a filter meets zeros. Nothing follows the last ones.
            let whole = filter.get(first * k..).and_then(|rows| rows.get(..(S::LANES - 1) * k + padded));
            let (rows, pitch) = whole.map_or_else(|| (padded_rows(&filter[first * k..], k, padded, self.rows), padded), |rows| (rows, k));
            let lanes = channels.lanes(simd, first);
            // On x86-64, the bias is 0 after a ReLU, whose zero point is -128.
            let (bias, mut start) = (OFFSET + zero_point, lanes.start);
            for (index, (line, part)) in lines.chunks_exact(padded).zip(self.part.chunks_exact_mut(width)).enumerate() {
                let products = if index == 0 && bias != 0 {
                    let [of_ones, products] = sums(simd, [ones, line], rows, pitch);
                    start = simd.sub(start, simd.mul(of_ones, simd.splat(bias)));
                    products
                } else {
                    let [products] = sums(simd, [line], rows, pitch);
                    products
                };
                let to = &mut part[at..][..S::LANES.min(width - at)];
                let sums = simd.add(simd.add(start, products), simd.splat(self.dense.line_terms[index]));
                self.dense.finish(simd, &lanes, first, sums, to);
            }
        }
    }
}

impl Dense<'_> {
    /// Writes the elements for the sums of the channels from `first` on.
    #[inline(always)]
    fn finish<S: Integers>(&self, simd: S, lanes: &Lanes<S::Vector>, first: usize, sums: S::Vector, to: &mut [i8]) {
        match (self.once, self.channels.are_usual) {
            (false, true) => lanes.finish::<S, true>(simd, sums, to),
            (false, false) => lanes.finish::<S, false>(simd, sums, to),
            (true, true) => lanes.write(simd, lanes.usual_once(simd, sums), to),
            (true, false) => {
                let mut numbers = [0; LINE];
                simd.store(&mut numbers, sums);
                for (channel, (to, &sum)) in (first..).zip(to.iter_mut().zip(&numbers)) {
                    let number = multiplier(self.multipliers, channel).once(sum).wrapping_add(self.range.zero_point);
                    *to = number.max(self.range.least).min(self.range.greatest) as i8;
                }
            }
        }
    }
}

/// Copies some filters to `rows`, with zeros up to the length `padded`.
fn padded_rows<'a>(filter: &[u8], k: usize, padded: usize, rows: &'a mut [u8]) -> &'a [u8] {
    for (row, filter) in rows.chunks_exact_mut(padded).zip(filter.chunks_exact(k)) {
        row[..k].copy_from_slice(filter);
        row[k..].fill(0);
    }
    rows
}

/// Returns the sums of the products of one or two lines and each of some rows, `pitch` bytes apart.
#[inline(always)]
fn sums<S: Integers, const L: usize>(simd: S, lines: [&[u8]; L], rows: &[u8], pitch: usize) -> [S::Vector; L] {
    let mut blocks = [[simd.splat(0); 4]; L];
    for index in 0..S::LANES / 4 {
        let mut sums = [[simd.splat(0); 4]; L];
        let row = |row| rows[(4 * index + row) * pitch..][..lines[0].len()].chunks_exact(4 * S::LANES);
        let rows = row(0).zip(row(1)).zip(row(2).zip(row(3)));
        let lines = lines[0].chunks_exact(4 * S::LANES).zip(lines[L - 1].chunks_exact(4 * S::LANES));
        for ((first, last), ((a, b), (c, d))) in lines.zip(rows) {
            for (sums, x) in sums.iter_mut().zip([first, last]) {
                let x = simd.load_bytes(x);
                for (sum, row) in sums.iter_mut().zip([a, b, c, d]) {
                    *sum = simd.dot(*sum, x, simd.load_bytes(row));
                }
            }
        }
        for (blocks, sums) in blocks.iter_mut().zip(sums) {
            let [a, b, c, d] = simd.transpose(sums);
            blocks[index] = simd.add(simd.add(a, b), simd.add(c, d));
        }
    }
    let mut totals = [simd.splat(0); L];
    for (total, blocks) in totals.iter_mut().zip(blocks) {
        *total = simd.add_blocks(blocks);
    }
    totals
}
