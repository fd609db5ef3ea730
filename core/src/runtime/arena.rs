//! The caller's memory: its alignment, the locations of tensors in it, and how it is split into the bytes that one instruction reads and
//! writes.

use crate::base::op::MAX_OUTPUTS;
use crate::base::shape::TensorType;
use crate::base::view::TensorView;
use crate::runtime::program::{NONE, Program, Space, TensorRecord};

/// Aligns its content to a multiple of 16 bytes, as artifacts and arenas require.
///
/// ```
/// static MODEL: gradlet_core::runtime::Aligned<[u8; 3]> = gradlet_core::runtime::Aligned(*b"GRD");
/// assert_eq!(MODEL.0.as_ptr() as usize % 16, 0);
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Aligned<T: ?Sized>(pub T);

/// Address of the first variable. An address below is an offset in scratch memory.
pub(crate) const VARIABLES: usize = 1 << 31;

/// Scratch memory and variables, with one range of addresses.
pub(crate) struct Memory<'m> {
    pub(crate) scratch: &'m mut [u8],
    pub(crate) variables: &'m mut [u8],
}

impl Memory<'_> {
    /// Returns the `bytes` bytes at `address`, or `None` if they reach past the end.
    pub(crate) fn get(&self, address: usize, bytes: usize) -> Option<&[u8]> {
        match address.checked_sub(VARIABLES) {
            None => part(self.scratch, address, bytes),
            Some(at) => part(self.variables, at, bytes),
        }
    }

    /// Returns the `bytes` bytes at `address` for writing, or `None` if they reach past the end.
    #[inline(never)]
    pub(crate) fn get_mut(&mut self, address: usize, bytes: usize) -> Option<&mut [u8]> {
        let (memory, at) = match address.checked_sub(VARIABLES) {
            None => (&mut *self.scratch, address),
            Some(at) => (&mut *self.variables, at),
        };
        memory.get_mut(at..)?.get_mut(..bytes)
    }
}

/// The location of a tensor's bytes.
pub(crate) enum Bytes<'a> {
    Flash(&'a [u8]),
    /// Address in [`Memory`] and length, in bytes.
    Memory(usize, usize),
}

/// The tables that locate every tensor.
pub(crate) struct Tables<'p, 'm> {
    pub(crate) program: &'p Program<'p>,
    /// Address of each variable in [`Memory`]; [`NONE`] for a variable in flash.
    pub(crate) offsets: &'m mut [u32],
}

impl<'p> Tables<'p, '_> {
    /// Returns the address of a variable; [`NONE`] for a variable in flash.
    #[inline]
    pub(crate) fn offset(&self, variable: u32) -> u32 {
        self.offsets.get(variable as usize).copied().unwrap_or(NONE)
    }

    /// Returns true for a tensor in memory or false for one in flash, and the tensor's offset there.
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

    /// Returns the type of tensor `index` and the location of its bytes, or `None` if they would reach past the end of flash.
    #[inline(never)]
    pub(crate) fn of(&self, index: usize) -> Option<(&'p TensorType, Bytes<'p>)> {
        let record = self.program.tensors.get(index)?;
        let bytes = record.bytes as usize;
        let place = match self.find(record) {
            (true, at) => Bytes::Memory(at, bytes),
            (false, at) => Bytes::Flash(part(self.program.data, at, bytes)?),
        };
        Some((self.program.tensor_type(record), place))
    }
}

/// The memory around the only output of an instruction. This type is optimized for speed, because nearly every instruction uses it.
pub(crate) struct Around<'a> {
    places: &'a Tables<'a, 'a>,
    /// First address of the memory that holds the output: 0 or [`VARIABLES`].
    base: usize,
    before: &'a [u8],
    /// Offset of the output's end in its memory, where `after` begins.
    end: usize,
    after: &'a [u8],
    /// The memory that does not hold the output.
    other: &'a [u8],
}

