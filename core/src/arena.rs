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
        let mut rest = arena;
        if let [(start, bytes)] = *outputs {
            let (before, tail) = rest.split_at_mut_checked(start)?;
            let (output, after) = tail.split_at_mut_checked(bytes)?;
            split.gaps[0] = (0, before);
            split.gaps[1] = (start + bytes, after);
            split.outputs[0] = output;
            return Some(split);
        }
        // From the last output to the first, so that what remains always begins at 0.
        let mut limit = usize::MAX;
        for slot in 0..outputs.len() {
            let below = |&(_, (start, _)): &(usize, &(usize, usize))| *start < limit;
            let (index, &(start, bytes)) = outputs.iter().enumerate().filter(below).max_by_key(|(_, (start, _))| *start)?;
            limit = start;
            let (before, tail) = rest.split_at_mut_checked(start)?;
            let (output, after) = tail.split_at_mut_checked(bytes)?;
            *split.gaps.get_mut(slot + 1)? = (start + bytes, after);
            *split.outputs.get_mut(index)? = output;
            rest = before;
        }
        split.gaps[0] = (0, rest);
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
