//! Division into rows of kernels that work in two stages, such as filling the output and then adding to it.

use crate::base::op::{Call, NONE};
use core::ops::Range;

/// Asks for the rows of a kernel with two stages of `first` and `second` units. `costs` are the instructions for a unit of each stage.
/// Returns the units of each stage that this call does: those of the second stage only after all of the first.
///
/// A row is one unit of the stage with the more expensive units, or so many units of the other stage that they cost about the same.
#[inline(never)]
pub(in crate::ops) fn stages(call: &mut Call<'_, '_>, [first, second]: [usize; 2], costs: [usize; 2]) -> [Range<usize>; 2] {
    if call.slice.least == NONE {
        return [0..first, 0..second];
    }
    let (a, b) = (costs[0].max(1), costs[1].max(1));
    let cost = a.max(b);
    let (a, b) = ((cost / a).max(1), (cost / b).max(1));
    let before = first.div_ceil(a);
    let rows = call.rows(before + second.div_ceil(b), cost);
    let (start, end) = (rows.start.saturating_sub(before), rows.end.saturating_sub(before));
    [first.min(rows.start * a)..first.min(rows.end * a), second.min(start * b)..second.min(end * b)]
}