impl<'a> Around<'a> {
    /// Splits `memory` into the bytes of `output` and the bytes around them. `base` is the first address of the memory that holds it.
    /// Returns `None` if `output` reaches past the end.
    #[inline(always)]
    pub(crate) fn split(
        places: &'a Tables<'a, 'a>,
        memory: &'a mut Memory<'_>,
        base: usize,
        output: &TensorRecord,
    ) -> Option<(&'a mut [u8], Around<'a>)> {
        let Memory { scratch, variables } = memory;
        let (start, own, other) = match base {
            VARIABLES => (places.offset(output.location) as usize ^ VARIABLES, &mut **variables, &**scratch),
            _ => (output.location as usize, &mut **scratch, &**variables),
        };
        let (before, rest) = own.split_at_mut_checked(start)?;
        let (data, after) = rest.split_at_mut_checked(output.bytes as usize)?;
        let end = start + data.len();
        Some((data, Around { places, base, before, end, after, other }))
    }

    /// Makes all of `memory` readable, for an instruction without an output.
    #[inline(always)]
    pub(crate) fn whole(places: &'a Tables<'a, 'a>, memory: &'a Memory<'_>) -> Around<'a> {
        Around { places, base: 0, before: memory.scratch, end: memory.scratch.len(), after: &[], other: memory.variables }
    }

    /// Sets `view` to tensor `operand`, unless that is the output `written`, which `view` already shows.
    #[inline(always)]
    pub(crate) fn input(&self, operand: u16, written: u16, view: &mut TensorView<'a>) {
        if operand != written {
            self.read(operand.into(), view);
        }
    }

    /// Sets `view` to tensor `operand`.
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

    /// Returns the `bytes` bytes at `address`, or `None` for an input that shares the output's location. Such an input begins before the
    /// output's end but reaches past the memory before the output.
    #[inline(always)]
    fn memory(&self, address: usize, bytes: usize) -> Option<&'a [u8]> {
        let at = address ^ self.base;
        let (piece, from) = match at {
            VARIABLES.. => (self.other, VARIABLES),
            _ if at <= self.before.len() => (self.before, 0),
            _ => (self.after, self.end),
        };
        part(piece, at.wrapping_sub(from), bytes)
    }
}

/// The memory around any number of outputs.
pub(crate) struct Pieces<'a> {
    /// The pieces of memory that no output has taken, each with the address of its start. An output divides one of them.
    rest: [(usize, &'a mut [u8]); MAX_OUTPUTS + 2],
    count: usize,
}

impl<'a> Pieces<'a> {
    #[inline(always)]
    pub(crate) fn new(memory: &'a mut Memory<'_>) -> Pieces<'a> {
        let Memory { scratch, variables } = memory;
        Pieces { rest: [(0, scratch), (VARIABLES, variables), (0, &mut []), (0, &mut []), (0, &mut [])], count: 2 }
    }

    /// Takes the `bytes` bytes at address `start` for an output. Returns `None` if some of them were taken before or reach past the end.
    pub(crate) fn take(&mut self, start: usize, bytes: usize) -> Option<&'a mut [u8]> {
        let (used, free) = self.rest.split_at_mut_checked(self.count)?;
        let holds = |(from, piece): &&mut (usize, &'a mut [u8])| part(piece, start.wrapping_sub(*from), bytes).is_some();
        let (from, piece) = used.iter_mut().find(holds)?;
        let (before, tail) = core::mem::take(piece).split_at_mut_checked(start - *from)?;
        let (taken, after) = tail.split_at_mut_checked(bytes)?;
        *piece = before;
        *free.first_mut()? = (start + bytes, after);
        self.count += 1;
        Some(taken)
    }

    /// Returns the `bytes` bytes at address `start`, or `None` if an output has taken some of them or they reach past the end.
    pub(crate) fn read(&self, start: usize, bytes: usize) -> Option<&[u8]> {
        let used = self.rest.get(..self.count)?;
        used.iter().find_map(|(from, piece)| part(piece, start.wrapping_sub(*from), bytes))
    }
}

/// Returns the `count` elements from `first` on, or `None` if they reach past the end.
#[inline(always)]
pub(crate) fn part<T>(table: &[T], first: usize, count: usize) -> Option<&[T]> {
    table.get(first..)?.get(..count)
}
