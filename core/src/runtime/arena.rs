//! The caller's memory: its alignment, where tensors are in it, and its division into what one instruction reads and
//! writes.

use crate::base::op::MAX_OUTPUTS;
use crate::base::view::TensorView;
use crate::runtime::program::{NONE, Program, Space, TensorRecord};
use heapless::Vec;

/// Puts bytes at a multiple of 16, as artifacts and arenas must be.
///
/// ```
/// static MODEL: gradlet_core::Aligned<[u8; 3]> = gradlet_core::Aligned(*b"GRD");
/// assert_eq!(MODEL.0.as_ptr() as usize % 16, 0);
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Aligned<T: ?Sized>(pub T);

/// Where the bytes of a tensor are.
pub(crate) enum Bytes<'a> {
    Flash(&'a [u8]),
    /// From where in memory, and how many.
    Memory(usize, usize),
}

/// What says where each tensor is.
pub(crate) struct Tables<'p, 'm> {
    pub(crate) program: &'p Program<'p>,
    /// Where each variable is in memory; [`NONE`] if it is in flash.
    pub(crate) offsets: &'m mut [u32],
}

impl<'p> Tables<'p, '_> {
    /// Where a variable is in memory; [`NONE`] if it is in flash.
    #[inline]
    pub(crate) fn offset(&self, variable: u32) -> u32 {
        self.offsets.get(variable as usize).copied().unwrap_or(NONE)
    }

    /// True and where in memory a tensor is, or false and where in flash.
    #[inline(always)]
    fn find(&self, record: &TensorRecord) -> (bool, usize) {
        let (in_memory, at) = match record.space {
            Space::SCRATCH => (true, record.location),
            Space::FLASH => (false, record.location),
            _ => match self.offset(record.location) {
                NONE => (false, self.program.variables.get(record.location as usize).map_or(NONE, |variable| variable.initial)),
                offset => (true, offset),
            },
        };
        (in_memory, at as usize)
    }

    /// Where the bytes of a tensor are.
    #[inline(never)]
    pub(crate) fn of(&self, record: &TensorRecord) -> Option<Bytes<'p>> {
        let bytes = record.bytes as usize;
        match self.find(record) {
            (true, at) => Some(Bytes::Memory(at, bytes)),
            (false, at) => Some(Bytes::Flash(part(self.program.data, at, bytes)?)),
        }
    }
}

/// The memory around the only output of an instruction. Made for speed: every node of a program passes here.
pub(crate) struct Around<'a> {
    places: &'a Tables<'a, 'a>,
    before: &'a [u8],
    /// Where the output ends.
    end: usize,
    after: &'a [u8],
}

impl<'a> Around<'a> {
    /// Divides `memory` into the bytes of `output` and what is around them.
    #[inline(always)]
    pub(crate) fn split(places: &'a Tables<'a, 'a>, memory: &'a mut [u8], output: &TensorRecord) -> Option<(&'a mut [u8], Around<'a>)> {
        let start = if output.space == Space::SCRATCH { output.location } else { places.offset(output.location) } as usize;
        let (before, rest) = memory.split_at_mut_checked(start)?;
        let (data, after) = rest.split_at_mut_checked(output.bytes as usize)?;
        let end = start + data.len();
        Some((data, Around { places, before, end, after }))
    }

    /// All of `memory`: there is no output in it.
    #[inline(always)]
    pub(crate) fn whole(places: &'a Tables<'a, 'a>, memory: &'a [u8]) -> Around<'a> {
        Around { places, before: memory, end: memory.len(), after: &[] }
    }

    /// Sets `view` to the tensor number `operand`, unless that is the output, number `written`, which it shows already.
    #[inline(always)]
    pub(crate) fn input(&self, operand: u16, written: u16, view: &mut TensorView<'a>) {
        if operand != written {
            self.read(operand.into(), view);
        }
    }

    /// Sets `view` to the tensor number `operand`.
    #[inline(never)]
    fn read(&self, operand: usize, view: &mut TensorView<'a>) {
        let program = self.places.program;
        let Some(record) = program.tensors.get(operand) else { return };
        if let Some(tensor_type) = program.types.get(usize::from(record.tensor_type)) {
            view.tensor_type = tensor_type;
        }
        let (in_memory, at) = self.places.find(record);
        let bytes = record.bytes as usize;
        view.data = if in_memory { self.memory(at, bytes) } else { part(program.data, at, bytes) };
    }

    /// The `bytes` at `at`. `None` of an input that shares the output's place: it passes the end of what lies before.
    #[inline(always)]
    fn memory(&self, at: usize, bytes: usize) -> Option<&'a [u8]> {
        let start = self.before.len();
        if at <= start { part(self.before, at, bytes) } else { part(self.after, at.wrapping_sub(self.end), bytes) }
    }
}

/// The memory around any number of outputs.
pub(crate) struct Pieces<'a> {
    /// What was not taken, each piece with the position where it starts.
    rest: Vec<(usize, &'a mut [u8]), { MAX_OUTPUTS + 1 }>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(memory: &'a mut [u8]) -> Pieces<'a> {
        let mut rest = Vec::new();
        let _ = rest.push((0, memory));
        Pieces { rest }
    }

    /// Takes the `bytes` at `start`, to be written. `None` where they were taken before, or pass the end.
    pub(crate) fn take(&mut self, start: usize, bytes: usize) -> Option<&'a mut [u8]> {
        let holds = |(from, piece): &&mut (usize, &'a mut [u8])| part(piece, start.wrapping_sub(*from), bytes).is_some();
        let (from, piece) = self.rest.iter_mut().find(holds)?;
        let (before, tail) = core::mem::take(piece).split_at_mut_checked(start - *from)?;
        let (taken, after) = tail.split_at_mut_checked(bytes)?;
        *piece = before;
        self.rest.push((start + bytes, after)).ok()?;
        Some(taken)
    }

    /// The `bytes` at `start`, unless they were taken.
    pub(crate) fn read(&self, start: usize, bytes: usize) -> Option<&[u8]> {
        self.rest.iter().find_map(|(from, piece)| part(piece, start.wrapping_sub(*from), bytes))
    }
}

/// The `count` elements from `first`.
#[inline(always)]
pub(crate) fn part<T>(table: &[T], first: usize, count: usize) -> Option<&[T]> {
    table.get(first..)?.get(..count)
}
