//! The operands of an op with two inputs, after broadcasting.

use super::elementwise::{ALONE, BLOCK};
use crate::simd::vectorized;
use crate::team;
use gradlet_core::tensor::Element;

/// Number of elements of a short row. Such rows are repeated, so that the inner loop is long.
const SHORT: usize = 64;

/// Elements of an operand that are spread over the result: each one is used for `run` neighbours, and all of them again and again.
pub(super) struct Spread<'a, T: Element> {
    elements: &'a [T],
    run: usize,
}

impl<'a, T: Element> Spread<'a, T> {
    /// Returns the elements of an operand of dimensions `own`, spread over a result of dimensions `dims`. Returns `None` for other kinds of
    /// broadcasting, if there are no elements, and for an operand that shares the output's memory.
    pub(super) fn new(elements: &'a [T], own: &[u32], dims: &[u32]) -> Option<Spread<'a, T>> {
        let count = |dims: &[u32]| dims.iter().map(|&dim| dim as usize).product::<usize>();
        // The axes between the outer and the inner ones of one element must be those of the result.
        let [outer, inner] = [own.iter().take_while(|&&dim| dim == 1).count(), own.iter().rev().take_while(|&&dim| dim == 1).count()];
        let core = own.get(outer..own.len() - inner).unwrap_or_default();
        let end = if core.is_empty() { 0 } else { dims.len() - inner };
        let run = count(&dims[end..]);
        if dims[..end].iter().rev().zip(core.iter().rev()).any(|(dim, own)| dim != own)
            || elements.is_empty()
            || elements.len() != count(core)
        {
            return None;
        }
        Some(Spread { elements, run })
    }

    /// Writes `f(whole, element)` to `to` for each position. `whole` is empty if its elements are in `to`.
    #[inline(always)]
    pub(super) fn apply(self, whole: &[T], to: &mut [T], f: impl Fn(T, T) -> T + Copy + Sync) {
        let (run, parallel) = (self.run, to.len() >= ALONE);
        let several;
        let elements = if run == 1 && self.elements.len() < SHORT && to.len() > SHORT {
            several = repeated(self.elements);
            &several[..2 * SHORT / self.elements.len() * self.elements.len()]
        } else {
            self.elements
        };
        // Each block begins with the first use of an element, and in rows with the first element of a row.
        let period = if run == 1 { elements.len() } else { run };
        let single = period >= to.len();
        let block = if single { BLOCK } else { BLOCK.next_multiple_of(period) };
        team::each(parallel, to.chunks_mut(block).enumerate(), |(index, to)| {
            let at = index * block;
            vectorized!({
                if let Some(whole) = whole.get(at..at + to.len()) {
                    to.copy_from_slice(whole);
                }
                if run == 1 {
                    let row = if single { elements.get(at..).unwrap_or_default() } else { elements };
                    for to in to.chunks_mut(row.len().max(1)) {
                        for (x, &y) in to.iter_mut().zip(row) {
                            *x = f(*x, y);
                        }
                    }
                } else {
                    let uses = elements.iter().cycle().skip(at / run % elements.len());
                    for (to, &y) in to.chunks_mut(run).zip(uses) {
                        for x in to {
                            *x = f(*x, y);
                        }
                    }
                }
            });
        });
    }
}

/// Returns a short row, again and again.
fn repeated<T: Element>(row: &[T]) -> [T; 2 * SHORT] {
    let mut several = [T::zeroed(); 2 * SHORT];
    several.chunks_mut(row.len().max(1)).for_each(|to| to.iter_mut().zip(row).for_each(|(to, &from)| *to = from));
    several
}

/// Rows of a result. In a row, each of two operands has neighbours, or one element again and again.
pub(super) struct Rows {
    /// The axes around the rows, outermost first: the dimension, and the distance of neighbours in each operand.
    axes: Vec<[usize; 3]>,
    /// The row.
    row: [usize; 3],
}

impl Rows {
    /// Divides a result of dimensions `dims` into rows, for operands of dimensions `own`.
    pub(super) fn new(dims: &[u32], own: [&[u32]; 2]) -> Rows {
        let mut strides = [1; 2];
        let mut axes: Vec<[usize; 3]> = Vec::new();
        for (axis, &dim) in dims.iter().rev().enumerate().filter(|(_, dim)| **dim != 1) {
            let mut stride = [0; 2];
            for (operand, own) in own.iter().enumerate() {
                if let Some(&dim) = own.iter().rev().nth(axis).filter(|&&dim| dim != 1) {
                    stride[operand] = strides[operand];
                    strides[operand] *= dim as usize;
                }
            }
            let dim = dim as usize;
            match axes.last_mut() {
                // The elements of this axis follow those of the axis within it, in both operands.
                Some([inner, a, b]) if [*a * *inner, *b * *inner] == stride => *inner *= dim,
                _ => axes.push([dim, stride[0], stride[1]]),
            }
        }
        axes.reverse();
        let row = axes.pop().unwrap_or([1, 0, 0]);
        Rows { axes, row }
    }

    /// Returns the position of the first element of row `index` in each operand.
    fn start(&self, mut index: usize) -> [usize; 2] {
        let mut at = [0; 2];
        for &[dim, a, b] in self.axes.iter().rev() {
            at = [at[0] + index % dim * a, at[1] + index % dim * b];
            index /= dim;
        }
        at
    }

    /// Writes `f(a, b)` to `to` for each position. The first operand is empty if its elements are in `to`.
    #[inline(always)]
    pub(super) fn apply<T: Element>(&self, [a, b]: [&[T]; 2], to: &mut [T], f: impl Fn(T, T) -> T + Copy + Sync) {
        let [length, a_step, b_step] = self.row;
        let count = BLOCK.div_ceil(length.max(1));
        team::each(to.len() >= ALONE, to.chunks_mut((count * length).max(1)).enumerate(), |(block, to)| {
            vectorized!({
                for (to, index) in to.chunks_mut(length.max(1)).zip(block * count..) {
                    let [at, from] = self.start(index);
                    match a.get(at..) {
                        None | Some([]) => {}
                        Some(a) if a_step == 1 => to.copy_from_slice(&a[..to.len()]),
                        Some(a) => to.fill(a[0]),
                    }
                    match b.get(from..) {
                        None | Some([]) => {}
                        Some(b) if b_step == 1 => {
                            for (y, &b) in to.iter_mut().zip(b) {
                                *y = f(*y, b);
                            }
                        }
                        Some(&[b, ..]) => {
                            for y in to {
                                *y = f(*y, b);
                            }
                        }
                    }
                }
            });
        });
    }
}
