//! Products of matrices: dense layers whose filters are the columns of the right operand.

use super::super::scratch;
use super::channels::Range;
use super::dense::Product;
use super::portable;
use crate::simd::integers::IntegerSet;
use gradlet_core::custom_op::{Call, broadcast::position};
use gradlet_core::ops::quantized_matmul::{Attributes, I8};
use gradlet_core::{Error, Result};

/// Runs the kernel with the instructions of `set`.
pub(super) fn run(call: &mut Call<'_, '_>, set: Option<IntegerSet>) -> Result<()> {
    let Attributes { zero_points, output, multiplier, transposed } = call.attributes()?;
    let (a, b, y) = (call.input(0)?, call.input(1)?, call.output()?);
    let ([a_batch @ .., _, k], [b_batch @ .., _, _], [batch @ .., m, n]) = (a.dims(), b.dims(), y.dims()) else {
        return Err(Error::Rank { input: 0 });
    };
    let (m, n, k) = (*m as usize, *n as usize, *k as usize);
    let is_empty = k == 0 || y.data.is_empty();
    let Some(set) = set.filter(|_| transposed[0] == 0 && !is_empty) else { return portable(call, &I8) };
    let (a, b, result) = (a.slice::<i8>(), b.slice::<i8>(), call.output()?.slice_mut::<i8>());
    let multipliers = [multiplier.value, multiplier.exponent];
    let range = Range { zero_point: output.zero_point, least: output.least, greatest: output.greatest };
    scratch::with(n, |bias: &mut [i32]| {
        bias.fill(0);
        // The columns of b, if they are not lines of its memory.
        scratch::with(if transposed[1] == 0 { k * n } else { 0 }, |columns: &mut [i8]| {
            let mut last = None;
            for (index, result) in result.chunks_exact_mut(m * n).enumerate() {
                let lines = &a[position(index, batch, a_batch) * m * k..][..m * k];
                let at = position(index, batch, b_batch);
                let b = &b[at * k * n..][..k * n];
                if last.replace(at) != Some(at) {
                    for (column, to) in columns.chunks_exact_mut(k).enumerate() {
                        to.iter_mut().zip(b[column..].iter().step_by(n)).for_each(|(to, &from)| *to = from);
                    }
                }
                let filters = if columns.is_empty() { b } else { &*columns };
                Product { lines, filters, k, zero_points, bias, multipliers: &multipliers, once: false, range }.run(set, result);
            }
        });
    });
    Ok(())
}
