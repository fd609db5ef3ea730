//! The caller's memory: its alignment, and its division into what one instruction reads and writes.

use crate::op::MAX_OUTPUTS;

/// Puts bytes at a multiple of 16, as artifacts and arenas must be.
///
/// ```
/// static MODEL: gradlet_core::Aligned<[u8; 3]> = gradlet_core::Aligned(*b"GRD");
/// assert_eq!(MODEL.0.as_ptr() as usize % 16, 0);
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Aligned<T: ?Sized>(pub T);

/// An arena divided at the outputs of an instruction: they can be written while all that lies between them is read.
pub(crate) struct Split<'a> {
    gaps: [(usize, &'a [u8]); MAX_OUTPUTS + 1],
    outputs: [&'a mut [u8]; MAX_OUTPUTS],
}

impl<'a> Split<'a> {
    /// Divides `arena` at `outputs`, given as (start, bytes). `None` where they overlap or pass the end.
    #[inline]
    pub(crate) fn new(arena: &'a mut [u8], outputs: &[(usize, usize)]) -> Option<Split<'a>> {
        let mut split = Split { gaps: [(0, &[]); MAX_OUTPUTS + 1], outputs: [&mut [], &mut [], &mut []] };
        let mut taken = [false; MAX_OUTPUTS];
        let (mut rest, mut from) = (arena, 0);
        for gap in 0..=outputs.len() {
            // The next output from the left; of two at one place, an empty one comes first.
            let mut next: Option<(usize, usize, usize)> = None;
            for (index, &(start, bytes)) in outputs.iter().enumerate() {
                let first = next.is_none_or(|(_, other, others)| (start, bytes) < (other, others));
                if !*taken.get(index)? && first {
                    next = Some((index, start, bytes));
                }
            }
            let Some((index, start, bytes)) = next else {
                *split.gaps.get_mut(gap)? = (from, rest);
                break;
            };
            *taken.get_mut(index)? = true;
            let (before, tail) = rest.split_at_mut_checked(start.checked_sub(from)?)?;
            let (output, after) = tail.split_at_mut_checked(bytes)?;
            *split.gaps.get_mut(gap)? = (from, before);
            *split.outputs.get_mut(index)? = output;
            (rest, from) = (after, start + bytes);
        }
        Some(split)
    }

    /// The bytes at `start`, if no output shares them.
    #[inline]
    pub(crate) fn read(&self, start: usize, bytes: usize) -> Option<&'a [u8]> {
        self.gaps.iter().find_map(|&(from, gap)| gap.get(start.checked_sub(from)?..)?.get(..bytes))
    }

    /// The outputs, in the order in which they were given.
    #[inline]
    pub(crate) fn outputs(self) -> [&'a mut [u8]; MAX_OUTPUTS] {
        self.outputs
    }
}
